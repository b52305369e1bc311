"""Tests of dead letters on the page of `sunshower ui`, on a real Ray: listed and replayed."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.cli.conftest import Command, Start, Write, read_until
from tests.cli.dead.test_dead_command import SHOP
from tests.cli.ui.test_ui_command import url_and_token
from tests.guarantee.deaths import until
from tests.web.conftest import ask

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster


@pytest.mark.ray
def test_letters_of_a_running_topology_are_listed_and_replayed_from_the_page(
    here: Command, ray_cluster: RayCluster, start: Start, write: Write, tmp_path: Path
) -> None:
    import ray

    here("submit", write(SHOP))
    address = ray.get_runtime_context().gcs_address
    process = start("ui", "--port", 0, "--address", address, PYTHONUNBUFFERED="1")
    url, token = url_and_token(read_until(process.stdout, "Ctrl-C ends"))
    until(lambda: ask(url, "/api/letters?name=shop").json["all"] >= 2)
    listed = ask(url, "/api/letters?name=shop").json
    assert listed["places"] == [str(tmp_path / "dead.jsonl")]
    # The waits before the second attempts are random: either letter may be the latest.
    assert sorted(letter["record"] for letter in listed["letters"]) == [
        "number: 1, shop: a",
        "number: 3, shop: a",
    ]
    times = [letter["time"] for letter in listed["letters"]]
    assert times == sorted(times, reverse=True)
    (tmp_path / "open1").touch()
    body = json.dumps({"name": "shop", "letters": {"cause": "exception", "component": "check"}})
    answer = ask(url, "/api/replay", "POST", body, X_Sunshower_Token=token)
    assert answer.json == {"said": "2 dead letters are being replayed"}
    until(lambda: not ask(url, "/api/replay?name=shop").json["running"])
    progress = ask(url, "/api/replay?name=shop").json
    assert progress == {"total": 2, "acked": 1, "dead_again": 1, "not_settled": 0, "errors": [],
                        "running": False}  # fmt: skip
    records = [json.loads(line)["number"] for line in (tmp_path / "out.jsonl").open()]
    assert sorted(records) == [0, 1, 2]
    listed = ask(url, "/api/letters?name=shop").json
    assert sorted(str(letter["replayed"]) for letter in listed["letters"]) == [
        "None", "acked", "dead letter",
    ]  # fmt: skip

    def spout() -> dict[str, Any]:
        sales = ask(url, "/api/topology?name=shop").json["components"]["sales"]
        return cast("dict[str, Any]", sales)

    until(lambda: spout()["acked"] >= 6)  # a replay is tracked and counted like any tuple
    assert (spout()["acked"], spout()["dead"]) == (6, 3)
    assert (
        "Replayed before, or second copies: 2 of 3 dead letters"
        in here("dead", "replay", "shop", tmp_path / "dead.jsonl").stdout
    )
    assert "shop is gone" in here("kill", "shop", "--wait", "0").stdout
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 0
