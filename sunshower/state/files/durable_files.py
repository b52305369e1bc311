"""Makes files and folders survive a power failure."""

from __future__ import annotations

import os
from pathlib import Path


def sync_path(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on the disk. Raises
    OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
