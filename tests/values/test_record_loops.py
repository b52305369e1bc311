"""The compiled loops over records do what those in Python do: values, errors, and references."""

from __future__ import annotations

import copy
import gc
import importlib.util
import math
import os
import pickle
import shutil
import subprocess
import sys
import sysconfig
import weakref
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sunshower import record_loops
from sunshower.codec import Codec
from sunshower.errors import BadEmit, Unserialisable
from sunshower.records import record_class, rows_of
from sunshower.runtime.transport.routing import KeyTable
from sunshower.value_types import KEYS_THEMSELVES
from tests.structure.reading import ROOT

pytestmark = pytest.mark.skipif(not record_loops.compiled, reason="there is no compiled module")


def in_python() -> Any:
    """The module as it is without the compiled one."""
    spec = importlib.util.spec_from_file_location("loops_in_python", record_loops.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with patch.dict("os.environ", {record_loops.PURE: "1"}):
        spec.loader.exec_module(module)
    assert not module.compiled
    return module


PYTHON = in_python()


class Level(IntEnum):
    LOW = 1


class Text(str):
    __slots__ = ()


class Pair(NamedTuple):
    left: Any
    right: Any = None


class Labelled(Pair):
    """A subclass of a NamedTuple, whose instances have a __dict__."""


# ---- MessagePack ---------------------------------------------------------------------------------

EDGES = [sign * (1 << bits) + step for sign in (1, -1) for bits in (5, 7, 8, 15, 16, 31, 32, 63, 64)
         for step in (-1, 0, 1)]  # fmt: skip
LENGTHS = [0, 1, 31, 32, 255, 256, 65_535, 65_536]
plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from(EDGES),
    st.floats(),
    st.text(),
    st.sampled_from(LENGTHS).map("é".__mul__),
    st.sampled_from(LENGTHS).map("x".__mul__),
    st.binary(max_size=40),
    st.sampled_from(LENGTHS).map(b"\x00".__mul__),
)
nested = st.lists(plain | st.lists(plain, max_size=3), max_size=20)
odd = st.sampled_from(
    ["\ud800", "a\udfff", Level.LOW, Text("text"), np.float64(2.5), Decimal("1.10"), (1, 2), [3],
     {"k": 1}, datetime(2026, 1, 1, tzinfo=UTC), 1 << 64, -(1 << 63) - 1, math.nan, -0.0,
     bytearray(b"b")]
)  # fmt: skip
values = plain | nested | odd | st.lists(odd, max_size=2)
widths = st.integers(1, 3)


@st.composite
def batches(draw: st.DrawFn, fields: st.SearchStrategy[Any] = values) -> tuple[list[Any], int]:
    width = draw(widths)
    return draw(st.lists(st.tuples(*[fields] * width), max_size=12)), width


def identical(left: Any, right: Any) -> bool:
    """Whether values are of the same types and equal, where NaN equals itself."""
    return type(left) is type(right) and repr(left) == repr(right)


@given(batches())
def test_encoded_bytes_are_those_of_the_codec(batch: tuple[list[Any], int]) -> None:
    rows, width = batch
    data = record_loops.encode(rows, width)
    if data is not None:
        assert data == Codec().encode([*chain.from_iterable(rows)])
        assert identical(record_loops.decode(data, width, tuple), rows)


def leaves(value: Any) -> Iterator[Any]:
    for item in value if type(value) is list else ():
        yield from leaves(item)
    if type(value) is not list:
        yield value


@given(batches(plain | nested))
def test_plain_values_are_encoded_in_the_module(batch: tuple[list[Any], int]) -> None:
    rows, width = batch
    fields = leaves([*chain.from_iterable(rows)])
    numbers = [field for field in fields if type(field) is int]
    fits = all(-(1 << 63) <= number < 1 << 64 for number in numbers)
    assert (record_loops.encode(rows, width) is not None) == fits


@given(batches(plain))
def test_records_are_decoded_without_their_constructor(batch: tuple[list[Any], int]) -> None:
    rows = [row[:1] * 2 for row in batch[0]]
    if (data := record_loops.encode(rows, 2)) is None:
        return
    with patch.object(Labelled, "__init__", side_effect=AssertionError):
        records = record_loops.decode(data, 2, Labelled)
    assert identical(records, record_class(Labelled).build_all(rows))
    assert records is not None
    assert all(vars(record) == {} for record in records)


