"""Derives the record types that user functions read and emit from annotations and `fields=`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from inspect import signature
from types import MappingProxyType, NoneType
from typing import Any, get_args, get_origin

from sunshower.arguments import NAME, AnyOf, Each
from sunshower.errors import RecordMismatch, TopologyError
from sunshower.field_types import check_made
from sunshower.record_types import is_record
from sunshower.records import Schema
from sunshower.scalars import SCALARS
from sunshower.topologies.async_functions import limits_of
from sunshower.topologies.components import DEFAULT
from sunshower.topologies.graph import Level
from sunshower.topologies.operators.aggregators import AnyAggregator, of_chosen, predicate_of
from sunshower.topologies.outputs import Columns, output_streams
from sunshower.topologies.signatures import (
    Signature,
    annotations_of,
    bolt_signature,
    element_of,
    fits,
    is_generator,
    name_of,
    options_of,
    record_type,
)

KEYS = AnyOf((replace(NAME, instead="a field"), Each(NAME, "a list of fields")))
_KNOWN = {*SCALARS, NoneType, bool, int, float, str, bytes, bytearray, list, tuple, dict, set}
_FAMILIES: tuple[tuple[type[Any], ...], ...] = (  # values of two of them are never equal
    (int, float, Decimal),
    (str,),
    (bytes, bytearray, memoryview),
    *((kind,) for kind in SCALARS),
)


def each_schema(function: Any, reads: Schema, fields: Columns | None, where: str) -> Schema:
    """The records that a generator or batch function emits for records of `reads`."""
    if not callable(function) or isinstance(function, type):
        raise TopologyError(f"{where}: {name_of(function)} is not a function of one record")
    signature = bolt_signature(function, where)
    _check_reads(signature.reads, reads, where)
    emits = Any if signature.level is Level.BATCH else signature.emits
    return _made(emits, function, fields, where, "yield its records, or use .peek")


def map_schema(function: Any, reads: Schema, fields: Columns | None, where: str) -> Schema:
    """The records that a function returns, one for each of `reads`."""
    (first, *_), returns = _one_record(function, where)
    _check_reads(first, reads, where)
    origin = get_origin(returns)
    if isinstance(origin, type) and origin is not tuple and not is_record(origin):
        raise RecordMismatch(
            f"{where}: {name_of(function)} returns {name_of(returns)}; map makes one record of "
            "one, -> Word; what makes several is for .flat_map"
        )
    return _made(returns, function, fields, where, "return a record, or use .peek")


def match_schema(function: Any, fields: Columns | None, where: str) -> Schema:
    """The records that a function returns, one for each match of a pattern."""
    if limits_of(function):
        raise TopologyError(f"{where}: {name_of(function)} is asynchronous; give a plain function")
    _, returns = _one_record(function, where)
    return _made(returns, function, fields, where, "return a record")


def check_predicate(function: Any, reads: Schema, where: str) -> None:
    """Raise RecordMismatch unless the function maps records of `reads` to a bool, and TopologyError
    for a generator function."""
    (first, *_), returns = _one_record(function, where)
    _refuse_generator(function, where)
    _check_reads(first, reads, where)
    if returns not in (bool, Any):
        raise RecordMismatch(
            f"{where}: {name_of(function)} returns {name_of(returns)}; a filter says True for the "
            "records to keep: -> bool"
        )


def check_choice(function: Any, reads: Schema, where: str) -> None:
    """Raise RecordMismatch unless the function maps records of `reads` to a bool, and TopologyError
    for an asynchronous one."""
    check_predicate(function, reads, where)
    if limits_of(function):
        raise TopologyError(f"{where}: the function is asynchronous; put it into a .map before")


def check_reader(function: Any, reads: Schema, where: str) -> None:
    """Raise TopologyError unless it is a function of one record, and no generator function;
    RecordMismatch, unless of a record of `reads`."""
    (first, *_), _ = _one_record(function, where)
    _refuse_generator(function, where)
    _check_reads(first, reads, where)


def check_plain_reader(function: Any, reads: Schema, where: str) -> None:
    """As check_reader, and raise TopologyError for an asynchronous function."""
    if limits_of(function):
        raise TopologyError(f"{where}: {name_of(function)} is asynchronous; give a plain function")
    check_reader(function, reads, where)


def state_code_returns(function: Any, reads: Schema, where: str) -> Any:
    """The element type that a function of (state, records) is annotated to return; Any if it is
    not."""
    name = name_of(function)
    if not callable(function) or isinstance(function, type):
        raise TopologyError(f"{where}: {name} is not a function of a state and records")
    if limits_of(function):
        raise TopologyError(f"{where}: {name} is asynchronous; what uses a state is a plain one")
    parameters, returns = annotations_of(function, where)
    if len(parameters) < 2:
        raise TopologyError(
            f"{where}: {name} must take a state and the records of a batch, as in "
            f"`def {name}(state: MapState, words: Sequence[Word]) -> Iterator[Total]`"
        )
    records = parameters[1]
    if records is not Any:
        origin = get_origin(records) or records
        series = isinstance(origin, type) and issubclass(origin, Iterable)
        if not series or (fits(records, reads) and get_origin(records) is None):
            raise RecordMismatch(
                f"{where}: {name} reads {name_of(records)}; it is handed all records of a batch "
                f"at once: Sequence[{name_of(reads.type)}]"
            )
        _check_reads(next(iter(get_args(records)), Any), reads, where)
    return element_of(returns, name, where)


def keyed_schema(
    function: Any, reads: Schema | None, fields: Columns | None, where: str, *, quiet: bool = False
) -> tuple[Any, Schema]:
    """The annotation of the state that a function of (record, state of its key) is handed, and the
    records that it emits; a schema without fields for none. `reads` None: it is handed a key;
    `quiet`: it may emit none in spite of `fields`."""
    name = name_of(function)
    what, example = ("a key", "user: str") if reads is None else ("a record", "click: Click")
    hint = f"`def {name}({example}, state: KeyState[int]) -> Iterator[Session]`"
    if not callable(function) or isinstance(function, type):
        raise TopologyError(f"{where}: {name} is no function of {what} and a state, as in {hint}")
    if limits_of(function):
        raise TopologyError(f"{where}: {name} is asynchronous; it is a plain function")
    try:
        signature(function).bind(object(), object())
    except (TypeError, ValueError):
        raise TopologyError(
            f"{where}: {name} must take {what} and the state of its key, as in {hint}"
        ) from None
    (first, state, *_), returns = annotations_of(function, where)
    if reads is not None:
        _check_reads(first, reads, where)
    emits = record_type(element_of(returns, name, where), where)
    if emits is NoneType and (quiet or fields is None):
        return state, Schema(())
    return state, _made(emits, function, fields, where, "drop fields=")


def persisted_schema(emits: Any, updater: Any, fields: Columns | None, where: str) -> Schema | None:
    """The records that an updater emits; None if it emits none."""
    emitted = record_type(emits, where)
    if fields is None and emitted in (NoneType, Any):
        return None
    return _made(emitted, updater, fields, where, "drop fields=")


def declared_schema(
    names: Sequence[str],
    kinds: Sequence[Any],
    by: Sequence[str],
    fields: Columns | None,
    where: str,
) -> Schema:
    """Records of `names`; `fields` may give a record type or other names, as many and in that
    order. The first fields are those that rows are grouped `by`; they keep their names. `kinds`:
    the types of the values; Any: unknown."""
    if fields is None:
        if len(set(names)) < len(names):
            raise RecordMismatch(
                f"{where}: two fields would have one name: {', '.join(names)}; give fields= with "
                "different ones"
            )
        return Schema(tuple(names))
    schema = columns_schema(fields, where)
    if len(schema.fields) != len(names) or schema.fields[: len(by)] != tuple(by):
        raise RecordMismatch(
            f"{where}: fields= is {schema.name}, but what comes out is ({', '.join(names)}); give "
            f"{len(names)} fields in that order"
            + (f", the first called {', '.join(by)}" if by else "")
        )
    check_makes(schema, where)
    for field, kind in zip(schema.fields, kinds, strict=True):
        if not _may_be(kind, declared := schema.kind(field)):
            raise RecordMismatch(
                f"{where}: {schema.type.__name__}.{field} is {name_of(declared)}, and its values "
                f"are {name_of(kind)}; annotate it so. A .map behind can make others of them"
            )
    return schema


def _may_be(kind: Any, declared: Any) -> bool:
    """Whether a value of type `kind` may be one of type `declared`; True if that is unknown."""
    kinds, wanted = options_of(kind), options_of(declared)
    if not {*map(_origin, (*kinds, *wanted))} <= _KNOWN:
        return True
    return any(
        issubclass(actual, expected) or (actual, expected) == (int, float)
        for actual in map(_origin, kinds)
        for expected in [*map(_origin, wanted)]
    )


def _origin(kind: Any) -> Any:
    return get_origin(kind) or kind


def check_makes(schema: Schema, where: str) -> None:
    """Raise RecordMismatch for a record type whose records an operator cannot make."""
    try:
        check_made(schema.type)
    except RecordMismatch as error:
        raise RecordMismatch(f"{where}: {error}") from None


def joined_keys(
    left: tuple[Schema, Any], right: tuple[Schema, Any], where: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The key fields of either side of a join. `left` and `right` are schemas and the fields of the
    key; None on the right: the same. Raises TopologyError for keys that cannot be equal."""
    other_on = left[1] if right[1] is None else right[1]
    for name, on in (("on", left[1]), ("other_on", other_on)):
        KEYS.check(f"{where}: {name}", on, TopologyError)
    ours, theirs = ((on,) if isinstance(on, str) else tuple(on) for on in (left[1], other_on))
    if len(ours) != len(theirs) or not ours:
        raise TopologyError(f"{where}: on {ours} and {theirs} are not the same number of fields")
    for (schema, _), names in ((left, ours), (right, theirs)):
        for name in names:
            schema.check_field(name, where)
    for our_name, their_name in zip(ours, theirs, strict=True):
        check_equatable((left[0], our_name), (right[0], their_name), where)
    return ours, theirs


