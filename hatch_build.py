"""Compiles `_record_loops.c` when the package is built or installed, where a C compiler is there.

Without a compiler, or without Python.h, the package is complete: `record_loops.py` has the same
functions in Python.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledLoops(BuildHookInterface[Any]):
    """The build hook that pyproject.toml names."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile beside the source, which an editable installation imports, too."""
        folder = Path(self.root, "sunshower")
        module = folder / f"_record_loops{sysconfig.get_config_var('EXT_SUFFIX')}"
        module.unlink(missing_ok=True)
        if compile_module(folder / "_record_loops.c", module):
            build_data |= {"pure_python": False, "infer_tag": True}
            build_data["artifacts"].append(f"/sunshower/{module.name}")


def compile_module(source: Path, module: Path) -> bool:
    """Compile an extension module; whether that was possible."""
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    flags = ["-O2", "-fPIC", "-shared", "-fno-strict-aliasing", "-fwrapv", "-DNDEBUG"]
    flags += ["-Werror=implicit-function-declaration"]  # of a function that this Python lacks
    include = {sysconfig.get_path(name) for name in ("include", "platinclude")}
    new = module.with_name(f"{module.name}.{os.getpid()}")
    command = [*shlex.split(compiler), *flags, *(f"-I{path}" for path in sorted(include))]
    try:
        subprocess.run([*command, source, "-o", new], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        new.unlink(missing_ok=True)
        return False
    new.replace(module)
    return True
