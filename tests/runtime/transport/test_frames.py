"""Frames decode to the batches that were encoded; a record that cannot be encoded is named."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given

from sunshower.errors import CorruptPacket, Unserialisable
from sunshower.runtime.tracking.batch import Batch
from sunshower.runtime.transport.packets import decode_frame, encode_frame, first_bad
from tests.runtime.batches import MAX, STREAMS, Order, Word, batches, records_with_anchors


def over_the_wire(fields: list[Any]) -> list[Any]:
    again: list[Any] = msgpack.unpackb(msgpack.packb(fields))
    return again


@given(batches())
def test_frame_decodes_to_what_was_encoded(batch: Batch) -> None:
    frame = decode_frame(
        over_the_wire(encode_frame(3, 41, batch, STREAMS[batch.stream], MAX)), STREAMS
    )
    assert (frame.target, frame.seq) == (3, 41)
    assert (frame.batch.stream, frame.batch.source) == (batch.stream, batch.source)
    assert frame.batch.is_table == batch.is_table
    assert records_with_anchors(frame.batch) == records_with_anchors(batch)


def test_children_of_one_parent_encode_their_root_once() -> None:
    root = np.full(100, 1 << 60, np.uint64)
    batch = Batch(0, 7, [Word("a", 1)] * 100, root, np.arange(100, dtype=np.uint64))
    roots, counts = encode_frame(3, 1, batch, STREAMS[0], MAX)[6:8]
    assert (len(roots), len(counts)) == (8, 4)


@pytest.mark.parametrize(
    "value", [1 << 64, -(1 << 63) - 1, -(3**5000), np.int64(-7), np.float32(0.5), np.bool_(True)]
)
def test_long_integers_and_scalars_of_numpy_arrive_as_python_values(value: Any) -> None:
    batch = Batch(4, 7, [("a", value)])
    frame = decode_frame(over_the_wire(encode_frame(3, 1, batch, STREAMS[4], MAX)), STREAMS)
    (record,) = frame.batch.records
    assert record == ("a", value)
    assert type(record[1]) in {int, float, bool}


def test_an_unknown_extension_type_is_an_error_of_the_frame_alone() -> None:
    frame = encode_frame(3, 1, Batch(4, 7, [("a", 1)]), STREAMS[4], MAX)
    frame[5] = msgpack.packb(["a", msgpack.ExtType(99, b"x")])
    assert "unknown extension type 99" in str(decode_frame(over_the_wire(frame), STREAMS).error)


@pytest.mark.parametrize("value", [object(), 1j])
def test_record_that_cannot_travel_is_refused_with_its_stream(value: Any) -> None:
    batch = Batch(4, 7, [("good", 1), ("bad", value), ("good", 2)])
    with pytest.raises(Unserialisable, match=r"stream 'default' of 'spout' cannot travel"):
        encode_frame(3, 1, batch, STREAMS[4], MAX)
    assert first_bad(batch, STREAMS[4], MAX) == 1


@pytest.mark.parametrize(
    ("place", "value"),
    [(2, 99), (6, b"123"), (9, b"123")],
    ids=["stream", "roots", "offsets"],
)
def test_frame_of_another_shape_is_corrupt(place: int, value: Any) -> None:
    batch = Batch(0, 7, [Word("a", 1)], np.ones(1, np.uint64), np.ones(1, np.uint64))
    fields = encode_frame(3, 1, batch, STREAMS[0], MAX)
    fields[place] = value
    with pytest.raises(CorruptPacket, match="a frame of this topology cannot be read"):
        decode_frame(fields, STREAMS)


@pytest.mark.parametrize(
    ("place", "value"),
    [(4, 1), (5, b"\xc1"), (5, msgpack.packb(7)), (5, msgpack.packb(["a"]))],
    ids=["kind", "rows", "a number for rows", "a field too few"],
)
def test_frame_whose_records_cannot_be_decoded_still_has_its_roots(place: int, value: Any) -> None:
    batch = Batch(2, 7, [Order("a", 1)], np.ones(1, np.uint64), np.ones(1, np.uint64))
    fields = encode_frame(3, 1, batch, STREAMS[2], MAX)
    fields[place] = value
    frame = decode_frame(fields, STREAMS)
    assert frame.error
    assert frame.batch.roots.tolist() == [1]


def test_lone_surrogates_travel() -> None:
    batch = Batch(4, 7, [("\udc80", 1)])
    frame = decode_frame(over_the_wire(encode_frame(3, 1, batch, STREAMS[4], MAX)), STREAMS)
    assert frame.batch.records == [("\udc80", 1)]


def test_frame_with_a_field_too_few_is_corrupt() -> None:
    with pytest.raises(CorruptPacket):
        decode_frame([1, 2, 3], STREAMS)
