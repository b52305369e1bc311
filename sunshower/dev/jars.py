"""Downloads jars of servers, and additional ones of Spark, from Maven; checks each use."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sunshower.errors import Unobtainable
from sunshower.installed import check_packages, spark_extra

Look = Callable[[str], None]  # receives progress messages

_LOCKS = Path(__file__).with_name("locks")
_TIMEOUT_S = 60  # of a request


@dataclass(frozen=True)
class Release:
    """A program in Maven: the coordinates to resolve, and dependencies to exclude."""

    name: str
    roots: tuple[str, ...]  # coordinates, group:artifact:version
    without: tuple[str, ...] = ()  # prefixes of coordinates

    @property
    def lock(self) -> Path:
        """The file with each jar's SHA-256 and coordinates, made by `sunshower/dev/locking.py`."""
        return _LOCKS / f"{self.name}.txt"


KAFKA = Release(
    "kafka-4.3.1", ("org.apache.kafka:kafka_2.13:4.3.1", "org.slf4j:slf4j-simple:1.7.36")
)
KAFKA_ON_ZOOKEEPER = Release(  # the last release line with ZooKeeper mode
    "kafka-3.9.2", ("org.apache.kafka:kafka_2.13:3.9.2", "org.slf4j:slf4j-simple:1.7.36")
)
ZOOKEEPER = Release(
    "zookeeper-3.9.5",
    (
        "org.apache.zookeeper:zookeeper:3.9.5",
        "io.dropwizard.metrics:metrics-core:4.2.38",  # "provided" in ZooKeeper's POM, but required
        "org.xerial.snappy:snappy-java:1.1.10.7",
        "org.slf4j:slf4j-api:2.0.17",
        "org.slf4j:slf4j-simple:2.0.17",
    ),
    without=(
        "ch.qos.logback:",
        "io.netty:netty-tcnative",  # OpenSSL for five platforms; Java has its own TLS
        *("org.mockito:", "net.bytebuddy:", "org.objenesis:"),  # for the tests of tcnative
    ),
)

SPARK_KAFKA = Release(
    "spark-sql-kafka-3.5.7",
    ("org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.7",),
    without=(  # pyspark brings these
        *("org.apache.spark:spark-tags", "org.scala-lang:", "org.apache.hadoop:"),
        *("com.google.code.findbugs:", "commons-logging:"),
        *("com.github.luben:", "org.lz4:", "org.xerial.snappy:", "org.slf4j:"),
    ),
)
SPARK_DELTA = Release(
    "delta-spark-3.3.2",
    ("io.delta:delta-spark_2.12:3.3.2",),
    without=("org.antlr:", "org.apache.spark:", "org.scala-lang:"),  # pyspark brings these
)
SPARK_ICEBERG = Release(
    "iceberg-spark-1.9.2", ("org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.9.2",)
)
SPARK_S3 = Release("hadoop-aws-3.3.4", ("org.apache.hadoop:hadoop-aws:3.3.4",))
POSTGRES_FOR_JAVA = Release(  # for a catalog of Iceberg
    "postgresql-42.7.7", ("org.postgresql:postgresql:42.7.7",), without=("org.checkerframework:",)
)
SPARK_4_KAFKA = Release(
    "spark-sql-kafka-4.1.1",
    ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1",),
    without=SPARK_KAFKA.without,
)
RELEASES = (
    *(KAFKA, KAFKA_ON_ZOOKEEPER, ZOOKEEPER),
    *(SPARK_KAFKA, SPARK_4_KAFKA, SPARK_DELTA, SPARK_ICEBERG, SPARK_S3, POSTGRES_FOR_JAVA),
)


