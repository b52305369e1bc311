"""Runs the few tests that failed once more, alone: `make test AGAIN=1`, which `.ci/run` uses.

A machine that others share may stop a process for many seconds, and then one test in ten thousand
fails that waits for it. Such a test must pass now, and is named: it is a fault to be found.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

MOST = 3  # tests: if more fail, the code is wrong
TESTS_FAILED = 1  # the status of pytest
CACHE = Path(".pytest_cache")


def failed_tests(cache: Path) -> list[str]:
    """The ids of the tests that failed in the last run."""
    path = cache / "v" / "cache" / "lastfailed"
    ids = list(json.loads(path.read_text())) if path.exists() else []
    # pytest-xdist adds @ and the group of a test
    return [id[: id.rindex("@")] if id.rfind("@") > id.rfind("]") else id for id in ids]


def passes(python: str | Path, cache: Path, *arguments: str, **options: Any) -> bool:
    """Run the failed tests again, with these arguments of pytest; whether all pass. `options` are
    those of `subprocess.run`."""
    ids = failed_tests(cache)
    if not 0 < len(ids) <= MOST:
        return False
    again = (python, "-m", "pytest", "-o", f"cache_dir={cache}", *arguments, *ids)
    if subprocess.run(again, check=False, **options).returncode:
        return False
    lines = ["FLAKY, failed beside other tests and passed alone:", *ids]
    sys.stdout.write("\n  ".join(lines) + "\n")
    sys.stdout.flush()
    return True


if __name__ == "__main__":
    sys.exit(not passes(sys.executable, CACHE, *sys.argv[1:]))
