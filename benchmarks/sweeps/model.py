"""A model of a large cluster: the load of each part, its limit, and which limit is exceeded first.

`python -m benchmarks.sweeps.model` prints it for 100 nodes and 10 M tuples a second, with the costs
of benchmarks/results/latest.json where they were measured.

Each worker is a process with one Python thread, so it uses one core. Shuffle and fields groupings
send a record to each worker with the same probability. A worker sends one packet to each of its
peers in turn; the time of a turn is what a record waits at each hop. Records that wait for the turn
share a packet, so more peers do not cost more processor time, but make the turn longer. If a turn
takes longer than a window (`window_s`), tasks have no work, because their senders have no credit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, inf
from pathlib import Path
from typing import Any

from benchmarks.sweeps.costs import Costs, costs_of

HEADS = ("part", "one worker for each core", "limit", "used", "fewest workers", "used")
BUSY_MAX = 0.7  # of a core: the planned use, so that a burst does not become a queue
_GIGABIT_BYTES = 125e6


@dataclass(frozen=True)
class Load:
    """A cluster and its load. `workers` None: one for each core."""

    nodes: int = 100
    cores: int = 16  # of a node
    tuples_s: float = 10e6
    hops: int = 3  # bolts in a row that a record passes, with the sink
    record_bytes: float = 100.0
    memory_bytes: float = 64e9  # of a node
    network_bytes_s: float = 10 * _GIGABIT_BYTES  # of a node
    files: int = 65_536  # open files of a process; each connection is one
    workers: int | None = None

    @property
    def processes(self) -> int:
        return self.workers or self.nodes * self.cores


@dataclass(frozen=True)
class Part:
    """The load of one part, and its limit."""

    name: str
    needs: float
    limit: float | None  # None: it has no limit
    unit: str

    @property
    def used(self) -> float:
        """The load as a fraction of the limit; above 1 the limit is exceeded."""
        return self.needs / self.limit if self.limit else 0.0


def parts(load: Load, costs: Costs) -> list[Part]:
    """All parts of the load. Cores are those of all nodes; bytes are those of one node."""
    spent = cores_by_part(load, costs)
    turn_s = turn(load, costs)
    workers = load.processes
    per_node = ceil(workers / load.nodes)
    links = workers - 1
    pending = load.tuples_s * load.hops * min(turn_s, 3_600.0)
    open_bytes = links * per_node * costs.calls_in_flight_max * costs.packet_bytes_max
    return [
        Part("workers", workers, None, ""),
        *(Part(f"cores: {name}", value, None, "") for name, value in spent.items()),
        Part("cores: total", sum(spent.values()), BUSY_MAX * workers, ""),
        Part("acker shards", shards(load, costs), workers, ""),
        Part("network of a node", network_bytes_s(load, costs) / 1e6, _mega(load), "MB/s"),
        Part("connections of a worker", links, load.files, ""),
        Part("links: total", workers * links, None, ""),
        Part("one packet to each peer", turn_s, costs.window_s, "s"),
        Part("latency of a tuple, all hops", turn_s * load.hops, None, "s"),
        Part("open packets of a node, at most", open_bytes / 1e9, load.memory_bytes / 1e9, "GB"),
        Part(
            "pending roots of a node",
            pending * costs.root_bytes / load.nodes / 1e9,
            load.memory_bytes / 1e9,
            "GB",
        ),
        Part("master: reports and heartbeats", master_cores(load, costs), BUSY_MAX, "cores"),
        Part("master: plans at the start", start_bytes(load, costs) / 1e6, None, "MB"),
    ]


def cores_by_part(load: Load, costs: Costs) -> dict[str, float]:
    """Busy cores of all workers, without the packets."""
    records_s = load.tuples_s * load.hops
    updates_s = load.tuples_s * (load.hops + 1)  # one from the spout, one from each hop
    return {
        "spouts": load.tuples_s * costs.spout_ns / 1e9,
        "bolts": records_s * costs.hop_ns / 1e9,
        "bytes of records": remote(load) * records_s * load.record_bytes * costs.byte_ns / 1e9,
        "ackers": updates_s * costs.update_ns / 1e9,
    }


def remote(load: Load) -> float:
    """The fraction of the records that is sent to another worker."""
    return 1 - 1 / load.processes


def turn(load: Load, costs: Costs) -> float:
    """Seconds in which a worker sends a packet to each peer, in the time left by its other work."""
    free = 1 - sum(cores_by_part(load, costs).values()) / load.processes
    packets_s = (load.processes - 1) * costs.packet_ns / 1e9
    return packets_s / free if free > 0 else inf


def shards(load: Load, costs: Costs) -> int:
    """The number of acker shards, each of which keeps at most 0.7 of a core busy."""
    return max(1, ceil(cores_by_part(load, costs)["ackers"] / BUSY_MAX))


def network_bytes_s(load: Load, costs: Costs) -> float:
    """Bytes a second that a node sends to other nodes; it receives as many."""
    records = load.hops * (load.record_bytes + costs.edge_bytes)
    updates = (load.hops + 1) * costs.update_bytes
    return load.tuples_s * (records + updates) * (1 - 1 / load.nodes) / load.nodes


def master_cores(load: Load, costs: Costs) -> float:
    """The fraction of a core that the master uses while all workers are busy."""
    calls_s = load.processes * (1 / costs.report_s + 1 / costs.beat_s)
    return calls_s * costs.master_call_ns / 1e9


def start_bytes(load: Load, costs: Costs) -> float:
    """Bytes of the plans that all workers read at their start, with a task of each component."""
    tasks = load.processes * (load.hops + 1)
    return load.processes * tasks * costs.plan_bytes


def fewest_workers(load: Load, costs: Costs) -> int:
    """The number of workers that the processor time requires, if each uses 0.7 of a core."""
    return max(2, ceil(sum(cores_by_part(load, costs).values()) / BUSY_MAX))


def sentences(load: Load, costs: Costs) -> list[str]:
    """The exceeded limits, the worst first, with one worker for each core and with the fewest."""
    few = replace(load, workers=fewest_workers(load, costs))
    limit = int(costs.window_s / (costs.packet_ns / 1e9)) + 1
    peers = (
        f"With up to {limit:,} workers without other work, a worker sends a packet to each peer "
        f"within a window of {costs.window_s:g} s. Local groupings have fewer peers."
    )
    return [
        _verdict(load, costs),
        _verdict(few, costs),
        peers,
        f"One master can serve {int(BUSY_MAX / master_cores(_one(load), costs)):,} busy workers.",
    ]


def rows(results: Mapping[str, Any], load: Load | None = None) -> list[tuple[str, ...]]:
    """The table under HEADS. `results`: the content of the results file."""
    load, (costs, _) = load or Load(), costs_of(results)
    few = replace(load, workers=fewest_workers(load, costs))
    return [
        (
            part.name,
            f"{part.needs:,.3g} {part.unit}".strip(),
            "–" if part.limit is None else f"{part.limit:,.4g} {part.unit}".strip(),
            "–" if part.limit is None else _percent(part.used),
            f"{other.needs:,.3g} {other.unit}".strip(),
            "–" if other.limit is None else _percent(other.used),
        )
        for part, other in zip(parts(load, costs), parts(few, costs), strict=True)
    ]


def findings(results: Mapping[str, Any], load: Load | None = None) -> list[str]:
    """The results of the model as sentences, and the measured costs."""
    load, (costs, measured) = load or Load(), costs_of(results)
    listed = ", ".join(f"`{name}` {getattr(costs, name):,.3g}" for name in measured) or "none"
    return [*sentences(load, costs), f"Measured costs: {listed}; the others are assumed."]


def _verdict(load: Load, costs: Costs) -> str:
    prefix = (
        f"{load.nodes:,} nodes with {load.processes:,} workers in total and "
        f"{load.tuples_s:,.0f} tuples a second: "
    )
    worst = sorted(parts(load, costs), key=lambda part: -part.used)
    exceeded = [f"{part.name} ({_percent(part.used)})" for part in worst if part.used > 1]
    if exceeded:
        return f"{prefix}above their limits are {', '.join(exceeded)}."
    return (
        f"{prefix}no limit is exceeded; the highest is {worst[0].name} ({_percent(worst[0].used)})."
    )


def _one(load: Load) -> Load:
    return replace(load, workers=1)


def _mega(load: Load) -> float:
    return load.network_bytes_s / 1e6


def _percent(share: float) -> str:
    return "∞" if share == inf else f"{share:,.1%}" if share < 0.1 else f"{share:,.0%}"


def main() -> None:
    path = Path(__file__).parent.parent / "results" / "latest.json"
    results = json.loads(path.read_text(encoding="utf-8"))
    for row in (HEADS, *rows(results)):
        print(f"{row[0]:34}", *(f"{cell:>25}" for cell in row[1:]))
    print(*findings(results), sep="\n")


if __name__ == "__main__":
    main()