def check_how(how: str, kinds: Sequence[str], where: str) -> None:
    """Raise TopologyError unless `how` is one of these kinds of joins."""
    if how not in kinds:
        raise TopologyError(f"{where}: how is {how!r}; it is {_either(kinds)}")


def joined_schema(
    left: tuple[Schema, Any],
    right: tuple[Schema, Any],
    *,
    how: str,
    kinds: Sequence[str],
    fields: Columns | None,
    where: str,
) -> tuple[tuple[str, ...], tuple[str, ...], Schema]:
    """The key fields of either side, and the schema of (key, other fields of the left, of the
    right). `left` and `right`: as of `joined_keys`. Raises TopologyError for what cannot be joined.
    """
    check_how(how, kinds, where)
    ours, theirs = joined_keys(left, right, where)
    rests = rest_of(left[0], ours), rest_of(right[0], theirs)
    types = [left[0].kind(name) for name in (*ours, *rests[0])]
    types += [right[0].kind(name) for name in rests[1]]
    out = declared_schema((*ours, *rests[0], *rests[1]), types, ours, fields, where)
    absent = [*(rests[0] if how == "outer" else ()), *(rests[1] if how != "inner" else ())]
    for name in out.fields[len(out.fields) - len(absent) :]:
        kind = out.kind(name)
        if isinstance(kind, type) and kind not in (Any, object, NoneType):
            raise RecordMismatch(
                f"{where}: {out.type.__name__}.{name} is {name_of(kind)}, and it is None where a "
                f"record has no partner; annotate {name_of(kind)} | None, or join with "
                'how="inner"'
            )
    return ours, theirs, out


