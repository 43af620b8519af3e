"""Sketches: aggregates that estimate from a few bits of each value's hash, the codes of the group.

A sketch is a function of the set of codes, so it does not depend on the order of rows. A group keeps its
codes with their copies: equal codes add up, and a row that is taken back takes its code back, so the answer
is that of the rows present. HyperLogLog++ has few codes, however many values there are. HLL sketches have
about as many as there are values, unless rows are never taken back: then only the coupons of registers stay.
A union keeps its sketches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.arrangement.batch import Numbers, masked
from headrace.errors import SourceLocation, WrongType
from headrace.expr.check import check
from headrace.expr.hll_sketch import (
    DEFAULT_LG_K,
    MAX_LG_K,
    MIN_LG_K,
    HllSketch,
    capacity,
    coupon_of,
    coupons_of_integers,
    hll_sketch,
    union,
)
from headrace.expr.hyperloglog import (
    MAX_PRECISION,
    MIN_PRECISION,
    RANK_BITS,
    code_of_hash,
    estimate,
    estimate_of_codes,
    precision_of,
)
from headrace.expr.tree import FunctionCall
from headrace.expr.types import BYTES, INT64, BytesType, DataType, Field, IntegerType, Schema, StrType
from headrace.lowering.generated_source import register_runtime
from headrace.lowering.slot import thaw_dict
from headrace.operators.aggregate.aggregation import (
    Accumulator,
    AggregateArguments,
    Aggregation,
    ArgumentRows,
    ArgumentTypes,
    NativeAggregates,
    StateField,
    Target,
    accumulator_of,
    answer_of,
    measure,
    present_values,
)
from headrace.operators.aggregate.collected_values import CollectedValues
from headrace.requirements import F, np, pl

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.expr.tree import Expr

Flags: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.bool_]]"
Copies: TypeAlias = Mapping[int, int]
"""Number of copies of each code."""


@dataclass(frozen=True, slots=True)
class ApproxCountDistinct(Aggregation):
    """Number of distinct non-null values, estimated by HyperLogLog++ as Spark does.

    deviation: relative standard deviation of the estimate.
    """

    expr: Expr
    deviation: float = 0.05

    @property
    def of_no_rows(self) -> int:
        return 0

    @property
    def precision(self) -> int:
        return precision_of(self.deviation)

    def arguments(self) -> tuple[Expr, ...]:
        return (self.expr, FunctionCall("hash", (self.expr,)))

    def field(self, name: str, schema: Schema) -> Field:
        check_deviation(self.deviation)
        for expr in self.arguments():
            check(expr, schema)
        return Field(name, INT64)

    def __str__(self) -> str:
        return f"approx_count_distinct({self.expr}, {self.deviation:g})"


def check_deviation(deviation: object) -> None:
    """Raise `WrongType` unless sketches have this relative standard deviation."""
    if (
        type(deviation) is not float
        or not 0 < deviation < 1
        or not MIN_PRECISION <= precision_of(deviation) <= MAX_PRECISION
    ):
        raise WrongType(
            f"approx_count_distinct has a relative standard deviation from 0.0003 to 0.39, got {deviation!r}",
            where=[SourceLocation.of_caller()],
            fix="approx_count_distinct(..., 0.05), say, or count_distinct(...), which is exact",
        )


def approx_count_distinct(expr: Expr, rsd: float = 0.05) -> ApproxCountDistinct:
    """Number of distinct non-null values, estimated by HyperLogLog++; the estimate equals Spark's.

    rsd: relative standard deviation of the estimate. Raises `WrongType` for one beyond 0.0003 and 0.39.
    """
    check_deviation(rsd)
    return ApproxCountDistinct(expr, rsd)


@dataclass(frozen=True, slots=True)
class HllSketchAgg(Aggregation):
    """Sketch of the distinct non-null values, in the format of Apache DataSketches."""

    expr: Expr
    lg_k: int = DEFAULT_LG_K

    @property
    def of_no_rows(self) -> bytes:
        return HllSketch(self.lg_k).to_bytes()

    def arguments(self) -> tuple[Expr, ...]:
        return (self.expr,)

    def field(self, name: str, schema: Schema) -> Field:
        check_lg_k(self.lg_k)
        typed = check(self.expr, schema)
        if not isinstance(typed.type, IntegerType | StrType | BytesType):
            raise WrongType(
                f"hll_sketch_agg needs integers, text or bytes, got {typed.type}: {self.expr}",
                where=[SourceLocation.of_caller()],
                fix="cast it: .cast(str), say, or use approx_count_distinct",
            )
        return Field(name, BYTES)

    def __str__(self) -> str:
        return f"hll_sketch_agg({self.expr}, {self.lg_k})"


@dataclass(frozen=True, slots=True)
class HllUnionAgg(Aggregation):
    """Union of sketches in the format of Apache DataSketches.

    any_lg_k: they may differ in their number of registers.
    """

    expr: Expr
    any_lg_k: bool = False

    @property
    def of_no_rows(self) -> bytes:
        return HllSketch().to_bytes()

    def arguments(self) -> tuple[Expr, ...]:
        return (self.expr,)

    def field(self, name: str, schema: Schema) -> Field:
        typed = check(self.expr, schema)
        if typed.type != BYTES:
            raise WrongType(
                f"hll_union_agg needs sketches, which are bytes, got {typed.type}: {self.expr}",
                where=[SourceLocation.of_caller()],
                fix="hll_sketch_agg(...) makes sketches of values",
            )
        return Field(name, BYTES)

    def __str__(self) -> str:
        return f"hll_union_agg({self.expr}{', any lg_k' if self.any_lg_k else ''})"


def check_lg_k(lg_k: object) -> None:
    """Raise `WrongType` unless sketches have this binary logarithm of their number of registers."""
    if type(lg_k) is not int or not MIN_LG_K <= lg_k <= MAX_LG_K:
        raise WrongType(
            f"an HLL sketch has a lg_k from {MIN_LG_K} to {MAX_LG_K}, got {lg_k!r}",
            where=[SourceLocation.of_caller()],
            fix=f"hll_sketch_agg(..., {DEFAULT_LG_K}), say: a standard deviation of 1.6 %",
        )


def hll_sketch_agg(expr: Expr, lg_k: int = DEFAULT_LG_K) -> HllSketchAgg:
    """HLL sketch of the distinct non-null values: integers, text or bytes. It counts no empty text or bytes.

    `hr.functions.hll_sketch_estimate` estimates the number of values of a sketch.

    lg_k: binary logarithm of the number of registers. Raises `WrongType` for one beyond 4 and 21.
    """
    check_lg_k(lg_k)
    return HllSketchAgg(expr, lg_k)


def hll_union_agg(expr: Expr, *, any_lg_k: bool = False) -> HllUnionAgg:
    """Union of HLL sketches. Bytes that are no sketch raise `EvaluationError`.

    any_lg_k: their numbers of registers may differ, and the least one is that of the union; otherwise such
    sketches raise `EvaluationError`.
    """
    return HllUnionAgg(expr, any_lg_k)


# --- accumulators ------------------------------------------------------------------------------------


class CodeCounts(Accumulator):
    """Copies per code."""

    def fields(self) -> tuple[StateField, ...]:
        return (StateField("{}", thaw_dict),)

    def update(self, to: Target, arguments: tuple[str, ...], weight: str | None) -> None:
        code, variable = to.writer.constant("code", self.code()), to.writer.fresh("code")
        to.code.line(f"{variable} = {code}({arguments[-1]})")
        with to.code.block(f"if {variable} is not None:"):
            to.code.line(f"x_count_value({to.field(0)}, {variable}, {weight or '1'})")

    def result(self, to: Target) -> str:
        return f"{to.writer.constant('answer', self.answer())}({to.field(0)})"

    def merge(self, to: Target, fields: Sequence[str]) -> None:
        with to.code.block(f"for code, copies in {fields[0]}.items():"):
            to.code.line(f"x_count_value({to.field(0)}, code, copies)")

    def code(self) -> Callable[[Any], int | None]:
        """Return the function from the last argument to the code; None of what does not count."""
        raise NotImplementedError

    def answer(self) -> Callable[[Copies], Any]:
        """Return the function from a group's codes to the answer."""
        raise NotImplementedError

    def code_column(self, arguments: Sequence[pl.Expr]) -> pl.Expr:
        """Return the column of codes, null where an argument is or does not count. Raises `NotLowered`."""
        raise NotImplementedError

    def needed(self, groups: Numbers, codes: Numbers) -> Flags | None:
        """Return which codes answers depend on, if rows are never retracted; None: on all.

        groups, codes: each code of each group, in order.
        """
        return None

    def answers(self, groups: Numbers, codes: Numbers, count: int) -> pl.Series:
        """Return the answers of `count` groups. groups, codes: each code of each group, in order."""
        raise NotImplementedError


