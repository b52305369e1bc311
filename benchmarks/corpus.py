"""The input of the word counts: lines of ten words, drawn from 10,000 words by Zipf's law."""

from __future__ import annotations

import random
from itertools import accumulate
from pathlib import Path

WORDS_PER_LINE = 10
VOCABULARY = 10_000


def make_lines(words: int, seed: int = 7) -> list[str]:
    """`words` words in lines of ten; the same for the same seed."""
    weights = list(accumulate(1 / rank for rank in range(1, VOCABULARY + 1)))
    names = [f"w{number:05d}" for number in range(VOCABULARY)]
    drawn = random.Random(seed).choices(names, cum_weights=weights, k=words)
    return [" ".join(drawn[i : i + WORDS_PER_LINE]) for i in range(0, words, WORDS_PER_LINE)]


def write_lines(folder: Path, words: int) -> Path:
    """Write the lines to a file, which every process reads before its run starts."""
    path = folder / f"{words}-words.txt"
    path.write_text("\n".join(make_lines(words)), encoding="ascii")
    return path


def read_lines(path: Path) -> list[str]:
    """The lines of a file that `write_lines` wrote."""
    return path.read_text(encoding="ascii").split("\n")


def write_files(folder: Path, words: int, files: int, times: int = 1) -> Path:
    """Write the lines to `files` files in a folder, each `times` times; an existing folder is
    reused."""
    target = folder / f"{words}-words-{files}-files-{times}-times"
    if target.exists():
        return target
    lines = make_lines(words)
    target.mkdir()
    share = -(-len(lines) // files)
    for number in range(files):
        text = "\n".join([*lines[number * share : (number + 1) * share], ""])
        for turn in range(times):
            (target / f"{turn:03d}-{number:03d}.txt").write_text(text, encoding="ascii")
    return target
