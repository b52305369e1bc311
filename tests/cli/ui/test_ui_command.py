"""Tests of `sunshower ui` and `sunshower run --ui`: their output, page, actions and end."""

from __future__ import annotations

import importlib.util
import json
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sunshower.cli.ui import command as ui_command
from sunshower.errors import ClusterError
from tests.cli.conftest import Command, PrintedBy, Start, Write, read_until
from tests.web.conftest import ask

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

NUMBERS = """
    def drop(number: Number) -> None: ...

    topology = Topology("numbers", trace_share=1)
    topology.spout("count", Counter({total})).shuffle().bolt("drop", drop, 2)
"""


def url_and_token(output: str) -> tuple[str, str]:
    (url,) = re.findall(r"The page is at (\S+)", output)
    (token,) = re.findall(r"need this token: (\S+)", output)
    return url, token


def without_times(traces: dict[str, Any]) -> tuple[dict[str, Any], list[float]]:
    """The JSON of `trace` without its times, and the times. A worker reads its system clock for
    each answer, so the times of two answers differ slightly."""
    times: list[float] = []
    for entry in [*traces["trees"], *(hop for tree in traces["trees"] for hop in tree["hops"])]:
        names = [name for name in entry if name.endswith("_s") and entry[name] is not None]
        times += [entry.pop(name) for name in names]
    return traces, times


def action(url: str, token: str, name: str) -> dict[str, str]:
    body = json.dumps({"name": "numbers", "action": name})
    response = ask(url, "/api/action", "POST", body, X_Sunshower_Token=token)
    assert response.status == 200, response.text
    answer: dict[str, str] = response.json
    return answer


@pytest.mark.parametrize("words", [("ui",), ("run", "--ui")])
def test_without_the_extra_the_command_says_how_to_install_it(
    words: tuple[str, ...], printed_by: PrintedBy, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [write(NUMBERS.format(total=10))] if words[0] == "run" else []
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    error_text = printed_by(*words, *files, status=1).err
    assert "starlette, which serves the page, is missing" in error_text
    assert "ui" in error_text.partition("is missing")[2]


def test_without_ray_the_page_shows_experiments_and_without_experiments_there_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(address: str, *, as_job: bool) -> RayCluster:
        raise ClusterError(f"no Ray at {address}")

    monkeypatch.setattr(ui_command, "connect", refuse)
    run = tmp_path / "kill-a-bolt/2026-01-31T12-00-00"
    with pytest.raises(ClusterError, match="no Ray at auto"):
        ui_command._topologies("auto", tmp_path, {}).__enter__()
    run.mkdir(parents=True)
    (run / "plan.json").write_text("{}")
    with ui_command._topologies("auto", tmp_path, {}) as (source, note):
        assert source.topologies() == []
        assert "No Ray runs on this machine" in note
        with pytest.raises(ClusterError, match="no Ray ran here"):
            source.topology("words")
    with pytest.raises(ClusterError, match="no Ray at elsewhere:6379"):  # a given address
        ui_command._topologies("elsewhere:6379", tmp_path, {}).__enter__()


@pytest.mark.ray
def test_the_page_of_a_cluster_equals_the_status_and_its_actions_work(
    here: Command, ray_cluster: RayCluster, start: Start, write: Write
) -> None:
    import ray

    here("submit", write(NUMBERS.format(total=500)))
    assert ray_cluster.find("numbers").wait(120)
    address = ray.get_runtime_context().gcs_address
    process = start("ui", "--port", 0, "--address", address, PYTHONUNBUFFERED="1")
    url, token = url_and_token(read_until(process.stdout, "Ctrl-C ends"))
    page = ask(url, "/api/topology?name=numbers").json
    status = json.loads(here("status", "numbers", "--json").stdout)
    for id, component in status["components"].items():
        for name in ("emitted", "executed", "acked", "failed", "latencies", "streams"):
            assert page["components"][id][name] == component[name]
    assert page["components"]["count"]["acked"] == 500
    assert [(edge["source"], edge["target"]) for edge in page["edges"]] == [("count", "drop")]
    assert page["state"] == "finished"
    trees = ask(url, "/api/traces?name=numbers").json["lists"]["latest"]
    traced = json.loads(here("trace", "numbers", "--json", "--limit", "50").stdout)["trees"]
    assert [tree["root"] for tree in trees] == [tree["root"] for tree in traced]
    root = trees[0]["root"]
    page_tree = without_times(ask(url, f"/api/trace?name=numbers&root={root}").json)
    tree = without_times(json.loads(here("trace", "numbers", root, "--json").stdout))
    assert page_tree[0] == tree[0]
    assert page_tree[1] == pytest.approx(tree[1], abs=0.5)
    assert "numbers is gone" in action(url, token, "kill")["said"]
    assert ask(url, "/api/topologies").json == {"topologies": []}
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 0


@pytest.mark.long
@pytest.mark.ray
def test_a_run_with_its_page_is_drained_from_there(start: Start, write: Write) -> None:
    path = write(NUMBERS.format(total=1_000_000_000))
    process = start("run", path, "--ui", PYTHONUNBUFFERED="1")
    url, token = url_and_token(read_until(process.stderr, "need this token: "))
    fields = ask(url, "/api/topology?name=numbers").json
    assert fields["actions"] == ["activate", "deactivate", "rebalance", "drain"]
    assert ask(url, "/api/topology?name=other").status == 404
    assert action(url, token, "drain")["said"] == "numbers finishes what is pending, and ends"
    errors = process.communicate(timeout=120)[1]
    assert process.returncode == 0, errors
    assert "acked" in errors
    with pytest.raises(ConnectionRefusedError):
        ask(url)
