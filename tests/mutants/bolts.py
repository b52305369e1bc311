"""Mutants of the bolts and of the master: outputs, acks, quarantine, and the book."""

from __future__ import annotations

from tests.mutants.mutant import as_it_is, mutant, slip

BOLTS = [
    mutant(
        "an input is acked without what was made from it",
        "The report of an input is its own edge alone: its tree is complete while its "
        "children are on their way.",
        slip(
            "BoltTask.settle",
            "self._reports.ack(roots, batch.edges ^ mades)",
            "self._reports.ack(roots, batch.edges)",
        ),
    ),
    mutant(
        "an input is acked before its outputs are sent",
        "The batch is settled first, with no edges of its outputs; then they are sent.",
        slip(
            "AutomaticBoltTask._send",
            "segment_xor(made, ends)",
            "np.zeros(len(ends), np.uint64)",
        ),
    ),
    mutant(
        "an input without outputs reports its neighbour's",
        "The XOR of an empty segment is that of the one before it, as numpy's reduceat has it.",
        slip(
            "segment_xor",
            "result[1:] ^= upto[:-1]",
            "result[1:] ^= upto[:-1]\n"
            "result[1:] = np.where(result[1:] == 0, result[:-1], result[1:])",
        ),
    ),
    mutant(
        "neighbours in a report overwrite each other",
        "Of several children of one parent in one report only the first is reported.",
        slip("fold", "np.bitwise_xor.reduceat(xors, first)", "xors[first]"),
    ),
    mutant(
        "two copies of an emit share their edge",
        "Each subscriber gets the same edge id: x ^ x is nothing, and nobody waits for either.",
        slip(
            "OutputStreams.send",
            "shares = self.shares(output_stream, records, count)",
            "one = self._edges.draw(count)\nshares = self.shares(output_stream, records, count)",
            "edges = self._edges.draw(len(batch))",
            "edges = one[which]",
            *as_it_is("made[which] ^= edges"),
        ),
    ),
    mutant(
        "the targets of one record share its edge",
        "As the one before, where one subscriber is told through several of its tasks (all "
        "grouping).",
        slip(
            "OutputStreams.send",
            "for target, which in shared:",
            "one = self._edges.draw(count)\nfor target, which in shared:",
            "edges = self._edges.draw(len(batch))",
            "edges = one[which]",
            *as_it_is("output_stream.counts.emitted += count"),
        ),
    ),
    mutant(
        "an input that goes on yielding is done with its first piece",
        "It had more to yield than there was room for, and the rest is never asked for.",
        slip(
            "AutomaticBoltTask._finish",
            "if made.rest is not None and last not in flushed:",
            "if 0:",
        ),
    ),
    mutant(
        "the edges of former pieces are forgotten",
        "An input is acked with the edges of its last piece: its tree is never complete.",
        slip("AutomaticBoltTask._finish", "xors ^= before", "pass"),
    ),
    mutant(
        "a replay in the slot of a failed tree is dropped with it",
        "The generation after the one that failed is taken for over, too.",
        slip(
            "FailedTrees.have_failed",
            "is_newer(generations_of(roots[mine]), failed)",
            "is_newer(generations_of(roots[mine]) - np.uint32(1), failed)",
        ),
    ),
    mutant(
        "an input whose function raised is acked",
        "It is reported as failed, and as done as well.",
        slip(
            "BoltTask.settle",
            "good = np.delete(np.arange(len(batch)), list(failures))",
            "good = np.arange(len(batch))",
            "self._reports.fail(roots, failure)",
            "pass",
        ),
    ),
    mutant(
        "a quarantined bolt acks what it refuses",
        "What comes to a task that is not run any more counts as done.",
        slip(
            "BoltTask.refuse",
            "self._reports.fail(batch.roots, batch.blamed(failure))",
            "self._reports.ack(batch.roots, batch.edges)",
        ),
        on="sick",
    ),
    mutant(
        "a manual bolt's ack does not know its emits",
        "The edges of what was emitted on an anchor are left out of its ack.",
        slip(
            "ManualBoltTask._carry_out",
            "(root, edge ^ t.made)",
            "(root, edge)",
        ),
        on="hands",
    ),
    mutant(
        "a root that two anchors share has one of their edges",
        "A record with two anchors in one tree carries the edge of the last one, not the XOR.",
        slip("AnchoredSender._send", "ids[root] ^= edge", "ids[root] = edge"),
        on="hands",
    ),
    mutant(
        "an ack that came before an exception counts",
        "A manual bolt that acks and then raises has acked.",
        slip(
            "ManualBoltTask._fail_unfinished",
            "if tuple.state is InputState.ACKED:",
            "if False:",
        ),
        on="hands",
    ),
    mutant(
        "a failure of a manual bolt is not told",
        "`out.fail` is carried out for the counters only: its trees wait for their deadline.",
        slip(
            "ManualBoltTask._report_failure",
            "self._reports.fail(np.array(tuple.roots, np.uint64), failure)",
            "pass",
        ),
        on="hands",
    ),
    mutant(
        "what had no way while its input was open is acked with it",
        "The defect that the stage of whims has found: a failure and an ack of one input, and "
        "whichever the acker hears first counts.",
        slip("ManualBoltTask._give_up", "tuple.given_up = True", "pass"),
        on="whims",
        seen=22,
    ),
    mutant(
        "what could not be made durable is lost to inputs that are open",
        "The outputs of a batch are dropped where flush raises; an input that is acked later is "
        "done without its own. It was so until 2026-11-22.",
        slip(
            "ManualBoltTask._fail_batch",
            "self._give_up(tuple, failure)",
            "pass",
        ),
        on="disks",
    ),
    mutant(
        "a worker that starts again has its old life",
        "The master does not count: peers do not notice that anybody has died.",
        slip(
            "Master.hello",
            "max(book.lives.get(worker, 0), book.floor) + 1",
            "max(book.lives.get(worker, 1), book.floor + 1)",
        ),
    ),
    mutant(
        "a new master has forgotten the lives",
        "The next worker that dies is in life 1 again, and its peers take it for one that is over.",
        slip(
            "MasterState.from_bytes",
            "return MasterState(**{**found, **whole, 'unknown': unknown})",
            "return MasterState(**{**found, **whole, 'lives': {}})",
        ),
    ),
    mutant(
        "a new master has forgotten how far the sources were",
        "A new life begins at the start: nothing is lost, and everything comes again.",
        slip(
            "MasterState.from_bytes",
            "return MasterState(**{**found, **whole, 'unknown': unknown})",
            "return MasterState(**{**found, **whole, 'positions': {}, 'drawn': {}})",
        ),
        on="masters",
    ),
    mutant(
        "a new master has forgotten that all is to drain",
        "Its sources go on.",
        slip(
            "MasterState.from_bytes",
            "return MasterState(**{**found, **whole, 'unknown': unknown})",
            "return MasterState(**{**found, **whole, 'draining': False})",
        ),
        on="masters",
    ),
]
