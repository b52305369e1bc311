"""Mutants of the ackers: the XOR, the ledger's rules, and what a verdict needs."""

from __future__ import annotations

from tests.mutants.mutant import as_it_is, mutant, slip

LEDGER = [
    mutant(
        "an XOR is skipped",
        "Of several reports of one tree in one call only the last counts (numpy's `x[slots] "
        "^= y`): the tree never gets to zero, or gets there too early.",
        slip("_Table.ack", "np.bitwise_xor.at(self.xor, slots, xors)", "self.xor[slots] ^= xors"),
    ),
    mutant(
        "an acker completes on the first ack",
        "A started tree is complete with any report of an ack: children that are still on "
        "their way are forgotten, and lost with whoever holds them.",
        slip(
            "_Table.ack",
            "zero = (values == 0).nonzero()[0]",
            "zero = np.arange(len(values))",
            "if np.count_nonzero(values) == len(values):",
            "if False:",
        ),
    ),
    mutant(
        "an acker completes on the start",
        "The start of a tree that is new is its end, too: nobody waits for any bolt.",
        slip(
            "_Table.start",
            "if np.count_nonzero(xors) == len(xors):",
            "if False:",
            "zero = (xors == 0).nonzero()[0]",
            "zero = np.arange(len(xors))",
        ),
    ),
    mutant(
        "a start is applied twice",
        "The rule that a start counts once (STARTED) is gone, and the acker hears each start "
        "twice, as it would from a packet that is sent again: x ^ x is a false ack. (One of "
        "the two alone does no harm: no packet gets past the inlet twice.)",
        slip(
            "_Table.start",
            "(tags & STARTED == 0) & first_of_each(slots, self._seen)",
            "first_of_each(slots, self._seen)",
        ),
        slip("AckerTask.apply", "report.starts", "report.starts * 2"),
    ),
    mutant(
        "a failure is dropped",
        "What a bolt fails is not told to the ackers: its trees wait for their deadline.",
        slip(
            "Reports.fail",
            "if self._shards is not None and len(roots):",
            "if False:",
        ),
    ),
    mutant(
        "a failure before the start is dropped",
        "A failure that overtakes the start of its tree is forgotten: reports come in any "
        "order, and this one comes once.",
        slip(
            "_Table.fail",
            "tags |= FAILED",
            "tags |= np.where(tags & STARTED, FAILED, np.uint32(0))",
        ),
        seen=99,
    ),
    mutant(
        "failed does not win over zero, and what has failed is acked",
        "A tree that has failed before its start is complete if its XOR is zero then. Alone that "
        "does no harm: an input that has failed is never acked, so nothing comes to zero. With an "
        "ack of what was open when its output had no way, a tuple that was lost counts as done.",
        slip(
            "_Table.start",
            "failed = (tags & FAILED).nonzero()[0]",
            "tags = np.where(self.xor.take(slots) == 0, tags & ~FAILED, tags)\n"
            "failed = (tags & FAILED).nonzero()[0]",
            *as_it_is("zero = (self.xor.take(slots) == 0).nonzero()[0]"),
        ),
        slip("ManualBoltTask._give_up", "tuple.given_up = True", "pass"),
        on="whims",
    ),
    mutant(
        "the generation check is removed",
        "The ledger applies a report to whatever attempt is in the slot now: late acks and "
        "failures of an old attempt fall on the new one.",
        slip(
            "_Table._renew",
            "keep = (tags & (_GENERATION | OPEN)) == (wanted | OPEN)",
            "keep = (tags & OPEN) == OPEN",
        ),
        slip("_Table.ack", "if np.count_nonzero(differ):", "if True:"),
    ),
    mutant(
        "a late failure hits the newer attempt",
        "Only failures are not held against the generation: the new attempt fails, nobody "
        "reports the roots that the spout knows, and it waits for a verdict that never comes.",
        slip(
            "_Table.fail",
            "roots, _, slots, tags = self._renew(roots, xors, slots)",
            "tags = self.tag.take(slots)",
        ),
    ),
    mutant(
        "generations are compared without wrap",
        "After 2²⁴ attempts of a slot the next one looks older than the last: its reports are"
        " dropped as late.",
        slip(
            "is_newer",
            "((generations - tags) << 8).view(np.int32) > 0",
            "generations > (tags & np.uint32(0xFFFFFF))",
        ),
    ),
    mutant(
        "an empty slot counts as generation 0",
        "A slot that nobody has used looks like one in generation 0: an attempt with a number"
        " in the upper half of the circle is late before it has begun.",
        slip("_Table._renew", "(tags == 0) | ...", "..."),
    ),
    mutant(
        "a slot is reused last-in-first-out, with a generation of 2 bits",
        "The slot that became free last is taken first, and after four attempts its number "
        "comes again: a late report, or a verdict that is said twice, meets its own number.",
        slip(
            "Pending.take",
            "np.arange(self._head, self._head + count)",
            "np.arange(self._head + self._free_count - count, self._head + self._free_count)",
            "self._head = (self._head + count) % self._slots",
            "pass",
            *as_it_is("self._free_count -= count"),
        ),
        slip(
            "next_generations",
            "generations &= GENERATION_MASK",
            "generations &= 3",
            "generations += generations & _TRACED_BITS == 0",
            "pass",
            "if marked is not None: ...",
            "pass",
        ),
        slip("is_newer", "(generations - tags) << 8", "(generations - tags) << 30"),
        slip(
            "_Table._renew",
            "while True:",  # of four generations each is newer than the one before, round and round
            "for _ in range(4):",
        ),
    ),
    mutant(
        "a tree that shards share changes its shard",
        "The shard of a root depends on its generation: the acks of a tree and its start "
        "still agree, but a dead shard is swept for the wrong slots.",
        slip(
            "Shards.split",
            "slots_of(roots)",
            "slots_of(roots) + (roots >> np.uint64(24)).astype(np.int64)",
        ),
    ),
    mutant(
        "edges are drawn from too small a space",
        "Edge ids of 4 bits: two open edges with the same number are none.",
        slip("EdgeIds.draw", "return ids", "return ids % np.uint64(15) + np.uint64(1)"),
    ),
]
