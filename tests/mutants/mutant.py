"""Mutants: defects that are put into functions of the package for the duration of a test."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.mutants.patterns import rewrite
from tests.structure.reading import PACKAGE_FILES, module_name, syntax, text

_MAKE = """
from __future__ import annotations
def make(__class__):  # super() needs this name
    return {}
"""


@dataclass(frozen=True)
class Defect:
    """A defect in one function of the package."""

    where: str  # such as Reports.fail, or fold
    edits: tuple[tuple[str, str], ...]  # pieces of its code and their replacements: patterns.py

    @contextmanager
    def made(self) -> Iterator[None]:
        """Replace the function, and restore it. Raises LookupError if the code has changed."""
        path, function = self.definition()
        module: Any = import_module(module_name(path))
        class_name, _, name = self.where.rpartition(".")
        if class_name:
            owner = getattr(module, class_name)
            owners = [owner]
        else:  # in all modules that import it
            owner, before = module, getattr(module, name)
            ours = [loaded for key, loaded in sys.modules.items() if key.startswith("sunshower")]
            owners = [loaded for loaded in ours if vars(loaded).get(name) is before]
        before = vars(owner)[name]
        after = self._compiled(rewrite(function, self.edits, vars(module)), owner, module)
        for target in owners:
            setattr(target, name, after)
        try:
            yield
        finally:
            for target in owners:
                setattr(target, name, before)

    def names(self) -> dict[str, Any]:
        """The names of the function's module, which match only themselves."""
        return vars(import_module(module_name(self.definition()[0])))

    def definition(self) -> tuple[Path, ast.FunctionDef]:
        """The file and the syntax tree of the function. Raises LookupError if it is gone."""
        class_name, _, name = self.where.rpartition(".")
        definitions = [
            (path, function)
            for path in PACKAGE_FILES
            if f"def {name}(" in text(path)
            for owner in syntax(path).body
            if not class_name or (isinstance(owner, ast.ClassDef) and owner.name == class_name)
            for function in (owner.body if isinstance(owner, ast.ClassDef) else [owner])
            if isinstance(function, ast.FunctionDef)
            and function.name == name
            and bool(class_name) is isinstance(owner, ast.ClassDef)
        ]
        if len(definitions) != 1:
            raise LookupError(
                f"there are {len(definitions)} functions {self.where}: correct the mutant"
            )
        return definitions[0]

    def _compiled(self, function: ast.FunctionDef, owner: Any, module: Any) -> Any:
        tree = ast.parse(_MAKE.format(function.name))
        make = tree.body[-1]
        assert isinstance(make, ast.FunctionDef)
        make.body.insert(0, function)
        names: dict[str, Any] = {}
        code = compile(ast.fix_missing_locations(tree), f"mutant of {self.where}", "exec")
        exec(code, vars(module), names)
        return names["make"](owner)


@dataclass(frozen=True)
class Mutant:
    """A package that is broken on purpose, in one or several functions."""

    name: str
    about: str  # what is broken, and why it matters
    defects: tuple[Defect, ...]
    stages: tuple[str, ...]  # the stages on which it must be found
    seen: int | None = None  # a seed that shows it, where a search takes long

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Put all defects into the package, and remove them at the end."""
        with ExitStack() as defects:
            for defect in self.defects:
                defects.enter_context(defect.made())
            yield


def defect(where: str, *pieces: str) -> Defect:
    """`pieces` in pairs: a piece of the code of `where`, and its replacement."""
    return Defect(where, tuple(zip(pieces[::2], pieces[1::2], strict=True)))


def as_it_is(piece: str) -> tuple[str, str]:
    """A piece that stays, and binds the variables that another replacement uses."""
    return piece, piece


def mutant(
    name: str, about: str, *defects: Defect, on: str = "lines", seen: int | None = None
) -> Mutant:
    """A mutant that must be found on the stages `on`, which are separated by blanks."""
    return Mutant(name, about, defects, tuple(on.split()), seen)
