"""Adapts every kind of batch source to the port TridentSpout.

given                     becomes                     kind
TridentSpout              itself                      its own
BatchSpout                AdaptedBatchSpout           its own; default: non-transactional
PartitionedSpout          AdaptedPartitionedSpout     transactional
OpaquePartitionedSpout    AdaptedPartitionedSpout     opaque
TextFiles                 TextFileBatches             transactional
Spout with records()      PlainSpout                  non-transactional
Spout with next_tuple     PolledSpout                 non-transactional

Storm: org.apache.storm.trident.TridentTopology.newStream
"""

from __future__ import annotations

from inspect import signature
from typing import Any

from sunshower.errors import TopologyError
from sunshower.topologies.components import Spout
from sunshower.topologies.graph import Level
from sunshower.topologies.signatures import spout_signature
from sunshower.topologies.sources import TextFiles
from sunshower.topologies.streams import Grouped, Stream
from sunshower.trident.spouts.batch_spout import AdaptedBatchSpout, BatchSpout
from sunshower.trident.spouts.ordinary_spouts import PlainSpout, PolledSpout
from sunshower.trident.spouts.partition_emitters import (
    AdaptedPartitionedSpout,
    OpaqueEmitter,
    TransactionalEmitter,
)
from sunshower.trident.spouts.partitioned import OpaquePartitionedSpout, PartitionedSpout
from sunshower.trident.spouts.port import SpoutKind, TridentSpout
from sunshower.trident.spouts.text import TextFileBatches


def as_trident_spout(spout: Any) -> TridentSpout:
    """Adapt a source. Raises TopologyError, naming the possible kinds, for anything else."""
    match spout:
        case BatchSpout():
            return AdaptedBatchSpout(spout)
        case PartitionedSpout():
            return AdaptedPartitionedSpout(spout, TransactionalEmitter)
        case OpaquePartitionedSpout():
            return AdaptedPartitionedSpout(spout, OpaqueEmitter)
        case TextFiles() if type(spout) is TextFiles and spout.encoding != "declared":
            lines = TextFileBatches(*spout.files, encoding=spout.encoding, errors=spout.errors)
            return AdaptedPartitionedSpout(lines, TransactionalEmitter)
        case Spout() if spout_signature(spout, type(spout).__name__).level is Level.NEXT_TUPLE:
            return PolledSpout(spout)
        case Spout():
            return AdaptedPartitionedSpout(PlainSpout(spout), TransactionalEmitter)
    if not isinstance(spout, type) and _is_trident_spout(spout):
        found: TridentSpout = spout
        return found
    if isinstance(spout, Stream | Grouped):
        raise TopologyError(
            f"a stream of ordinary tuples ({spout if isinstance(spout, Stream) else spout.stream}) "
            "has no batches that could be repeated: give the spout that it comes from, and let "
            ".flat_map do what its bolts do"
        )
    called = f"the class {spout.__name__}" if isinstance(spout, type) else repr(spout)
    raise TopologyError(
        f"{called:.200} makes no batches: give an instance of a BatchSpout, a PartitionedSpout, an "
        "OpaquePartitionedSpout, a TridentSpout, or a Spout with records() or next_tuple"
    )


def how_to_declare(spout: Any) -> str:
    """Return how a source declares its records, for the error that it does not: `declared_by` of
    its class, or what the arguments of its class allow."""
    name = type(spout).__name__
    if (remedy := getattr(spout, "declared_by", None)) is not None:
        return f"{remedy}"
    if {"type", "fields"} <= {*signature(type(spout)).parameters}:
        return f'give {name} type=Word, or fields=("word",)'
    if isinstance(spout, Spout):
        return f"write `class {name}(Spout[Word])`, or set its attribute: emits = Word"
    return f"set the attribute of {name}: emits = Word"


def _is_trident_spout(spout: Any) -> bool:
    parts = ("emits", "commits", "parallelism_max", "coordinator", "emitter")
    return all(hasattr(spout, name) for name in parts) and isinstance(
        getattr(spout, "kind", None), SpoutKind
    )
