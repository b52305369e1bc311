"""Whether the demo kept its promise: pure functions over the counts and what became of each line.

At least once means: no line is missing, and a word is over-counted at most by what the replayed
attempts of its lines can have counted before they failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from sunshower.faults.outcome import Finding, Verdict

_PROMISE = "at-least-once"


@dataclass(frozen=True)
class Report:
    """What `--json` prints."""

    lines: int  # in the files
    acked: int
    failed: int  # attempts
    replayed: int
    lost: int  # lines never acked
    undercounted: int  # words counted less often than they are there
    killed_pid: int | None
    seconds_to_replay: float | None  # from the kill to the first completed replay
    seconds: float  # from the moment when all actors were there
    verdict: Verdict

    def as_dict(self) -> dict[str, int | float | str | None]:
        """The report for JSON."""
        return asdict(self)


def lost(acks: Sequence[bytes], sizes: Sequence[int]) -> int:
    """Lines that were never acked. Per spout task: how often each line was, and how many it has."""
    heard = zip((task[:size] for task, size in zip(acks, sizes, strict=True)), sizes, strict=True)
    return sum(size - len(task) + task.count(0) for task, size in heard)


def acked_in_excess(acks: Sequence[bytes], sizes: Sequence[int]) -> int:
    """Lines that were acked twice, or that do not exist. Neither must ever be."""
    return sum(
        len(task) - task.count(0) - task[:size].count(1)
        for task, size in zip(acks, sizes, strict=True)
    )


def under_counts(expected: Mapping[str, int], counted: Mapping[str, int]) -> dict[str, int]:
    """Word → how many of its occurrences are missing."""
    return {
        word: times - counted.get(word, 0)
        for word, times in expected.items()
        if counted.get(word, 0) < times
    }


def unexplained(
    expected: Mapping[str, int], counted: Mapping[str, int], replayed: Mapping[str, int]
) -> dict[str, int]:
    """Word → occurrences counted beyond those that are there and those in replayed attempts."""
    over = {
        word: times - expected.get(word, 0) - replayed.get(word, 0)
        for word, times in counted.items()
    }
    return {word: times for word, times in over.items() if times > 0}


def words_in_replays(lines: Iterable[tuple[int, str]], failures: Mapping[int, int]) -> Counter[str]:
    """Word → its occurrences in attempts that failed. `lines`: (position, text) of those."""
    words = Counter[str]()
    for position, text in lines:
        for word in text.split():
            words[word] += failures[position]
    return words


def judge(
    *,
    lost: int,
    in_excess: int,
    under: Mapping[str, int],
    unexplained: Mapping[str, int],
    replayed: int,
    fault_wanted: bool,
    killed: bool,
) -> Finding:
    """Weigh what was found; the gravest decides."""
    broken = []
    if lost:
        broken.append(f"{lost:,} lines were never acked")
    if in_excess:
        broken.append(f"{in_excess:,} lines were acked twice, or do not exist")
    if under:
        broken.append(f"{len(under):,} words are under-counted, such as {_example(under)}")
    if unexplained:
        broken.append(
            f"{len(unexplained):,} words are counted more often than replays explain, "
            f"such as {_example(unexplained)}"
        )
    if broken:
        return Finding(_PROMISE, Verdict.BROKEN, tuple(broken))
    if fault_wanted and not killed:
        doubt = "all was done before anything could be killed: give it more text"
        return Finding(_PROMISE, Verdict.UNKNOWN, (doubt,))
    if fault_wanted and not replayed:
        return Finding(_PROMISE, Verdict.UNKNOWN, ("nothing was hurt: no line had to be replayed",))
    reason = "every line was processed, and no word is counted beyond what replays explain"
    return Finding(_PROMISE, Verdict.HOLDS, (reason,))


def _example(words: Mapping[str, int]) -> str:
    word, times = max(words.items(), key=lambda item: item[1])
    return f"{word!r} by {times:,}"
