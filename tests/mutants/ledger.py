"""Mutants of the ackers: the XOR, the rules of the ledger, and the conditions of verdicts."""

from __future__ import annotations

from tests.mutants.mutant import as_it_is, defect, mutant

LEDGER = [
    mutant(
        "an XOR is skipped",
        "Of several reports of one tree in one call only the last counts (numpy's `x[slots] ^= "
        "y`): the XOR never becomes zero, or becomes zero too early.",
        defect("_Table.ack", "np.bitwise_xor.at(self.xor, slots, xors)", "self.xor[slots] ^= xors"),
    ),
    mutant(
        "an acker completes on the first ack",
        "A started tree is complete with any ack: children in transit are no longer tracked, and "
        "are lost with the process that holds them.",
        defect(
            "_Table.ack",
            "zero = (values == 0).nonzero()[0]",
            "zero = np.arange(len(values))",
            "if np.count_nonzero(values) == len(values):",
            "if False:",
        ),
    ),
    mutant(
        "an acker completes on the start",
        "A new tree is complete with its start, before any bolt has acked.",
        defect(
            "_Table.start",
            "if np.count_nonzero(xors) == len(xors):",
            "if False:",
            "zero = (xors == 0).nonzero()[0]",
            "zero = np.arange(len(xors))",
        ),
    ),
    mutant(
        "a start is applied twice",
        "The rule that a start counts once (STARTED) is removed, and each start is applied twice, "
        "as if its packet were repeated: x ^ x is a false ack. (One of the two alone is harmless: "
        "a repeated packet never gets past the PacketReceiver.)",
        defect(
            "_Table.start",
            "(tags & STARTED == 0) & first_of_each(slots, self._seen)",
            "first_of_each(slots, self._seen)",
        ),
        defect("AckerTask.apply", "report.starts", "report.starts * 2"),
    ),
    mutant(
        "a failure is dropped",
        "Failures of bolts are not reported to the ackers: their trees wait for their deadline.",
        defect(
            "Reports.fail",
            "if self._shards is not None and len(roots):",
            "if False:",
        ),
    ),
    mutant(
        "a failure before the start is dropped",
        "A failure that overtakes the start of its tree is ignored: reports arrive in any order, "
        "and a failure arrives once.",
        defect(
            "_Table.fail",
            "tags |= FAILED",
            "tags |= np.where(tags & STARTED, FAILED, np.uint32(0))",
        ),
        seen=99,
    ),
    mutant(
        "zero wins over failed, and a failed input is acked",
        "A tree that failed before its start is complete if its XOR is zero then. Alone this is "
        "harmless: a failed input is never acked, so the XOR is not zero. With an ack of an input "
        "whose output could not be routed, a lost tuple counts as processed.",
        defect(
            "_Table.start",
            "failed = (tags & FAILED).nonzero()[0]",
            "tags = np.where(self.xor.take(slots) == 0, tags & ~FAILED, tags)\n"
            "failed = (tags & FAILED).nonzero()[0]",
            *as_it_is("zero = (self.xor.take(slots) == 0).nonzero()[0]"),
        ),
        defect("ManualBoltTask._give_up", "tuple.given_up = True", "pass"),
        on="bad_routes",
    ),
    mutant(
        "the generation check is removed",
        "The ledger applies a report to whatever attempt is in the slot now: late acks and "
        "failures of an old attempt are applied to the new one.",
        defect(
            "_Table._renew",
            "keep = (tags & (_GENERATION | OPEN)) == (wanted | OPEN)",
            "keep = (tags & OPEN) == OPEN",
        ),
        defect("_Table.ack", "if np.count_nonzero(differ):", "if True:"),
    ),
    mutant(
        "a late failure fails the newer attempt",
        "Only failures ignore the generation: the new attempt fails, no verdict has the root that "
        "the spout knows, and the spout waits for ever.",
        defect(
            "_Table.fail",
            "roots, _, slots, tags = self._renew(roots, xors, slots)",
            "tags = self.tag.take(slots)",
        ),
    ),
    mutant(
        "generations are compared without wrap",
        "After 2²⁴ attempts of a slot the next one looks older than the last: its reports are "
        "dropped as late.",
        defect(
            "is_newer",
            "((generations - tags) << 8).view(np.int32) > 0",
            "generations > (tags & np.uint32(0xFFFFFF))",
        ),
    ),
    mutant(
        "an empty slot counts as generation 0",
        "An unused slot looks as if it were in generation 0: an attempt whose generation is in the "
        "upper half of the circle is late from its start.",
        defect("_Table._renew", "(tags == 0) | ...", "..."),
    ),
    mutant(
        "a slot is reused last-in-first-out, with a generation of 2 bits",
        "The slot that was freed last is taken first, and generations repeat after four attempts: "
        "a late report or a repeated verdict matches a newer attempt.",
        defect(
            "Pending.take",
            "np.arange(self._head, self._head + count)",
            "np.arange(self._head + self._free_count - count, self._head + self._free_count)",
            "self._head = (self._head + count) % self._slots",
            "pass",
            *as_it_is("self._free_count -= count"),
        ),
        defect(
            "next_generations",
            "generations &= GENERATION_MASK",
            "generations &= 3",
            "generations += generations & _TRACED_BITS == 0",
            "pass",
            "if marked is not None: ...",
            "pass",
        ),
        defect("is_newer", "(generations - tags) << 8", "(generations - tags) << 30"),
        defect(
            "_Table._renew",
            "while True:",  # each of the four generations is newer than the one before
            "for _ in range(4):",
        ),
    ),
    mutant(
        "the shard of a tree depends on its attempt",
        "The shard of a root depends on its generation: the acks of a tree and its start still "
        "agree, but after the death of a shard the wrong slots are swept.",
        defect(
            "Shards.split",
            "slots_of(roots[same])",
            "slots_of(roots[same]) + (roots[same] >> np.uint64(24)).astype(np.int64)",
        ),
    ),
    mutant(
        "edges are drawn from too small a space",
        "Edge ids have 4 bits: two open edges with the same id cancel each other.",
        defect("EdgeIds.draw", "return ids", "return ids % np.uint64(15) + np.uint64(1)"),
    ),
]