@given(batches(plain | nested), st.data())
def test_damaged_bytes_are_left_to_the_codec(
    batch: tuple[list[Any], int], data: st.DataObject
) -> None:
    rows, width = batch
    encoded = record_loops.encode(rows, width)
    if encoded is None:
        return
    damaged = bytearray(encoded)
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    damaged = damaged[: data.draw(st.integers(0, len(damaged)))] + data.draw(st.binary(max_size=3))
    decoded = record_loops.decode(bytes(damaged), width, tuple)
    if decoded is not None:
        expected = rows_of(Codec().decode(bytes(damaged)), width)
        assert identical(decoded, [tuple(row) for row in expected])


@given(st.binary(max_size=60), widths)
@example(b"\xdd\xff\xff\xff\xff", 1)
@example(b"\xdc\xff\xff" + b"\xc0" * 20, 3)
def test_any_bytes_are_decoded_or_left_to_the_codec(data: bytes, width: int) -> None:
    decoded = record_loops.decode(data, width, tuple)
    if decoded is not None:
        assert identical(decoded, [tuple(row) for row in rows_of(Codec().decode(data), width)])


def test_rows_of_another_width_or_type_are_left_to_the_codec() -> None:
    for rows in ([(1, 2)], [(1,), ()], [[1]], ["a"], [None]):
        assert record_loops.encode(rows, 1) is None
    assert record_loops.encode([()], 0) is None
    with pytest.raises(Unserialisable):
        Codec().encode([object()])


# ---- routing -------------------------------------------------------------------------------------

keys = st.one_of(
    plain, odd, st.lists(st.integers(), max_size=2), st.tuples(st.text(), st.integers())
)


@given(st.lists(keys, max_size=20), st.integers(2, 256), st.integers(0, 1))
def test_each_row_goes_to_the_target_of_its_key(
    chosen_keys: list[Any], targets: int, place: int
) -> None:
    rows = [(None, key)[::-1] if place == 0 else (None, key) for key in chosen_keys]

    def outcome(module: Any) -> Any:
        table = KeyTable(targets)
        try:
            return [module.choose(rows, place, table, table.find, targets) for _ in range(2)]
        except BadEmit as error:
            return str(error)

    assert outcome(record_loops) == outcome(PYTHON)


@given(st.lists(keys, max_size=8), st.integers(0, 1))
def test_plain_keys_are_those_that_every_row_has(chosen_keys: list[Any], place: int) -> None:
    rows = [(None, key)[::-1] if place == 0 else (None, key) for key in chosen_keys]
    plain_ones = record_loops.plain_keys(rows, place)
    if {*map(type, chosen_keys)} <= KEYS_THEMSELVES:
        assert identical(plain_ones, chosen_keys)
    else:
        assert plain_ones is None
    assert record_loops.plain_keys([(1,)], 1) is None


@given(st.lists(st.integers(), max_size=40), st.data())
def test_taken_rows_are_those_at_the_positions(rows: list[int], data: st.DataObject) -> None:
    positions = np.array(
        sorted(data.draw(st.sets(st.sampled_from(range(len(rows)))))) if rows else []
    )
    which = positions.astype(np.int64)
    assert record_loops.take(rows, which) == PYTHON.take(rows, which) == [rows[i] for i in which]
    with pytest.raises(IndexError):
        record_loops.take(rows, np.array([len(rows)]))


# ---- calls of user code --------------------------------------------------------------------------


class Interrupt(BaseException):
    """Of a user's library; neither an Exception nor one of Python's."""


def stop() -> Any:
    return next(iter(()))


