"""Progress of a partition beside OffsetManager of Storm's Kafka spout: what may be committed."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sunshower.state.log_progress import Progress
from tests.originals.programs import Program


@given(st.integers(0, 2**32), st.integers(1, 80), st.sampled_from([1, 2, 9]))
def test_the_same_messages_are_read_again_after_each_step(
    storm: Program, seed: int, steps: int, gap: int
) -> None:
    """Between two emitted offsets there may be offsets without a message. Such offsets at the
    position to be committed count as settled here; in Storm, when the next message is acked."""
    random, first = Random(seed), Random(seed).randrange(100)
    progress, emitted, unacked, committed = Progress(first), list[int](), list[int](), first
    calls, ours = list[list[object]](), list[list[int]]()

    def again() -> list[int]:
        """The emitted messages that a restart would read again, of those not committed here."""
        return [offset for offset in emitted if offset >= progress.contiguous]

    for _ in range(steps):
        if unacked and random.random() < 0.5:
            offset = unacked.pop(random.randrange(len(unacked)))
            progress.ack(np.array([offset]))
            calls.append(["ack", offset])
        else:
            offset = (emitted[-1] + 1 if emitted else first) + random.randrange(gap)
            progress.emit(np.array([offset]))
            emitted.append(offset)
            unacked.append(offset)
            calls.append(["emit", offset])
        ours.append(again())
        calls.append([random.choice(["next", "commit"])])
    results = storm.run("OffsetManager", [first], calls)[1::2]
    seen = list[int]()
    for (kind, offset), result, left in zip(calls[::2], results, ours, strict=True):
        seen += [int(str(offset))] if kind == "emit" else []
        committed = max(committed, result)
        assert [offset for offset in seen if offset >= committed] == left