def rest_of(schema: Schema, on: Sequence[str]) -> tuple[str, ...]:
    """The fields that are not part of the key."""
    return tuple(name for name in schema.fields if name not in on)


def check_equatable(left: tuple[Schema, str], right: tuple[Schema, str], where: str) -> None:
    """Raise RecordMismatch for two fields whose types have no equal values."""
    kinds = [schema.kind(name) for schema, name in (left, right)]
    families = [
        next(
            (family for family in _FAMILIES if isinstance(kind, type) and issubclass(kind, family)),
            None,
        )
        for kind in kinds
    ]
    if None not in families and families[0] != families[1]:
        left_text, right_text = (
            f"{schema.name}.{name} is {name_of(kind)}"
            for (schema, name), kind in zip((left, right), kinds, strict=True)
        )
        raise RecordMismatch(
            f"{where}: {left_text}, and {right_text}: no value of one equals one of the other; "
            "make them the same first, with .map"
        )


def _either(kinds: Sequence[str]) -> str:
    first, last = kinds[:-1], kinds[-1]
    return ", ".join(f'"{kind}"' for kind in first) + f' or "{last}"'


def check_fields(schema: Schema, fields: Sequence[str], where: str) -> None:
    """Raise UnknownField for a field that `schema` does not have, TopologyError for none."""
    if not fields:
        raise TopologyError(f"{where} needs a field, one of: {', '.join(schema.fields)}")
    for name in fields:
        schema.check_field(name, where)