class Registers(CodeCounts):
    """Codes of HyperLogLog++."""

    def __init__(self, types: ArgumentTypes, append: bool, precision: int) -> None:
        super().__init__(types, append)
        self.precision = precision

    def code(self) -> Callable[[Any], int | None]:
        return partial(code_of_hash, self.precision)

    def answer(self) -> Callable[[Copies], int]:
        precision = self.precision
        return lambda copies: estimate_of_codes(precision, present_codes(copies))

    def code_column(self, arguments: Sequence[pl.Expr]) -> pl.Expr:
        precision = np.uint64(self.precision)

        def codes(columns: Sequence[pl.Series]) -> pl.Series:
            values, hashes = columns
            hashed = hashes.to_numpy().view(np.uint64)
            rest = pl.Series((hashed << precision) | (np.uint64(1) << (precision - np.uint64(1))))
            registers = (hashed >> (np.uint64(64) - precision)).astype(np.int64)
            made = pl.Series((registers << RANK_BITS) + rest.bitwise_leading_zeros().to_numpy() + 1)
            return masked(made, values.is_not_null().to_numpy()) if values.null_count() else made

        return pl.map_batches(list(arguments), codes, return_dtype=pl.Int64(), is_elementwise=True)

    def answers(self, groups: Numbers, codes: Numbers, count: int) -> pl.Series:
        # The last code of a register has its greatest rank.
        registers = codes >> RANK_BITS
        last = np.ones(len(codes), np.bool_)
        last[:-1] = (groups[1:] != groups[:-1]) | (registers[1:] != registers[:-1])
        own, ranks = groups[last], codes[last] & ((1 << RANK_BITS) - 1)
        totals = np.bincount(own, np.ldexp(1.0, -ranks.astype(np.int32)), count)
        used = np.bincount(own, minlength=count)
        each = zip(totals.tolist(), used.tolist(), strict=True)
        return pl.Series([estimate(self.precision, *one) for one in each], dtype=pl.Int64)


