"""The bolts of the word count with streamparse's pystorm; Storm runs each as a process.

Argument: `split` or `count`. Storm's process is that of StormPeer.java.
"""

from __future__ import annotations

import sys
from typing import Any

from pystorm import Bolt


class Split(Bolt):
    """Emits the words of a line."""

    def process(self, tup: Any) -> None:
        for word in tup.values[0].split():
            self.emit([word])


class Count(Bolt):
    """Counts words, and emits nothing."""

    def initialize(self, conf: Any, context: Any) -> None:
        self.totals: dict[str, int] = {}

    def process(self, tup: Any) -> None:
        word = tup.values[0]
        self.totals[word] = self.totals.get(word, 0) + 1


if __name__ == "__main__":
    {"split": Split, "count": Count}[sys.argv[1]]().run()
