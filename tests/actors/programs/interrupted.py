"""A program with a Ray of its own that pauses its topology, and is interrupted by a test."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from sunshower.actors.cluster import RayCluster
from sunshower.runtime.plan import Layout
from tests.actors.programs.evidence import topology, until_acked, worker_of


def main(folder: Path) -> None:
    with RayCluster() as cluster:
        run = cluster.submit(topology(folder).graph(), Layout.ISOLATE, sample=1)
        until_acked(run, 1)
        run.pause_worker(worker_of(run, "work"))
        run.pause_master()
        sys.stdout.write(f"{run.id}\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
