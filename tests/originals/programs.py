"""Programs in Java that run classes of Storm and Kafka themselves, from their jars."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

from sunshower.dev.jars import Release, class_path

FOLDER = Path(__file__).parent
LEVEL = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"


class Original(Release):
    """A release that only these tests need; its jars are listed beside them."""

    @property
    def lock(self) -> Path:
        return FOLDER / f"{self.name}.txt"


STORM = Original("storm-2.8.2", ())
STORM_KAFKA = Original("storm-kafka-1.2.4", ())  # with Kafka 1.1, whose consumers use ZooKeeper


class Program:
    """A file of this folder, compiled and started; it answers a line of JSON with another one."""

    def __init__(self, name: str, release: Release, *given: object) -> None:
        self._folder = TemporaryDirectory(prefix="sunshower-java-")
        jars = class_path(release, lambda _: None)
        javac = shutil.which("javac")
        assert javac is not None
        source = str(FOLDER / f"{name}.java")
        subprocess.run(
            [javac, "-nowarn", "-Xlint:none", "-d", self._folder.name, "-cp", jars, source],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        path = f"{self._folder.name}:{jars}"
        self._process = subprocess.Popen(
            ["java", "-Xmx256m", LEVEL, "-cp", path, name, *map(str, given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.communicate()  # at the end of its input it ends
        self._folder.cleanup()

    def ask(self, *request: Any) -> Any:
        """The answer to a request."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{json.dumps(request)}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"{request} ended the program with {self._process.wait()}"
        return json.loads(answer)

    def run(self, name: str, arguments: Sequence[Any], calls: Sequence[Sequence[Any]]) -> Any:
        """The results of calls of one object: of a class, built with these arguments."""
        return self.ask(name, arguments, calls)
