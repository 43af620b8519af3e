"""Pull-streams: values flow when they are asked for, every end is confirmed.

    from penstock.pull import collect, map, pull, take, values

    pull(values([1, 2, 3]), map(lambda x: x * x), take(2), collect()).run()       # [1, 4]

Independent of flows. `protocol` says what the modules of a pipeline say to each
other, `edge` what stands between them, `pieces` how to write one.
"""

from penstock.pull.compose import pull
from penstock.pull.pieces import Duplex, Sink, Source, Transformer
from penstock.pull.pipeline import Pipeline
from penstock.pull.plain import sink, source, transformer
from penstock.pull.probe import Recorder, probe, probe_around
from penstock.pull.run import Run
from penstock.pull.sinks.collect import collect
from penstock.pull.sources.count import count
from penstock.pull.sources.empty import empty
from penstock.pull.sources.error import error
from penstock.pull.sources.infinite import infinite
from penstock.pull.sources.iterate import iterate
from penstock.pull.sources.keys import keys
from penstock.pull.sources.once import once
from penstock.pull.sources.pushable import Pushable, pushable
from penstock.pull.sources.values import values
from penstock.pull.transformers.flat_map import flat_map
from penstock.pull.transformers.flatten import flatten
from penstock.pull.transformers.map import map
from penstock.pull.transformers.take import take

__all__ = [
    "Duplex",
    "Pipeline",
    "Pushable",
    "Recorder",
    "Run",
    "Sink",
    "Source",
    "Transformer",
    "collect",
    "count",
    "empty",
    "error",
    "flat_map",
    "flatten",
    "infinite",
    "iterate",
    "keys",
    "map",
    "once",
    "probe",
    "probe_around",
    "pull",
    "pushable",
    "sink",
    "source",
    "take",
    "transformer",
    "values",
]