class Coupons(CodeCounts):
    """Coupons of HLL sketches."""

    def __init__(self, types: ArgumentTypes, append: bool, lg_k: int) -> None:
        super().__init__(types, append)
        self.lg_k = lg_k

    def code(self) -> Callable[[Any], int | None]:
        return coupon_of

    def answer(self) -> Callable[[Copies], bytes]:
        lg_k = self.lg_k
        return lambda copies: HllSketch(lg_k, present_codes(copies)).to_bytes()

    def code_column(self, arguments: Sequence[pl.Expr]) -> pl.Expr:
        integers = isinstance(self.types[0].type, IntegerType)
        coupons = _coupons_of_integers if integers else _coupons_of_bytes
        return pl.map_batches(list(arguments), coupons, return_dtype=pl.Int64(), is_elementwise=True)

    def settle(self, to: Target) -> None:
        if self.append:
            to.code.line(f"x_prune_coupons({to.field(0)}, {self.lg_k})")

    def needed(self, groups: Numbers, codes: Numbers) -> Flags | None:
        size = 2 << self.lg_k
        if not self.append or len(codes) <= size:
            return None
        slots = codes & ((1 << self.lg_k) - 1)
        order = np.lexsort((codes, slots, groups))
        slots, own = slots[order], groups[order]
        last = np.ones(len(codes), np.bool_)
        last[:-1] = (slots[1:] != slots[:-1]) | (own[1:] != own[:-1])
        # As in rows: a group with few coupons keeps them all, also one that would seem to have few registers.
        pruned = (np.bincount(groups) > size) & (np.bincount(own[last]) > capacity(self.lg_k))
        found = np.empty(len(codes), np.bool_)
        found[order] = last | ~pruned[own]
        return found

    def answers(self, groups: Numbers, codes: Numbers, count: int) -> pl.Series:
        ends = np.searchsorted(groups, np.arange(count), "right")
        each = np.split(codes, ends[:-1])
        # An array is summed up at once; few coupons are listed.
        made = [HllSketch(self.lg_k, coupons).to_bytes() for coupons in each]
        return pl.Series(made, dtype=pl.Binary)


def _coupons_of_integers(columns: Sequence[pl.Series]) -> pl.Series:
    (values,) = columns
    made = pl.Series(coupons_of_integers(values.fill_null(0).to_numpy()))
    return masked(made, values.is_not_null().to_numpy()) if values.null_count() else made


def _coupons_of_bytes(columns: Sequence[pl.Series]) -> pl.Series:
    coupons = [None if value is None else coupon_of(value) for value in columns[0].to_list()]
    return pl.Series(coupons, dtype=pl.Int64)


