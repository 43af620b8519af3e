"""Pull-streams with dataflow variables: the protocol's second form, written as threads instead of callbacks.

    from headrace.pull.dataflow import collect, map, pull, take, values

    pull(values([1, 2, 3]), map(lambda x: x * x), take(2), collect()).run()       # [1, 4]

A module is a thread that reads a stream of requests and binds the variables in them. `messages` defines the
contents of such a stream, `variable` the dataflow variables, and `bridge` the conversion between both forms.
"""

from headrace.pull.dataflow.async_map import async_map
from headrace.pull.dataflow.bridge import as_callback, as_dataflow
from headrace.pull.dataflow.compose import pull
from headrace.pull.dataflow.edge import Edge, Requests
from headrace.pull.dataflow.edge_recorder import probe, probe_around
from headrace.pull.dataflow.merging import cat, flatten, merge, working
from headrace.pull.dataflow.messages import (
    DONE,
    Abort,
    Ask,
    Cell,
    Done,
    Fail,
    Failed,
    FailIndication,
    Port,
    Stream,
    Value,
)
from headrace.pull.dataflow.module_threads import ModuleContext
from headrace.pull.dataflow.modules import Sink, Source, Transformer
from headrace.pull.dataflow.sinks import Values, collect, drain, find, for_each, reduce
from headrace.pull.dataflow.sources import count, empty, error, infinite, once, values
from headrace.pull.dataflow.transformers import filter, map, skip, take, unique
from headrace.pull.dataflow.variable import Variable

__all__ = [
    "DONE",
    "Abort",
    "Ask",
    "Cell",
    "Done",
    "Edge",
    "Fail",
    "FailIndication",
    "Failed",
    "ModuleContext",
    "Port",
    "Requests",
    "Sink",
    "Source",
    "Stream",
    "Transformer",
    "Value",
    "Values",
    "Variable",
    "as_callback",
    "as_dataflow",
    "async_map",
    "cat",
    "collect",
    "count",
    "drain",
    "empty",
    "error",
    "filter",
    "find",
    "flatten",
    "for_each",
    "infinite",
    "map",
    "merge",
    "once",
    "probe",
    "probe_around",
    "pull",
    "reduce",
    "skip",
    "take",
    "unique",
    "values",
    "working",
]
