"""How the fields of one group are added to those of another, where two groups become one.

Only of groups whose rows are never taken back.
"""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

from penstock.engine.steps.accumulator import (
    Accumulator,
    BestOnly,
    Collected,
    CountRows,
    CountValues,
    DistinctValues,
    Extreme,
    FloatTotals,
    Totals,
)
from penstock.expr.order import order_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.engine.step_writer import StepWriter


@singledispatch
def merging(accumulator: Accumulator, writer: StepWriter, at: int) -> Iterator[str]:
    """Lines that add the fields of `other` to those of `group`, lists in which they begin at `at`."""
    raise NotImplementedError(f"groups with a {type(accumulator).__name__} do not become one")


@merging.register(CountRows)
def _rows(accumulator: CountRows, writer: StepWriter, at: int) -> Iterator[str]:
    yield from ()


@merging.register(CountValues)
@merging.register(Totals)
def _totals(accumulator: CountValues | Totals, writer: StepWriter, at: int) -> Iterator[str]:
    for offset in range(len(accumulator.fields())):
        yield f"group[{at + offset}] += other[{at + offset}]"


@merging.register(FloatTotals)
def _floats(accumulator: FloatTotals, writer: StepWriter, at: int) -> Iterator[str]:
    # Two fractions n/2^k, which the greater of the denominators fits.
    yield f"common = max(group[{at + 1}], other[{at + 1}])"
    yield (
        f"group[{at}] = group[{at}] * (common // group[{at + 1}]) + other[{at}] * (common // other[{at + 1}])"
    )
    yield f"group[{at + 1}] = common if group[{at}] else 1"
    for offset in range(2, len(accumulator.fields())):
        yield f"group[{at + offset}] += other[{at + offset}]"


@merging.register(BestOnly)
def _best(accumulator: BestOnly, writer: StepWriter, at: int) -> Iterator[str]:
    better = f"other[{at}] {accumulator.sign} group[{at}]"
    key = order_key(accumulator.types[0].type, False)
    if key is not None:
        order = writer.constant("order", key)
        better = f"{order}(other[{at}]) {accumulator.sign} {order}(group[{at}])"
    yield f"if other[{at}] is not None and (group[{at}] is None or {better}):"
    yield f"    group[{at}] = other[{at}]"


@merging.register(Extreme)
def _extreme(accumulator: Extreme, writer: StepWriter, at: int) -> Iterator[str]:
    yield f"for value, copies in other[{at + 1}].items():"
    yield f"    x_order_value(group, {at}, value, copies)"


@merging.register(DistinctValues)
def _distinct(accumulator: DistinctValues, writer: StepWriter, at: int) -> Iterator[str]:
    yield f"for value, copies in other[{at}].items():"
    yield f"    group[{at + 1}] += x_count_value(group[{at}], value, copies)"


@merging.register(Collected)
def _collected(accumulator: Collected, writer: StepWriter, at: int) -> Iterator[str]:
    yield f"for value, copies in other[{at}].items():"
    yield f"    x_count_value(group[{at}], value, copies)"
