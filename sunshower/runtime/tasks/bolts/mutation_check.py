"""`check_mutation`: ends the topology, naming the bolt, if a bolt changes an input record.

Within a worker, records are passed by reference: a list in a record, or a dataclass that is not
frozen, is one object for every bolt that receives it and for the spout that may replay it. So a
bolt must not change its input. With `check_mutation` off (the default) nothing detects it: other
tasks of the worker, and a replay, see the changed record; tasks in other workers see the original.

The check pickles every record before and after, several µs each: it is for tests. It does not cover
records that cannot be pickled, calls of an async function that go on after the slice, nor a tuple
that a manual bolt has kept from an earlier batch.
Arrow tables are immutable.
"""

from __future__ import annotations

from typing import Any

from sunshower.errors import TopologyFailed, user_errors
from sunshower.runtime.tasks.bolts.bolt_task import BoltTask
from sunshower.runtime.transport.batch import Batch
from sunshower.runtime.value_copies import picture


def process_unchanged(bolt: BoltTask, batch: Batch) -> Batch | None:
    """Like `bolt.process`; raises TopologyFailed, naming bolt and record, for a changed record."""
    if batch.is_table:
        return bolt.process(batch)
    before = [_picture(record) for record in batch.records]
    said = [f"{record!r:.200}" for record in batch.records]
    rest = bolt.process(batch)
    for record, earlier, was in zip(batch.records, before, said, strict=True):
        if _picture(record) != earlier:
            raise TopologyFailed(
                f"{bolt.task.name} changed a record that it was handed, "
                f"{was}, to {record!r:.200}. Others hold the same object: make a new one "
                "(check_mutation is on)"
            )
    return rest


def _picture(record: Any) -> bytes | None:
    try:
        return picture(record)
    except user_errors():  # of __reduce__ and __getstate__ of a class that is no record
        return None
