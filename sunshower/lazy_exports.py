"""Loads what a package exports on first use, so that its other modules start quickly without it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_exports(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package. `names`: module below it, or a full name → the names
    that it has, separated by blanks."""
    places = {
        name: module if module.startswith("sunshower.") else f"{package}.{module}"
        for module, texts in names.items()
        for name in texts.split()
    }

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(places[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return get
