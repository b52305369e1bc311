"""Tests of `sunshower metrics`: its address, its errors, and its end."""

from __future__ import annotations

import importlib.util
import json
import signal
import urllib.request
from typing import TYPE_CHECKING
from urllib.error import URLError

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sunshower.cli.metrics import served
from sunshower.errors import ConfigError
from sunshower.runtime.control.measures import Observed
from tests.cli.conftest import Command, PrintedBy, Start, Write, read_until

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=120) as answer:
        text: str = answer.read().decode()
    return text


def observe_one() -> list[Observed]:
    return [Observed("words", None)]


def test_it_listens_on_loopback_until_the_command_ends() -> None:
    with served(observe_one, "127.0.0.1", 0) as url:
        assert url.startswith("http://127.0.0.1:")
        assert 'sunshower_up{topology="words"} 0.0' in fetched(url)
        only = fetched(f"{url}?name[]=sunshower_up")
        assert "sunshower_up" in only
        assert "sunshower_tasks" not in only
    with pytest.raises(URLError):
        fetched(url)


def test_a_port_that_is_taken_is_refused_with_the_way_out() -> None:
    with served(observe_one, "127.0.0.1", 0) as url:
        port = int(url.split(":")[2].split("/")[0])
        with (
            pytest.raises(ConfigError, match=f"127.0.0.1, port {port}.*--port 0 takes a free one"),
            served(observe_one, "127.0.0.1", port),
        ):
            pass


def test_without_the_extra_the_command_says_how_to_install_it(
    printed_by: PrintedBy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    error_text = printed_by("metrics", status=1).err
    assert "prometheus_client, which serves the metrics, is missing" in error_text
    assert "metrics" in error_text.partition("is missing")[2]


@pytest.mark.ray
def test_metrics_equal_the_status_and_ctrl_c_ends_all_processes(
    here: Command, ray_cluster: RayCluster, start: Start, write: Write
) -> None:
    import ray

    path = write("""
        def drop(number: Number) -> None: ...

        topology = Topology("finite")
        topology.spout("count", Counter(500)).shuffle().bolt("drop", drop, 2)
    """)
    here("submit", path)
    run = ray_cluster.find("finite")
    assert run.wait(120)
    address = ray.get_runtime_context().gcs_address
    process = start("metrics", "--port", 0, "--address", address, PYTHONUNBUFFERED="1")
    output = read_until(process.stdout, "Metrics are at")
    text = fetched(output.split("Metrics are at ")[1].split(". ")[0])
    status = json.loads(here("status", "finite", "--json").stdout)
    samples = {
        (sample.name.removeprefix("sunshower_"), sample.labels.get("component")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels["topology"] == "finite"
    }
    count, drop = status["components"]["count"], status["components"]["drop"]
    assert samples["tuples_acked_total", "count"] == count["acked"] == 500
    assert samples["tuples_executed_total", "drop"] == drop["executed"] == 500
    assert samples["busy_seconds_total", "drop"] == drop["busy_s"] > 0
    assert samples["complete_latency_seconds_count", "count"] == 500
    assert 0 < count["p50_s"] <= count["p90_s"] <= count["p99_s"] <= count["max_s"]
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 0
