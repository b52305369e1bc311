"""Reads the repository for tests: its files, their syntax trees and their imports."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "sunshower"


def _walk() -> Iterator[Path]:
    lines = [line for line in (ROOT / ".gitignore").read_text().split() if line[-1] == "/"]
    everywhere = {line[:-1] for line in lines} | {".git"}
    at_root = {line.strip("/") for line in lines if line[0] == "/"}
    for folder, subfolders, names in os.walk(ROOT):
        ignored = everywhere | (at_root if Path(folder) == ROOT else set())
        subfolders[:] = sorted(set(subfolders) - ignored)
        files = sorted(set(names) - {".git"})  # a file, in a linked work tree
        yield from (Path(folder, name).relative_to(ROOT) for name in files)


FILES = tuple(_walk())  # relative to ROOT; .git and the folders that .gitignore names are left out
PYTHON = tuple(
    path
    for path in FILES
    if path.suffix == ".py" and path.parts[0] in {PACKAGE, "tests", "benchmarks", "examples"}
)
PACKAGE_FILES = tuple(path for path in PYTHON if path.parts[0] == PACKAGE)


@cache
def text(path: Path) -> str:
    """The content of a file of the repository."""
    return (ROOT / path).read_text(encoding="utf-8")


@cache
def syntax(path: Path) -> ast.Module:
    """The syntax tree of a Python file of the repository."""
    return ast.parse(text(path), str(path))


@dataclass(frozen=True)
class Import:
    """One module that a file imports. `module` is "?" if it is known only when the program runs."""

    module: str
    line: int
    late: bool  # inside a function: imported only when it is called
    typing_only: bool  # under `if TYPE_CHECKING:`: never imported


def _is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


class _Imports(ast.NodeVisitor):
    """Collects all imports of a file."""

    def __init__(self, path: Path) -> None:
        self.package = path.with_suffix("").parts[:-1]
        self.imports: list[Import] = []
        self._functions = 0
        self._typing = False

    def _add(self, module: str, node: ast.stmt | ast.expr) -> None:
        self.imports.append(Import(module, node.lineno, self._functions > 0, self._typing))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(alias.name, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        above = self.package[: len(self.package) - node.level + 1] if node.level else ()
        source = ".".join((*above, *filter(None, [node.module])))
        for alias in node.names:
            inner = f"{source}.{alias.name}"
            self._add(inner if _is_module(inner) else source, node)

    def visit_Call(self, node: ast.Call) -> None:
        called = ast.unparse(node.func)
        if called in {"__import__", "import_module", "importlib.import_module"}:
            name = node.args[0] if node.args else None
            known = isinstance(name, ast.Constant) and isinstance(name.value, str)
            self._add(name.value if known else "?", node)
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        before = self._typing
        self._typing = before or ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}
        for statement in node.body:
            self.visit(statement)
        self._typing = before
        for statement in node.orelse:
            self.visit(statement)

    def _visit_function(self, node: ast.AST) -> None:
        self._functions += 1
        self.generic_visit(node)
        self._functions -= 1

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _visit_function  # noqa: N815


@cache
def all_imports(path: Path) -> tuple[Import, ...]:
    """What a file imports: when it runs, early or late, and for types only."""
    visitor = _Imports(path)
    visitor.visit(syntax(path))
    return tuple(visitor.imports)


def imports(path: Path) -> tuple[Import, ...]:
    """What a file imports when it runs, early or late; imports for types only are left out."""
    return tuple(imported for imported in all_imports(path) if not imported.typing_only)


def module_name(path: Path) -> str:
    """The name that a file is imported by: `sunshower/config.py` → `sunshower.config`."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
