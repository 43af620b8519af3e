"""Pull-streams: values flow when they are asked for, every end is confirmed.

    from penstock.pull import collect, map, pull, take, values

    pull(values([1, 2, 3]), map(lambda x: x * x), take(2), collect()).run()       # [1, 4]

Independent of flows. `protocol` says what the modules of a pipeline say to each
other, `edge` what stands between them, `pieces` how to write one.
"""

from penstock.pull.bridges.from_queue import from_queue
from penstock.pull.bridges.iterators import aiter_values, iter_values
from penstock.pull.bridges.to_queue import to_queue
from penstock.pull.checker import Violation, check
from penstock.pull.compose import pull
from penstock.pull.deferred.defer import defer
from penstock.pull.deferred.duplex import DeferredDuplex
from penstock.pull.deferred.sink import DeferredSink
from penstock.pull.deferred.source import DeferredSource
from penstock.pull.deferred.transformer import DeferredTransformer
from penstock.pull.fan_in.many import Many, many
from penstock.pull.fan_in.merge import merge
from penstock.pull.fan_in.sorted_merge import sorted_merge
from penstock.pull.fan_out.fork import fork
from penstock.pull.fan_out.notify import Notify, notify
from penstock.pull.fan_out.tee import tee
from penstock.pull.goodbye import goodbye
from penstock.pull.lending.borrower import Loan
from penstock.pull.lending.lend import Lender, lend
from penstock.pull.outside.asyncio_streams import from_stream, to_stream
from penstock.pull.outside.file_lines import from_lines, to_lines
from penstock.pull.outside.files import from_file, to_file
from penstock.pull.outside.lines import join_lines, lines
from penstock.pull.outside.processes import process
from penstock.pull.outside.sockets import connect, listen
from penstock.pull.outside.split import split
from penstock.pull.pair import duplex_pair, pair
from penstock.pull.pieces import Duplex, Sink, Source, Transformer
from penstock.pull.pipeline import Pipeline
from penstock.pull.plain import sink, source, transformer
from penstock.pull.probe import Recorder, probe, probe_around
from penstock.pull.reconnect import back_off, reconnect
from penstock.pull.run import Run
from penstock.pull.sinks.collect import collect
from penstock.pull.sinks.concat import concat
from penstock.pull.sinks.drain import drain
from penstock.pull.sinks.find import find
from penstock.pull.sinks.for_each import for_each
from penstock.pull.sinks.last import last
from penstock.pull.sinks.log import log
from penstock.pull.sinks.on_end import on_end
from penstock.pull.sinks.reduce import reduce
from penstock.pull.sources.cat import cat
from penstock.pull.sources.count import count
from penstock.pull.sources.empty import empty
from penstock.pull.sources.error import error
from penstock.pull.sources.infinite import infinite
from penstock.pull.sources.iterate import iterate
from penstock.pull.sources.keys import keys
from penstock.pull.sources.once import once
from penstock.pull.sources.pushable import Pushable, pushable
from penstock.pull.sources.values import values
from penstock.pull.together import together
from penstock.pull.trace import Trace, parse
from penstock.pull.transformers.abortable import Abortable, abortable
from penstock.pull.transformers.async_map import async_map
from penstock.pull.transformers.batch import batch, unbatch
from penstock.pull.transformers.catch import catch
from penstock.pull.transformers.eager import eager, high_watermark
from penstock.pull.transformers.filter import filter, filter_not
from penstock.pull.transformers.flat_map import flat_map
from penstock.pull.transformers.flatten import flatten
from penstock.pull.transformers.limit import limit
from penstock.pull.transformers.map import map
from penstock.pull.transformers.paramap import paramap
from penstock.pull.transformers.skip import skip, skip_while
from penstock.pull.transformers.take import take
from penstock.pull.transformers.take_while import take_while
from penstock.pull.transformers.throttle import throttle
from penstock.pull.transformers.through import tap, through
from penstock.pull.transformers.timeout import timeout
from penstock.pull.transformers.unique import non_unique, unique
from penstock.pull.transformers.window import recent, sliding

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
    "goodbye",
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
