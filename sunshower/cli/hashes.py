"""The same hashes in every process: user code that goes through a set does the same each time."""

from __future__ import annotations

import os
import sys

HASH_SEED = "PYTHONHASHSEED"


def start_again() -> None:
    """Start this very command anew with a fixed seed for hashes, unless one was chosen.

    Python takes it at its start only. Does not return then.
    """
    if HASH_SEED not in os.environ:
        environment = {**os.environ, HASH_SEED: "0"}
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)  # noqa: S606
