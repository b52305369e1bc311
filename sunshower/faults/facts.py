"""What a checker knows beside the history: the plan's promises, and how the run came to its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sunshower.faults.history import task_names
from sunshower.runtime.plan import Plan
from sunshower.topologies.graph import Level


class Ending(StrEnum):
    """How a run ended."""

    FINISHED = "finished"  # the spouts are exhausted, and everything is settled
    HALTED = "halted"  # the topology gave up, and said why
    STUCK = "stuck"  # patience was over, and it was not finished
    GONE = "gone"  # the cluster could not go on


@dataclass(frozen=True)
class Model:
    """A numbered source: 0 … total - 1 shared out among `tasks`, as `faults.workload` does it."""

    total: int
    tasks: int
    written: bool = False  # the sink says the number of each item that it has seen

    def number(self, index: int, message: int) -> int:
        """The item that is message `message` of the source's task `index`."""
        return index + message * self.tasks


@dataclass(frozen=True)
class Facts:
    """All of them; plain values."""

    tasks: Mapping[int, str]  # task id → its name
    spouts: tuple[int, ...]  # task ids; incarnation i belongs to spouts[i % len(spouts)]
    counted: frozenset[int] = frozenset()  # spouts whose messages are 0, 1, 2 … in all lives
    logs: frozenset[int] = frozenset()  # whose numbers are those of a log: any task may read them
    told: frozenset[int] = frozenset()  # spouts that are told of failures, and replay as they like
    places: Mapping[int, tuple[int, int]] = field(default_factory=dict)  # task → index, worker
    tracked: bool = True
    pending_max: int = 32_768  # roots in flight, per spout task
    timeouts_s: Mapping[int, float] = field(default_factory=dict)  # spout task → of its trees
    sample: int = 1  # of every so manieth tree the edges are in the history
    total: int | None = None  # messages in the source, if that is known
    model: Model | None = None
    ending: Ending = Ending.FINISHED
    error: str | None = None  # why it did not finish
    drained: bool = False  # the source was stopped, and had more
    harmless: frozenset[str] = frozenset()  # the words of what was done, and hurts nobody


UNTRACKED = "nothing is tracked (ackers=0): no tree was ever followed"


def facts_of(plan: Plan, *, sample: int = 1) -> Facts:
    """What a plan says; the rest is added with `replace` when it is known."""
    spouts = [(task.id, plan.component(task)) for task in plan.spouts]
    timeout_s = plan.graph.config.message_timeout_s
    return Facts(
        tasks=task_names(plan),
        spouts=tuple(task.id for task in plan.spouts),
        counted=frozenset(id for id, spout in spouts if spout.level.counts_records),
        logs=frozenset(id for id, spout in spouts if spout.level is Level.LOG),
        told=frozenset(id for id, spout in spouts if not spout.implementation.replay),
        places={task.id: (task.index, task.worker) for task in plan.tasks},
        tracked=plan.graph.config.tracked,
        pending_max=plan.graph.config.spout_slots,
        timeouts_s={id: spout.message_timeout_s or timeout_s for id, spout in spouts},
        sample=sample,
    )
