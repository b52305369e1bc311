"""A mutant of the core: the same source with one slip in it, for as long as it is entered."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

_MAKE = """
from __future__ import annotations
def make(__class__):  # what super() looks for
{}
    return {}
"""


@dataclass(frozen=True)
class Slip:
    """One function of the core, and what a tired engineer writes there."""

    where: str  # such as ledger:_Table.ack, below sunshower/runtime
    edits: tuple[tuple[str, str], ...]  # a piece of its source, there once, and what it becomes
    package: str = "sunshower.runtime"

    @contextmanager
    def made(self) -> Iterator[None]:
        """Put the slip there, and take it back. Raises AssertionError if the source has changed."""
        module_name, path = self.where.split(":")
        module: Any = import_module(f"{self.package}.{module_name}")
        *owners, name = path.split(".")
        owner = getattr(module, owners[0]) if owners else module
        before = inspect.getattr_static(owner, name)
        setattr(owner, name, self._rewritten(before, owner))
        try:
            yield
        finally:
            setattr(owner, name, before)

    def _rewritten(self, before: Any, owner: Any) -> Any:
        is_property = isinstance(before, property)
        function = before.fget if is_property else getattr(before, "__func__", before)
        source = textwrap.dedent(inspect.getsource(function))
        for old, new in self.edits:
            said = f"{self.where} has changed: mend the mutant, which looks for {old!r}"
            assert source.count(old) == 1, said
            source = source.replace(old, new)
        code = _MAKE.format(textwrap.indent(source, "    "), function.__name__)
        names: dict[str, Any] = {}
        exec(compile(code, f"mutant of {self.where}", "exec"), function.__globals__, names)
        return names["make"](owner)


@dataclass(frozen=True)
class Mutant:
    """A core that is broken on purpose."""

    name: str
    about: str  # what is broken, and why it matters
    slips: tuple[Slip, ...]
    stages: tuple[str, ...]  # where it is to be found
    seen: int | None = None  # the first seed that shows it, where a search is long

    @contextmanager
    def alive(self) -> Iterator[None]:
        """The core is this mutant, for a while."""
        with ExitStack() as slips:
            for slip in self.slips:
                slips.enter_context(slip.made())
            yield


def slip(where: str, *pieces: str) -> Slip:
    """What is said in pairs: a piece of the source of `where`, and what stands there instead."""
    return Slip(where, tuple(zip(pieces[::2], pieces[1::2], strict=True)))


def mutant(
    name: str, about: str, *slips: Slip, on: str = "lines", seen: int | None = None
) -> Mutant:
    """A mutant that is to be found on the stages `on`, separated by blanks."""
    return Mutant(name, about, slips, tuple(on.split()), seen)
