"""Values of all types in every format that has them: frames, stores, keys, letters, logs, JSON.

`python -m tests.values.formats` writes `formats.json` with the code as it is. Each change of the
file is a change of what is sent or stored: the release before must be able to read it.
"""

from __future__ import annotations

import io
import json
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from uuid import UUID
from zlib import crc32
from zoneinfo import ZoneInfo

import msgpack
import numpy as np

from sunshower import json_values as texts
from sunshower.codec import Codec, RowList
from sunshower.errors import SunshowerError
from sunshower.failures import Cause, Failure
from sunshower.json_values import json_text
from sunshower.records import DictKey, Schema, key_of
from sunshower.runtime.events.event_log import Entry, What
from sunshower.runtime.events.event_log import decode as read_log
from sunshower.runtime.events.event_log import encode as log_entry
from sunshower.runtime.plan import PlannedStream
from sunshower.runtime.tasks.bolts.dead_letters import LetterValues, dead_letter
from sunshower.runtime.tracking.batch import Batch
from sunshower.runtime.transport.packets import decode_frame, encode_frame
from sunshower.runtime.transport.routing import stable_hash
from sunshower.texts import utf8
from sunshower.topologies.graph import StreamSpec
from sunshower.topologies.retry import DeadLetter
from tests.runtime.field_values import Access, Color, Field, Level, Line, Point, Unit
from tests.values.kinds import (
    Box,
    Celsius,
    Described,
    Frozen,
    FrozenSlotted,
    Helped,
    Mode,
    Named,
    Paint,
    Pair,
    Price,
    Shape,
    Slotted,
    Watched,
    stored,
)

FILE = Path(__file__).with_suffix(".json")
SEEDS = 400  # random values; of each the file has a checksum


class Held(NamedTuple):
    """A record of one field, which may have any value."""

    value: Shape[Any] | Field | Any


SCHEMA = Schema.of(Held)
STREAM = PlannedStream(0, "spout", StreamSpec("default", SCHEMA), SCHEMA.classes)
CODEC, EXACT = Codec(SCHEMA.classes), Codec(exact=True)
STORE = texts.StoredValues(SCHEMA.classes, "here")
LETTERS = LetterValues(SCHEMA)


def as_frame(value: Any) -> str:
    frame: bytes = msgpack.packb(encode_frame(3, 1, Batch(0, 7, [Held(value)]), STREAM, 1 << 24))
    return frame.hex()


def of_frame(text: str) -> Any:
    frame = decode_frame(msgpack.unpackb(bytes.fromhex(text)), [STREAM])
    assert frame.error is None
    return frame.batch.records[0].value


def as_letter(value: Any) -> str:
    failure = Failure(Cause.EXCEPTION, "bolt", 1, 0, "why")
    letter = dead_letter("spout", 1, {"value": value}, failure, 1, time=0.0, forms=LETTERS)
    return json_text(letter._asdict())


def as_log(value: Any) -> str:
    return log_entry(Entry(1.0, What.NOTED, 1, detail={"value": value})).hex()


class Format(NamedTuple):
    """How a value is written; how it is read back, and what it is then equal to."""

    write: Callable[[Any], str]
    read: Callable[[str], Any]
    same: Callable[[Any], Any] = stored


def _nothing(_: Any) -> None: ...