class SketchCounts(CollectedValues):
    """Copies per sketch; the union is made again when the group changes."""

    def __init__(self, types: ArgumentTypes, append: bool, any_lg_k: bool) -> None:
        super().__init__(types, append)
        self.any_lg_k = any_lg_k

    def result(self, to: Target) -> str:
        return f"x_union_of_sketches({to.field(0)}, {self.any_lg_k})"


def union_of_copies(copies: Mapping[bytes, int], any_lg_k: bool) -> bytes:
    """Return the union of the sketches with copies. Raises `EvaluationError` as `union` and `hll_sketch`."""
    sketches = (hll_sketch(sketch) for sketch, count in copies.items() if count > 0)
    return union(sketches, any_lg_k=any_lg_k).to_bytes()


def prune_coupons(copies: dict[int, int], lg_k: int) -> None:
    """Keep one coupon for each register once there are twice as many as registers, if none is retracted."""
    if len(copies) <= 2 << lg_k:
        return
    best: dict[int, int] = {}
    mask = (1 << lg_k) - 1
    for coupon in copies:
        if best.get(coupon & mask, 0) < coupon:
            best[coupon & mask] = coupon
    if len(best) > capacity(lg_k):
        for coupon in [coupon for coupon in copies if best[coupon & mask] != coupon]:
            del copies[coupon]


register_runtime({"x_union_of_sketches": union_of_copies, "x_prune_coupons": prune_coupons})


def present_codes(copies: Copies) -> list[int]:
    """Return the codes with copies: in a tick, a row may be taken back before it comes."""
    return [code for code, count in copies.items() if count > 0]


@accumulator_of.register(ApproxCountDistinct)
def _accumulate(aggregation: ApproxCountDistinct, types: ArgumentTypes, append: bool) -> Accumulator:
    return Registers(types, append, aggregation.precision)


@accumulator_of.register(HllSketchAgg)
def _accumulate_sketch(aggregation: HllSketchAgg, types: ArgumentTypes, append: bool) -> Accumulator:
    return Coupons(types, append, aggregation.lg_k)


@accumulator_of.register(HllUnionAgg)
def _accumulate_union(aggregation: HllUnionAgg, types: ArgumentTypes, append: bool) -> Accumulator:
    return SketchCounts(types, append, aggregation.any_lg_k)


# --- on Spark ----------------------------------------------------------------------------------------


@measure.register(ApproxCountDistinct)
def _measure(aggregation: ApproxCountDistinct, to: AggregateArguments) -> NativeAggregates:
    return NativeAggregates((F.approx_count_distinct(to.columns[0], aggregation.deviation),))


@measure.register(HllSketchAgg)
@measure.register(HllUnionAgg)
def _measure_sketch(aggregation: HllSketchAgg | HllUnionAgg, to: AggregateArguments) -> NativeAggregates:
    # A sketch of Spark's depends on the order of rows. Spark would read annotations.
    made = F.udf(lambda values: _sketch_of(aggregation, values), "binary")
    return NativeAggregates((F.collect_set(to.columns[0]),), made)


def _sketch_of(aggregation: HllSketchAgg | HllUnionAgg, values: Iterable[Any]) -> bytes:
    values = (bytes(value) if isinstance(value, bytearray) else value for value in values)
    if isinstance(aggregation, HllUnionAgg):
        return union(map(hll_sketch, values), any_lg_k=aggregation.any_lg_k).to_bytes()
    coupons = {coupon for value in values if (coupon := coupon_of(value)) is not None}
    return HllSketch(aggregation.lg_k, coupons).to_bytes()


# --- reference answers -------------------------------------------------------------------------------


@answer_of.register(ApproxCountDistinct)
def _answer(aggregation: ApproxCountDistinct, result: DataType, rows: ArgumentRows) -> Any:
    ranks = [0] * (1 << aggregation.precision)
    for value, hashed in rows:
        if value is not None:
            bits = format(hashed & 0xFFFFFFFFFFFFFFFF, "064b")
            register = int(bits[: aggregation.precision], 2)
            rank = f"{bits[aggregation.precision :]}1".index("1") + 1
            ranks[register] = max(ranks[register], rank)
    used = [rank for rank in ranks if rank]
    return estimate(aggregation.precision, sum(2.0**-rank for rank in used), len(used))


@answer_of.register(HllSketchAgg)
@answer_of.register(HllUnionAgg)
def _answer_sketch(aggregation: HllSketchAgg | HllUnionAgg, result: DataType, rows: ArgumentRows) -> Any:
    return _sketch_of(aggregation, present_values(rows))
