"""Replaces pieces of code in the syntax tree of a function.

A pattern is a Python expression or statement. A local variable or a private attribute in it matches
any other, the same one everywhere; all other names must be equal. `...` matches any expression, or
all further arguments. A header (`if a > b:`) matches the statement and keeps its body. So neither a
renamed variable nor another layout of the lines breaks a pattern.
"""

from __future__ import annotations

import ast
import copy
import textwrap
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

Bindings = dict[str, Any]  # a name in the pattern → the name in the code; "..." → the code there
Place = tuple[ast.AST, str, int | None]  # a node, one of its fields, and the index in a list
_BODY = "..."


def local_names(function: ast.AST) -> set[str]:
    """The parameters of a function, and all names that it assigns."""
    nodes = list(ast.walk(function))
    stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    caught = {n.name for n in nodes if isinstance(n, ast.ExceptHandler) and n.name}
    return (stored | caught | {n.arg for n in nodes if isinstance(n, ast.arg)}) - {"self"}


def rewrite(
    function: ast.FunctionDef, edits: Sequence[tuple[str, str]], fixed: Container[str]
) -> ast.FunctionDef:
    """A copy of `function` with each pattern replaced; `fixed`: names that match only themselves.

    Raises LookupError for a pattern that does not occur exactly once.
    """
    function = copy.deepcopy(function)
    matcher = _Matcher(local_names(function), fixed)
    bound: Bindings = {}
    for pattern, _ in edits:  # before any edit, so that all patterns refer to the original code
        bound = _place_of(matcher, pattern, function, bound)[1]
        bound.pop(_BODY, None)
    for pattern, replacement in edits:
        (node, field, index), binding = _place_of(matcher, pattern, function, bound)
        new = [_filled(part, binding) for part in _parsed(replacement)]
        value: Any = getattr(node, field)
        if index is not None and isinstance(value[index], ast.stmt):
            value[index : index + 1] = new
        else:
            (expression,) = new
            assert isinstance(expression, ast.Expr), f"{replacement!r} must be an expression"
            if index is None:
                setattr(node, field, expression.value)
            else:
                value[index] = expression.value
    return ast.fix_missing_locations(function)


def _parsed(piece: str) -> list[ast.stmt]:
    piece = textwrap.dedent(piece)
    return ast.parse(f"{piece} ..." if piece.endswith(":") else piece).body


def _place_of(
    matcher: _Matcher, pattern: str, function: ast.FunctionDef, bound: Bindings
) -> tuple[Place, Bindings]:
    (wanted,) = _parsed(pattern)
    hits: list[tuple[Place, Bindings]] = []
    for place, node in _places(function):
        goals: list[ast.AST] = [wanted]
        if isinstance(wanted, ast.Expr) and not isinstance(node, ast.stmt):
            goals = [wanted.value]
        for goal in goals:
            binding = dict(bound)
            if matcher.fits(goal, node, binding):
                hits.append((place, binding))
    hits = [f for f in hits if not isinstance(f[0][0], ast.Expr)] or hits  # the whole statement
    same = [f for f in hits if all(name == to for name, to in f[1].items() if name != _BODY)]
    hits = same or hits
    if len(hits) != 1:
        raise LookupError(f"{function.name} has {len(hits)} places like {pattern!r}")
    return hits[0]


def _places(function: ast.FunctionDef) -> Iterator[tuple[Place, ast.AST]]:
    for node in ast.walk(function):
        for field, value in ast.iter_fields(node):
            if isinstance(value, ast.AST):
                yield (node, field, None), value
            elif isinstance(value, list):
                for index, child in enumerate(value):
                    if isinstance(child, ast.AST):
                        yield (node, field, index), child


class _Matcher:
    def __init__(self, variables: Container[str], fixed: Container[str]) -> None:
        self._variables, self._fixed = variables, fixed

    def fits(self, wanted: Any, code: Any, bound: Bindings) -> bool:
        """Whether `code` matches the pattern `wanted`; adds to `bound`."""
        if _is_any(wanted) and isinstance(code, ast.expr):
            return bool(bound.setdefault(_BODY, code) is code)
        if type(wanted) is not type(code):
            return False
        match wanted:
            case list():
                if wanted and (_is_any(wanted[-1]) or _is_body(wanted[-1])):
                    wanted, bound[_BODY] = wanted[:-1], code[len(wanted) - 1 :]
                    code = code[: len(wanted)]
                return len(wanted) == len(code) and all(
                    self.fits(part, other, bound) for part, other in zip(wanted, code, strict=True)
                )
            case ast.Name() if code.id in self._variables and wanted.id not in self._fixed:
                return bool(bound.setdefault(wanted.id, code.id) == code.id)
            case ast.Call(func=ast.Attribute(attr=called)) if (
                not isinstance(code.func, ast.Attribute) or code.func.attr != called
            ):
                return False
            case ast.Attribute() if wanted.attr[0] == code.attr[0] == "_":
                same = bound.setdefault(wanted.attr, code.attr) == code.attr
                return same and self.fits(wanted.value, code.value, bound)
            case ast.AST():
                return all(
                    self.fits(value, getattr(code, field, None), bound)
                    for field, value in ast.iter_fields(wanted)
                    if field not in ("ctx", "type_comment")
                )
        return bool(wanted == code)


def _is_any(node: Any) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


def _is_body(node: Any) -> bool:
    return isinstance(node, ast.Expr) and _is_any(node.value)


class _Fill(ast.NodeTransformer):
    def __init__(self, bound: Mapping[str, Any]) -> None:
        self._bound = bound

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._bound.get(node.id, node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        node.attr = self._bound.get(node.attr, node.attr) if node.attr[0] == "_" else node.attr
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> Any:
        body = self._bound[_BODY] if _is_body(node) else None
        return body if isinstance(body, list) else self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return self._bound[_BODY] if _is_any(node) else node


def _filled(replacement: ast.stmt, bound: Bindings) -> ast.stmt:
    filled: ast.stmt = _Fill(bound).visit(replacement)
    return filled
