"""`check_mutation`: a bolt that changes a record it was handed ends the topology, by name.

Within a worker records go by reference: a list inside one, or a dataclass that is not frozen, is
the same object for every bolt that gets it and for the spout that may have to replay it. So a bolt
must not change its input. Nothing stops it with `check_mutation` off, as it is by default: then
the others in its worker, and a replay, see the record as the bolt has left it, and those in other
workers as it was.

The check pickles every record before and after, several µs each: it is for tests. What cannot be
pickled is not checked, nor what a manual bolt does to a tuple it has kept from an earlier batch.
Arrow tables cannot be changed at all.
"""

from __future__ import annotations

import pickle
from typing import Any

from sunshower.errors import TopologyFailed
from sunshower.runtime.batch import Batch
from sunshower.runtime.bolt_task import BoltTask


def process_unchanged(bolt: BoltTask, batch: Batch) -> Batch | None:
    """As `bolt.process`. Raises TopologyFailed, naming the bolt and the record."""
    if batch.is_table:
        return bolt.process(batch)
    before = [_picture(record) for record in batch.records]
    said = [f"{record!r:.200}" for record in batch.records]
    rest = bolt.process(batch)
    for record, picture, was in zip(batch.records, before, said, strict=True):
        if _picture(record) != picture:
            raise TopologyFailed(
                f"{bolt.task.component}[{bolt.task.index}] changed a record that it was handed, "
                f"{was}, to {record!r:.200}. Others hold the same object: make a new one "
                "(check_mutation is on)"
            )
    return rest


def _picture(record: Any) -> bytes | None:
    try:
        return pickle.dumps(record)
    except Exception:  # whatever __reduce__ and __getstate__ of somebody's class may raise
        return None
