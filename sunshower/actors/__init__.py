"""The Ray adapter: carries out the commands of the runtime, and makes no decisions itself."""

import os
import sys
from pathlib import Path

# If a token file exists, `ray start` requires it from every client, but a client sends it only if
# configured before Ray is imported. (Ray 2.60; the first local cluster creates the token file.)
if "ray" not in sys.modules and (Path.home() / ".ray" / "auth_token").exists():
    os.environ.setdefault("RAY_AUTH_MODE", "token")
