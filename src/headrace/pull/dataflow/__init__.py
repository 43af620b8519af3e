"""Pull-streams with dataflow variables: the protocol's second form, written as threads instead of callbacks.

    from headrace.pull.dataflow import collect, map, pull, take, values

    pull(values([1, 2, 3]), map(lambda x: x * x), take(2), collect()).run()       # [1, 4]

A module is a thread that reads a stream of requests and binds the variables in them. `edge` defines the
contents of such a stream, `variable` the dataflow variables, and `bridge` the conversion between both forms.
"""

from headrace.pull.dataflow.bridge import as_callback, as_dataflow
from headrace.pull.dataflow.edge import (
    DONE,
    Abort,
    Ask,
    DataflowEdge,
    DataflowPort,
    DataflowStream,
    Done,
    Fail,
    Failed,
    FailIndication,
    ListCell,
    Requests,
    Value,
)
from headrace.pull.dataflow.module_threads import ModuleContext
from headrace.pull.dataflow.modules import (
    DataflowSink,
    DataflowSource,
    DataflowTransformer,
    probe,
    probe_around,
    pull,
)
from headrace.pull.dataflow.sources_and_sinks import (
    Values,
    collect,
    count,
    drain,
    empty,
    error,
    find,
    for_each,
    infinite,
    once,
    reduce,
    values,
)
from headrace.pull.dataflow.transformers import (
    async_map,
    cat,
    filter,
    flatten,
    map,
    merge,
    skip,
    take,
    unique,
    working,
)
from headrace.pull.dataflow.variable import DataflowVariable

__all__ = [
    "DONE",
    "Abort",
    "Ask",
    "DataflowEdge",
    "DataflowPort",
    "DataflowSink",
    "DataflowSource",
    "DataflowStream",
    "DataflowTransformer",
    "DataflowVariable",
    "Done",
    "Fail",
    "FailIndication",
    "Failed",
    "ListCell",
    "ModuleContext",
    "Requests",
    "Value",
    "Values",
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
