"""The entry point of stream programs: `batches` adds a batch spout to a topology."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any, TypeAlias, Unpack, overload

from sunshower.arguments import COUNT, Instance, Rule, Values
from sunshower.config import NOTHING, Resources
from sunshower.errors import ConfigError, DuplicateComponent, TopologyError
from sunshower.state.tree import Tree
from sunshower.topologies.components import Out, Spout
from sunshower.topologies.graph import Level
from sunshower.topologies.operators.schemas import columns_schema
from sunshower.topologies.outputs import check_id
from sunshower.topologies.signatures import name_of, spout_signature
from sunshower.topologies.sources import TextFiles
from sunshower.topologies.streams import Grouped, Stream
from sunshower.topologies.topology import Topology
from sunshower.trident.declaration.stage_builder import BatchStage, GroupBuilder, StreamProgram
from sunshower.trident.declaration.streams import BatchStream
from sunshower.trident.spouts.fixed import TextFileBatches
from sunshower.trident.spouts.ordinary_spouts import PlainSpout, PolledSpout
from sunshower.trident.spouts.partition_emitters import (
    AdaptedPartitionedSpout,
    OpaqueEmitter,
    TransactionalEmitter,
)
from sunshower.trident.spouts.port import (
    AdaptedBatchSpout,
    BatchSpout,
    OpaquePartitionedSpout,
    PartitionedSpout,
    SpoutKind,
    TridentSpout,
)
from sunshower.trident.stages.plan import Skip, TaskSettings

BatchSource: TypeAlias = TridentSpout | BatchSpout | PartitionedSpout | OpaquePartitionedSpout


_TOPOLOGY = Instance((Topology,), 'the Topology that they are of: batches(topology, "lines", …)')
_OPTIONS: dict[str, Rule] = {  # of a group
    "store": Instance((Callable,), 'a place such as InSqlite("batches.db")'),
    "max_batches": COUNT,
    "interval_s": Values(float, "a number of seconds", least=0),
    "skip": Instance((Skip,), 'Skip(dead_letters="dead.jsonl"), or Skip(attempts=10)'),
}


# ---- adapting ------------------------------------------------------------------------------------
# Adapts every kind of batch source to the port TridentSpout.
#
# given                     becomes                     kind
# TridentSpout              itself                      its own
# BatchSpout                AdaptedBatchSpout           its own; default: non-transactional
# PartitionedSpout          AdaptedPartitionedSpout     transactional
# OpaquePartitionedSpout    AdaptedPartitionedSpout     opaque
# TextFiles                 TextFileBatches             transactional
# Spout with records()      PlainSpout                  non-transactional
# Spout with next_tuple     PolledSpout                 non-transactional
#
# As in Storm: see org.apache.storm.trident.TridentTopology.newStream


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
        checked: TridentSpout = spout
        return checked
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


# ---- declare -------------------------------------------------------------------------------------


class Options(TaskSettings, total=False):
    """The options of a batch spout's stream and of its group."""

    store: Callable[[], Tree] | None
    max_batches: int | None
    interval_s: float | None
    skip: Skip | None
    group: str | None


@overload
def batches(
    topology: Topology, id: str, spout: Spout[Out], **options: Unpack[Options]
) -> BatchStream[Out]: ...
@overload
def batches(
    topology: Topology, id: str, spout: BatchSource, **options: Unpack[Options]
) -> BatchStream[Any]: ...
def batches(
    topology: Topology,
    id: str,
    spout: Any,
    parallelism: int = 1,
    store: Callable[[], Tree] | None = None,
    max_batches: int | None = None,
    interval_s: float | None = None,
    skip: Skip | None = None,
    group: str | None = None,
    resources: Resources = NOTHING,
) -> BatchStream[Any]:
    """The stream of a batch spout, or of a source that can be adapted to one, as `TextFiles` can.

    `id` names the spout in the store; a later run with the same id continues. Its tasks:
    see TaskSettings. Streams of the same `group` share their batches and can be merged and joined;
    by default each stream is its own group. Give the options of a group once:

    - `store`: where its progress is stored (default: SQLite file `<topology>.batches.db` in the
      working directory)
    - `max_batches`: how many may be in progress (1)
    - `interval_s`: least time between two batches (0)
    - `skip`: what to do with a batch that keeps failing

    Raises TopologyError or a subclass. Storm: org.apache.storm.trident.TridentTopology.newStream.
    """
    _TOPOLOGY.check("batches: topology", topology, TopologyError)
    where = f"topology {topology.id!r}, batches {id!r}"
    COUNT.check(f"{where}: parallelism", parallelism, TopologyError)
    check_id(id, where)
    try:
        source = as_trident_spout(spout)
    except TopologyError as error:
        raise TopologyError(f"{where}: {error}") from None
    if not isinstance(source.kind, SpoutKind):
        raise TopologyError(f"{where}: kind is {source.kind!r}; give one of SpoutKind")
    limit = source.parallelism_max
    if limit is not None and parallelism > limit:
        raise TopologyError(
            f"{where}: parallelism is {parallelism}, but {name_of(type(spout))} has at most {limit}"
        )
    program = topology.extension(StreamProgram)
    program.check_open(where)
    stages = [stage for group in program.groups.values() for stage in group.stages]
    if any(stage.spout is not None and stage.root == id for stage in stages):
        raise DuplicateComponent(f"{where}: there is one of that id already")
    if source.emits is None:
        raise TopologyError(
            f"{where}: nothing says which fields its records have; {how_to_declare(spout)}"
        )
    schema = columns_schema(source.emits, where)
    check_id(group or id, where)
    in_group = program.groups.setdefault(group or id, GroupBuilder(program, group or id))
    _set_options(
        in_group, where, store=store, max_batches=max_batches, interval_s=interval_s, skip=skip
    )
    stage = BatchStage(in_group, id, parallelism, resources, source)
    return BatchStream(stage.emit(schema))


def _set_options(group: GroupBuilder, where: str, **options: Any) -> None:
    """Set the options of a group. Raises ConfigError for invalid or contradictory values."""
    for name, value in options.items():
        if value is None:
            continue
        _OPTIONS[name].check(f"{where}: {name}", value)
        known = getattr(group, name)
        if known is not None and known != value:
            raise ConfigError(
                f"{where}: group {group.id!r} has {name}={known!r} already; set it only once"
            )
        setattr(group, name, value)
