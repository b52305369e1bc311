"""Dead letters of the prepared web shop, in files like those of `JsonLines`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from sunshower.cli.dead.letters import as_line
from sunshower.topologies.retry import DeadLetter, LetterStore
from tests.web.prepared import TRACE, Prepared, shop

NEWEST_S = 1_764_000_000.0
BOLT = "orders-dead-letters"


def orders(count: int = 12) -> list[DeadLetter]:
    """Return letters 60 s apart, newest first. Two of three failed in price, the third in store."""
    return [_order(n) for n in range(count)]


def _order(n: int) -> DeadLetter:
    is_price = n % 3 != 2
    return DeadLetter(
        message_id=f"order-{n}",
        record={"id": n, "article": f"A-10{n:02d}", "count": n % 4 + 1,
                "customer": "Müller & Söhne" if n % 2 else "Q. <Acme> Ltd."},
        spout="orders",
        attempts=5,
        cause="exception" if is_price else "timeout",
        component="price" if is_price else "store",
        task=n % 6 if is_price else -1,
        worker=n % 4 if is_price else -1,
        reason=f"KeyError: 'A-10{n:02d}'" if is_price else "not complete after 30 s",
        exception="KeyError" if is_price else "",
        traceback=TRACE.replace("A-1047", f"A-10{n:02d}") if is_price else "",
        time=NEWEST_S - 60.0 * n,
    )  # fmt: skip


def hostile(text: str) -> DeadLetter:
    """Return a letter each of whose texts is `text`."""
    return DeadLetter(text, {text: text}, text, 5, text, text, 0, 0, text, text, text, text, 1e9)


def write_letters(folder: Path, letters: Iterable[DeadLetter]) -> dict[str, LetterStore | None]:
    """Write the letters into two files of a folder, oldest first. Return their store by bolt."""
    files = [folder / f"dead.{n}.jsonl" for n in range(2)]
    ordered = sorted(letters, key=lambda letter: letter.time)
    for n, file in enumerate(files):
        file.write_text("".join(as_line(letter) + "\n" for letter in ordered[n::2]))
    return {BOLT: LetterStore(tuple(map(str, files)))}


def shop_with_letters(folder: Path, count: int = 12) -> Prepared:
    """Return the web shop, whose bolt has written letters into `folder`."""
    return replace(shop(), letters=write_letters(folder, orders(count)))
