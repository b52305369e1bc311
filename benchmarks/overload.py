"""`python -m benchmarks.overload`: overload or outages in the simulator, for many seeds.

--seeds 10000 runs the seeds 0 … 9,999 in two processes. The exit status is 1 if a seed breaks a
guarantee. The first broken seeds are printed with the reasons; --first SEED --seeds 1 runs a seed
alone. Seeds with 0.7 to 0.9 of the possible speed are printed as slow; the status is also 1 if they
are more than one in twenty.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

CHUNK = 4
_SHOWN = 10  # broken seeds that are printed
_SLOW_MAX = 0.05  # fraction of the seeds that may be slow
_PROGRESS_S = 10.0


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overload",
        description="Overload or outages in the simulator, seed by seed.",
    )
    parser.add_argument("what", nargs="?", choices=("overload", "outages"), default="overload")
    parser.add_argument("--seeds", type=int, default=100, help="how many (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=2, help="(default: %(default)s)")
    parser.add_argument("--records", type=int, default=20_000, help="inputs of an overload run")
    parser.add_argument("--away", type=float, default=7_200.0, help="longest outage in seconds")
    return parser.parse_args(given)


def try_seed(what: str, records: int, away_s: float, seed: int) -> tuple[int, list[str], float]:
    """(seed, what does not hold and the run, its speed if it is slow, else 1).

    The second has no lines if everything holds.
    """
    from benchmarks.simulated.outages import run_day
    from benchmarks.simulated.overload import run_overload

    try:
        if what == "overload":
            run = run_overload(seed, records)
            shape = run.shape
            about = f"{shape.family}, {shape.layout}, {dict(shape.settings)}"
            lines = [*run.complaints, about] if run.complaints else []
            return seed, lines, run.speed if run.is_slow else 1.0
        day = run_day(seed, away_s)
        return seed, [*day.complaints, *day.steps] if day.complaints else [], 1.0
    except Exception as error:  # a defect of the runtime, or of the benchmark's code
        return seed, [f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])], 1.0


def main() -> int:
    options = arguments()
    seeds = range(options.first, options.first + options.seeds)
    attempt = partial(try_seed, options.what, options.records, options.away)
    begun_s = printed_s = time.monotonic()
    broken: list[int] = []
    slow: dict[int, float] = {}
    for done, (seed, lines, speed) in enumerate(
        _results(attempt, seeds, options.processes), start=1
    ):
        if speed < 1:
            slow[seed] = speed
        if lines:
            broken.append(seed)
            if len(broken) <= _SHOWN:
                print(f"seed {seed} is BROKEN:", *lines, sep="\n    ", flush=True)
        now_s = time.monotonic()
        if now_s - printed_s > _PROGRESS_S or done == len(seeds):
            printed_s = now_s
            print(f"{done:,} of {len(seeds):,} seeds in {now_s - begun_s:,.0f} s: "
                  f"{len(broken):,} BROKEN", flush=True)  # fmt: skip
    if slow:
        print("Slow seeds:", *(f"{seed} ({speed:.2f})" for seed, speed in sorted(slow.items())))
    if broken:
        command = f"python -m benchmarks.overload {options.what} --seeds 1 --first {min(broken)}"
        print("All broken seeds:", *sorted(broken))
        print(f"To run the first one alone: {command}")
    return int(bool(broken) or len(slow) > _SLOW_MAX * len(seeds))


def _results(
    attempt: partial[tuple[int, list[str], float]], seeds: range, processes: int
) -> Iterator:
    if processes == 1:
        yield from map(attempt, seeds)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(attempt, seeds, chunksize=CHUNK)


if __name__ == "__main__":
    sys.exit(main())
