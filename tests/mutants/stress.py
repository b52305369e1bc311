"""Runs a stage with a seed: a small topology with random faults, and the checks that failed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.random import Generator

from sunshower.config import Internals
from sunshower.experiments.checkers import (
    AtLeastOnce,
    BoundedPending,
    Checker,
    EachEdgeOnce,
    Liveness,
    NoneTimedOut,
    NoPrematureAck,
)
from sunshower.experiments.event_history import History
from sunshower.experiments.experiment import Experiment, run_experiment
from sunshower.experiments.outcome import Outcome, Verdict
from sunshower.runtime.plan import Layout
from sunshower.runtime.tasks.bolts import automatic_bolt
from sunshower.runtime.tracking.ids import GENERATION_MASK
from sunshower.runtime.tracking.pending import Pending
from sunshower.simulation.cluster import SimCluster
from tests.mutants.random_faults import DRAINED_S, QUIET_S, draw_plan
from tests.mutants.stage_checkers import (
    ExpectedRecords,
    FailuresAreReported,
    NoNewMessages,
    ReplaysFollowFailures,
    RestartsContinue,
)
from tests.mutants.stages import STAGES, Dice

CRASH = "a crash"
_SECONDS_MAX = 150.0
_LIVELY_S = 60.0
_ISOLATED = ("isolated", "delays", "bad_routes")  # stages where each task has its own worker


@dataclass(frozen=True)
class Result:
    """The result of one seed."""

    wrong: tuple[str, ...]  # the names of the checks that failed
    reasons: tuple[str, ...]  # the reason of each
    proved: bool = False  # whether a fault took effect, and a message was completed after it
    outcome: Outcome | None = None  # None: an invariant was violated, or the core crashed
    history: History | None = None


def stress(stage: str, seed: int) -> Result:
    """Run and check a stage. Raises NameError if a mutant uses a name that does not exist."""
    dice, generator = Dice(seed), np.random.default_rng([seed, 1])
    total = dice.randrange(12, 36) if stage != "masters" else 40
    settings = _settings(generator)
    experiment = Experiment(
        name=stage,
        topology=lambda: STAGES[stage](dice, total, **settings),
        plan=lambda: draw_plan(stage, generator),
        checkers=_checkers(stage, total),
        layout=Layout.ISOLATE if stage in _ISOLATED or generator.random() < 0.2 else Layout.PACK,
        seconds_max=_SECONDS_MAX,
    )
    near_wrap = generator.random() < 0.3
    with (
        tables_near_wrap(int(generator.integers(4))) if near_wrap else nullcontext(),
        patch.object(automatic_bolt, "PIECE_MAX", 1 if seed % 3 else 1 << 16),
        SimCluster(seed, nodes=2, check=True) as cluster,
    ):
        try:
            outcome, history = run_experiment(experiment, cluster, seed)
        except AssertionError as error:
            return Result(("an invariant",), (str(error),))
        except NameError:
            raise  # such a mutant is an error of the test, not a defect that the stage shows
        except Exception as error:
            return Result((CRASH,), (f"{type(error).__name__}: {error}",))
    broken = [finding for finding in outcome.findings if finding.verdict is Verdict.BROKEN]
    wrong, reasons = (
        [finding.checker for finding in broken],
        [finding.reasons[0] for finding in broken],
    )
    if outcome.error is not None and not broken:
        wrong, reasons = ["the end"], [outcome.error]
    holds = any(finding.verdict is Verdict.HOLDS for finding in outcome.findings)
    return Result(tuple(wrong), tuple(reasons), holds, outcome, history)


def _checkers(stage: str, total: int) -> list[Checker]:
    checkers: list[Checker] = [
        *(AtLeastOnce(), NoPrematureAck(), EachEdgeOnce(), BoundedPending()),
        *(Liveness(_LIVELY_S), ReplaysFollowFailures(), ExpectedRecords(stage, total)),
    ]
    if stage == "masters":
        checkers += [RestartsContinue(), NoNewMessages(DRAINED_S + QUIET_S / 2)]
    manual = stage in ("manual", "bad_routes", "bad_flushes")
    return [*checkers, FailuresAreReported() if manual else NoneTimedOut()]


@contextmanager
def tables_near_wrap(before: int) -> Iterator[None]:
    """All spout tables begin `before` generations before the largest one, so they wrap soon."""
    original_init = Pending.__init__

    def init_near_wrap(self: Pending, *args: Any, **named: Any) -> None:
        original_init(self, *args, **named)
        self._generation[:] = GENERATION_MASK - before

    Pending.__init__ = init_near_wrap  # type: ignore[method-assign]
    try:
        yield
    finally:
        Pending.__init__ = original_init  # type: ignore[method-assign]


def _settings(generator: Generator) -> dict[str, Any]:
    return {
        "workers": int(generator.integers(2, 5)),
        "ackers": int(generator.integers(1, 4)),
        "spout_pending": int(generator.choice((2, 4, 8, 16))),
        "internals": Internals(
            frame_records_max=int(generator.choice((2, 8, 64))),
            sweep_grace_s=float(generator.choice((0.2, 1.0))),
            window_s=float(generator.choice((0.002, 0.25))),
            peer_link_retry_s=float(generator.choice((0.05, 0.5))),
            idle_poll_s=0.05,
            restart_backoff_s=0.05,
            task_backoff_s=0.05,
        ),
        "message_timeout_s": 30.0,
        "worker_timeout_s": 2.0,  # packets that a cut has swallowed are lost after half of this
        "deaths_max": 1_000,  # random kills must not put tasks into quarantine
    }
