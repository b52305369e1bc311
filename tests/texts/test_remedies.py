"""Tests that each remedy that a message names exists with that spelling.

Commands, options, classes with their arguments, functions and methods are read from all strings of
the package.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from types import FunctionType
from typing import Any, NamedTuple, get_args, get_overloads

import pytest
import typer

from sunshower import Records, Spout, Topology
from sunshower.cli import make_app
from sunshower.config import LIMITS
from sunshower.errors import SunshowerError
from sunshower.kafka import KafkaOpaque, KafkaSpout, KafkaTransactional, Received
from sunshower.trident import BatchSpout, FixedBatchSpout, batches
from tests.structure.reading import PACKAGE_FILES, syntax

PACKAGES = (
    *("sunshower", "sunshower.kafka", "sunshower.trident", "sunshower.spark_integration"),
    *("sunshower.connectors", "sunshower.testing", "sunshower.dev", "sunshower.experiments"),
    *("sunshower.simulation", "sunshower.errors"),
    # what the functions of these return
    *("sunshower.topologies.streams", "sunshower.topologies.streams"),
    *("sunshower.topologies.operators.joins.keyed_tables", "sunshower.dev.jars"),
    *("sunshower.topologies.operators.record_operators", "sunshower.topologies.operators.stages"),
    *("sunshower.trident.declaration.streams", "sunshower.trident.declaration.streams"),
)
LEFT_OUT = {  # their strings are SVG, HTML and JavaScript
    "sunshower/cli/profiles/__init__.py",
    "sunshower/topologies/describe.py",
    "sunshower/topologies/notebooks.py",
}
# Remedies in other programs and libraries, and names of examples: a new remedy that none of our
# interfaces has must be corrected, or added here with what has it.
ELSEWHERE: Mapping[str, str] = {
    "--add-opens": "an option of java",
    "--conf": "an option of Spark's server",
    "--packages": "an option of Spark's server",
    "--entity-type": "an option of kafka-configs.sh",
    "--head": "an option of `ray start`",
    "--system-config": "an option of `ray start`",
    "--shm-size": "an option of docker",
    "init": "an argument of dataclasses.field",
    "field(init=False)": "of dataclasses",
    "build_all(rows)": "of a row class that is called inside",
    "trust()": "an invariant of the worker",
    "t(t)": "the end of a word",
    "function(state, rows)": "the signature of the user's function",
    "tzinfo": "an argument of datetime.replace",
    "moment.replace(tzinfo=UTC)": "a method of datetime",
    "value.replace(tzinfo=UTC)": "a method of datetime",
    "value.astimezone(UTC)": "a method of datetime",
    "datetime(2100, 1, 1, tzinfo=UTC)": "of the standard library",
    ".date": "a method of datetime",
    ".timetz": "a method of datetime",
    "value.astype('timedelta64[us]')": "a method of NumPy",
    ".item": "a method of NumPy",
    "value.to_pytimedelta()": "a method of pandas",
    "value.total_seconds()": "a method of timedelta",
    "format_type(kind, length)": "a function of PostgreSQL",
    "redis.call('HGET', KEYS[1], 'word')": "a script of Redis",
    "redis.call('HLEN', KEYS[2])": "a script of Redis",
    "moment.replace(tzinfo=None)": "a method of datetime",
    "df.withColumnRenamed(..., ...)": "a method of a table of Spark",
    "ray.shutdown()": "of Ray",
    "pa.Table.from_pandas(...)": "of pyarrow",
    "config": "a part of an option of `ray start`",
    "size": "a part of an option of docker",
    ".apache": "a part of the name of a jar",
    ".iceberg": "a part of the name of a jar",
    ".jsonl": "the end of a file's name",
    ".parquet": "the end of a file's name",
    ".select": "a method of a table of Spark",
    ".write": "an attribute of a table of Spark",
    ".drop": "a method of a table of Spark",
}


class Word(NamedTuple):
    word: str


class Remedy(NamedTuple):
    """A piece of code that a message names; `…` stands for what is filled in."""

    place: str
    code: str


def _text(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(map(_text, parts))
    return "…"


@cache
def messages() -> tuple[Remedy, ...]:
    """All strings of the package that are sentences, without docstrings."""
    sentences = []
    for path in PACKAGE_FILES:
        if str(path) in LEFT_OUT:
            continue
        skipped: set[int] = set()
        for node in ast.walk(syntax(path)):
            if isinstance(node, ast.Expr):
                skipped.add(id(node.value))  # a docstring
            if isinstance(node, ast.JoinedStr):
                skipped |= {id(part) for value in node.values for part in ast.walk(value)}
        for node in ast.walk(syntax(path)):
            if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in skipped:
                text = _text(node)
                if re.search(r"[a-z]{2},? [a-z`]", text):
                    sentences.append(Remedy(f"{path}:{node.lineno}", text))
    return tuple(sentences)


def named(pattern: str) -> list[Remedy]:
    """What matches a pattern in the messages, each once; the code is its first group."""
    places: dict[str, str] = {}
    for place, text in messages():
        for match in re.finditer(pattern, text):
            places.setdefault(match[1], place)
    return [Remedy(place, code) for code, place in places.items() if code not in ELSEWHERE]


@cache
def public() -> dict[str, Any]:
    """Everything that users import, and the classes of what it returns, by name."""
    named_objects: dict[str, Any] = {}
    for package in PACKAGES:
        module = importlib.import_module(package)
        names = [name for name, value in vars(module).items() if isinstance(value, type)]
        for name in getattr(module, "__all__", names):
            named_objects.setdefault(name, getattr(module, name))
    return named_objects


@cache
def parameters_of(code: Any) -> frozenset[str]:
    """The names of the parameters of a function or a class, of all its overloads; those of
    `**options: Unpack[…]` too."""
    overloads = get_overloads(code) if isinstance(code, FunctionType) else []
    return frozenset(name for each in (code, *overloads) for name in _parameters_of(each))


def _parameters_of(code: Any) -> Iterator[str]:
    try:
        parameters = inspect.signature(code, eval_str=True).parameters
    except (TypeError, ValueError, NameError):
        with suppress(TypeError, ValueError):
            yield from inspect.signature(code).parameters
        return
    yield from parameters
    for parameter in parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD and (options := get_args(parameter.annotation)):
            yield from getattr(options[0], "__annotations__", ())


@cache
def members() -> dict[str, list[Any]]:
    """All public functions, classes, and methods and attributes of classes, by name."""
    members_found: dict[str, list[Any]] = {}
    for name, code in public().items():
        members_found.setdefault(name, []).append(code)
        for base in code.__mro__[:-1] if isinstance(code, type) else ():
            attributes = {**vars(base), **inspect.get_annotations(base)}
            for attribute, value in attributes.items():
                function = getattr(value, "__func__", value)  # of a static method
                members_found.setdefault(attribute, []).append(function)
    return members_found


# ---- what messages name --------------------------------------------------------------------------


def all_commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, subcommand in getattr(command, "commands", {}).items():
        yield from all_commands(subcommand, (*path, name))


COMMANDS = dict(all_commands(typer.main.get_command(make_app())))


def why_no_command(code: str) -> str | None:
    """What a command line names that does not exist."""
    _, *words = code.split()
    length = max(n for n in range(len(words) + 1) if tuple(words[:n]) in COMMANDS)
    if not length:
        return "there is no such command"
    command = COMMANDS[tuple(words[:length])]
    options = {
        name: parameter
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    places = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    values, rest = 0, iter(words[length:])
    for word in rest:
        if not word.startswith("--"):
            values += 1
        elif word not in options:
            return f"it has no option {word}"
        elif not options[word].is_flag:
            next(rest, None)
    has_room = values <= len(places) or any(parameter.nargs < 0 for parameter in places)
    return None if has_room else f"it takes {len(places)} arguments"


def test_each_command_exists_with_its_arguments_and_options() -> None:
    remedies = named(r"`(sunshower [^`]*)`") + named(r"as in: (sunshower [a-z]+[^;,.]*)")
    assert len(remedies) > 20
    assert {remedy: why for remedy in remedies if (why := why_no_command(remedy.code))} == {}


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("sunshower start FILE", "there is no such command"),
        ("sunshower kill NAME --keeps FILE", "it has no option --keeps"),
        ("sunshower list NAME", "it takes 0 arguments"),
    ],
)
def test_a_command_that_does_not_exist_is_found(code: str, why: str) -> None:
    assert why_no_command(code) == why


def test_each_option_exists() -> None:
    known = {name for command in COMMANDS.values() for p in command.params for name in p.opts}
    assert [
        remedy for remedy in named(r"(?<![\w-])(--[a-z][a-z-]+)") if remedy.code not in known
    ] == []


def calls() -> Iterator[tuple[Remedy, ast.Call]]:
    """The calls in messages that are complete, such as `Retry(dead_letters=True)`."""
    for place, text in messages():
        for match in re.finditer(r"(?<![\w.…])([A-Za-z_][\w.]*)\(", text):
            for end in range(match.end(), len(text)):
                code = text[match.start() : end + 1].replace("…", "...")
                if text[end] == ")" and (tree := _call(code)) is not None:
                    if code not in ELSEWHERE and not hasattr(builtins, match[1]):
                        yield Remedy(place, code), tree
                    break


def _call(code: str) -> ast.Call | None:
    try:
        tree = ast.parse(code, mode="eval").body
    except SyntaxError:
        return None
    return tree if isinstance(tree, ast.Call) else None


def test_each_call_names_something_that_takes_these_arguments() -> None:
    unknown = []
    for remedy, tree in calls():
        name = ast.unparse(tree.func).rpartition(".")[2]
        names = {keyword.arg for keyword in tree.keywords if keyword.arg}
        if not any(names <= parameters_of(member) for member in members().get(name, [])):
            unknown.append(remedy)
    assert unknown == []


# What the names in these stand for.
SAMPLES: Mapping[str, Any] = {"Word": Word, "Sale": Word, "record": Word("a"), "timestamp_ms": 0}


def test_each_object_that_a_message_writes_out_can_be_made() -> None:
    """Those without `…`, and without names that no program has: `Retry(dead_letters=True)`."""
    names, evaluated = {**public(), **SAMPLES}, set[str]()
    for remedy, tree in calls():
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        is_whole = (tree.args or tree.keywords) and "..." not in remedy.code
        if isinstance(public().get(ast.unparse(tree.func)), type) and is_whole and used <= {*names}:
            eval(remedy.code, dict(names))
            evaluated.add(remedy.code)
    assert {'Retry(dead_letters="dead.jsonl")', 'OnStream("errors", record)'} <= evaluated


KEYWORD = r"(?<![\w.…=])([a-z][a-z_]*)=(?=[\"'(\[A-Z0-9…{])"


def test_each_argument_exists() -> None:
    codes = [
        code for codes_of_name in members().values() for code in codes_of_name if callable(code)
    ]
    known = {name for code in codes for name in parameters_of(code)} | {*LIMITS}
    assert [remedy for remedy in named(KEYWORD) if remedy.code not in known] == []


METHOD = r"(?<![\w/*…\"'.-])(\.[a-z_]{3,})\b(?![.\"]\w)"


def test_each_method_exists() -> None:
    assert [remedy for remedy in named(METHOD) if remedy.code[1:] not in members()] == []


def test_each_member_of_an_enum_exists() -> None:
    for place, code in named(r"\b([A-Z]\w*[a-z]\w*\.[A-Z][A-Z_]+)\b"):
        name, _, member = code.partition(".")
        assert hasattr(public()[name], member), place


# ---- the records of a source ---------------------------------------------------------------------

KAFKA = {"bootstrap.servers": "127.0.0.1:1", "group.id": "words"}


def word(received: Received) -> Word:
    return Word(str(received.value))


def words(received: Received) -> list[Word] | None:
    return [Word(str(received.value))]


def some_words() -> Iterator[Word | None]:
    yield Word("a")


def unannotated(received: Any):  # type: ignore[no-untyped-def]
    return Word(str(received))


class Translate:
    def __call__(self, received: Received) -> Word | None:
        return None


class Plain(Spout):  # type: ignore[type-arg]
    def records(self) -> Iterator[Word]:
        yield Word("a")


class Typed(Spout[Word]):
    def records(self) -> Iterator[Word]:
        yield Word("a")


class Batches(BatchSpout):
    def emit_batch(self, txid: int, rows: Any) -> None: ...


class TypedBatches(Batches):
    emits = Word


@pytest.mark.parametrize("translate", [word, words, Translate()])
@pytest.mark.parametrize("kind", [KafkaSpout, KafkaTransactional, KafkaOpaque])
def test_the_annotation_of_translate_declares_the_records(kind: Any, translate: Any) -> None:
    assert kind(KAFKA, topics=["words"], translate=translate).emits is Word


def test_what_is_declared_counts_more_than_the_annotation() -> None:
    spout = KafkaSpout(KAFKA, topics=["words"], translate=word, emits=("word",))
    assert spout.emits == ("word",)
    assert Records(some_words, fields=("word",)).emits == ("word",)


@pytest.mark.parametrize("translate", [unannotated, lambda _: None, str, print])
def test_a_function_whose_annotation_names_no_record_declares_none(translate: Any) -> None:
    assert KafkaSpout(KAFKA, topics=["words"], translate=translate).emits is None


def test_the_annotation_of_a_function_declares_the_records_that_it_yields() -> None:
    assert Topology("words").spout("words", Records(some_words)).schema.type is Word
    batches(Topology("words"), "words", Records(some_words))


@pytest.mark.parametrize("kind", [KafkaTransactional, KafkaOpaque])
def test_the_remedies_for_an_undeclared_source_of_kafka_work(kind: Any) -> None:
    with pytest.raises(SunshowerError, match=r"annotate its function translate \(-> Word\), or gi"):
        batches(Topology("t"), "words", kind(KAFKA, topics=["words"], translate=unannotated))
    for remedy in ({"translate": word}, {"translate": unannotated, "emits": Word}):
        batches(Topology("t"), "words", kind(KAFKA, topics=["words"], **remedy))


@pytest.mark.parametrize(
    ("source", "message", "remedies"),
    [
        (
            FixedBatchSpout([Word("a")], 1),
            r'give FixedBatchSpout type=Word, or fields=\("word",\)',
            [
                FixedBatchSpout([Word("a")], 1, type=Word),
                FixedBatchSpout([("a",)], 1, fields=("word",)),
            ],
        ),
        (
            Records(list),
            r'give Records type=Word, or fields=\("word",\)',
            [Records(list, type=Word), Records(list, fields=("word",))],
        ),
        (Plain(), r"write `class Plain\(Spout\[Word\]\)`", [Typed()]),
        (Batches(), "set the attribute of Batches: emits = Word", [TypedBatches()]),
    ],
    ids=["fixed", "records", "spout", "batch spout"],
)
def test_the_remedies_for_an_undeclared_source_work(
    source: Any, message: str, remedies: list[Any]
) -> None:
    with pytest.raises(SunshowerError, match=message):
        batches(Topology("t"), "words", source)
    for number, remedy in enumerate(remedies):
        batches(Topology("t"), f"words{number}", remedy)


def test_the_remedies_for_a_stream_and_a_log_as_sources_of_batches_work() -> None:
    stream = Topology("t").spout("words", Records(some_words))
    with pytest.raises(SunshowerError, match=r"give the spout .* let \.flat_map do what its bolts"):
        batches(Topology("t"), "words", stream)  # type: ignore[call-overload]
    batches(Topology("t"), "words", Records(some_words)).flat_map(
        lambda record: [record], fields=Word
    )
    with pytest.raises(SunshowerError, match="there are KafkaTransactional and KafkaOpaque"):
        batches(Topology("t"), "words", KafkaSpout(KAFKA, topics=["words"], translate=word))
