"""Mutants of the spouts: what is pending, what is in line, and where a new life begins."""

from __future__ import annotations

from tests.mutants.mutant import mutant, slip

_RECORDS = "records_spout:RecordsSpoutTask"

SPOUTS = [
    mutant(
        "an incarnation is used again",
        "A spout that was started again has the number of its former life: late reports and "
        "verdicts of that life fall on its new trees.",
        slip(
            "plan:Plan.incarnation", "number = life * len(self.spouts)", "number = len(self.spouts)"
        ),
    ),
    mutant(
        "a spout does not look at the generation of a verdict",
        "A verdict that is said twice, or comes late, ends the newer attempt in the same slot.",
        slip(
            "pending:Pending._still_pending",
            "self._generation.take(slots) == generations_of(roots)",
            "roots == roots",
        ),
    ),
    mutant(
        "a spout does not look at the incarnation of a verdict",
        "Verdicts for a former life of the task end whatever is in their slots now.",
        slip(
            "pending:Pending._still_pending",
            "incarnations_of(roots) == self.incarnation",
            "roots == roots",
        ),
        on="lines moves",
    ),
    mutant(
        "a root that is named twice frees its slot twice",
        "An obituary names the root of each record of a batch: with two of one tree its slot "
        "is free twice, and two messages will share it.",
        slip(
            "pending:Pending._still_pending",
            "return roots if once.all() else roots[once]",
            "return roots",
        ),
        on="poison",
    ),
    mutant(
        "the position is one too high",
        "A new life begins after the lowest record that is not settled: that one is lost.",
        slip(f"{_RECORDS}.committed", "return int(", "return 1 + int("),
    ),
    mutant(
        "what was pending is forgotten at a restart",
        "A new life begins with what was not yet drawn.",
        slip(f"{_RECORDS}.committed", "self.pending.lowest_number(self.drawn)", "self.drawn"),
        on="apart",
    ),
    mutant(
        "what is in line is forgotten at a restart",
        "The position looks at what is pending, and not at what has failed and waits to be "
        "emitted again.",
        slip(f"{_RECORDS}.committed", "self.replays.line.lowest", "self.drawn"),
        on="apart",
    ),
    mutant(
        "the slot of a replay is given away",
        "Fresh records take the places of those in line: more trees are open than "
        "spout_pending allows.",
        slip(
            "spout_task:SpoutTask._fresh_room",
            "self.pending.room - len(self.replays.line)",
            "self.pending.room",
        ),
    ),
    mutant(
        "there is no deadline",
        "A tree that a bolt has forgotten is pending for ever, and its place with it.",
        slip(
            "spout_task:SpoutTask.look",
            "self._time_out(self._deadlines.overdue(now), now)",
            "self._deadlines.overdue(now)",
        ),
        on="hands",
    ),
    mutant(
        "failures of the machinery count as attempts",
        "A message that was in the way of five deaths halts the topology.",
        slip("replays:Replays.fail", "counts = accused or failure.blames_tuple", "counts = True"),
        on="poison",
    ),
    mutant(
        "nobody is blamed for a death",
        "The obituary names no record: one that kills its process does so for ever.",
        slip("obituary:Obituary.suspects", "self.roots", "b''"),
        on="poison",
    ),
]
