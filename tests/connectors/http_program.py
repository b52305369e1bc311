"""A program with an HttpSource that writes each posted number as a line of a file."""

from __future__ import annotations

import sys
from typing import NamedTuple

from sunshower import JsonLines, Topology, run_inline
from sunshower.connectors import HttpSource


class Number(NamedTuple):
    value: int


if __name__ == "__main__":
    port, path = sys.argv[1:]
    topology = Topology("numbers")
    source = topology.spout("numbers", HttpSource(int(port), type=Number))
    source.shuffle().bolt("lines", JsonLines(path))
    run_inline(topology.graph())
