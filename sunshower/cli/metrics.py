"""`sunshower metrics`: an HTTP server with the statistics of all topologies of a cluster."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sunshower.cli.cluster_options import ANSWER_WITHIN_S, Address, ask_all, connect
from sunshower.cli.formatting import echo
from sunshower.errors import ConfigError, SunshowerError
from sunshower.runtime.control.measures import MEASURES, Kind, Measure, Observed, buckets

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from sunshower.actors.cluster import RayCluster

PREFIX = "sunshower_"

Host = Annotated[
    str,
    typer.Option(
        metavar="HOST",
        help="The address to listen on. There is no password: everyone who connects can read.",
    ),
]
Port = Annotated[
    int,
    typer.Option(metavar="N", min=0, max=65535, help="The port to listen on; 0: any free port."),
]


# ---- command -------------------------------------------------------------------------------------


def metrics(host: Host = "127.0.0.1", port: Port = 9470, address: Address = "auto") -> None:
    """Serve the statistics of all topologies of a cluster to Prometheus, until Ctrl-C.

    Each request to /metrics queries every topology once. docs/METRICS.md lists the metrics, and
    shows how to install the alert rules and the Grafana dashboard.
    """
    from sunshower.experiments.runner.interrupts import Interrupts
    from sunshower.installed import check_packages

    check_packages("metrics", "which serves the metrics", "prometheus_client")
    with (
        Interrupts() as interrupts,
        connect(address, as_job=False) as cluster,
        served(lambda: observe(cluster), host, port) as url,
    ):
        interrupts.defer()
        echo(f"Metrics are at {url}. Ctrl-C ends this server.")
        interrupts.wait_for_request()


def observe(cluster: RayCluster) -> list[Observed]:
    """Ask all topologies of a cluster at the same time."""
    answers = ask_all(cluster.runs(), lambda name: cluster.find(name).overview(ANSWER_WITHIN_S))
    return [
        Observed(name, None if isinstance(answer, SunshowerError) else answer)
        for name, answer in answers
    ]


class TopologyCollector:
    """What prometheus_client's registry asks for the metrics at each request."""

    def __init__(self, look: Callable[[], list[Observed]]) -> None:
        self._look = look

    def describe(self) -> Iterator[Metric]:
        """The metrics without samples, for a request that names some."""
        return (_samples(measure, []) for measure in MEASURES)

    def collect(self) -> Iterator[Metric]:
        topologies = self._look()
        return (_samples(measure, topologies) for measure in MEASURES)


def _samples(measure: Measure, topologies: list[Observed]) -> Metric:
    from prometheus_client import core

    kinds: dict[Kind, Any] = {
        Kind.COUNTER: core.CounterMetricFamily,
        Kind.GAUGE: core.GaugeMetricFamily,
        Kind.HISTOGRAM: core.HistogramMetricFamily,
    }
    labels = ["topology", *measure.labels]
    metric: Metric = kinds[measure.kind](PREFIX + measure.name, measure.help, labels=labels)
    for observed in topologies:
        for of_labels, value in measure.read(observed):
            where = [observed.topology, *of_labels]
            if isinstance(value, float | int):
                metric.add_metric(where, value)  # type: ignore[attr-defined]
            else:
                counts = buckets(value, is_fine=measure.is_fine)
                metric.add_metric(where, counts, value.sum_s)  # type: ignore[attr-defined]
    return metric


@contextmanager
def served(look: Callable[[], list[Observed]], host: str, port: int) -> Iterator[str]:
    """Serve what `look` finds at each request; yields the address of the metrics. Raises
    ConfigError if the address cannot be used."""
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    registry.register(TopologyCollector(look))
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise ConfigError(
            f"cannot listen at {host}, port {port}: {error}. Choose another --host or --port; "
            "--port 0 takes a free one"
        ) from error
    try:
        here = f"[{host}]" if server.address_family == socket.AF_INET6 else host
        yield f"http://{here}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
