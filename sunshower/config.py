"""Every limit and default in one frozen value, checked against each other when it is made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from sunshower.arguments import COUNT, FLAG, SECONDS, Values, check_all
from sunshower.errors import ConfigError

SLOTS_MAX = 1 << 24  # a root id has 24 bits for its slot
_AUTO_SLOTS = 32_768

# What each setting may be, for whoever writes a Config and for whoever types `--set name=value`.
LIMITS: dict[str, Values] = {
    "message_timeout_s": SECONDS,
    "message_timeout_max_s": SECONDS.or_else("none", None),
    "ackers": replace(COUNT, least=0).or_else("none", None),
    "workers": COUNT,
    "spout_pending": replace(COUNT, most=SLOTS_MAX).or_else("auto", "auto"),
    "frame_records_max": COUNT,
    "packet_bytes_max": COUNT,
    "record_bytes_max": COUNT,
    "calls_in_flight_max": COUNT,
    "slice_s": SECONDS,
    "window_s": SECONDS,
    "window_records_max": COUNT,
    "sweep_grace_s": SECONDS,
    "lane_retry_s": SECONDS,
    "attempts_max": COUNT,
    "replay_share": Values(float, least=0, above=True, most=1),
    "block_max_s": SECONDS,
    "idle_poll_s": SECONDS,
    "check_mutation": FLAG,
    "unavailable_max_s": SECONDS,
    "task_errors_max": COUNT,
    "task_backoff_s": SECONDS,
    "deaths_max": COUNT,
    "restart_backoff_s": SECONDS,
}


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
    spout_pending: int | Literal["auto"] = "auto"
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
    # How long a tuple may fail with `unavailable` while others of that component succeed; then each
    # such failure is charged. While all of them fail there is no limit.
    unavailable_max_s: float = 3_600.0
    task_errors_max: int = 5  # of a task, in a row, outside a tuple's care; then it is quarantined
    task_backoff_s: float = 0.1  # before a task that raised is tried again; doubled each time
    deaths_max: int = 6  # in a row, of a process that a task keeps ending; then it is quarantined
    restart_backoff_s: float = 0.5  # before a worker goes on that keeps dying; doubled each time

    def __post_init__(self) -> None:
        check_all(self, LIMITS)
        longest = self.message_timeout_max_s
        if longest is not None and longest < self.message_timeout_s:
            raise ConfigError(
                f"message_timeout_max_s is {longest:g}, shorter than a message_timeout_s of "
                f"{self.message_timeout_s:g}; it is the longest a tree may live, progress or not"
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
