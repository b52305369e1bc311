"""ObjectFiles: writes the rows of each batch as objects in S3, which a repeated batch replaces.

<place>/batch=000000000007/part-0002.jsonl      the rows that task 2 had of batch 7
"""

from __future__ import annotations

import os
import re
from typing import Any

from sunshower.arguments import Values
from sunshower.connectors.object_folder import ObjectFolder
from sunshower.connectors.object_formats import JsonLinesWriter, ParquetWriter
from sunshower.errors import StateMismatch
from sunshower.records import Schema
from sunshower.secret import Secret
from sunshower.topologies.components import Context
from sunshower.topologies.operators.port import Attempt, Emit, Operator, Rows
from sunshower.trident.declaration.streams import BatchStream

_FORMAT = Values(words={"jsonl": "jsonl", "parquet": "parquet"})
_WRITERS = {"jsonl": JsonLinesWriter, "parquet": ParquetWriter}
_PART = re.compile(r"batch=\d+/part-(\d+)\.\w+")


class ObjectFiles:
    """What `stream.apply(ObjectFiles("s3://bucket/totals"))` writes: an object for each batch and
    task, of JSON lines or Parquet. `place` is a URL that pyarrow opens, or the path of a folder.

    The name of an object is the number of the batch, and of the task. A batch that is repeated
    replaces its objects, and removes those that it has no rows for: each row of a committed batch
    is in one object. With the rules of an opaque state. The batches must begin with an empty
    folder: a first attempt at a batch that finds an object of it raises StateMismatch.

    The columns of Parquet are those of the annotations of the rows' record type, in each object the
    same. `stream.apply` raises RecordMismatch for a type that has no column, or no text in JSON. A
    value that its column cannot have fails its batch (Unserialisable).
    """

    def __init__(
        self,
        place: str | Secret | os.PathLike[str],
        *,
        format: str = "jsonl",  # noqa: A002
    ) -> None:
        _FORMAT.check("ObjectFiles: format", format)
        self._folder, self._format = ObjectFolder(place, "ObjectFiles"), format

    def __call__(self, stream: BatchStream[Any]) -> BatchStream[Any]:
        return stream.operate(_Writer(self._folder, self._format, stream.schema), fields=())


class _Writer(Operator):
    """The operator: it collects the rows of a batch, and writes them when the batch commits."""

    commits = True

    def __init__(self, folder: ObjectFolder, kind: str, schema: Schema) -> None:
        self._folder, self._kind = folder, kind
        self._writer: Any = _WRITERS[kind](schema, f"ObjectFiles({folder})")

    def prepare(self, context: Context) -> None:
        self._index, self._tasks = context.index, context.parallelism

    def start(self, attempt: Attempt) -> list[Any]:
        return []

    def process(self, batch: list[Any], source: int, rows: Rows, emit: Emit) -> None:
        """Encode rows. Raises Unserialisable."""
        if rows:
            batch.append(self._writer.encode(rows))

    def finish(self, batch: list[Any], attempt: Attempt, emit: Emit) -> None:
        """Write the object. Raises StoreUnreachable, StoreError and StateMismatch."""
        folder = f"batch={attempt.txid:012}"
        name = f"{folder}/part-{self._index:04}.{self._kind}"
        if attempt.attempt or batch:
            there = [one for one in self._folder.names(folder) if self._is_own(one)]
            if there and not attempt.attempt:
                raise StateMismatch(
                    f"{self._folder}/{there[0]} exists, but no attempt at batch {attempt.txid} has "
                    "written it: it is of other batches. Give an empty folder"
                )
            if batch:
                self._folder.write(name, self._writer.joined(batch))
            for one in there:
                if one != name or not batch:
                    self._folder.delete(one)

    def _is_own(self, name: str) -> bool:
        """Whether this task replaces an object: also those of tasks that there are no more."""
        found = _PART.fullmatch(name)
        return found is not None and int(found[1]) % self._tasks == self._index
