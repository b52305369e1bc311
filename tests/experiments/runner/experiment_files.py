"""Small experiment files for tests, which take a moment of real time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HEAD = """
    from sunshower.experiments import *
    from sunshower.experiments.checkers.checker import CheckResult

    def small(total, timeout_s=5.0):
        return relayed(total, rate=200, message_timeout_s=timeout_s)

    def kills(kill_every_s):
        return until(1, every(kill_every_s, kill(component("relay"))))

    class Says:
        '''A checker that says what it was told to.'''

        name = "says"

        def __init__(self, **said):
            self.said = said

        def check(self, history, facts):
            return CheckResult("fine", **self.said)
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
        checkers=(Says(broken=["<b>lost</b>"], evidence=["relay[0] <i>had it last</i>"]),),
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
INTERRUPTED = (
    HEAD
    + """
    class Interrupt:
        for_s = 0.0
        def check(self, plan): ...
        def begin(self, *_):
            raise KeyboardInterrupt

    experiment = Experiment(
        name="interrupted",
        topology=lambda: small(200),
        plan=lambda: at(0.5, Interrupt()),
        checkers=(AtLeastOnce(),),
        parameters={"other": 1},
    )
"""
)
TROUBLED = (
    HEAD
    + """
    from sunshower.errors import ServerError

    class Trouble:
        for_s = 0.0
        def check(self, plan): ...
        def begin(self, *_):
            raise {error}

    experiment = Experiment(
        name="troubled",
        topology=lambda: small(100),
        plan=lambda other: at(0.2, Trouble() if other == 2 else kill(component("relay"))),
        checkers=(AtLeastOnce(),),
        parameters={"other": 1},
    )
"""
)


def latest(root: Path, name: str) -> Path:
    """The folder of the newest run of an experiment, below `root`/experiments."""
    return (root / "experiments" / name / "latest").resolve()


def read(folder: Path, name: str) -> Mapping[str, Any]:
    """One of its JSON files."""
    found: Mapping[str, Any] = json.loads((folder / name).read_text())
    return found