@dataclass(frozen=True)
class Jar:
    """A file of a release."""

    sha256: str
    group: str
    artifact: str
    version: str

    @property
    def file(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    def path(self, cache: Path) -> Path:
        """The path in a cache with the layout of Maven repositories."""
        return cache.joinpath(*self.group.split("."), self.artifact, self.version, self.file)


Download = Callable[[Jar, Path], None]  # puts a jar into the cache; may raise any exception


def read_lock(release: Release) -> list[Jar]:
    """All jars of a release, from its lock file."""
    lines = release.lock.read_text(encoding="utf-8").splitlines()
    jars = [line.split() for line in lines if line and not line.startswith("#")]
    return [Jar(sha256, *coordinates.split(":")) for sha256, coordinates in jars]


def class_path(release: Release, look: Look) -> str:
    """The value for `java -cp`. Downloads missing jars. Raises Unobtainable."""
    return os.pathsep.join(_paths(release, look))


def spark_kafka(look: Look = lambda _: None) -> tuple[str, ...]:
    """The jars for Spark to read and write Kafka: `LocalSpark(jars=spark_kafka())`. Downloads
    missing ones, 6 MB in all (11 MB for Spark 4). Raises Unobtainable."""
    return _paths(SPARK_4_KAFKA if spark_extra() == "spark4" else SPARK_KAFKA, look)


def spark_delta(look: Look = lambda _: None) -> tuple[str, ...]:
    """The jars for Spark to read and write Delta Lake: `LocalSpark(jars=spark_delta())`. Downloads
    missing ones, 6 MB in all. Raises Unobtainable, also with PySpark 4."""
    return _paths(_of_spark_3(SPARK_DELTA), look)


def spark_iceberg(look: Look = lambda _: None) -> tuple[str, ...]:
    """The jar for Spark to read and write Iceberg: `LocalSpark(jars=spark_iceberg())`. Downloads it
    if it is missing, 45 MB. Raises Unobtainable, also with PySpark 4."""
    return _paths(_of_spark_3(SPARK_ICEBERG), look)


def spark_s3(look: Look = lambda _: None) -> tuple[str, ...]:
    """The jars for Spark to read and write `s3a://` paths: `jars=(*spark_delta(), *spark_s3())`.
    Downloads missing ones, 280 MB in all. Raises Unobtainable, also with PySpark 4."""
    return _paths(_of_spark_3(SPARK_S3), look)


def _of_spark_3(release: Release) -> Release:
    """The release. Raises Unobtainable with PySpark 4, for which its jars are not."""
    if spark_extra() == "spark4":
        raise Unobtainable(
            f"{release.name} is for Spark 3.5, and this environment has PySpark 4 (the extra "
            "spark4). Delta Lake, Iceberg and S3 are tested with the extra spark only; with "
            "another Spark give jars=(…) the files that belong to it"
        )
    return release


def _paths(release: Release, look: Look) -> tuple[str, ...]:
    return tuple(map(str, fetch(read_lock(release), cache(), look)))


def cache() -> Path:
    """The folder for jars, in the user's cache (XDG_CACHE_HOME), shared by all checkouts."""
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root).expanduser() / "sunshower" / "jars"


def fetch(
    jars: Sequence[Jar], cache: Path, look: Look, download: Download | None = None
) -> list[Path]:
    """The paths of all jars, with verified checksums. Raises Unobtainable."""
    missing = [jar for jar in jars if not _is_right(jar.path(cache), jar)]
    if missing:
        with locked(cache):  # another process may be downloading
            missing = [jar for jar in missing if not _is_right(jar.path(cache), jar)]
            for number, jar in enumerate(missing, start=1):
                look(f"fetching {number} of {len(missing)}: {jar.file}")
                _fetch(jar, cache, download or _download)
    return [jar.path(cache) for jar in jars]


def _fetch(jar: Jar, cache: Path, download: Download) -> None:
    path = jar.path(cache)
    path.unlink(missing_ok=True)  # may be the partial file of an interrupted download
    try:
        download(jar, cache)
    except Exception as error:
        path.unlink(missing_ok=True)
        raise Unobtainable(
            f"{jar.file} cannot be fetched from Maven's central repository: {error}\n"
            "Try again when the network is there. Where only a mirror is reachable, name it as "
            "`central` under [repositories] in jgo's own settings file (JGO_CONFIG_FILE, else "
            "jgo.conf in the user's configuration folder)."
        ) from error
    if not _is_right(path, jar):
        path.unlink(missing_ok=True)
        raise Unobtainable(
            f"{jar.file} was fetched, and is not the file that Sunshower was tested with "
            f"(SHA-256 {jar.sha256[:12]}…). Try again; if it stays so, the mirror it comes from "
            "gives out other files."
        )


def _is_right(path: Path, jar: Jar) -> bool:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == jar.sha256
    except FileNotFoundError:
        return False


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder, which is made if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def maven(cache: Path) -> Any:
    """A context of jgo, which accesses Maven repositories without mvn or Java and caches downloads
    in `cache`. Raises Unobtainable without jgo."""
    check_packages("servers", "which fetches jars", "jgo", error=Unobtainable)
    from jgo.config import GlobalSettings
    from jgo.maven import MavenContext

    named = GlobalSettings.load().repositories
    central = MavenContext().remote_repos
    return MavenContext(repo_cache=cache, remote_repos=central | named, timeout=_TIMEOUT_S)


def _download(jar: Jar, cache: Path) -> None:
    project = maven(cache).project(jar.group, jar.artifact)
    project.at_version(jar.version).artifact().resolve()
