"""Mutants of the spouts: pending messages, waiting replays, and positions after a restart."""

from __future__ import annotations

from tests.mutants.mutant import defect, mutant

SPOUTS = [
    mutant(
        "an incarnation is used again",
        "A restarted spout task has the incarnation of its predecessor: late reports and verdicts "
        "of that one are applied to its new trees.",
        defect("Plan.incarnation", "life % lives_max(count) * count", "count"),
    ),
    mutant(
        "a spout does not check the generation of a verdict",
        "A repeated or late verdict ends the newer attempt in the same slot.",
        defect(
            "Pending._still_pending",
            "generations == generations_of(roots)",
            "roots == roots",
        ),
        seen=40,
    ),
    mutant(
        "a spout does not check the incarnation of a verdict",
        "Verdicts for an earlier incarnation of the task end the trees that are in their slots "
        "now.",
        defect(
            "Pending._still_pending",
            "incarnations_of(roots) == self.incarnation",
            "roots == roots",
        ),
        on="lines moves",
    ),
    mutant(
        "a root that is named twice frees its slot twice",
        "A crash report contains the root of each record of a batch: if two are of one tree, its "
        "slot is freed twice, and two messages will share it.",
        defect(
            "Pending._still_pending",
            "return roots if np.count_nonzero(once) == len(roots) else roots[once]",
            "return roots",
        ),
        on="poison",
    ),
    mutant(
        "the position is one too high",
        "A restarted spout begins after its lowest unsettled record: that record is lost.",
        defect("SpoutTask.committed", "int(...)", "1 + int(...)"),
    ),
    mutant(
        "pending messages are forgotten at a restart",
        "A restarted spout begins with the first record that was not drawn yet.",
        defect("SpoutTask.committed", "self.pending.lowest_number(drawn)", "drawn"),
        on="isolated",
    ),
    mutant(
        "waiting replays are forgotten at a restart",
        "The position accounts for pending messages, and not for failed ones that wait to be "
        "emitted again.",
        defect("SpoutTask.committed", "self.replays.line.lowest", "self.source.drawn"),
        on="isolated",
    ),
    mutant(
        "new records take the slots of replays",
        "They take the places of waiting replays: more trees are open than spout_pending allows.",
        defect(
            "SpoutTask.fresh_room",
            "self.pending.free - len(self.replays.line)",
            "self.pending.free",
        ),
    ),
    mutant(
        "there is no deadline",
        "A tree that a bolt has forgotten is pending for ever, and its slot is never freed.",
        defect(
            "SpoutTask.look",
            'self._time_out(self.deadlines.overdue(now), now, self.deadlines.missed("verdict"))',
            "self.deadlines.overdue(now)",
        ),
        on="manual",
    ),
    mutant(
        "a spout is done while replays wait",
        "`done` checks only pending messages: those that wait for their back-off are never emitted "
        "again.",
        defect(
            "SpoutTask.done",
            "not len(self.replays.line)",
            "True",
        ),
    ),
    mutant(
        "a drain drops waiting replays",
        "A spout that may emit nothing new emits nothing at all: failed messages are lost.",
        defect(
            "SpoutTask.drain",
            "self.source.drain()",
            "self.source.drain()\nline = self.replays.line\nline.take(line.due(np.inf))",
        ),
        on="drains",
    ),
    mutant(
        "a restart during a drain forgets unsettled records",
        "A spout that restarts while the topology drains draws nothing: records that its "
        "predecessor had drawn and not settled are lost.",
        defect("Position.begin_at", "max(committed, drawn, owed)", "committed"),
        on="drains",
    ),
    mutant(
        "a spout draws beyond its emit reservation",
        "If its node is lost, nothing records how far it had drawn: its successor stops earlier.",
        defect(
            "EmitReservation.room",
            "self.at - first < self._step // 2",
            "False",
            "min(count, self.at - first)",
            "count",
        ),
        on="drains",
    ),
    mutant(
        "a moved spout loses its waiting replays",
        "After a rebalance the spout continues at its position, and its unsettled messages are not "
        "emitted again.",
        defect(
            "SpoutTask.unpack",
            "self.replays.line.adopt(transfer.waiting, transfer.charges)",
            "pass",
        ),
        on="moves",
        seen=34,
    ),
    mutant(
        "a rebalance forgets pending messages",
        "Messages that are pending when tasks move are not emitted again.",
        defect(
            "SpoutTask.pack",
            "self.failed(self.pending.all_roots(), Failure(Cause.REBALANCED, reason=reason), now)",
            "reason",
        ),
        on="moves",
        seen=34,
    ),
    mutant(
        "a source is closed with its former task",
        "A defect that these tests have found: the wrapper of the source closes it when the "
        "earlier task object is deleted.",
        defect("RecordsSource._watched", "yield from chain(self._left)", "yield from self._left"),
        on="masters",
        seen=17,
    ),
    mutant(
        "failures of the runtime count as attempts",
        "A message that five deaths of processes have failed ends the topology.",
        defect(
            "Replays.fail",
            "accused and not failure.shared",
            "True",
        ),
        on="poison",
    ),
    mutant(
        "a crash report has no suspects",
        "The crash report names no record: one that kills its process does so for ever.",
        defect("CrashReport.suspects", "self.roots", "b''"),
        on="poison",
    ),
]
