"""Versions of exchanged and of stored data; other versions are refused.

Raise a constant when older code cannot read what this code writes, or the other way round. Fields
that older code may ignore do not change it. Data without a version is of version 1.
"""

from __future__ import annotations

from sunshower.errors import VersionMismatch

PROTOCOL = 11  # the plan, calls and packets between the processes and clients of a topology
MASTER_STATE = 1  # what a restarted master continues from
EVENT_LOG = 1  # the files that workers append events to
RUN_FOLDER = 1  # plan.json, history.jsonl and results.json of an experiment
TREE = 2  # the tables of a tree in SQLite; 2: sessions without wall-clock times
STATE = 2  # values and marks of a state, in every backing; 2: dates, decimals, sets
STATE_MOVED = 3  # marks of parts whose values are with other tasks, or not all there yet
PROGRESS = 1  # the nodes of a batch group
SAVEPOINT = 1  # what `kill --keep` writes
KEYS = 2  # what `deduplicate` stores: [version, keys, snapshot]; 2: dates, decimals
OFFSETS = 1  # offsets stored with results
TABLE = 1  # folders of committed batches

_HEAD = b"sunshower "
_DIGITS_MAX = 10  # of a version; Python refuses to read 4,300


def check(what: str, version: object, ours: int, remedy: str) -> None:
    """Raise VersionMismatch unless `found` is `ours`; its sentence ends with `remedy`."""
    if version != ours:
        raise VersionMismatch(
            f"{what} has version {version}, and this release of sunshower uses version {ours}: "
            f"{remedy}"
        )


def stamp(version: int, data: bytes = b"") -> bytes:
    """`data` behind a line with its version."""
    return b"%s%d\n%s" % (_HEAD, version, data)


def unstamp(what: str, stamped: bytes, ours: int, remedy: str) -> bytes:
    """The data that `stamp` got. Raises VersionMismatch."""
    head, _, data = stamped.partition(b"\n")
    number = head.removeprefix(_HEAD)
    is_stamped = head != number and number.isdigit() and len(number) < _DIGITS_MAX
    check(what, int(number) if is_stamped else 1, ours, remedy)
    return data if is_stamped else stamped
