"""Mutants of the spouts: what is pending, what is in line, and where a new life begins."""

from __future__ import annotations

from tests.mutants.mutant import mutant, slip

SPOUTS = [
    mutant(
        "an incarnation is used again",
        "A spout that was started again has the number of its former life: late reports and "
        "verdicts of that life fall on its new trees.",
        slip("Plan.incarnation", "life % lives_max(count) * count", "count"),
    ),
    mutant(
        "a spout does not look at the generation of a verdict",
        "A verdict that is said twice, or comes late, ends the newer attempt in the same slot.",
        slip(
            "Pending._still_pending",
            "generations == generations_of(roots)",
            "roots == roots",
        ),
        seen=40,
    ),
    mutant(
        "a spout does not look at the incarnation of a verdict",
        "Verdicts for a former life of the task end whatever is in their slots now.",
        slip(
            "Pending._still_pending",
            "incarnations_of(roots) == self.incarnation",
            "roots == roots",
        ),
        on="lines moves",
    ),
    mutant(
        "a root that is named twice frees its slot twice",
        "A crash report names the root of each record of a batch: with two of one tree its slot "
        "is free twice, and two messages will share it.",
        slip(
            "Pending._still_pending",
            "return roots if np.count_nonzero(once) == len(roots) else roots[once]",
            "return roots",
        ),
        on="poison",
    ),
    mutant(
        "the position is one too high",
        "A new life begins after the lowest record that is not settled: that one is lost.",
        slip("RecordsSource.committed", "int(...)", "1 + int(...)"),
    ),
    mutant(
        "what was pending is forgotten at a restart",
        "A new life begins with what was not yet drawn.",
        slip(
            "RecordsSource.committed", "self._host.pending.lowest_number(self.drawn)", "self.drawn"
        ),
        on="apart",
    ),
    mutant(
        "what is in line is forgotten at a restart",
        "The position looks at what is pending, and not at what has failed and waits to be "
        "emitted again.",
        slip("RecordsSource.committed", "self._host.replays.line.lowest", "self.drawn"),
        on="apart",
    ),
    mutant(
        "the slot of a replay is given away",
        "Fresh records take the places of those in line: more trees are open than "
        "spout_pending allows.",
        slip(
            "SpoutTask.fresh_room",
            "self.pending.free - len(self.replays.line)",
            "self.pending.free",
        ),
    ),
    mutant(
        "there is no deadline",
        "A tree that a bolt has forgotten is pending for ever, and its place with it.",
        slip(
            "SpoutTask.look",
            'self._time_out(self.deadlines.overdue(now), now, self.deadlines.missed("verdict"))',
            "self.deadlines.overdue(now)",
        ),
        on="hands",
    ),
    mutant(
        "a spout is done while messages are in line",
        "Done looks at what is pending only: what waits for its back-off is never emitted again.",
        slip(
            "SpoutTask.done",
            "not len(self.replays.line)",
            "True",
        ),
    ),
    mutant(
        "a drain empties the line",
        "Told to emit nothing fresh, a spout emits nothing at all: what has failed is forgotten.",
        slip(
            "RecordsSource.drain",
            "self._position.stop()",
            "self._position.stop()\nline = self._host.replays.line\nline.take(line.due(np.inf))",
        ),
        on="drains",
    ),
    mutant(
        "a drained spout forgets what its former life owed",
        "A life that is born while the topology drains draws nothing: what the former one had "
        "drawn and not settled is lost.",
        slip("Position.owed", "max(self.next, self._owed)", "self.next"),
        on="drains",
    ),
    mutant(
        "a spout draws beyond its fence",
        "Nobody knows of what it has drawn when its machine is lost: the next life ends before.",
        slip(
            "EmitReservation.room",
            "self.at - first < self._step // 2",
            "False",
            "min(count, self.at - first)",
            "count",
        ),
        on="drains",
    ),
    mutant(
        "the transfer of a spout is left behind",
        "After a rebalance the source goes on where it was, and what was pending is not in line.",
        slip(
            "SpoutTask.unpack",
            "self.replays.line.adopt(transfer.waiting, transfer.charges)",
            "pass",
        ),
        on="moves",
        seen=34,
    ),
    mutant(
        "a rebalance forgets what is pending",
        "What is pending when tasks change places is not put in line.",
        slip(
            "SpoutTask.pack",
            "self.failed(self.pending.all_roots(), Failure(Cause.REBALANCED, reason=reason), now)",
            "reason",
        ),
        on="moves",
        seen=34,
    ),
    mutant(
        "a source is closed with its former task",
        "The old defect that these tests have found: the wrapper of the source closes it when "
        "the task of the former life is forgotten.",
        slip("RecordsSource._watched", "yield from chain(self._left)", "yield from self._left"),
        on="masters",
        seen=17,
    ),
    mutant(
        "failures of the machinery count as attempts",
        "A message that was in the way of five deaths halts the topology.",
        slip(
            "Replays.fail",
            "accused or self.line.is_charged(number, failure, now, held=held)",
            "True",
        ),
        on="poison",
    ),
    mutant(
        "nobody is blamed for a death",
        "The crash report names no record: one that kills its process does so for ever.",
        slip("CrashReport.suspects", "self.roots", "b''"),
        on="poison",
    ),
]
