"""Pull-streams: values flow on request, and every end is confirmed.

    from headrace.pull import collect, map, pull, take, values

    pull(values([1, 2, 3]), map(lambda x: x * x), take(2), collect()).run()       # [1, 4]

The package does not depend on flows. `protocol` defines the messages between modules, `edge` the connection
between two modules, and `modules` the ways to write one.
"""

import importlib
from typing import TYPE_CHECKING, Any

from headrace.pull.bridges.iteration import aiter_values, iter_values
from headrace.pull.bridges.queues import from_queue, to_queue
from headrace.pull.callback_modules import sink, source, transformer
from headrace.pull.compose import pull, together
from headrace.pull.defer import DeferredDuplex, DeferredSink, DeferredSource, DeferredTransformer, defer
from headrace.pull.edge_recorder import Recorder, probe, probe_around
from headrace.pull.fans.lend import Lender, Loan, lend
from headrace.pull.fans.merge import Many, many, merge, sorted_merge
from headrace.pull.fans.notify import Notify, notify
from headrace.pull.fans.pair import closing_handshake, duplex_pair, pair
from headrace.pull.fans.tee import fork, tee
from headrace.pull.io.files import from_file, from_lines, to_file, to_lines
from headrace.pull.io.lines import join_lines, lines, split
from headrace.pull.modules import Duplex, Sink, Source, Transformer
from headrace.pull.pipeline import Pipeline
from headrace.pull.pipeline_run import Run
from headrace.pull.rules.checker import Violation, check
from headrace.pull.rules.trace import Trace, parse
from headrace.pull.sinks.drain import drain, log, on_end
from headrace.pull.sinks.folds import collect, concat, find, last, reduce
from headrace.pull.sinks.for_each import for_each
from headrace.pull.sources.basic_sources import count, empty, error, infinite, iterate, keys, once, values
from headrace.pull.sources.cat import cat
from headrace.pull.sources.pushable import Pushable, pushable
from headrace.pull.sources.reconnect import back_off, reconnect
from headrace.pull.transformers.abortable import Abortable, abortable
from headrace.pull.transformers.batch import batch, eager, high_watermark, recent
from headrace.pull.transformers.catch import catch
from headrace.pull.transformers.concurrent_calls import async_map, paramap
from headrace.pull.transformers.elementwise import (
    filter,
    filter_not,
    map,
    skip,
    skip_while,
    sliding,
    tap,
    unbatch,
)
from headrace.pull.transformers.flatten import flat_map, flatten
from headrace.pull.transformers.in_flight_limit import limit
from headrace.pull.transformers.take import take, take_while
from headrace.pull.transformers.throttle import throttle
from headrace.pull.transformers.through import through
from headrace.pull.transformers.timeout import timeout
from headrace.pull.transformers.unique import non_unique, unique

if TYPE_CHECKING:
    from headrace.pull.io.asyncio_streams import from_stream, to_stream
    from headrace.pull.io.process import process
    from headrace.pull.io.sockets import connect, listen

# Imported when first used: only these need asyncio, which costs more than all the rest.
_NEED_ASYNCIO = {
    "connect": "sockets",
    "from_stream": "asyncio_streams",
    "listen": "sockets",
    "process": "process",
    "to_stream": "asyncio_streams",
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
    "Duplex",
    "Lender",
    "Loan",
    "Many",
    "Notify",
    "Pipeline",
    "Pushable",
    "Recorder",
    "Run",
    "Sink",
    "Source",
    "Trace",
    "Transformer",
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
