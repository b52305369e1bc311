"""Mutants of the bolts and the master: outputs, acks, quarantine, and the stored state."""

from __future__ import annotations

from tests.mutants.mutant import as_it_is, defect, mutant

BOLTS = [
    mutant(
        "an input is acked without its outputs",
        "The report of an input contains only its own edge, so its tree completes while its "
        "outputs are in transit.",
        defect(
            "Batch.acked",
            "self.edges ^ made",
            "self.edges",
        ),
    ),
    mutant(
        "an input is acked before its outputs are sent",
        "The batch is settled without the edges of its outputs, and then the outputs are sent.",
        defect(
            "AutomaticBoltTask._send",
            "anchors.made_by(edges, ends)",
            "np.zeros(len(ends), np.uint64)",
        ),
    ),
    mutant(
        "an input without outputs reports the edges of its neighbour",
        "The XOR of an empty segment is that of the segment before it, as with numpy's reduceat.",
        defect(
            "segment_xor",
            "result[1:] ^= upto[:-1]",
            "result[1:] ^= upto[:-1]\n"
            "result[1:] = np.where(result[1:] == 0, result[:-1], result[1:])",
        ),
    ),
    mutant(
        "neighbours in a report overwrite each other",
        "Of several children of one parent in one report, only the first is reported.",
        defect("fold", "np.bitwise_xor.reduceat(xors, first)", "xors[first]"),
    ),
    mutant(
        "two copies of an emit share their edge",
        "Each subscriber gets the same edge id: x ^ x is 0, so the tree waits for neither of them.",
        defect(
            "OutputStreams.send",
            "shares = self.shares(output_stream, records, count)",
            "one = self._edges.draw(count)\nshares = self.shares(output_stream, records, count)",
            "edges = self._edges.draw(len(chosen))",
            "edges = one[which]",
            *as_it_is("made[slice(None) if anchors.shared else which] ^= edges"),
        ),
    ),
    mutant(
        "the targets of one record share its edge",
        "The same for one subscriber that has several target tasks (all grouping).",
        defect(
            "OutputStreams.send",
            "for target, which in shared:",
            "one = self._edges.draw(count)\nfor target, which in shared:",
            "edges = self._edges.draw(len(chosen))",
            "edges = one[which]",
            *as_it_is("output_stream.counts.emitted += count"),
        ),
    ),
    mutant(
        "an input that yields several pieces is finished after the first",
        "Its function yields more than there is room for, and is never continued.",
        defect(
            "AutomaticBoltTask._finish",
            "if made.rest is not None and last not in flushed:",
            "if 0:",
        ),
    ),
    mutant(
        "the edges of earlier pieces are forgotten",
        "An input is acked with the edges of its last piece only: its tree never completes.",
        defect("AutomaticBoltTask._finish", "xors ^= current.made", "pass"),
    ),
    mutant(
        "a replay in the slot of a failed tree is dropped with it",
        "The generation after the failed one counts as failed, too.",
        defect(
            "FailedTrees.have_failed",
            "is_newer(generations_of(roots[mine]), failed)",
            "is_newer(generations_of(roots[mine]) - np.uint32(1), failed)",
        ),
    ),
    mutant(
        "an input whose function raised is acked",
        "It is reported as failed, and acked as well.",
        defect(
            "Batch.acked",
            "np.delete(np.arange(len(self)), list(failures))",
            "np.arange(len(self))",
        ),
        defect("BoltTask.settle", "self._reports.fail(roots, failure)", "pass"),
    ),
    mutant(
        "a bolt in quarantine acks its inputs",
        "The inputs of a task that no longer runs count as processed.",
        defect(
            "BoltTask.refuse",
            "self._reports.fail(batch.roots, batch.blamed(failure))",
            "self._reports.ack(batch.roots, batch.edges)",
        ),
        on="quarantine",
    ),
    mutant(
        "the ack of a manual bolt omits its emits",
        "The edges of tuples that were emitted with an anchor are missing in the ack of this "
        "anchor.",
        defect(
            "ManualBoltTask._carry_out",
            "(root, edge ^ t.made)",
            "(root, edge)",
        ),
        on="manual",
    ),
    mutant(
        "a root that two anchors share has one of their edges",
        "A record with two anchors in one tree carries the edge of the last anchor, not the XOR.",
        defect("AnchoredSender._send", "ids[root] ^= edge", "ids[root] = edge"),
        on="manual",
    ),
    mutant(
        "an ack before an exception counts",
        "A manual bolt that acks and then raises has acked.",
        defect(
            "ManualBoltTask._fail_unfinished",
            "if tuple.state is InputState.ACKED:",
            "if False:",
        ),
        on="manual",
    ),
    mutant(
        "a failure of a manual bolt is not reported",
        "`out.fail` only increments a counter: the trees wait for their deadline.",
        defect(
            "ManualBoltTask._report_failure",
            "self._reports.fail(np.array(tuple.roots, np.uint64), failure)",
            "pass",
        ),
        on="manual",
    ),
    mutant(
        "an input whose output could not be routed is acked",
        "A defect that the stage `bad_routes` has found: the input is failed and acked, and the "
        "report that reaches the acker first counts.",
        defect("ManualBoltTask._give_up", "tuple.given_up = True", "pass"),
        on="bad_routes",
        seen=22,
    ),
    mutant(
        "outputs that a failed flush has dropped are lost",
        "If `flush` raises, the outputs of the batch are dropped; an input that is acked later "
        "completes without its outputs. This was a defect until 2026-11-22.",
        defect(
            "ManualBoltTask._fail_batch",
            "self._give_up(tuple, failure)",
            "pass",
        ),
        on="bad_flushes",
    ),
    mutant(
        "a restarted worker has its earlier life",
        "The master does not increment the life: peers do not notice the restart.",
        defect(
            "MasterState.begin_life",
            "max(self.lives.get(worker, 0), self.floor) + 1",
            "max(self.lives.get(worker, 1), self.floor + 1)",
        ),
    ),
    mutant(
        "a new master does not know the lives",
        "The next worker that dies gets life 1 again, and its peers take this for an earlier life.",
        defect(
            "MasterState.from_bytes",
            "return MasterState(**{**found, **whole, 'unknown': unknown})",
            "return MasterState(**{**found, **whole, 'lives': {}})",
        ),
    ),
    mutant(
        "a new master does not know the positions of the spouts",
        "A restarted spout begins at the start: nothing is lost, and everything is emitted again.",
        defect(
            "MasterState.from_bytes",
            "return MasterState(**{**found, **whole, 'unknown': unknown})",
            "return MasterState(**{**found, **whole, 'positions': {}, 'drawn': {}})",
        ),
        on="masters",
    ),
    mutant(
        "a new master does not know that the topology drains",
        "Its spouts continue.",
        defect(
            "MasterState.from_bytes",
            "return MasterState(**{**found, **whole, 'unknown': unknown})",
            "return MasterState(**{**found, **whole, 'draining': False})",
        ),
        on="masters",
    ),
]
