"""`headrace.pull` sources as sources on Spark: the user's declaration, and its shipment to the reader.

The reader is `headrace.spark.sources.pull_stream`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from headrace import pull
from headrace.errors import BadInput
from headrace.expr.types import Schema
from headrace.io.declared_types import refuse_untyped
from headrace.io.delivery.guarantee import Guarantee
from headrace.io.source import Source
from headrace.spark.sources.opening import Opening, sends_rows, source_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS_PER_TICK = 10_000


@dataclass(frozen=True, eq=False)
class Pulled(Source):
    """A source of `headrace.pull` whose values are rows. A bare pull source is wrapped in `Pulled`.

    rows_per_tick: limit on the rows of a tick.

    It is sent to another process, so it must be made of what can be pickled: functions and lambdas can,
    open files, sockets and iterators cannot. Make those within a function that the source calls.
    """

    guarantee: ClassVar[Guarantee] = Guarantee(
        "exactly once", "where the source brings the same rows again after a restart: those taken are skipped"
    )
    source: pull.Source
    rows_per_tick: int = ROWS_PER_TICK


@sends_rows.register(Pulled)
@sends_rows.register(pull.Source)
def _(source: Any) -> bool:
    return True


@source_frame.register(pull.Source)
def _(source: pull.Source, opening: Opening, schema: Schema) -> DataFrame:
    return source_frame(Pulled(source), opening, schema)


@source_frame.register(Pulled)
def _(source: Pulled, opening: Opening, schema: Schema) -> DataFrame:
    from headrace.spark.sources.pull_stream import PullSource

    refuse_untyped(schema, f"source {opening.name!r}, which is sent to Spark,")
    name = f"headrace_pull_{opening.name.encode().hex()}"
    shipped = _pickled(
        opening.name,
        (opening.name, source, opening.engine.intake_of(opening.name), schema, opening.append),
    )
    opening.spark.dataSource.register(type(name, (PullSource,), {"shipped": shipped, "called": name}))
    reader = opening.spark.read if opening.operator.bounded else opening.reader()
    return reader.format(name).load()


def _pickled(name: str, shipped: Any) -> bytes:
    from pyspark import cloudpickle

    try:
        return cloudpickle.dumps(shipped)
    except Exception as error:
        raise BadInput(
            f"source {name!r} cannot be sent to Spark",
            why=f"{type(error).__name__}: {error}",
            fix="make what cannot be pickled (files, sockets, iterators) within a function of the source,\n"
            "or give the rows: Rows(...), an iterable",
            source=name,
        ) from error
