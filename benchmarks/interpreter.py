"""Runs the benchmarks with an optimised build of Python, where this machine has one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from sunshower.cli.doctor import is_optimised

ROOT = Path(__file__).resolve().parents[1]
_ENVIRONMENT = ROOT / "build" / "optimised"


def of_distribution() -> Path | None:
    """The Python of the distribution, which is optimised, if it is of the same minor version."""
    path = Path("/usr/bin", "python{}.{}".format(*sys.version_info))
    return path if path.exists() else None


def restart_optimised(module: str = "benchmarks") -> None:
    """Continue `module` in an environment with an optimised Python, if this one is not. It is made
    at first, with the same versions of all packages. Does not return if there is one."""
    python = None if is_optimised() else of_distribution()
    if python is None:
        return
    new = _ENVIRONMENT / "bin" / "python"
    print(f"This Python is not an optimised build. Continuing with {python} …", flush=True)
    uv = Path(sys.executable).with_name("uv")
    if not new.exists():
        subprocess.run([uv, "venv", "-q", "--python", python, _ENVIRONMENT], check=True)
    pins = ("-c", ROOT / "constraints.txt", "--build-constraints", ROOT / "constraints.txt")
    install = [uv, "pip", "install", "-q", "--python", new, *pins, "-e", f"{ROOT}[dev]"]
    subprocess.run(install, check=True)
    os.execv(new, [str(new), "-m", module, *sys.argv[1:]])