def check_equal(schema: Schema, other: Schema, where: str) -> None:
    """Raise RecordMismatch for streams of different records, which cannot be merged."""
    if schema != other:
        raise RecordMismatch(
            f"{where}: one stream carries {schema.name}, another one {other.name}; make them the "
            "same first, with .map"
        )


def columns_schema(fields: Any, where: str) -> Schema:
    """A record type or field names as a schema. Raises TopologyError for none."""
    return _schema(Any, fields, where)


def _schema(emits: Any, fields: Any, where: str) -> Schema:
    streams = output_streams(Signature(Level.FUNCTION, Any, emits), None, fields, None, where)
    if DEFAULT not in streams:
        raise TopologyError(
            f"{where}: fields= is empty, and rows need at least one field; give a record type, or "
            'names such as ("word",)'
        )
    return streams[DEFAULT].schema


def code_name(code: Any) -> str:
    """The name of a function, or the class name of a callable object."""
    return str(getattr(code, "__name__", type(code).__name__)).strip("<>")


def bound_aggregators(
    aggregators: Sequence[Any],
    schema: Schema,
    by: Sequence[str],
    fields: Columns | None,
    where: str,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[tuple[Any, ...], Schema]:
    """The aggregators for records of `schema`, and the schema of what comes out: the fields `by`
    and `more` (name → type), and what each aggregator emits. Raises TopologyError."""
    for aggregator in aggregators:
        if not isinstance(aggregator, AnyAggregator):
            hint = f"{aggregator.__name__}()" if isinstance(aggregator, type) else "count()"
            raise TopologyError(
                f"{where}: {name_of(aggregator)} is no aggregator; give an instance of a "
                f"CombinerAggregator, ReducerAggregator or Aggregator, as in {hint}"
            )
    if not aggregators:
        raise TopologyError(f"{where}: it needs an aggregator, as in count()")
    for aggregator in aggregators:
        if (predicate := predicate_of(aggregator)) is not None:
            check_choice(predicate, schema, f"{where}: {type(aggregator).__name__}(where=…)")
    bound = tuple(of_chosen(aggregator.bind(schema, where)) for aggregator in aggregators)
    emitted = [name for aggregator in bound for name in aggregator.emits]
    if wrong := [name for name in emitted if not isinstance(name, str)]:
        raise TopologyError(f"{where}: {wrong[0]!r} is no name of a field; give a text")
    kinds = [*map(schema.kind, by), *more.values()]
    kinds += [kind for aggregator in bound for kind in aggregator.kinds(schema)]
    return bound, declared_schema([*by, *more, *emitted], kinds, by, fields, where)


def _refuse_generator(function: Any, where: str) -> None:
    if is_generator(function):
        raise TopologyError(
            f"{where}: {name_of(function)} is a generator function, and here nothing reads what it "
            "yields; return the result, without yield"
        )


def _one_record(function: Any, where: str) -> tuple[tuple[Any, ...], Any]:
    if not callable(function) or isinstance(function, type):
        raise TopologyError(f"{where}: {name_of(function)} is not a function of one record")
    try:
        parameters, returns = annotations_of(function, where)
    except (TypeError, ValueError):  # a builtin without a readable signature
        return (Any,), Any
    try:
        signature(function).bind(object())
    except ValueError:  # a builtin without a readable signature
        pass
    except TypeError:
        raise TopologyError(
            f"{where}: {name_of(function)} must take exactly one record, and it takes "
            f"{signature(function)}"
        ) from None
    return parameters or (Any,), returns


def _check_reads(reads: Any, schema: Schema, where: str) -> None:
    if not fits(reads, schema):
        raise RecordMismatch(
            f"{where}: it reads {name_of(reads)}, but the stream carries {schema.name}; annotate "
            "it so, or make other records first with .map"
        )


def _made(
    emits: Any, function: Callable[..., Any], fields: Columns | None, where: str, hint: str
) -> Schema:
    if emits is NoneType:
        raise RecordMismatch(f"{where}: {name_of(function)} makes nothing; {hint}")
    return _schema(emits, fields, where)
