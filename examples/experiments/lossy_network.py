"""Lossy network: packets are lost, repeated, delayed and damaged; then a link is cut.

    sunshower experiment run examples/experiments/lossy_network.py

First, for `bad_s` seconds, some of the packets between all processes are dropped, delivered without
an answer, repeated, delayed, or damaged (one bit is flipped). Then the network between `numbers`
and `relay` is cut for `cut_s` seconds. Look for: the causes of failures. A packet without an answer
looks like a death (actor died); a frame that is damaged, or late because another overtook it, is
refused (bad frame). During the cut no message is completed; afterwards all are. No edge reaches a
bolt twice.
"""

from __future__ import annotations

from collections.abc import Iterator

from sunshower import Topology
from sunshower.experiments import (
    AtLeastOnce,
    Duplicates,
    EachEdgeOnce,
    Experiment,
    NoPrematureAck,
    Recovers,
    Step,
    at,
    cut,
    lossy,
    phases,
    relayed,
)


def topology(total: int, rate: float) -> Topology:
    return relayed(total, rate)


def plan(loss: float, bad_s: float, cut_s: float) -> Iterator[Step]:
    bad = lossy(for_s=bad_s, drop=loss, forget=loss, repeat=loss, corrupt=loss, delay=loss)
    return phases(
        (bad_s + 2, at(1, bad)),
        (cut_s + 2, at(1, cut("numbers", "relay", for_s=cut_s))),
    )


experiment = Experiment(
    name="lossy-network",
    about="A network that loses, repeats, delays and damages packets, and is then cut.",
    topology=topology,
    plan=plan,
    checkers=[AtLeastOnce(), NoPrematureAck(), EachEdgeOnce(), Recovers(60), Duplicates()],
    parameters={"total": 3_600, "rate": 300.0, "loss": 0.02, "bad_s": 4.0, "cut_s": 2.0},
)