WAYS: dict[str, Callable[[int], Any]] = {
    "yields": lambda n: ((n, at) for at in range(n % 4)),
    "returns a list": lambda n: [(n, at) for at in range(n % 4)],
    "returns a tuple": lambda n: tuple((n, at) for at in range(n % 3)),
    "returns an iterator": lambda n: iter([(n,)]),
    "returns rows of another type": lambda n: [[n], n, (n,), Pair(n)],
    "returns nothing": lambda _: [],
    "returns None": lambda _: None,
    "returns a number": lambda n: n,
    "raises": lambda n: [][n],
    "raises later": lambda n: ((n, 1 // (2 - at)) for at in range(4)),
    "is interrupted": lambda n: (_ for _ in ()).throw(Interrupt(n)),
    "ends the process": sys.exit,
    "stops": lambda _: stop(),
    "stops within": lambda _: (stop() for _ in range(1)),
}
ways = st.lists(st.sampled_from(sorted(WAYS)), max_size=8)


def call(record: tuple[int, str]) -> Any:
    number, way = record
    return WAYS[way](number)


def expanded(module: Any, records: list[Any], outputs_max: int) -> Any:
    """The outputs of all records, going on after each error."""
    outputs, ends, errors, all_fit = list[Any](), list[int](), list[str](), True
    while True:
        fit, rest, error = module.expand(call, records, outputs_max, tuple, 2, outputs, ends)
        all_fit &= fit
        assert not all_fit or {*map(type, outputs)} <= {tuple}
        if error is None:
            left = None if rest is None else first_of(rest)
            return outputs, ends, errors, left
        # A StopIteration becomes a RuntimeError: in the module, or by its caller.
        stopped = isinstance(error, StopIteration) or "StopIteration" in str(error)
        errors.append("stopped" if stopped else f"{error!r}")
        ends.append(len(outputs))
        if len(ends) == len(records):
            return outputs, ends, errors, None


def first_of(rest: Iterator[Any]) -> list[str]:
    """What is left of an iterable, and how it ends."""
    left = list[str]()
    try:
        left.extend(map(repr, rest))
    except BaseException as error:
        left.append("stopped" if "StopIteration" in repr(error) else repr(error))
    return left


@given(ways, st.integers(1, 12))
def test_records_are_expanded_as_in_python(chosen: list[str], outputs_max: int) -> None:
    records = [*enumerate(chosen)]
    assert expanded(record_loops, records, outputs_max) == expanded(PYTHON, records, outputs_max)


def test_outputs_fit_if_all_are_of_the_type_and_width() -> None:
    def fit(rows: list[Any], kind: type, width: int) -> bool:
        return record_loops.expand(iter, [rows], 9, kind, width, [], [])[0]

    assert fit([(1, 2), (3, 4)], tuple, 2)
    assert fit([Pair(1), Pair(2)], Pair, 2)
    assert not fit([(1, 2), (3,)], tuple, 2)
    assert not fit([(1, 2), Pair(3)], tuple, 2)
    assert not fit([Labelled(1)], Pair, 2)


@given(ways)
def test_a_sink_is_called_as_in_python(chosen: list[str]) -> None:
    def outcome(module: Any) -> list[Any]:
        records, index, outcomes = [*enumerate(chosen)], 0, list[Any]()
        while True:
            index, produced, error = module.each(call, records, index)
            outcomes.append((index, type(produced), repr(error)))
            if index == len(records):
                return outcomes
            index += 1

    assert outcome(record_loops) == outcome(PYTHON)


def test_the_traceback_of_user_code_is_kept() -> None:
    def fail(record: Any) -> Any:
        raise ValueError(record)

    _, _, error = record_loops.expand(fail, [1], 5, tuple, 1, [], [])
    _, _, again = record_loops.each(fail, [1], 0)
    for raised in (error, again):
        assert raised is not None
        assert raised.__traceback__ is not None
        assert raised.__traceback__.tb_frame.f_code is fail.__code__


def test_wrong_arguments_raise_and_change_nothing() -> None:
    names = ("expand", "each", "choose", "take", "plain_keys", "encode", "decode", "quicken")
    for function in (getattr(record_loops, name) for name in names):
        for arguments in ((), (1,) * 2, (None,) * 3, ("a",) * 5, (object(),) * 7):
            with pytest.raises((TypeError, ValueError, BufferError)):
                function(*arguments)


# ---- constructors --------------------------------------------------------------------------------


def new_kind() -> Any:
    class Point(NamedTuple):
        x: Any
        y: Any = 7

    return Point


def test_quick_constructors_make_the_same_records() -> None:
    usual, quick = new_kind(), new_kind()
    assert record_loops.quicken(quick, 2)
    for arguments, named in [((1, 2), {}), ((1,), {}), ((), {"x": 1}), ((1,), {"y": 2})]:
        record = quick(*arguments, **named)
        assert (record, type(record)) == (usual(*arguments, **named), quick)
        assert copy.deepcopy(record) == record._replace(x=1) == record
    for arguments, named in [((), {}), ((1, 2, 3), {}), ((1, 2), {"y": 2}), ((1,), {"z": 1})]:
        with pytest.raises(TypeError) as expected:
            usual(*arguments, **named)
        with pytest.raises(TypeError) as raised:
            quick(*arguments, **named)
        assert str(raised.value) == str(expected.value)


def test_a_constructor_that_changes_later_is_called() -> None:
    kind = new_kind()
    assert record_loops.quicken(kind, 2)
    with patch.object(kind, "__new__", lambda _, *fields: fields):
        assert type(kind(1, 2)) is tuple
    assert kind(1, 2) == (1, 2)
    kind.__init__ = lambda _, *fields: seen.append(fields)
    seen = list[Any]()
    kind(3, 4)
    assert seen == [(3, 4)]


def test_a_class_with_a_constructor_of_its_own_keeps_it() -> None:
    calls = list[Any]()

    class Counted(Pair):
        def __new__(cls, *fields: Any) -> Any:
            calls.append(fields)
            return super().__new__(cls, *fields)

    class Initialised(Pair):
        def __init__(self, *fields: Any) -> None:
            calls.append(fields)

    for kind in (Counted, Initialised):
        record_class(kind)
        assert kind(1, 2) == (1, 2)
    assert calls == [(1, 2)] * 2
    assert not record_loops.quicken(Initialised, 2)
    assert not record_loops.quicken(tuple, 2)


def test_quick_classes_are_many_and_may_end() -> None:
    kinds = [new_kind() for _ in range(3000)]
    for kind in kinds:
        assert record_loops.quicken(kind, 2)
    assert all(kind(1, 2) == (1, 2) and type(kind(1, 2)) is kind for kind in kinds)
    last = weakref.ref(kinds.pop())
    del kind, kinds
    gc.collect()
    assert last() is None
    assert type(new_kind()(1, 2)).__name__ == "Point"


def test_a_subclass_of_a_quick_class_is_itself() -> None:
    kind = new_kind()
    assert record_loops.quicken(kind, 2)
    child: Any = type("Child", (kind,), {})
    assert type(child(1, 2)) is child
    assert record_loops.quicken(child, 2)
    child(1, 2).note = "has a __dict__"
    assert type(pickle.loads(pickle.dumps(Pair(1, 2)))) is Pair


# ---- references ----------------------------------------------------------------------------------


def test_no_reference_is_lost_or_kept() -> None:
    marker, table = Decimal("7.25"), KeyTable(4)
    kind = new_kind()
    record_loops.quicken(kind, 2)

    def fail(record: Any) -> Any:
        yield record
        raise ValueError(record)

    def steps() -> None:
        rows = [(marker, 1), (marker, 2)]
        record_loops.expand(lambda row: [row, row], rows, 3, tuple, 2, [], [])
        record_loops.expand(lambda row: iter([row]), rows, 9, tuple, 2, [], [])
        record_loops.expand(fail, rows, 9, tuple, 2, [], [])
        record_loops.expand(lambda _: marker, rows, 9, tuple, 2, [], [])
        record_loops.each(lambda _: marker, rows, 0)
        record_loops.each(lambda _: None, rows, 0)
        record_loops.choose(rows, 0, table, table.find, 4)
        record_loops.choose([([marker],)], 0, table, table.find, 4)
        record_loops.take(rows, np.array([0, 1]))
        record_loops.plain_keys(rows, 0)
        record_loops.plain_keys(rows, 1)
        record_loops.encode(rows, 2)
        record_loops.encode([("text", 1)], 2)
        record_loops.decode(b"\x92\xa4text\xc7", 2, kind)
        record_loops.decode(b"\x92\xa4text\x01", 2, kind)
        kind(marker, 2)

    watched = [marker, kind, fail]
    if sys.version_info < (3, 12):  # later, these are immortal, and their counts say nothing
        watched += [None, True, "text"]
    steps()
    before = [sys.getrefcount(thing) for thing in watched]
    for _ in range(1000):
        steps()
    after = [sys.getrefcount(thing) for thing in watched]
    assert all(abs(new - old) < 100 for new, old in zip(after, before, strict=True)), (
        before,
        after,
    )


@pytest.mark.long
def test_sanitisers_find_nothing(tmp_path: Path) -> None:
    """These tests again, with a module that reports accesses outside of its memory."""
    libraries = [
        subprocess.check_output(["gcc", f"-print-file-name={name}"], text=True).strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    if not all(Path(library).is_absolute() for library in libraries):
        pytest.skip("gcc has no sanitisers here")
    shutil.copytree(ROOT / "sunshower", tmp_path / "sunshower", symlinks=True)
    source = tmp_path / "sunshower/_record_loops.c"
    module = tmp_path / f"sunshower/_record_loops{sysconfig.get_config_var('EXT_SUFFIX')}"
    flags = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    flags += ["-fwrapv", "-fno-strict-aliasing", "-fPIC", "-shared"]
    include = sysconfig.get_path("include")
    subprocess.run(["gcc", *flags, f"-I{include}", source, "-o", module], check=True)
    environment = {
        **os.environ,
        "ASAN_OPTIONS": "detect_leaks=0",
        "LD_PRELOAD": " ".join(libraries),
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": f"{tmp_path}:{ROOT}",
    }
    tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not long", __file__]
    done = subprocess.run(
        [sys.executable, *tests, f"--rootdir={tmp_path}", "-o", "pythonpath=", "-rs"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "skipped" not in done.stdout
