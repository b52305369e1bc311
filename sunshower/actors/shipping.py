"""User code by value: modules that only the submitting process can import travel in the plan."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

from ray import cloudpickle


def ship(modules: Iterable[ModuleType]) -> None:
    """Pickle what these imported modules define by value from now on, not by name."""
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
