"""A client that submits a topology when it reads a line: test_submits.py starts two of them."""

from __future__ import annotations

import sys
import threading

import sunshower.actors.run  # noqa: F401 (before it is ready: then its files may be moved)
from sunshower import Counter, Number, Topology
from sunshower.actors.cluster import RayCluster
from sunshower.errors import SunshowerError


def drop(number: Number) -> None:
    threading.Event().wait(0.005)  # otherwise an endless source needs a whole processor


def topology(name: str) -> Topology:
    endless = Topology(name)
    endless.spout("numbers", Counter()).shuffle().bolt("drop", drop)
    return endless


def main(address: str, name: str) -> None:
    with RayCluster(address, detached=True) as cluster:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        try:
            result = f"in: {cluster.submit(topology(name).graph()).id}"
        except SunshowerError as error:
            result = f"refused: {error}"
        sys.stdout.write(f"{result}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
