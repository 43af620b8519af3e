"""Pull-streams: values flow on request, and every end is confirmed.

    from penstock.pull import collect, map, pull, take, values

    pull(values([1, 2, 3]), map(lambda x: x * x), take(2), collect()).run()       # [1, 4]

The package does not depend on flows. `protocol` defines the messages between modules, `edge` the connection
between two modules, and `modules` the ways to write one.
"""

import importlib
from typing import TYPE_CHECKING, Any

from penstock.pull.bridges.iteration import aiter_values, iter_values
from penstock.pull.bridges.queues import from_queue, to_queue
from penstock.pull.callback_modules import sink, source, transformer
from penstock.pull.compose import pull, together
from penstock.pull.defer import DeferredDuplex, DeferredSink, DeferredSource, DeferredTransformer, defer
from penstock.pull.edge_recorder import Recorder, probe, probe_around
from penstock.pull.fans.borrower import Loan
from penstock.pull.fans.closing_handshake import closing_handshake
from penstock.pull.fans.lend import Lender, lend
from penstock.pull.fans.merge import Many, many, merge
from penstock.pull.fans.notify import Notify, notify
from penstock.pull.fans.pair import duplex_pair, pair
from penstock.pull.fans.sorted_merge import sorted_merge
from penstock.pull.fans.tee import fork, tee
from penstock.pull.io.files import from_file, from_lines, to_file, to_lines
from penstock.pull.io.lines import join_lines, lines
from penstock.pull.io.split import split
from penstock.pull.modules import Duplex, Sink, Source, Transformer
from penstock.pull.pipeline import Pipeline
from penstock.pull.pipeline_run import Run
from penstock.pull.rules.checker import Violation, check
from penstock.pull.rules.trace import Trace, parse
from penstock.pull.sinks.drain import drain, log, on_end
from penstock.pull.sinks.folds import collect, concat, find, last, reduce
from penstock.pull.sinks.for_each import for_each
from penstock.pull.sources.basic_sources import count, empty, error, infinite, iterate, keys, once, values
from penstock.pull.sources.cat import cat
from penstock.pull.sources.pushable import Pushable, pushable
from penstock.pull.sources.reconnect import back_off, reconnect
from penstock.pull.transformers.abortable import Abortable, abortable
from penstock.pull.transformers.async_map import async_map
from penstock.pull.transformers.batch import batch, recent
from penstock.pull.transformers.catch import catch
from penstock.pull.transformers.eager import eager, high_watermark
from penstock.pull.transformers.elementwise import (
    filter,
    filter_not,
    map,
    skip,
    skip_while,
    sliding,
    tap,
    unbatch,
)
from penstock.pull.transformers.flatten import flat_map, flatten
from penstock.pull.transformers.in_flight_limit import limit
from penstock.pull.transformers.paramap import paramap
from penstock.pull.transformers.take import take
from penstock.pull.transformers.take_while import take_while
from penstock.pull.transformers.throttle import throttle
from penstock.pull.transformers.through import through
from penstock.pull.transformers.timeout import timeout
from penstock.pull.transformers.unique import non_unique, unique

if TYPE_CHECKING:
    from penstock.pull.io.asyncio_streams import from_stream, to_stream
    from penstock.pull.io.process import process
    from penstock.pull.io.sockets import connect, listen

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
        raise AttributeError(f"module 'penstock.pull' has no attribute {name!r}")
    module = importlib.import_module(f"penstock.pull.io.{_NEED_ASYNCIO[name]}")
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
