"""Tests of the patterns of mutants: they match the shape of code, not the names of variables."""

from __future__ import annotations

import ast
import copy

import pytest

from tests.mutants.mutant import Mutant
from tests.mutants.patterns import local_names, rewrite
from tests.mutants.test_mutants import MUTANTS as OF_THE_RUNTIME
from tests.trident.test_batch_mutants import MUTANTS as OF_BATCHES

MUTANTS = [*OF_THE_RUNTIME, *OF_BATCHES]


class _Renamed(ast.NodeTransformer):
    """Renames all variables and parameters except `self`."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id += "_renamed" * (node.id in self._names)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.arg += "_renamed" * (node.arg in self._names)
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        node.name = node.name and f"{node.name}_renamed"
        return self.generic_visit(node)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_renamed_variable_does_not_break_a_mutant(mutant: Mutant) -> None:
    for defect in mutant.defects:
        function, fixed = defect.definition()[1], defect.names()
        names = local_names(function)
        mutated = rewrite(function, defect.edits, fixed)
        renamed = rewrite(_Renamed(names).visit(copy.deepcopy(function)), defect.edits, fixed)
        assert ast.unparse(mutated) != ast.unparse(function)
        assert ast.unparse(renamed) == ast.unparse(_Renamed(names).visit(mutated))


CODE = """
def f(self, batch, count):
    for row in batch:
        if row and count:
            self._seen.add(row, count)
    return len(batch)
"""


@pytest.mark.parametrize(
    ("pattern", "replacement", "line", "after"),
    [
        ("x and y", "x", 2, "if row:"),
        ("if x and y:", "if False:", 2, "if False:"),
        (
            "self._known.add(...)",
            "self._known.add(...)\nself._known.clear()",
            4,
            "self._seen.clear()",
        ),
        ("return len(batch)", "return 1 + len(batch)", 4, "return 1 + len(batch)"),
        ("self._x.add(a, ...)", "self._x.add(a, a, ...)", 3, "self._seen.add(row, row, count)"),
        ("len(...)", "len(list(...))", 4, "return len(list(batch))"),
        ("for x in batch:", "y = 1\nfor x in batch:", 1, "y = 1"),
    ],
)
def test_a_piece_is_replaced(pattern: str, replacement: str, line: int, after: str) -> None:
    (function,) = ast.parse(CODE).body
    assert isinstance(function, ast.FunctionDef)
    lines = ast.unparse(rewrite(function, [(pattern, replacement)], {"len"})).splitlines()
    assert lines[line].strip() == after


@pytest.mark.parametrize(("pattern", "places"), [("x or y", 0), ("self.seen", 0), ("a", 7)])
def test_a_pattern_that_does_not_occur_exactly_once_is_refused(pattern: str, places: int) -> None:
    (function,) = ast.parse(CODE).body
    assert isinstance(function, ast.FunctionDef)
    with pytest.raises(LookupError, match=f"f has {places} places like"):
        rewrite(function, [(pattern, "None")], {"len"})
