"""Every error sunshower raises, as one tree.

SunshowerError                 one paragraph: the thing, the place, the way out
├── TopologyError              the declaration is wrong; raised before anything runs
│   ├── UnknownComponent       an id that the topology does not have
│   ├── UnknownStream          a stream that its component does not declare
│   ├── UnknownField           a field that its stream does not have
│   ├── DuplicateComponent     an id declared twice, or reserved for the system
│   └── RecordMismatch         a record type that does not fit its stream
├── ConfigError                a setting out of range, or two that contradict each other
├── ProtocolError              user code told the runtime something that cannot be true
│   ├── AlreadySettled         a second ack or fail, or an emit on a settled anchor
│   └── BadEmit                a record, stream or task that the emit cannot go to
├── WireError                  bytes that are not what they should be
│   ├── Unserialisable         a record that MessagePack or Arrow cannot carry
│   └── CorruptPacket          a packet whose checksum, version or shape is wrong
├── SourceError                an input file that is missing, unreadable or undecodable
├── LoadError                  a topology file that cannot be found, imported or understood
├── ClusterError               Ray, or a worker on it, could not do what was asked
│   └── LifecycleError         a topology cannot do that in the state it is in
├── ExperimentError            an experiment, a fault or a history that makes no sense
├── StoreError                 a store cannot do what was asked
│   ├── NodeExists             a node that was to be created is there already
│   ├── NoNode                 a node that is not there
│   ├── WrongVersion           a node that somebody else has changed meanwhile
│   ├── StoreUnreachable       a store that does not answer                           (Unavailable)
│   └── StoreForbidden         a store that wants another name, password or certificate
├── BatchError                 a batch, or what is stored of it, is not what it should be
│   ├── FailedBatch            user code gives a batch up: it is tried again
│   │   └── ReportedFailedBatch … and wants that to be told
│   ├── StaleAttempt           a later attempt, or a later coordinator, has written already
│   ├── IncompleteBatch        a batch cannot be emitted again as it was
│   └── StateMismatch          what is stored is of another topology, another kind, or corrupt
├── ServerError                a server for development cannot be started or ended
│   └── Unobtainable           … because a part of it is not here and cannot be fetched
├── KafkaError                 Kafka, or who shares its partitions, refused something
│   ├── UnknownTopic           a topic or partition that is not there
│   ├── NotAuthorised          a credential or a right that is missing
│   ├── KafkaUnreachable       no broker answers                                      (Unavailable)
│   ├── StaleGeneration        a commit for partitions that have changed hands
│   └── BadOffset              what is kept as an offset is none
├── SparkError                 Spark, or what it was given to do, did not do it
│   ├── SparkUnavailable       no session, or none yet: no processors, no memory      (Unavailable)
│   ├── SparkMissing           Java, a package or jars are not there, and do not come by waiting
│   ├── SparkLost              the session died under a job; the job may be handed over again
│   ├── SparkTimeout           a job that took longer than it was given
│   ├── RangeGone              records of Kafka that Spark was to read are not there any more
│   ├── TransformFailed        the user's transform raised; the message has its own traceback
│   ├── WriteFailed            its result could not be written: the place, or its rights
│   └── ResultMismatch         what came of a transform is not what was declared of it
├── Unavailable                a mark beside the others: a dependency is away, and is waited for
├── InjectedError              what a fault of an experiment raises in user code's place
│   └── InjectedOutage         … as if a dependency of that code were away            (Unavailable)
└── TopologyFailed             a running topology gave up; carries the failure that ended it
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class SunshowerError(Exception):
    """Root of the tree: catch this to catch everything sunshower raises on purpose."""


class Unavailable(SunshowerError):
    """A dependency (a database, a store, a broker, Spark) cannot be used at the moment.

    Raise it, or inherit from it beside another error, where waiting helps. The task that raises it
    pauses and tries again; no tuple and no batch is charged an attempt. See outages.py.
    """


class TopologyError(SunshowerError):
    """The declaration is wrong; raised where it is declared, before anything runs."""


class UnknownComponent(TopologyError):
    """An id that the topology does not have."""


class UnknownStream(TopologyError):
    """A stream that its component does not declare."""


class UnknownField(TopologyError):
    """A field that its stream does not have."""


class DuplicateComponent(TopologyError):
    """An id declared twice, or one that is reserved for the system."""


class RecordMismatch(TopologyError):
    """A record type that does not fit the stream it is read from or sent to."""


class ConfigError(SunshowerError):
    """A setting out of range, or two settings that contradict each other."""


class ProtocolError(SunshowerError):
    """User code told the runtime something that cannot be true."""


class AlreadySettled(ProtocolError):
    """A second ack or fail of one tuple, or an emit anchored to a settled one."""


class BadEmit(ProtocolError):
    """An emit of a record that does not fit, or to a stream or task that is not there."""


class WireError(SunshowerError):
    """Bytes that are not what they should be."""


class Unserialisable(WireError):
    """A record that MessagePack or Arrow cannot carry to another process."""


class CorruptPacket(WireError):
    """A packet whose checksum, version or shape is wrong."""


class SourceError(SunshowerError):
    """An input file that is missing, unreadable or cannot be decoded."""


class LoadError(SunshowerError):
    """A topology file that cannot be found, imported or understood."""


class ClusterError(SunshowerError):
    """Ray, or a worker on it, could not do what was asked."""


class LifecycleError(ClusterError):
    """A topology cannot do that in the state it is in; the message says what it can."""


class ExperimentError(SunshowerError):
    """An experiment, a fault or a history that makes no sense."""


class StoreError(SunshowerError):
    """A store cannot do what was asked."""


class NodeExists(StoreError):
    """A node that was to be created is there already."""


class NoNode(StoreError):
    """A node that is not there."""


class WrongVersion(StoreError):
    """A node that somebody else has changed since it was read."""


class StoreUnreachable(StoreError, Unavailable):
    """A store that does not answer."""


class StoreForbidden(StoreError):
    """A store that wants another name, password or certificate."""


class BatchError(SunshowerError):
    """A batch, or what is stored of it, is not what it should be."""


class FailedBatch(BatchError):
    """User code gives a batch up: all of it is tried again. Storm: FailedException."""


class ReportedFailedBatch(FailedBatch):
    """The same, and the topology shows it among its errors. Storm: ReportedFailedException."""


class StaleAttempt(BatchError):
    """A later attempt, or a later coordinator, has written already; nothing of this one is kept."""


class IncompleteBatch(BatchError):
    """A batch cannot be emitted again as it was: some of it is gone. `rows`: what is left, where
    that is known; if the batch is skipped they are put aside."""

    rows: Sequence[Any] = ()


class StateMismatch(BatchError):
    """What is stored is of another topology, of another kind of state, or corrupt."""


class ServerError(SunshowerError):
    """A server for development cannot be started or ended."""


class Unobtainable(ServerError):
    """A part of a server (its jars, Java, a package) is not here and cannot be fetched."""


class KafkaError(SunshowerError):
    """Kafka, or who shares its partitions, refused something; waiting alone does not help."""


class UnknownTopic(KafkaError):
    """A topic or partition that is not there."""


class NotAuthorised(KafkaError):
    """A credential that Kafka does not accept, or a right that it does not give."""


class KafkaUnreachable(KafkaError, Unavailable):
    """No broker answers; the message names the address."""


class StaleGeneration(KafkaError):
    """A commit for partitions that have changed hands since; nothing of it is kept."""


class BadOffset(KafkaError):
    """What is kept as an offset is none; the message says where it stands."""


class SparkError(SunshowerError):
    """Spark, or what it was given to do, did not do it."""


class SparkUnavailable(SparkError, Unavailable):
    """There is no session, or none yet (processors or memory are missing); or a disk is full."""


class SparkMissing(SparkError):
    """Java, a package or jars are not there, and do not come by waiting."""


class SparkLost(SparkError):
    """The session died under a job: nothing is wrong with the job, hand it over again."""


class SparkTimeout(SparkError):
    """A job took longer than it was given, and was stopped."""


class RangeGone(SparkError):
    """Records of Kafka that Spark was to read are not there any more; the message names them."""


class TransformFailed(SparkError):
    """The user's transform raised; the message has its Python traceback, and no Java stack."""


class WriteFailed(SparkError):
    """What came of a transform could not be written where it was to go: the place, or its rights.
    A full disk is SparkUnavailable."""


class ResultMismatch(SparkError):
    """What came of a transform is not what was declared of it; the message names the field."""


class InjectedError(SunshowerError):
    """What a fault of an experiment raises in user code's place."""


class InjectedOutage(InjectedError, Unavailable):
    """What the fault `away` raises: the dependency of a component is away."""


class TopologyFailed(SunshowerError):
    """A running topology gave up; the message tells which tuple or task, where and why."""