FORMATS = {
    "frame": Format(as_frame, of_frame),
    "key in Kafka": Format(
        lambda value: EXACT.encode([1, [key_of(value)], None]).hex(),
        lambda text: EXACT.decode(bytes.fromhex(text))[1][0],
        lambda value: stored(EXACT.decode(EXACT.encode(key_of(value)))),
    ),
    "keyed state": Format(
        lambda value: texts.text_of(STORE.plain(value)),
        lambda text: STORE.value(texts.values_of([text])[0]),
    ),
    "state": Format(texts.text_of, lambda text: texts.values_of([text])[0]),
    "key": Format(texts.text_of_key, texts.key_of, key_of),
    "hash": Format(lambda value: str(stable_hash(value)), _nothing, _nothing),
    "letter": Format(
        as_letter,
        lambda text: LETTERS.read(DeadLetter(**json.loads(text)))["value"],
    ),
    "log": Format(
        as_log, lambda text: len([*read_log(io.BytesIO(bytes.fromhex(text)))]), lambda _: 1
    ),
    "JSON": Format(lambda value: utf8(json_text(value)).decode(), _nothing, _nothing),
}
BERLIN = ZoneInfo("Europe/Berlin")
AUTUMN = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN)
SAMPLES: list[Any] = [
    *(None, True, False, 0, -1, 1 << 40, 1 << 63, -(1 << 64), 10**25, 0.0, -0.0, 1.0, 2.5, 1e300),
    *(float("nan"), float("inf"), -float("inf"), "", "a", "ü", "\x00\n", "a\ud800", "\ud83d\ude00"),
    *(b"", b"\xff", bytearray(b"a"), memoryview(b"b"), date(2026, 1, 2), time(3, 4), AUTUMN),
    *(AUTUMN.replace(fold=1), AUTUMN.replace(tzinfo=None), datetime(2026, 1, 2, tzinfo=UTC)),
    *(datetime(2026, 1, 2, 3, 4, 5, 6, timezone(timedelta(seconds=-4567))), time(1, tzinfo=UTC)),
    *(timedelta(-1, 3600), timedelta(microseconds=1), Decimal("1.50"), Decimal(2), Decimal("NaN")),
    *(Decimal("1E+400"), Decimal("-0"), UUID(int=5), [], [1, "a"], (), (1,), ("a", (2, [3]))),
    *({}, {"a": 1}, {"a": {"b": [1.5, None]}}, {1: "a"}, {(1, b"x"): None}, {"(set)": [1]}),
    *({"()": 1}, {"<Point>": {}}, {"(dict)": []}, {"\ud800": "b"}, {None: 1, True: 2}),
    *(set(), {3, 1, 2}, frozenset({1}), frozenset({(1, 2)}), {frozenset({1})}, {Point(1)}),
    *(Counter(), Counter("aab"), Counter({1: 2}), DictKey({"a": 1}), OrderedDict(a=1), deque([1])),
    *(Color.RED, Color.GREEN, Level.HIGH, Unit.METRE, Access.READ, Access(0)),
    *(Access.READ | Access.WRITE,),
    *(Paint.RED, Paint.NAN, Mode(8), Point(1), Point((1, 2), Color.RED), Line((Point(1),))),
    *(Celsius(1, 50.0), Frozen([1]), Slotted(1), FrozenSlotted(1), Named(value=1, words=["a"])),
    *(Helped(2), Described(1, 2), Box(3), Watched(4), Pair(5), Price(6, 7), Shape(1, [Box(1)])),
    *({Color.RED: [Point(1, Color.GREEN)]}, {Point(1): 2}, [Point(1)] * 2, (Celsius({1: 2}),)),
    *(np.int64(-7), np.uint64(1 << 63), np.float32(0.5), np.bool_(True), np.str_("a"), np.zeros(1)),
    *(np.datetime64("2026-01-01", "ns"), np.datetime64("2026-01-01", "s"), {"n": np.uint8(3)}),
    *(RowList([(1, "a"), (2, "b")]), object, 1j, [[[[{"a": [(1, {2: {3}})]}]]]], "x" * 200),
]
_SCALARS: list[Callable[[Random], Any]] = [
    lambda draw: draw.choice(
        [None, True, False, "", "\ud800", "(set)", "<Point>", b"", -0.0, 1 << 70]
    ),
    lambda draw: draw.randrange(-(1 << 40), 1 << 40),
    lambda draw: draw.random() * 10.0 ** draw.randrange(-9, 9),
    lambda draw: float(draw.randrange(-9, 9)),
    lambda draw: "".join(map(chr, (draw.randrange(32, 400) for _ in range(draw.randrange(9))))),
    lambda draw: draw.randbytes(draw.randrange(5)),
    lambda draw: (
        datetime(2026, 1, 1, tzinfo=draw.choice([None, UTC, BERLIN]))
        + timedelta(microseconds=draw.randrange(1 << 44))
    ),
    lambda draw: date(2026, 1, 1) + timedelta(draw.randrange(500)),
    lambda draw: timedelta(draw.randrange(-9, 9), draw.randrange(99_999), draw.randrange(999_999)),
    lambda draw: Decimal(draw.randrange(-9999, 9999)).scaleb(draw.randrange(-5, 5)),
    lambda draw: UUID(int=draw.getrandbits(128)),
    lambda draw: draw.choice([*Color, *Level, *Unit, *Access, Paint.RED, Mode(3)]),
]
_CONTAINERS: list[Callable[[Random, int], Any]] = [
    lambda draw, depth: [random_value(draw, depth) for _ in range(draw.randrange(4))],
    lambda draw, depth: tuple(random_value(draw, depth) for _ in range(draw.randrange(4))),
    lambda draw, depth: {f"n{i}": random_value(draw, depth) for i in range(draw.randrange(4))},
    lambda draw, depth: {i: random_value(draw, depth) for i in range(draw.randrange(3))},
    lambda draw, depth: {draw.choice([(1, 2), b"k", "()"]): random_value(draw, depth)},
    lambda draw, _: draw.choice([set, frozenset])(range(draw.randrange(5))),
    lambda draw, _: Counter({draw.choice(["a", 1, (1,)]): draw.randrange(9)}),
    lambda draw, depth: Point(random_value(draw, depth), draw.choice([None, *Color])),
    lambda draw, depth: Line((Point(random_value(draw, depth)),), Access.WRITE),
    lambda draw, depth: draw.choice([Celsius, Slotted, Frozen, Box, Helped])(
        random_value(draw, depth)
    ),
]


def random_value(draw: Random, depth: int = 3) -> Any:
    """A value that depends on the generator only, also in its order."""
    if depth and draw.random() < 0.6:
        return draw.choice(_CONTAINERS)(draw, depth - 1)
    return draw.choice(_SCALARS)(draw)


def written(form: Format, value: Any) -> str:
    """The value in a format, or the error that refuses it."""
    try:
        return form.write(value)
    except SunshowerError as error:
        return f"! {type(error).__name__}: {error}"
    except (TypeError, ValueError) as error:
        return f"! {type(error).__name__}"


def checksums(form: Format) -> list[int]:
    """Of each random value as it is written."""
    several = (written(form, random_value(Random(seed))) for seed in range(SEEDS))
    return [crc32(text.encode("utf-8", "surrogatepass")) for text in several]


def main() -> None:
    content = {
        name: {
            "samples": [written(form, value) for value in SAMPLES],
            "random": checksums(form),
        }
        for name, form in FORMATS.items()
    }
    FILE.write_text(json.dumps(content, indent=0, ensure_ascii=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
