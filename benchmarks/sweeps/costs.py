"""The costs for the model of a large cluster: measured ones of a results file, others assumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

_Rows = Mapping[tuple[str, str, str], Mapping[str, Any]]
_CHAINS = (1, 16)  # bolts in a row
_LARGE = 1_000_000  # bytes of a record, of which other costs are a negligible part


@dataclass(frozen=True)
class Costs:
    """Costs in nanoseconds of a processor, bytes and seconds. The defaults are assumptions."""

    hop_ns: float = 500.0  # a record at a bolt: routing, queues, the call, its edge
    spout_ns: float = 700.0  # a tuple at its spout, from its emit to its ack
    update_ns: float = 30.0  # an update of an acker's ledger
    byte_ns: float = 4.0  # a byte of a record between two processes, at both
    packet_ns: float = 700_000.0  # a packet to another worker and its answer, at both
    master_call_ns: float = 200_000.0  # a report or heartbeat, at the master
    root_bytes: float = 230.0  # memory of a pending root, at spout and acker
    edge_bytes: float = 20.0  # of a record in a packet, in addition to its own bytes
    update_bytes: float = 16.0  # of an acker's update in a packet: root and XOR
    plan_bytes: float = 200.0  # of a task in the plan, which each worker reads at its start
    report_bytes: float = 2_000.0  # of a worker's statistics
    report_s: float = 0.25  # between two reports of a busy worker: STATS_S of worker_process.py
    beat_s: float = 2.0  # between two heartbeats: a tenth of worker_timeout_s
    window_s: float = 0.25  # work that may wait for a task
    packet_bytes_max: int = 1 << 20
    calls_in_flight_max: int = 4  # unanswered packets on a link


def costs_of(results: Mapping[str, Any]) -> tuple[Costs, Sequence[str]]:
    """The costs, with measured values where there are any, and the names of the measured ones."""
    rows = {
        (row["workload"], row["system"], row["variant"]): row for row in results.get("results", ())
    }
    measured_costs = {
        **_of_chains(rows),
        "update_ns": _inverse(rows, ("ledger", "sunshower", "in-order"), 1e3),
        "byte_ns": _of_bytes(rows),
        **_of_calls(rows),
        "root_bytes": _value(rows, ("memory", "sunshower", "both-per-pending-root"), 1.0),
    }
    measured = {
        name: value for name, value in measured_costs.items() if value is not None and value > 0
    }
    names = [cost.name for cost in fields(Costs) if cost.name in measured]
    return replace(Costs(), **measured), names


def _of_chains(rows: _Rows) -> dict[str, float | None]:
    """Processor time of a hop and of the spout, from chains of one bolt and of 16 bolts."""
    short, long = (_cpu_ns(rows, f"chain-{length}") for length in _CHAINS)
    if short is None or long is None or long <= short:
        return {}
    hop_ns = (long - short) / (_CHAINS[1] - _CHAINS[0])
    return {"hop_ns": hop_ns, "spout_ns": short - 2 * hop_ns}  # two hops: the bolt and the sink


def _of_calls(rows: _Rows) -> dict[str, float | None]:
    """A packet costs a call at both ends; a report costs only the work of the master."""
    caller, answerer = (
        _value(rows, ("sweeps", "ray", f"call-cpu-{side}"), 1e3) for side in ("caller", "answerer")
    )
    both = None if caller is None or answerer is None else caller + answerer
    return {"packet_ns": both, "master_call_ns": answerer}


def _of_bytes(rows: _Rows) -> float | None:
    record_ns = _cpu_ns(rows, f"record-bytes-{_LARGE}")
    return None if record_ns is None else record_ns / _LARGE


def _cpu_ns(rows: _Rows, variant: str) -> float | None:
    """Processor time of a tuple in one of the sweeps."""
    row = rows.get(("sweeps", "sunshower", variant))
    if row is None or not row["median"] or "cores" not in row:
        return None
    return float(row["cores"] / row["median"] * 1e9)


def _value(rows: _Rows, key: tuple[str, str, str], factor: float) -> float | None:
    return float(rows[key]["median"] * factor) if key in rows else None


def _inverse(rows: _Rows, key: tuple[str, str, str], factor: float) -> float | None:
    """The time of one unit, from a rate."""
    return float(factor / rows[key]["median"]) if key in rows and rows[key]["median"] else None
