"""The last words of a worker's process: what it was doing when it died."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Obituary:
    """Found by the successor, told to the master at its hello, and from there to all spouts."""

    worker: int
    life: int  # that has ended
    task: int | None = None  # whose user code was running; None: none was
    roots: bytes = b""  # of the records it had been given: uint64, little endian
    stack: str = ""  # where it was, if it was ended because it did not return
