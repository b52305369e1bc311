"""Names the source files in the stacks of this process, without the folders of this machine."""

from __future__ import annotations

import sysconfig
from collections.abc import Sequence
from pathlib import Path

_PACKAGE = Path(__file__).parents[2]
_PATHS = sysconfig.get_paths()
# The folders of installed packages come first: they are below that of the standard library. Python
# has the files of an environment with its own path, or with the one that a link leads to.
_FOLDERS = [
    *((str(folder), "sunshower") for folder in (_PACKAGE, _PACKAGE.resolve())),
    *((_PATHS[kind], "site-packages") for kind in ("purelib", "platlib")),
    *((str(Path(_PATHS[kind]).resolve()), "site-packages") for kind in ("purelib", "platlib")),
    *((f"{_PATHS[kind]}/site-packages", "site-packages") for kind in ("stdlib", "platstdlib")),
    *((_PATHS[kind], "python") for kind in ("stdlib", "platstdlib")),
]


def shown_file(file: str, folders: Sequence[tuple[str, str]] = _FOLDERS) -> str:
    """The file as a stack of a profile shows it. `folders`: pairs of a folder and what stands for
    it; the first one that the file is in is taken."""
    for folder, shown in folders:
        if file.startswith(f"{folder}/"):
            return f"{shown}{file[len(folder) :]}"
    return file
