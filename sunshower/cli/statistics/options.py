"""The option --window of `status` and `top`."""

from __future__ import annotations

from typing import Annotated

import typer


def _known(name: str) -> str:
    from sunshower.runtime.events.time_windows import NAMES

    if name not in NAMES:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(NAMES)}")
    return name


Window = Annotated[
    str,
    typer.Option(metavar="1m|10m|1h|all", callback=_known, help="The time that rates are of."),
]
