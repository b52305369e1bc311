"""Lets one driver at a time commit to a Delta Lake table on S3, the latest that has begun.

Delta's log on S3 is safe within one JVM alone: two drivers that commit at the same time may
overwrite each other's entry. So each driver claims the table, and announces each commit:

    PATH/_sunshower/drivers/3-local-1732…     the third driver of this table; the highest may write
    PATH/_sunshower/writing/local-1732…       this driver commits; renewed every 5 s, removed after

    driver    writes `writing`, then reads `drivers`: if it is not the last one, it is fenced
    successor writes `drivers`, then reads `writing`: waits until the others' are gone, or have not
              been renewed for 30 s

So either the old driver sees its successor, or the successor sees the commit of the old one. File
systems that create a file only if it does not exist need none of this.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from sunshower.errors import WriteFailed
from sunshower.spark_integration.tables.hadoop_folder import HadoopFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RENEW_S, _SILENT_S, _LOOK_S = 5.0, 30.0, 0.5


class DriverFence:
    """The claim of this session's driver to a table."""

    def __init__(self, session: SparkSession, path: str, silent_s: float = _SILENT_S) -> None:
        self._needed = path.startswith(("s3:", "s3a:", "s3n:"))
        self._path, self._silent_s = path, silent_s
        if self._needed:
            beans = session._jvm.java.lang.management.ManagementFactory
            process = str(beans.getRuntimeMXBean().getName()).replace("/", "-")  # id@machine
            self._me = f"{session.sparkContext.applicationId}-{process}"
            self._folder = HadoopFolder(session, f"{path}/_sunshower")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Commit inside. Raises WriteFailed if another driver has claimed the table."""
        if not self._needed:
            yield
            return
        self._claim()
        writing, over = f"writing/{self._me}", threading.Event()
        self._folder.create(writing)
        renewing = threading.Thread(target=self._renew, args=(writing, over), daemon=True)
        try:
            self._check()
            renewing.start()
            yield
        finally:
            over.set()
            if renewing.ident is not None:
                renewing.join()
            self._folder.remove(writing)

    def _claim(self) -> None:
        """Become the last driver, and wait for the commits of the others."""
        drivers = self._drivers()
        if any(driver == self._me for _, driver in drivers):
            return
        number = drivers[-1][0] + 1 if drivers else 1
        self._folder.create(f"drivers/{number}-{self._me}")
        for name in self._folder.names("writing"):
            if name != self._me:
                self._wait_for(f"writing/{name}")

    def _drivers(self) -> list[tuple[int, str]]:
        found = (name.partition("-") for name in self._folder.names("drivers"))
        return sorted((int(number), driver) for number, _, driver in found)

    def _check(self) -> None:
        last = self._drivers()[-1][1]
        if last != self._me:
            raise WriteFailed(
                f"{self._path}: another driver ({last}) writes this table now, so this one "
                f"({self._me}) may not: a table on S3 has one driver at a time"
            )

    def _wait_for(self, writing: str) -> None:
        """Wait until another driver's commit has ended, or its driver is silent."""
        seen = self._folder.modified_ms(writing)
        since_s = time.monotonic()
        while seen and time.monotonic() - since_s < self._silent_s:
            time.sleep(_LOOK_S)
            if (now := self._folder.modified_ms(writing)) != seen:
                seen, since_s = now, time.monotonic()
        self._folder.remove(writing)

    def _renew(self, writing: str, over: threading.Event) -> None:
        while not over.wait(_RENEW_S):
            with suppress(Exception):  # the commit itself reports what is away
                self._folder.create(writing)
