"""Stages of ordinary streams while they are declared: trees of operators, compiled into bolts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from sunshower.records import Schema
from sunshower.topologies.operators.compiled_stage import Branch, OperatorBolt
from sunshower.topologies.operators.port import Operator
from sunshower.topologies.operators.steps import RowOperator


@dataclass(eq=False)
class StageRows:
    """The rows that an operator emits, or those that arrive at the stage (`operator` None)."""

    stage: StageDraft
    schema: Schema
    operator: Operator | None = None
    stream: str | None = None  # the stream that they leave on, once something outside reads them
    readers: list[StageRows] = field(default_factory=list)  # within the stage

    def then(self, operator: Operator, schema: Schema) -> StageRows:
        """The rows that `operator` makes of these, in the same stage."""
        self.readers.append(StageRows(self.stage, schema, operator))
        return self.readers[-1]

    def branch(self) -> Branch:
        """This node and its readers, frozen."""
        return Branch(self.operator, self.stream, tuple(one.branch() for one in self.readers))


class StageDraft:
    """A stage, which will be the bolt `id`."""

    def __init__(self, id: str, schema: Schema) -> None:
        self.id = id
        self.input = StageRows(self, schema)
        self._words: Counter[str] = Counter()

    def new_stream(self, word: str) -> str:
        """A stream id for what an operator emits: its word, numbered from the second."""
        self._words[word] += 1
        return word if self._words[word] == 1 else f"{word}-{self._words[word]}"

    def compiled(self) -> OperatorBolt:
        """The bolt. Its functions run input by input as far as the rows have one reader."""
        node, steps = self.input, list[RowOperator]()
        while node.stream is None and len(node.readers) == 1:
            (reader,) = node.readers
            if not isinstance(reader.operator, RowOperator):
                break
            steps.append(reader.operator)
            node = reader
        branches = tuple(reader.branch() for reader in node.readers)
        return OperatorBolt(steps, Branch(None, node.stream, branches), node.schema)
