"""The Ray shells: they carry the runtime's orders out and decide nothing about semantics."""

import os
import sys
from pathlib import Path

# Where a token lies, `ray start` asks every client for it, but a client sends it only if told to
# before Ray is imported. (Ray 2.60; it lays the token down itself, with the first local cluster.)
if "ray" not in sys.modules and (Path.home() / ".ray" / "auth_token").exists():
    os.environ.setdefault("RAY_AUTH_MODE", "token")
