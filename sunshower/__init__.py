"""Storm's guaranteed processing on Ray: spouts, bolts and tuple trees, in plain Python."""

from sunshower.config import Config
from sunshower.failures import Cause, Failure
from sunshower.topologies.components import (
    BatchBolt,
    Bolt,
    Collector,
    Context,
    Derived,
    OnStream,
    Spout,
    SpoutCollector,
    Tuple,
    batch,
)
from sunshower.topologies.logs import LogSpout, Polled, Unreadable
from sunshower.topologies.outputs import DirectStream
from sunshower.topologies.retry import DeadLetter, Retry
from sunshower.topologies.sinks import JsonLines, Stdout
from sunshower.topologies.sources import Counter, Line, Number, Records, TextFiles
from sunshower.topologies.topology import Topology

__version__ = "0.1.0"
__all__ = [
    "BatchBolt",
    "Bolt",
    "Cause",
    "Collector",
    "Config",
    "Context",
    "Counter",
    "DeadLetter",
    "Derived",
    "DirectStream",
    "Failure",
    "JsonLines",
    "Line",
    "LogSpout",
    "Number",
    "OnStream",
    "Polled",
    "Records",
    "Retry",
    "Spout",
    "SpoutCollector",
    "Stdout",
    "TextFiles",
    "Topology",
    "Tuple",
    "Unreadable",
    "batch",
]
