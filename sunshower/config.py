"""Every limit and default in one frozen value, checked against each other when it is made."""

from __future__ import annotations

from dataclasses import dataclass

from sunshower.errors import ConfigError

SLOTS_MAX = 1 << 24  # a root id has 24 bits for its slot


@dataclass(frozen=True, kw_only=True)
class Config:
    """How a topology runs. Units are in the names; Storm's key stands beside each default.

    Raises ConfigError for a value out of range or two values that contradict each other.
    """

    message_timeout_s: float = 30.0  # topology.message.timeout.secs
    ackers: int | None = None  # topology.acker.executors; None: see plan.py, 0: untracked
    workers: int = 2  # topology.workers, in the `pack` layout
    spout_pending: int = 32_768  # topology.max.spout.pending: roots in flight, per spout task
    frame_records_max: int = 16_384  # records of one frame on the wire
    packet_bytes_max: int = 1 << 20  # what one call to another worker carries at most, about
    calls_in_flight_max: int = 4  # packets on the way to one worker, not yet accepted
    slice_s: float = 0.02  # work on one task before the mailbox is looked at again
    window_s: float = 0.25  # how much work may wait before a task, as service time
    window_records_max: int = 262_144  # the same as a hard limit, per pair of tasks
    sweep_grace_s: float = 1.0  # after a death, what is still pending then has failed
    lane_retry_s: float = 2.0  # before a worker that did not answer is tried again
    attempts_max: int = 5  # of a tuple that its own bolt fails; then the topology halts
    block_max_s: float = 60.0  # of one call of user code; then its process is ended
    idle_poll_s: float = 0.1  # how often at least a spout that had nothing is asked again

    def __post_init__(self) -> None:
        for name in (
            "message_timeout_s",
            "slice_s",
            "window_s",
            "sweep_grace_s",
            "lane_retry_s",
            "block_max_s",
            "idle_poll_s",
        ):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be above 0 seconds")
        for name in (
            "workers",
            "spout_pending",
            "frame_records_max",
            "packet_bytes_max",
            "calls_in_flight_max",
            "window_records_max",
            "attempts_max",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.ackers is not None and self.ackers < 0:
            raise ConfigError(f"ackers is {self.ackers}; use 0 for an untracked topology")
        if self.spout_pending > SLOTS_MAX:
            raise ConfigError(
                f"spout_pending is {self.spout_pending}; a root id has room for {SLOTS_MAX} slots"
            )
        if self.frame_records_max > self.window_records_max:
            raise ConfigError(
                f"frame_records_max {self.frame_records_max} would never fit a "
                f"window_records_max of {self.window_records_max}"
            )

    @property
    def tracked(self) -> bool:
        """Whether tuple trees are followed at all."""
        return self.ackers != 0
