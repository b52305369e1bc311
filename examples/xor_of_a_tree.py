"""The XOR of a tuple tree, edge by edge, as the acker computes it.

    python examples/xor_of_a_tree.py

A spout emits one message to three bolts; the first of them emits a tuple to a fourth one. Each
tuple is an edge of the tree, with a random id of 64 bits. The acker keeps one number for the tree:
the XOR of all that is reported to it. Each id is reported twice, by the task that emits the tuple
and by the one that acks it, so the number is zero when everything has been acked.
"""

from __future__ import annotations

from functools import reduce
from operator import xor

import numpy as np

from sunshower.runtime.tracking.ids import EdgeIds, make_roots, seeded
from sunshower.runtime.tracking.ledger import Ledger


def main() -> None:
    ids = EdgeIds(seeded(4)).draw(4)
    edges = dict(zip(("id_1", "id_2", "id_3", "bid_1"), ids.tolist(), strict=True))
    root = make_roots(1, np.ones(1, np.uint32), np.zeros(1, np.int64))
    ledger, value = Ledger([1]), 0

    for name, edge in edges.items():
        print(f"{name:38}{edge:016x}")
    for task, names in (
        ("spout", ("id_1", "id_2", "id_3")),  # emits
        ("bolt_2", ("id_2",)),  # acks
        ("bolt_1", ("id_1", "bid_1")),  # acks the one, emits the other
        ("bolt_3", ("id_3",)),
        ("bolt_4", ("bid_1",)),
    ):
        report = reduce(xor, (edges[name] for name in names))
        value ^= report
        apply = ledger.start if task == "spout" else ledger.ack
        settled = apply(root, np.array([report], np.uint64))
        verdict = "complete" if len(settled.complete) else "open"
        print(f"{task:7} → acker: {' ^ '.join(names):21} {value:016x}  {verdict}")


if __name__ == "__main__":
    main()
