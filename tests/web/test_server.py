"""The server of the page: its data are those of `status`, and it refuses what is foreign."""

from __future__ import annotations

import json
import socket

import pytest

from sunshower.cli.statistics.json_status import status_fields
from sunshower.errors import ClusterError, ConfigError
from sunshower.web.protection import HEADERS, is_own_host
from sunshower.web.server import served_page
from tests.web.conftest import TOKEN, ask
from tests.web.prepared import PreparedSource, huge, shop

ACTION = json.dumps({"name": "web-shop", "action": "deactivate"})


# ---- data ---------------------------------------------------------------------------------------


def test_the_page_has_the_data_of_status_but_the_names_of_tasks(
    url: str, source: PreparedSource
) -> None:
    found = ask(url, "/api/topology?name=web-shop").json
    overview = source.prepared["web-shop"].overview(source.now_s)
    expected = json.loads(json.dumps(status_fields(overview, found["up_s"])))
    for worker in expected["workers"]:
        worker["tasks"] = len(worker["tasks"])
    for id, component in expected["components"].items():
        del component["tasks"], found["components"][id]["tasks"]
        assert found["components"][id].items() >= component.items()
    del expected["components"], found["components"]
    assert found.items() >= expected.items()


def test_a_component_has_its_tasks_and_its_errors(url: str) -> None:
    found = ask(url, "/api/component?name=web-shop&component=store").json
    assert [task["task"] for task in found["tasks"]] == [0, 1]
    assert found["tasks"][0]["waits"]
    assert "OperationalError" in found["errors"][0]["error"]
    assert found["errors"][0]["traceback"].startswith("Traceback")


def test_the_list_has_a_summary_of_each_topology(url: str) -> None:
    found = ask(url, "/api/topologies").json
    assert [one["topology"] for one in found["topologies"]] == ["batches", "quiet", "web-shop"]
    assert found["topologies"][2]["marks"] == ["waiting"]


def test_open_batches_have_their_phases(url: str) -> None:
    (group,) = ask(url, "/api/topology?name=batches").json["batches"]
    assert [(one["txid"], one["phase"]) for one in group["open"]] == [
        (17, "committing"),
        (18, "processing"),
    ]
    assert (group["committed"], group["attempts_failed"]) == (16, 1)


@pytest.mark.parametrize("path", ["/api/topology?name=none", "/api/component?name=none&component=a",
                                  "/api/component?name=web-shop&component=none"])  # fmt: skip
def test_what_is_not_there_is_an_error_that_names_it(url: str, path: str) -> None:
    found = ask(url, path)
    assert found.status == 404
    assert "'none'" in found.json["error"]


def test_a_missing_parameter_is_named(url: str) -> None:
    found = ask(url, "/api/component?name=web-shop")
    assert found.status == 400
    assert "name, component" in found.json["error"]


def test_data_of_five_thousand_tasks_are_small() -> None:
    with served_page(PreparedSource(huge()), TOKEN, port=0) as url:
        assert len(ask(url, "/api/topology?name=huge").text) < 200_000


def test_one_look_serves_all_pages_within_half_a_second() -> None:
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


# ---- protection ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/", "/static/app.js", "/api/topologies", "/none", "/static/none"]
)
def test_every_answer_has_the_headers_and_no_cors(url: str, path: str) -> None:
    found = ask(url, path, Origin="http://elsewhere.example")
    assert {name: found.headers[name.lower()] for name in HEADERS} == HEADERS
    assert not [name for name in found.headers if name.startswith("access-control")]
    policy = found.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert found.headers["cache-control"] in {"no-store", "no-cache"}


@pytest.mark.parametrize(
    "host", ["elsewhere.example", "elsewhere.example:8127", "", "localhost.evil"]
)
def test_a_foreign_host_header_is_refused(url: str, host: str) -> None:
    for path in ("/", "/api/topologies"):
        found = ask(url, path, Host=host)
        assert found.status == 400
        assert "web-shop" not in found.text


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8127", "127.0.0.1:1", "[::1]:8127", "::1",
                                  "10.0.0.7:8127"])  # fmt: skip
def test_addresses_and_own_names_are_accepted(host: str) -> None:
    assert is_own_host(host, {"localhost"})


def test_without_the_token_nothing_is_done(url: str, source: PreparedSource) -> None:
    for headers in ({}, {"X_Sunshower_Token": "guessed"}, {"X_Sunshower_Token": ""},
                    {"Cookie": f"token={TOKEN}"}, {"X_Sunshower_Token": "é"}):  # fmt: skip
        found = ask(url, "/api/action", "POST", ACTION, **headers)
        assert found.status == 401
        assert "token" in found.json["error"]
    assert source.acted == []


def test_with_the_token_it_is_done(url: str, source: PreparedSource) -> None:
    found = ask(url, "/api/action", "POST", ACTION, X_Sunshower_Token=TOKEN)
    assert (found.status, found.json) == (200, {"said": "web-shop: deactivate"})
    assert source.acted == [("web-shop", "deactivate", None)]
    assert ask(url, "/api/topology?name=web-shop").json["state"] == "inactive"


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS"])
def test_actions_are_posts(url: str, source: PreparedSource, method: str) -> None:
    found = ask(url, "/api/action", method, ACTION, X_Sunshower_Token=TOKEN)
    assert found.status == 405
    assert source.acted == []


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("", "Expecting value"),
        ("[1]", "an action is such as"),
        ("[" * 4000, "an action is such as"),
        ("{" + " " * 5000 + "}", "at most 4,096 bytes"),
        ('{"name": "web-shop", "action": "drain"}', "there is no action 'drain'"),
        ('{"name": "web-shop", "action": "__class__"}', "there is no action"),
        ('{"name": "web-shop", "action": "rebalance", "workers": true}', "a number from 1 up"),
        ('{"name": "web-shop", "action": "rebalance", "workers": 0}', "a number from 1 up"),
    ],
)
def test_wrong_actions_are_refused(
    url: str, source: PreparedSource, body: str, complaint: str
) -> None:
    found = ask(url, "/api/action", "POST", body, X_Sunshower_Token=TOKEN)
    assert found.status == 400
    assert complaint in found.json["error"]
    assert source.acted == []


def test_an_action_that_fails_says_why(url: str, source: PreparedSource) -> None:
    def refuse(name: str, action: str, workers: int | None) -> str:
        raise ClusterError("it is being rebalanced")

    source.act = refuse  # type: ignore[method-assign]
    found = ask(url, "/api/action", "POST", ACTION, X_Sunshower_Token=TOKEN)
    assert (found.status, found.json) == (409, {"error": "it is being rebalanced"})


@pytest.mark.parametrize("path", ["/static/../application.py", "/static/%2e%2e/application.py",
                                  "/static/..%2fapplication.py"])  # fmt: skip
def test_only_files_of_the_page_are_served(url: str, path: str) -> None:
    assert ask(url, path).status == 404


# ---- where it listens ---------------------------------------------------------------------------


def test_it_listens_on_loopback_until_it_ends(source: PreparedSource) -> None:
    with served_page(source, TOKEN, port=0) as url:
        assert url.startswith("http://127.0.0.1:")
        assert ask(url).status == 200
    with pytest.raises(ConnectionRefusedError):
        ask(url)


def test_a_port_that_is_taken_is_refused_with_the_way_out(source: PreparedSource) -> None:
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
    for name in ("app.js", "style.css", "icon.svg"):
        assert f'"/static/{name}"' in text
        assert ask(url, f"/static/{name}").status == 200
    assert "http" not in text
    assert not [line for line in text.splitlines() if "<script" in line and "src=" not in line]
