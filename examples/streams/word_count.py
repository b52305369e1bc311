"""Counts the words of a file, like Bytewax's examples/wordcount.py."""

import re
import sysconfig

from sunshower import JsonLines, Line, TextFiles, Topology, count


def tokenize(line: Line) -> list[tuple[str]]:
    return [(word,) for word in re.findall(r'[^\s!,.?":;0-9]+', line.text.lower())]


topology = Topology("wordcount")
lines = topology.spout("lines", TextFiles(f"{sysconfig.get_path('stdlib')}/json/decoder.py"))
words = lines.flat_map(tokenize, fields=["word"])
counts = words.group_by("word").aggregate(count())
counts.shuffle().bolt("out", JsonLines("word_count.jsonl"))
