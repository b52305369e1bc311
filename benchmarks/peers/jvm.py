"""Builds the programs of Storm, Flink and its SQL once, with Maven, and runs them as processes."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import BenchmarkError, Log, MissingRequirement, Outcome
from benchmarks.peers.cached_builds import cached_build, run_command
from benchmarks.peers.python_peers import last_outcome

_HERE = Path(__file__).parent
_TIMEOUT_S = 300.0
_BUILD_S = 1800.0  # Maven may have to download the dependencies
_CLASSPATH = "classpath.txt"
_OPEN = ("java.util", "java.lang", "java.time")  # packages that Flink's serialisers read


@dataclass(frozen=True)
class Program:
    """A program that has been built in `folder`. `main`: its class."""

    folder: Path
    main: str

    def run(self, *arguments: object) -> Outcome:
        """Run the program in a process; `done` of the outcome is words or tuples.

        Raises BenchmarkError if it fails, takes too long or prints no result.
        """
        classpath = (self.folder / _CLASSPATH).read_text(encoding="utf-8").strip()
        command = [_tool("java"), "-Xmx4g", "-XX:+UseParallelGC"]
        command += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPEN]
        command += ["-cp", f"{self.folder / 'target' / 'classes'}:{classpath}", self.main]
        return last_outcome(run_command([*command, *map(str, arguments)], _TIMEOUT_S))


def storm(log: Log) -> Program:
    """Storm's program. Raises MissingRequirement if it cannot be built."""
    return _program("storm", "StormPeer", log)


def flink(log: Log) -> Program:
    """Flink's program. Raises MissingRequirement if it cannot be built."""
    return _program("flink", "FlinkPeer", log)


def flink_sql(log: Log) -> Program:
    """The program of Flink's SQL. Raises MissingRequirement if it cannot be built."""
    return _program("flink-sql", "FlinkSqlPeer", log)


def _program(name: str, main: str, log: Log) -> Program:
    _tool("java")
    sources = [_HERE / name / "pom.xml", _HERE / name / "src" / "main" / "java" / f"{main}.java"]

    def make(folder: Path) -> None:
        log(f"building the program of {name} in {folder} (once, some minutes)")
        for source in sources:
            target = folder / source.relative_to(_HERE / name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        goals = ["compile", "dependency:build-classpath", f"-Dmdep.outputFile={_CLASSPATH}"]
        _tool("javac")
        try:
            run_command([_tool("mvn"), "--quiet", "--batch-mode", *goals], _BUILD_S, folder)
        except BenchmarkError as error:
            raise MissingRequirement(f"Maven cannot build its program: {error}") from None

    return Program(cached_build(name, sources, make), main)


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise MissingRequirement(f"it needs Maven and a JDK, and there is no {name} on the PATH")
    return path
