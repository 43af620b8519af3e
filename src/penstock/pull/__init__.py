"""Pull-streams: values flow when they are asked for, every end is confirmed.

    from penstock.pull import collect, map, pull, take, values

    pull(values([1, 2, 3]), map(lambda x: x * x), take(2), collect()).run()       # [1, 4]

Independent of flows. `protocol` says what the modules of a pipeline say to each
other, `edge` what stands between them, `pieces` how to write one.
"""

from penstock.pull.compose import pull
from penstock.pull.deferred.defer import defer
from penstock.pull.deferred.duplex import DeferredDuplex
from penstock.pull.deferred.sink import DeferredSink
from penstock.pull.deferred.source import DeferredSource
from penstock.pull.deferred.transformer import DeferredTransformer
from penstock.pull.fan_in.many import Many, many
from penstock.pull.fan_in.merge import merge
from penstock.pull.fan_in.sorted_merge import sorted_merge
from penstock.pull.pieces import Duplex, Sink, Source, Transformer
from penstock.pull.pipeline import Pipeline
from penstock.pull.plain import sink, source, transformer
from penstock.pull.probe import Recorder, probe, probe_around
from penstock.pull.run import Run
from penstock.pull.sinks.collect import collect
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
    "Many",
    "Pipeline",
    "Pushable",
    "Recorder",
    "Run",
    "Sink",
    "Source",
    "Transformer",
    "abortable",
    "async_map",
    "batch",
    "cat",
    "catch",
    "collect",
    "count",
    "defer",
    "eager",
    "empty",
    "error",
    "filter",
    "filter_not",
    "flat_map",
    "flatten",
    "high_watermark",
    "infinite",
    "iterate",
    "keys",
    "limit",
    "many",
    "map",
    "merge",
    "non_unique",
    "once",
    "paramap",
    "probe",
    "probe_around",
    "pull",
    "pushable",
    "recent",
    "sink",
    "skip",
    "skip_while",
    "sliding",
    "sorted_merge",
    "source",
    "take",
    "take_while",
    "tap",
    "throttle",
    "through",
    "timeout",
    "transformer",
    "unbatch",
    "unique",
    "values",
]
