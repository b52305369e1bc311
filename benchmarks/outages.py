"""Real outages: a server is stopped under load, is away for so long, and is started again.

    python -m benchmarks.outages kafka --seconds 600

prints the figures of one scenario as JSON. A scenario is a module of benchmarks/outage_scenarios
with `run(seconds) -> dict[str, float | int | str]`.
"""

from __future__ import annotations

import argparse
import json
import pkgutil
import sys
from importlib import import_module

from benchmarks import outage_scenarios


def scenarios() -> list[str]:
    """Their names."""
    found = [module.name for module in pkgutil.iter_modules(outage_scenarios.__path__)]
    return [name for name in found if not name.startswith("_")]


def main(arguments: list[str] | None = None) -> int:
    """Run one scenario. Returns 1 if a record was lost, buried, or the topology has ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", choices=scenarios())
    parser.add_argument("--seconds", type=float, default=600.0, help="how long the outage lasts")
    given = parser.parse_args(arguments)
    module = import_module(f"{outage_scenarios.__name__}.{given.scenario}")
    figures = module.run(given.seconds)
    json.dump({"scenario": given.scenario, "outage_s": given.seconds, **figures}, sys.stdout)
    sys.stdout.write("\n")
    bad = figures.get("lost") or figures.get("dead letters") or figures.get("state") == "failed"
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
