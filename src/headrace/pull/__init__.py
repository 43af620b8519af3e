"""Pull-streams: values flow on request, and every end is confirmed.

    from headrace.pull import collect, map, pull, take, values

    pull(values([1, 2, 3]), map(lambda x: x * x), take(2), collect()).run()       # [1, 4]

The package does not depend on flows. `protocol` defines the messages between modules, `edge` the connection
between two modules, and `modules` the ways to write one.
"""

import importlib
from typing import TYPE_CHECKING, Any

from headrace.pull.bridges import aiter_values, from_queue, iter_values, to_queue
from headrace.pull.compose import Pipeline, pull, together
from headrace.pull.concurrent_calls import async_map, paramap
from headrace.pull.defer import DeferredDuplex, DeferredSink, DeferredSource, DeferredTransformer, defer
from headrace.pull.edge_recorder import Recorder, probe, probe_around
from headrace.pull.elementwise import (
    filter,
    filter_not,
    map,
    non_unique,
    skip,
    skip_while,
    sliding,
    take,
    take_while,
    tap,
    through,
    unbatch,
    unique,
)
from headrace.pull.fan_in import Many, cat, many, merge, sorted_merge
from headrace.pull.fan_out import Notify, fork, notify, tee
from headrace.pull.flow_control import Abortable, abortable, limit, throttle, timeout
from headrace.pull.for_each import for_each
from headrace.pull.grouping import batch, eager, flat_map, flatten, high_watermark, recent
from headrace.pull.io.files import from_file, from_lines, to_file, to_lines
from headrace.pull.io.lines import join_lines, lines, split
from headrace.pull.lending import Lender, Loan, lend
from headrace.pull.modules import PullDuplex, PullSink, PullSource, PullTransformer, sink, source, transformer
from headrace.pull.pairs import closing_handshake, duplex_pair, pair
from headrace.pull.pipeline_run import Run
from headrace.pull.pushable import Pushable, pushable
from headrace.pull.recovery import back_off, catch, reconnect
from headrace.pull.rules.checker import Violation, check
from headrace.pull.rules.trace import Trace, parse
from headrace.pull.sinks import collect, concat, drain, find, last, log, on_end, reduce
from headrace.pull.sources import count, empty, error, infinite, iterate, keys, once, values

if TYPE_CHECKING:
    from headrace.pull.io.process import process
    from headrace.pull.io.sockets import connect, from_stream, listen, to_stream

# Imported when first used: only these need asyncio, which costs more than all the rest.
_NEED_ASYNCIO = {
    "connect": "sockets",
    "from_stream": "sockets",
    "listen": "sockets",
    "process": "process",
    "to_stream": "sockets",
}


def __getattr__(name: str) -> Any:
    if name not in _NEED_ASYNCIO:
        raise AttributeError(f"module 'headrace.pull' has no attribute {name!r}")
    module = importlib.import_module(f"headrace.pull.io.{_NEED_ASYNCIO[name]}")
    value = globals()[name] = getattr(module, name)
    return value


__all__ = [
    "Abortable",
    "DeferredDuplex",
    "DeferredSink",
    "DeferredSource",
    "DeferredTransformer",
    "Lender",
    "Loan",
    "Many",
    "Notify",
    "Pipeline",
    "PullDuplex",
    "PullSink",
    "PullSource",
    "PullTransformer",
    "Pushable",
    "Recorder",
    "Run",
    "Trace",
    "Violation",
    "abortable",
    "aiter_values",
    "async_map",
    "back_off",
    "batch",
    "cat",
    "catch",
    "check",
    "closing_handshake",
    "collect",
    "concat",
    "connect",
    "count",
    "defer",
    "drain",
    "duplex_pair",
    "eager",
    "empty",
    "error",
    "filter",
    "filter_not",
    "find",
    "flat_map",
    "flatten",
    "for_each",
    "fork",
    "from_file",
    "from_lines",
    "from_queue",
    "from_stream",
    "high_watermark",
    "infinite",
    "iter_values",
    "iterate",
    "join_lines",
    "keys",
    "last",
    "lend",
    "limit",
    "lines",
    "listen",
    "log",
    "many",
    "map",
    "merge",
    "non_unique",
    "notify",
    "on_end",
    "once",
    "pair",
    "paramap",
    "parse",
    "probe",
    "probe_around",
    "process",
    "pull",
    "pushable",
    "recent",
    "reconnect",
    "reduce",
    "sink",
    "skip",
    "skip_while",
    "sliding",
    "sorted_merge",
    "source",
    "split",
    "take",
    "take_while",
    "tap",
    "tee",
    "throttle",
    "through",
    "timeout",
    "to_file",
    "to_lines",
    "to_queue",
    "to_stream",
    "together",
    "transformer",
    "unbatch",
    "unique",
    "values",
]
