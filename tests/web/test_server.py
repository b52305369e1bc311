"""The page's server: its data, its protection against other sites, and its address."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from http.client import HTTPConnection
from queue import Queue
from typing import Any
from urllib.parse import urlsplit

import pytest

from sunshower import Counter, Topology
from sunshower.cli.statistics import status_fields
from sunshower.cli.traces.facts import traces_fields
from sunshower.cli.ui.application import HEADERS, is_own_host, served_page
from sunshower.cli.ui.source import TopologySource
from sunshower.errors import ClusterError, ConfigError
from sunshower.runtime.events.trace_recorder import Traces
from sunshower.texts import json_of
from tests.web.conftest import TOKEN, ask
from tests.web.prepared import HOSTILE, HostileSource, Prepared, PreparedSource, huge, quiet, shop
from tests.web.prepared_trees import FAILED_ROOT

ACTION = json.dumps({"name": "web-shop", "action": "deactivate"})


# ---- data ---------------------------------------------------------------------------------------


def test_the_page_has_the_data_of_status_without_the_tasks(
    url: str, source: PreparedSource
) -> None:
    fields = ask(url, "/api/topology?name=web-shop").json
    overview = source.prepared["web-shop"].overview(source.now_s)
    expected = json.loads(json.dumps(status_fields(overview, fields["up_s"])))
    for worker in expected["workers"]:
        worker["tasks"] = len(worker["tasks"])
    for id, component in expected["components"].items():
        del component["tasks"], component["windows"], fields["components"][id]["tasks"]
        assert fields["components"][id].items() >= component.items()
    del expected["components"], fields["components"]
    assert fields.items() >= expected.items()


def test_a_component_has_its_tasks_and_its_errors(url: str) -> None:
    fields = ask(url, "/api/component?name=web-shop&component=store").json
    assert [task["task"] for task in fields["tasks"]] == [0, 1]
    assert fields["tasks"][0]["waits"]
    assert "OperationalError" in fields["errors"][0]["error"]
    assert fields["errors"][0]["traceback"].startswith("Traceback")


def test_the_list_has_a_summary_of_each_topology(url: str) -> None:
    fields = ask(url, "/api/topologies").json
    assert [topology["topology"] for topology in fields["topologies"]] == [
        "batches",
        "late",
        "quiet",
        "web-shop",
    ]
    assert fields["topologies"][3]["marks"] == ["waiting"]


def test_a_tree_is_the_json_of_trace(url: str, source: PreparedSource) -> None:
    answer = ask(url, f"/api/trace?name=web-shop&root={FAILED_ROOT}")
    recorded = source.prepared["web-shop"].traces
    assert answer.text == json_of(traces_fields(recorded, recorded.failed))
    (tree,) = answer.json["trees"]
    assert (tree["root"], tree["cause"], len(tree["hops"])) == (FAILED_ROOT, "exception", 5)
    assert tree["latency_s"] == pytest.approx(0.0312, abs=1e-6)


def test_lists_of_trees_are_the_json_of_trace_with_the_number_of_edges(
    url: str, source: PreparedSource
) -> None:
    fields = ask(url, "/api/traces?name=web-shop").json
    assert fields["counts"] == {"failed": 1, "slowest": 61, "latest": 62}
    recorded = source.prepared["web-shop"].traces
    for kind, trees in (("failed", recorded.failed), ("slowest", recorded.slowest),
                        ("latest", recorded.trees)):  # fmt: skip
        expected = json.loads(json_of(traces_fields(recorded, trees[:50])))["trees"]
        for tree in expected:
            tree["edges"] = len(tree.pop("hops"))
        assert fields["lists"][kind] == expected
    assert fields["lists"]["slowest"][0]["attempt"] == 2
    assert fields["missing"] == []


def test_a_hostile_record_is_sent_as_json() -> None:
    with served_page(HostileSource(), TOKEN, port=0) as url:
        answer = ask(url, f"/api/trace?name=any&root={FAILED_ROOT}")
        assert answer.headers["content-type"] == "application/json"
        assert answer.json["trees"][0]["hops"][0]["record"] == HOSTILE


def test_empty_lists_of_trees_have_a_reason() -> None:
    untracked = Topology("untracked", ackers=0)
    untracked.spout("numbers", Counter(1))
    unshared = Topology("unshared", trace_share=0)
    unshared.spout("numbers", Counter(1))
    others = [Prepared(topology, {}) for topology in (untracked, unshared)]
    with served_page(PreparedSource(quiet(), *others), TOKEN, port=0) as url:
        for name, why in (("quiet", "No tree is recorded yet"), ("untracked", "ackers=0"),
                          ("unshared", "trace_share=0")):  # fmt: skip
            fields = ask(url, f"/api/traces?name={name}").json
            assert why in fields["none"]["latest"]
            assert why in fields["none"]["failed"]


def test_a_silent_worker_is_named_and_no_answer_at_all_is_an_error(
    source: PreparedSource, url: str
) -> None:
    shown = source.prepared["web-shop"]
    source.prepared["web-shop"] = replace(shown, traces=replace(shown.traces, silent=(3,)))
    assert "worker 3 does not answer" in ask(url, "/api/traces?name=web-shop").json["missing"][0]
    source.prepared["web-shop"] = replace(shown, traces=Traces((), (0, 1, 2, 3)))
    answer = ask(url, "/api/traces?name=web-shop")
    assert (answer.status, "no worker of 'web-shop' answers" in answer.json["error"]) == (404, True)
    answer = ask(url, f"/api/trace?name=web-shop&root={FAILED_ROOT}")
    assert "worker 0 does not answer" in answer.json["error"]


@pytest.mark.parametrize(
    ("root", "why"),
    [("0001000001ffffff", "0001000001ffffff"), ("x" * 9, "is not a valid root of a tree")],
)
def test_an_unknown_root_is_refused(url: str, root: str, why: str) -> None:
    answer = ask(url, f"/api/trace?name=web-shop&root={root}")
    assert answer.status == 404
    assert why in answer.json["error"]


@pytest.mark.parametrize("path", ["/api/topology?name=none", "/api/traces?name=none",
                                  "/api/trace?name=none&root=1",
                                  "/api/component?name=none&component=a",
                                  "/api/component?name=web-shop&component=none"])  # fmt: skip
def test_an_unknown_topology_or_component_is_named(url: str, path: str) -> None:
    answer = ask(url, path)
    assert answer.status == 404
    assert "'none'" in answer.json["error"]


def test_a_missing_parameter_is_named(url: str) -> None:
    answer = ask(url, "/api/component?name=web-shop")
    assert answer.status == 400
    assert "name, component" in answer.json["error"]


def test_data_of_five_thousand_tasks_are_small() -> None:
    with served_page(PreparedSource(huge()), TOKEN, port=0) as url:
        assert len(ask(url, "/api/topology?name=huge").text) < 200_000


def test_an_overview_serves_all_pages_for_half_a_second() -> None:
    source = PreparedSource(shop())
    looks = []
    look = source._look._look
    source._look._look = lambda name: (looks.append(name), look(name))[1]
    source._look._clock = lambda: 100.0
    for _ in range(5):
        source.topology("web-shop")
    assert looks == ["web-shop"]
    source._look._clock = lambda: 100.5
    source.topology("web-shop")
    assert len(looks) == 2


class _Looked(TopologySource):
    """Puts the names of the overviews that are taken into a queue."""

    def __init__(self, *names: str) -> None:
        prepared = PreparedSource(quiet(), shop())
        self.names, self.looked = list(names), Queue[str]()
        self.takes = prepared._overview
        super().__init__(lambda: self.names, self._taken, lambda: 0.0)

    def _taken(self, name: str) -> Any:
        self.looked.put(name)
        return self.takes(name)


def test_a_page_that_opens_finds_what_it_will_ask_for() -> None:
    source = _Looked("quiet")
    with served_page(source, TOKEN, port=0) as url:
        assert ask(url).status == 200
        assert source.looked.get(timeout=60) == "quiet"  # the only one
        source.names.append("web-shop")
        ask(url, "/api/topology?name=web-shop")
        assert source.looked.get(timeout=60) == "web-shop"
        source._look.forget("web-shop")
        ask(url)
        assert source.looked.get(timeout=60) == "web-shop"  # the last one that was shown
        source._look.forget("web-shop")
        assert ask(url, sec_fetch_site="cross-site").status == 200
        source.names[:] = ["gone"]
        ask(url)
        assert source.looked.get(timeout=60) == "gone", "the other site has caused no look"
        assert ask(url).status == 200, "what it has raised is what the page will show"


# ---- protection ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/", "/static/app.js", "/api/topologies", "/api/traces", "/none", "/static/none"]
)
def test_every_answer_has_the_headers_and_no_cors(url: str, path: str) -> None:
    answer = ask(url, path, Origin="http://elsewhere.example")
    assert {name: answer.headers[name.lower()] for name in HEADERS} == HEADERS
    assert not [name for name in answer.headers if name.startswith("access-control")]
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["cache-control"] in {"no-store", "no-cache"}


def test_pages_of_other_sites_get_no_data(url: str) -> None:
    for site in ("cross-site", "same-site"):
        assert ask(url, "/api/topologies", Sec_Fetch_Site=site).status == 403
        assert ask(url, "/", Sec_Fetch_Site=site).status == 200, "a link leads to the page"
    assert ask(url, "/api/topologies", Sec_Fetch_Site="same-origin").status == 200


@pytest.mark.parametrize(
    "host", ["elsewhere.example", "elsewhere.example:8127", "", "localhost.evil"]
)
def test_a_foreign_host_header_is_refused(url: str, host: str) -> None:
    for path in ("/", "/api/topologies", "/api/traces?name=web-shop"):
        answer = ask(url, path, Host=host)
        assert answer.status == 400
        assert "web-shop" not in answer.text


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8127", "127.0.0.1:1", "[::1]:8127", "::1",
                                  "10.0.0.7:8127"])  # fmt: skip
def test_addresses_and_own_names_are_accepted(host: str) -> None:
    assert is_own_host(host, {"localhost"})


def test_without_the_token_nothing_is_done(url: str, source: PreparedSource) -> None:
    for headers in ({}, {"X_Sunshower_Token": "guessed"}, {"X_Sunshower_Token": ""},
                    {"Cookie": f"token={TOKEN}"}, {"X_Sunshower_Token": "é"}):  # fmt: skip
        answer = ask(url, "/api/action", "POST", ACTION, **headers)
        assert answer.status == 401
        assert "token" in answer.json["error"]
    assert source.acted == []


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS"])
def test_actions_need_a_post_request(url: str, source: PreparedSource, method: str) -> None:
    answer = ask(url, "/api/action", method, ACTION, X_Sunshower_Token=TOKEN)
    assert answer.status == 405
    assert source.acted == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "Expecting value"),
        ("[1]", "an action is such as"),
        ("[" * 2000 + "]" * 2000, "an action is such as"),
        ("{" + " " * 5000 + "}", "at most 4,096 bytes"),
        ('{"name": "web-shop", "action": "drain"}', "there is no action 'drain'"),
        ('{"name": "web-shop", "action": "__class__"}', "there is no action"),
        ('{"name": "web-shop", "action": "rebalance", "workers": true}', "a number from 1 up"),
        ('{"name": "web-shop", "action": "rebalance", "workers": 0}', "a number from 1 up"),
    ],
)
def test_wrong_actions_are_refused(
    url: str, source: PreparedSource, body: str, message: str
) -> None:
    answer = ask(url, "/api/action", "POST", body, X_Sunshower_Token=TOKEN)
    assert answer.status == 400
    assert message in answer.json["error"]
    assert source.acted == []


@pytest.mark.parametrize("number", ["9" * 5_000, "-1", "abc", "1.5", "1e3"])
@pytest.mark.parametrize("of", ["logs?after=", "consequences?action=rebalance&workers="])
def test_numbers_that_are_none_are_refused(url: str, of: str, number: str) -> None:
    answer = ask(url, f"/api/{of}{number}&name=web-shop")
    assert answer.status == 404
    assert "up, and not '" in answer.json["error"]
    assert len(answer.json["error"]) < 100
    assert ask(url, f"/api/{of}2&name=web-shop").status == 200


def test_consequences_are_of_actions_and_of_at_least_one_worker(url: str) -> None:
    place = "/api/consequences?name=web-shop&action="
    assert "from 1 up" in ask(url, f"{place}rebalance&workers=0").json["error"]
    assert "there is no action 'bogus'" in ask(url, f"{place}bogus").json["error"]
    assert ask(url, f"{place}activate").json == {"lines": []}


def test_the_error_of_a_failed_action_is_returned(url: str, source: PreparedSource) -> None:
    def refuse(name: str, action: str, workers: int | None) -> str:
        raise ClusterError("it is being rebalanced")

    source.act = refuse  # type: ignore[method-assign]
    answer = ask(url, "/api/action", "POST", ACTION, X_Sunshower_Token=TOKEN)
    assert (answer.status, answer.json) == (409, {"error": "it is being rebalanced"})


@pytest.mark.parametrize("path", ["/static/../application.py", "/static/%2e%2e/application.py",
                                  "/static/..%2fapplication.py"])  # fmt: skip
def test_only_files_of_the_page_are_served(url: str, path: str) -> None:
    assert ask(url, path).status == 404


# ---- address and connections --------------------------------------------------------------------


def test_an_answer_is_sent_at_once(source: PreparedSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """With Nagle's algorithm each answer would wait 40 ms for the browser's acknowledgement."""
    accepted: list[socket.socket] = []
    accept = socket.socket.accept

    def note(listener: socket.socket) -> Any:
        connection = accept(listener)
        accepted.append(connection[0])
        return connection

    monkeypatch.setattr(socket.socket, "accept", note)
    with served_page(source, TOKEN, port=0) as url:
        browser = HTTPConnection(urlsplit(url).netloc)
        browser.request("GET", "/")
        assert browser.getresponse().read()
        option = accepted[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        browser.close()
    assert option == 1


def test_the_server_listens_on_loopback_until_it_is_closed(source: PreparedSource) -> None:
    with served_page(source, TOKEN, port=0) as url:
        assert url.startswith("http://127.0.0.1:")
        assert ask(url).status == 200
    with pytest.raises(ConnectionRefusedError):
        ask(url)


def test_a_port_that_is_in_use_is_refused(source: PreparedSource) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(ConfigError, match=f"127.0.0.1, port {port}.*--port 0 takes a free one"),
            served_page(source, TOKEN, port=port),
        ):
            pass


def test_without_a_port_two_pages_can_be_open(source: PreparedSource) -> None:
    with served_page(source, TOKEN) as first, served_page(source, TOKEN) as second:
        assert first != second
        assert ask(first).status == ask(second).status == 200


def test_the_page_loads_nothing_from_elsewhere(url: str) -> None:
    text = ask(url).text
    for name in ("page.js", "style.css", "icon.svg"):
        assert f'"/static/{name}"' in text
        assert ask(url, f"/static/{name}").status == 200
    assert "http" not in text
    assert not [line for line in text.splitlines() if "<script" in line and "src=" not in line]
