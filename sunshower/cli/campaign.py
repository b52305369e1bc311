"""All runs that one command asks for, one after the other: checked, made, and summed up."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.markup import escape

from sunshower.cli.folders import PLAN, RunFolder, member, new_folder
from sunshower.cli.interrupts import Interrupts
from sunshower.cli.laboratory import Laboratory
from sunshower.cli.orders import Order, in_words, now, plan_of, plan_of_all
from sunshower.cli.parameters import Variant
from sunshower.cli.reports import write_group_report, write_unfinished
from sunshower.cli.screen import Screen
from sunshower.errors import ExperimentError, SunshowerError
from sunshower.faults.experiment import Experiment, prepare


class Campaign:
    """One run, or several in a folder together."""

    def __init__(
        self, order: Order, experiment: Experiment, chosen: Sequence[Variant], screen: Screen
    ) -> None:
        """Check everything, before anything starts. Raises ExperimentError, and what a topology's
        declaration raises.
        """
        if order.cluster == "sim" and not experiment.simulated:
            raise ExperimentError(
                f"{experiment} cannot be simulated: it depends on what runs outside of the "
                "topology. Add --cluster ray"
            )
        self._order, self._experiment, self._chosen = order, experiment, chosen
        self._screen = screen
        self._prepared = [prepare(experiment, one.seed, one.parameters) for one in chosen]

    def conduct(self, root: Path, modules: Iterable[ModuleType], command: str) -> RunFolder:
        """Make all runs; returns their folder below `root`. `command`: what asks for all of them.

        Raises what a single run raises; of several it is that run's outcome. Who interrupts them
        has a report of what was done so far.
        """
        with Laboratory(self._order, self._screen, modules) as laboratory, Interrupts():
            time = datetime.now().astimezone()
            folder = new_folder(root, self._experiment.name, time)
            try:
                if len(self._chosen) == 1:
                    self._one(laboratory, folder, 0)
                else:
                    self._all(laboratory, folder, command)
            except KeyboardInterrupt:
                self._screen.say(f"Interrupted. What there is: {escape(str(folder.path))}")
                raise
        return folder

    def _one(self, laboratory: Laboratory, folder: RunFolder, number: int) -> None:
        prepared = self._prepared[number]
        folder.write(PLAN, plan_of(self._order, prepared, self._chosen[number]))
        laboratory.conduct(prepared, folder, self._title(number))

    def _all(self, laboratory: Laboratory, group: RunFolder, command: str) -> None:
        group.write(PLAN, plan_of_all(self._order, self._experiment, self._chosen, command))
        ended: dict[str, Any] = {"stopped": "interrupted"}
        try:
            for number in range(len(self._chosen)):
                self._try(laboratory, member(group, number + 1), number)
            ended = {"ended": now()}
        finally:
            group.write(PLAN, {**group.plan, **ended})
            write_group_report(group)

    def _try(self, laboratory: Laboratory, folder: RunFolder, number: int) -> None:
        try:
            self._one(laboratory, folder, number)
        except Exception as error:
            self._tell(number, error)
            if not folder.is_over:
                self._finish(folder, number)

    def _finish(self, folder: RunFolder, number: int) -> None:
        try:
            write_unfinished(folder)
        except Exception as error:  # the others go on all the same
            self._tell(number, error)

    def _tell(self, number: int, error: Exception) -> None:
        trace = "" if isinstance(error, SunshowerError) else f"\n{traceback.format_exc()}"
        told = f"{self._title(number)}: {type(error).__name__}: {error}{trace}"
        self._screen.say(escape(told.rstrip()))

    def _title(self, number: int) -> str:
        words = in_words(self._chosen[number], self._order.swept)
        if len(self._chosen) > 1:
            words = f"run {number + 1} of {len(self._chosen)}: {words}"
        return f"{self._experiment.name}  ·  {words}"
