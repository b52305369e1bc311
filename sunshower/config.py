"""Every limit and default in one frozen value, checked against each other when it is made."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from sunshower.errors import ConfigError

SLOTS_MAX = 1 << 24  # a root id has 24 bits for its slot
_AUTO_SLOTS = 32_768


@dataclass(frozen=True, kw_only=True)
class Config:
    """How a topology runs. Units are in the names; Storm's key stands beside each default.

    Raises ConfigError for a value out of range or two values that contradict each other.
    """

    message_timeout_s: float = 30.0  # topology.message.timeout.secs
    # A progress deadline: when set, a tree lives while it is heard of, but not longer than this
    # after its emit; message_timeout_s is then how long nothing may be heard. See progress.py.
    message_timeout_max_s: float | None = None
    ackers: int | None = None  # topology.acker.executors; None: see plan.py, 0: untracked
    workers: int = 2  # topology.workers, in the `pack` layout
    # topology.max.spout.pending: roots in flight, per spout task. "auto": as many as the complete
    # latency bears, up to 32,768; see congestion.py
    spout_pending: int | Literal["auto"] = 32_768
    frame_records_max: int = 16_384  # records of one frame on the wire
    packet_bytes_max: int = 1 << 20  # what one call to another worker carries at most, about
    record_bytes_max: int = 1 << 24  # of one record on the wire; within a worker nothing travels
    calls_in_flight_max: int = 4  # packets on the way to one worker, not yet accepted
    slice_s: float = 0.02  # work on one task before the mailbox is looked at again
    window_s: float = 0.25  # how much work may wait before a task, as service time
    window_records_max: int = 262_144  # the same as a hard limit, per pair of tasks; in a cycle,
    # where nobody can wait, trees fail beyond it
    sweep_grace_s: float = 1.0  # after a death, what is still pending then has failed
    lane_retry_s: float = 2.0  # before a worker that did not answer is tried again
    attempts_max: int = 5  # of a tuple that its own bolt fails, where a spout has no retry=
    replay_share: float = 0.5  # of what a spout emits, while it has fresh records; see budget.py
    block_max_s: float = 60.0  # of one call of user code; then its process is ended
    idle_poll_s: float = 0.1  # how often at least a spout that had nothing is asked again
    check_mutation: bool = False  # for tests: refuse bolts that change their input; mutation.py
    task_errors_max: int = 5  # of a task, in a row, outside a tuple's care; then it is quarantined
    task_backoff_s: float = 0.1  # before a task that raised is tried again; doubled each time
    deaths_max: int = 6  # in a row, of a process that a task keeps ending; then it is quarantined
    restart_backoff_s: float = 0.5  # before a worker goes on that keeps dying; doubled each time

    def __post_init__(self) -> None:
        for setting in fields(self):
            value = getattr(self, setting.name)
            if not isinstance(value, int | float | None) and value != "auto":
                raise ConfigError(f"{setting.name} is {value!r}; it must be a number")
        for name in (
            "message_timeout_s",
            "slice_s",
            "window_s",
            "sweep_grace_s",
            "lane_retry_s",
            "block_max_s",
            "idle_poll_s",
            "task_backoff_s",
            "restart_backoff_s",
        ):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be above 0 seconds")
        for name in (
            "workers",
            "spout_slots",
            "frame_records_max",
            "packet_bytes_max",
            "record_bytes_max",
            "calls_in_flight_max",
            "window_records_max",
            "attempts_max",
            "task_errors_max",
            "deaths_max",
        ):
            if getattr(self, name) < 1:
                said = name.replace("spout_slots", "spout_pending")
                raise ConfigError(f"{said} is {getattr(self, name)}; it must be at least 1")
        longest = self.message_timeout_max_s
        if longest is not None and longest < self.message_timeout_s:
            raise ConfigError(
                f"message_timeout_max_s is {longest:g}, shorter than a message_timeout_s of "
                f"{self.message_timeout_s:g}; it is the longest a tree may live, progress or not"
            )
        if not 0 < self.replay_share <= 1:
            raise ConfigError(
                f"replay_share is {self.replay_share}; it must be above 0, and 1 at most"
            )
        if self.ackers is not None and self.ackers < 0:
            raise ConfigError(f"ackers is {self.ackers}; use 0 for an untracked topology")
        if self.spout_slots > SLOTS_MAX:
            raise ConfigError(
                f"spout_pending is {self.spout_pending}; a root id has room for {SLOTS_MAX} slots"
            )
        if self.frame_records_max > self.window_records_max:
            raise ConfigError(
                f"frame_records_max {self.frame_records_max} would never fit a "
                f"window_records_max of {self.window_records_max}"
            )

    @property
    def spout_slots(self) -> int:
        """The size of a spout task's pending table."""
        return _AUTO_SLOTS if self.spout_pending == "auto" else self.spout_pending

    @property
    def tracked(self) -> bool:
        """Whether tuple trees are followed at all."""
        return self.ackers != 0
