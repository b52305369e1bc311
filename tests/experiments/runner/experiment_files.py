"""Small experiment files for tests, which take little real time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HEAD = """
    from sunshower.errors import ServerError
    from sunshower.experiments import *
    from sunshower.experiments.checkers import CheckResult

    def small(total, timeout_s=5.0):
        return relayed(total, rate=200, message_timeout_s=timeout_s)

    def kills(kill_every_s):
        return until(1, every(kill_every_s, kill(component("relay"))))

    class FixedResult:
        '''A checker that returns the given result.'''

        name = "fixed"

        def __init__(self, **result):
            self.result = result

        def check(self, history, facts):
            return CheckResult("fine", **self.result)

    class Fails:
        '''A fault that cannot begin.'''

        for_s = 0.0

        def __init__(self, error):
            self.error = error

        def check(self, plan): ...

        def begin(self, *_):
            raise self.error
"""
HOLDING = (
    HEAD
    + """
    print("noise at the import")
    experiment = Experiment(
        name="kill a relay",
        about="Kills a relay now and then.",
        topology=small,
        plan=kills,
        checkers=(AtLeastOnce(), Duplicates()),
        parameters={"total": 200, "kill_every_s": 0.4, "timeout_s": 5.0},
    )
"""
)
BROKEN = (
    HEAD
    + """
    experiment = Experiment(
        name="broken",
        topology=lambda: small(50),
        plan=lambda: kills(0.1),
        checkers=(FixedResult(broken=["<b>lost</b>"], evidence=["relay[0] <i>had it last</i>"]),),
    )
"""
)
PEACEFUL = (
    HEAD
    + """
    experiment = Experiment(
        name="peaceful", topology=lambda: small(20), plan=lambda: (), checkers=(AtLeastOnce(),)
    )
"""
)
FAILING = (
    HEAD
    + """
    experiment = Experiment(
        name="failing",
        topology=lambda: small(200),
        plan=lambda other: PLAN,
        checkers=(AtLeastOnce(),),
        parameters={"other": 1},
    )
"""
)


def failing(plan: str) -> str:
    """The experiment `failing` with this plan, in which `other` is a parameter."""
    return FAILING.replace("PLAN", plan)


def latest(root: Path, name: str) -> Path:
    """The folder of the newest run of an experiment, below `root`/experiments."""
    return (root / "experiments" / name / "latest").resolve()


def read(folder: Path, name: str) -> Mapping[str, Any]:
    """One of its JSON files."""
    fields: Mapping[str, Any] = json.loads((folder / name).read_text())
    return fields
