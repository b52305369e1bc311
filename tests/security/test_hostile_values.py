"""Bytes that encode no value are refused with one error, without a crash or much memory."""

from __future__ import annotations

import random
import resource
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower.codec import Codec, RowList
from sunshower.runtime.plan import PlannedStream
from sunshower.runtime.tracking.batch import Batch
from sunshower.runtime.transport.packets import decode_frame, encode_frame
from sunshower.topologies.graph import StreamSpec
from tests.runtime.field_values import SCHEMA, Color, Field, values
from tests.security.hostile import mutated_bytes, mutated_messagepack

CODEC = Codec(SCHEMA.classes)
STREAM = PlannedStream(0, "spout", StreamSpec("default", SCHEMA), SCHEMA.classes)
GROWTH_MAX = 256 << 20  # bytes of resident memory
COLOR = SCHEMA.classes.index(Color)
CODES = range(16)  # the codec's, and some that it does not use


def resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def refused(data: bytes) -> bool:
    """Return whether decoding raises ValueError. Any other exception is raised."""
    try:
        CODEC.decode(data)
    except ValueError:
        return True
    return False


@given(st.lists(values, max_size=4), st.randoms(use_true_random=False))
def test_a_mutated_value_is_refused_or_read_as_another(value: Any, dice: random.Random) -> None:
    data = CODEC.encode([*value, RowList([(field, 1) for field in value])] if value else value)
    for _ in range(5):
        refused(mutated_bytes(data, dice))
        refused(mutated_messagepack(data, dice))


CONTENT = st.recursive(
    st.none() | st.integers(-3, 20) | st.text(max_size=9) | st.floats() | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.integers(0, 3), inner),
    max_leaves=5,
).map(lambda content: msgpack.packb(content, unicode_errors="surrogatepass"))


@given(st.sampled_from(CODES), st.binary(max_size=40) | CONTENT)
def test_any_content_of_any_extension_type_is_refused_or_read(code: int, content: bytes) -> None:
    refused(msgpack.packb([msgpack.ExtType(code, content)]))


@pytest.mark.parametrize("code", [3, 4, 5])
def test_extension_types_within_each_other_have_a_limit(code: int) -> None:
    data = msgpack.packb(7)
    for _ in range(5_000):
        data = msgpack.packb(msgpack.ExtType(code, b"\x91" + data))
    with pytest.raises(ValueError, match="nested more than 32 deep"):
        CODEC.decode(data)


@pytest.mark.parametrize(
    "data",
    [
        msgpack.packb(msgpack.ExtType(1, msgpack.packb([99, []]))),
        msgpack.packb(msgpack.ExtType(1, msgpack.packb([-1, []]))),
        msgpack.packb(msgpack.ExtType(1, msgpack.packb([0, "__class__"]))),
        msgpack.packb(msgpack.ExtType(1, msgpack.packb([COLOR, ["RED"]]))),
        msgpack.packb(msgpack.ExtType(1, msgpack.packb([COLOR, "__class__"]))),
        msgpack.packb(msgpack.ExtType(1, msgpack.packb([COLOR + 0.5, "RED"]))),
        msgpack.packb(msgpack.ExtType(2, msgpack.packb([0, []]))),
        msgpack.packb(msgpack.ExtType(2, msgpack.packb([1 << 40, [1]]))),
        msgpack.packb(msgpack.ExtType(7, b"2026-01-01T00:00:00[../../etc/passwd]")),
        msgpack.packb(msgpack.ExtType(7, b"2026-01-01T00:00:00[No/Where]")),
        msgpack.packb(msgpack.ExtType(10, b"P" + b"9" * 100 + b"D")),
        msgpack.packb(msgpack.ExtType(10, b"P" + b"9" * 5_000_000 + b"D")),
        msgpack.packb(msgpack.ExtType(12, b"no uuid")),
        msgpack.packb(msgpack.ExtType(99, b"")),
        b"\xdd\xff\xff\xff\xff",
        b"",
    ],
)
def test_bytes_that_no_codec_writes_are_refused(data: bytes) -> None:
    before = resident()
    assert refused(data)
    assert resident() - before < GROWTH_MAX


def test_a_frame_with_an_undeclared_class_has_an_error_that_names_the_cause() -> None:
    frame = encode_frame(3, 1, Batch(0, 7, [Field(1)]), STREAM, 1 << 24)
    frame[5] = msgpack.packb([msgpack.ExtType(1, msgpack.packb([99, []]))])
    assert "a class that is not declared" in str(decode_frame(frame, [STREAM]).error)
