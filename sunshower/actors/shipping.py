"""Pickles user code by value, so that workers need not import the submitter's modules."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

from ray import cloudpickle

from sunshower.actors.starting import first_line
from sunshower.errors import TopologyError
from sunshower.runtime.plan import Plan


def ship(modules: Iterable[ModuleType]) -> None:
    """Pickle the definitions of these imported modules by value from now on, not by name."""
    for module in modules:
        cloudpickle.register_pickle_by_value(module)


def pickled(plan: Plan) -> bytes:
    """Pickle the plan by value. Raises TopologyError naming a component that cannot be pickled."""
    for component in plan.graph.components.values():
        try:
            cloudpickle.dumps(component)
        except Exception as error:
            raise TopologyError(
                f"component {component.id!r} cannot be sent to its worker: {first_line(error)}. "
                "Open files, sockets and locks belong into prepare() or open(), not into the "
                "object that is declared"
            ) from error
    data: bytes = cloudpickle.dumps(plan)
    return data
