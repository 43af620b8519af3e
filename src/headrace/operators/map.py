"""Operators that call a user's function on each row: map, flat_map, filter_map, inspect."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.expr.row_classes import from_user, to_user
from headrace.expr.types import Rows
from headrace.graph.node import identity_lineage
from headrace.lowering.generated_source import register_runtime
from headrace.lowering.reference import Bag, Bags, ExamplePair, Examples, answer_of_bags, copies
from headrace.lowering.row_code import RowCode, item_sources, user_form, write_received
from headrace.lowering.step import RowStep, loop_step_for, register_step, step_for
from headrace.operators.rows import RowFunction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import Lineage
    from headrace.lowering.step_writer import StepWriter


# --- map operator: map each row to one row, by an opaque function ---------------------------------


class VectorisedFunction(ABC):
    """Row function with a faster implementation for many rows at once, with equal results."""

    __slots__ = ()

    @abstractmethod
    def __call__(self, row: Any) -> object:
        """Map one row."""

    @abstractmethod
    def of_rows(self, rows: list[Any]) -> list[object]:
        """Map one or more rows. The results, in order, equal those of one call per row."""


def _double(pair: ExamplePair) -> ExamplePair:
    return ExamplePair(2 * pair.a, pair.b)


class _Doubled(VectorisedFunction):
    """Vectorised form of `_double`."""

    def __call__(self, row: ExamplePair) -> ExamplePair:
        return _double(row)

    def of_rows(self, rows: list[ExamplePair]) -> list[object]:
        doubled = [2 * row.a for row in rows]
        return [ExamplePair(a, row.b) for a, row in zip(doubled, rows, strict=True)]


def _twice(pair: ExamplePair) -> list[ExamplePair]:
    return [pair, pair]


def _small(pair: ExamplePair) -> ExamplePair | None:
    return pair if pair.a < 3 else None


@dataclass(frozen=True, slots=True)
class Map(RowFunction):
    """`function(row)` for each row; a retracted row retracts its image.

    So `function` must return the same result for the same row every time. Rows are passed as instances of
    their row class, and results are checked against the output type. A `VectorisedFunction` is called once
    per tick with all rows, in a loop once per round; in a loop with retractions, for each row.

    >>> from headrace.testing import show
    >>> def double(n: int) -> int:
    ...     return 2 * n
    >>> show(lambda numbers: numbers.map(double), numbers=[1, 2])
    + 2
    + 4
    """

    kind: ClassVar[str] = "map"
    examples: ClassVar[Examples] = {
        "map": lambda x, y: y.map(_double),
        "vectorised map": lambda x, y: y.map(_Doubled(), returns=ExamplePair),
        "vectorised map of rows that are only added": lambda x, y: x.map(_Doubled(), returns=ExamplePair),
    }
    function: Callable[..., object]

    def output(self, context: CheckContext) -> Columns:
        return None


# --- flat-map operator: map each row to any number of rows, by an opaque function -----------------


@dataclass(frozen=True, slots=True)
class FlatMap(RowFunction):
    """The items of `function(row)`, in order, each with the weight of `row`.

    >>> from headrace.testing import show
    >>> def words(line: str) -> list[str]:
    ...     return line.split()
    >>> show(lambda lines: lines.flat_map(words), lines=["a b", "c"])
    + 'a'
    + 'b'
    + 'c'
    """

    kind: ClassVar[str] = "flat_map"
    examples: ClassVar[Examples] = {"flat_map": lambda x, y: y.flat_map(_twice)}
    function: Callable[..., Iterable[object]]

    def output(self, context: CheckContext) -> Columns:
        return None


# --- filter-map operator: map each row to at most one row, by an opaque function ------------------


@dataclass(frozen=True, slots=True)
class FilterMap(RowFunction):
    """`function(row)` for each row, unless the result is None, with the weight of `row`.

    Rows keep their order. A tick without rows emits nothing. To make rows that are None themselves, use
    `map`.

    >>> from headrace.testing import show
    >>> def number(text: str) -> int | None:
    ...     return int(text) if text.isdigit() else None
    >>> show(lambda texts: texts.filter_map(number), texts=["1", "x", "2"])
    + 1
    + 2
    """

    kind: ClassVar[str] = "filter_map"
    examples: ClassVar[Examples] = {"filter_map": lambda x, y: y.filter_map(_small)}
    function: Callable[..., object]

    def output(self, context: CheckContext) -> Columns:
        return None


# --- inspect operator: call a function on each passing row ----------------------------------------


@dataclass(frozen=True, slots=True)
class Inspect(RowFunction):
    """The same rows; `function(row)` is called for each, and its result is ignored.

    The function is called once per change, also for retractions, in order of arrival. A stream that leads to
    no sink does not run, so nothing is inspected; `null()` after it makes it run.

    >>> from headrace.testing import show
    >>> show(lambda numbers: numbers.inspect(lambda n: print("saw", n)), numbers=[1, 2])
    saw 1
    saw 2
    + 1
    + 2
    """

    kind: ClassVar[str] = "inspect"
    examples: ClassVar[Examples] = {"inspect": lambda x, y: y.inspect(repr)}
    function: Callable[..., object]

    def output(self, context: CheckContext) -> Columns:
        return context.input.fields

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(inputs[0]),)

    def free_of_negative_zero(self, inputs: Sequence[bool]) -> bool:
        return all(inputs)

    def assumptions(self) -> Iterator[str]:
        # The rows do not depend on the function's result.
        yield from ()


class OpaqueStep(RowStep):
    """Step of a user function called on each row, its result checked against the output schema."""

    def __init__(self, node: Node, writer: StepWriter, function: Callable[..., object]) -> None:
        super().__init__(node, writer)
        what = f"a row made by {node.name!r}"
        self._function = writer.constant("f", function)
        self._checked = writer.constant("rows", from_user(node.schema, what=what))

    def call_source(self, port: int, row: RowCode) -> str:
        """Return the source of the function call on a row."""
        return f"{self._function}({user_form(self.writer, self.writer.input_schema(self.node, port), row)})"


class MapStep(OpaqueStep):
    """Step of map: one output row per input row.

    A result that is exactly a row is passed on; any other is converted or rejected.
    """

    def consume(self, port: int, row: RowCode) -> None:
        call = self.call_source(port, row)
        self.emit(write_received(self.writer, self.node.schema, call, self._checked, row.weight))


class VectorisedMapStep(RowStep):
    """Step of map with a vectorised function, which is called once with the tick's rows.

    If it fails, it is called again with a row on which it fails alone, so that the error names that row.
    """

    keeps_state = True

    def __init__(self, node: Node, writer: StepWriter, function: VectorisedFunction) -> None:
        super().__init__(node, writer)
        seen = to_user(self.input_schema())
        checked = from_user(node.schema, what=f"a row made by {node.name!r}")

        def images(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
            return checked(function.of_rows(list(map(seen, rows))))

        self._images = writer.constant("f", images)
        self._rows = writer.node_variable("pending", node.id)
        self._weights = writer.node_variable("weights", node.id)
        self._appends = writer.is_append(node.inputs[0])

    def begin(self) -> None:
        self.code.line(f"{self._rows} = []")
        if not self._appends:
            self.code.line(f"{self._weights} = []")

    def consume(self, port: int, row: RowCode) -> None:
        self.code.line(f"{self._rows}.append({row.source})")
        if not self._appends:
            self.code.line(f"{self._weights}.append({row.copies})")

    def finish(self) -> None:
        images, row, image = (self.writer.fresh(name) for name in ("images", "row", "image"))
        weight = None if self._appends else self.writer.fresh("weight")
        with self.code.block(f"if {self._rows}:"):
            with self.code.block("try:"):
                self.code.line(f"{images} = {self._images}({self._rows})")
            with self.code.block("except Exception:"):
                self.code.line(f"{row} = x_row_failing({self._images}, {self._rows})")
                columns = item_sources(row, len(self.input_schema().fields))
                with self.code.attribute_lines(self.node.id, columns):
                    self.code.line(f"{self._images}([{row}])")
                self.code.line("raise")
            each, among = (
                (image, images)
                if weight is None
                else (f"{image}, {weight}", f"zip({images}, {self._weights}, strict=True)")
            )
            with self.code.block(f"for {each} in {among}:"):
                self.emit_unpacked(image, weight)


@step_for.register(Map)
def _map_step(operator: Map, node: Node, writer: StepWriter) -> RowStep:
    if isinstance(operator.function, VectorisedFunction):
        return VectorisedMapStep(node, writer, operator.function)
    return MapStep(node, writer, operator.function)


@loop_step_for.register(Map)
def _map_step_in_loop(operator: Map, node: Node, writer: StepWriter, varies: Sequence[bool]) -> RowStep:
    # Rows of several rounds arrive together, so that a vectorised function is called on each.
    return MapStep(node, writer, operator.function)


@step_for.register(FlatMap)
def _flat_map_step(operator: FlatMap, node: Node, writer: StepWriter) -> RowStep:
    return FlatMapStep(node, writer, operator.function)


@step_for.register(FilterMap)
def _filter_map_step(operator: FilterMap, node: Node, writer: StepWriter) -> RowStep:
    return FilterMapStep(node, writer, operator.function)


class FlatMapStep(OpaqueStep):
    def consume(self, port: int, row: RowCode) -> None:
        out = self.writer.fresh("row")
        with self.code.block(f"for {out} in {self._checked}(list({self.call_source(port, row)})):"):
            columns = self.writer.unpack(self.node.schema, out)
            self.emit(RowCode(columns, out, row.weight))


class FilterMapStep(OpaqueStep):
    def consume(self, port: int, row: RowCode) -> None:
        made = self.writer.fresh("made")
        self.code.line(f"{made} = {self.call_source(port, row)}")
        with self.code.block(f"if {made} is not None:"):
            self.emit(write_received(self.writer, self.node.schema, made, self._checked, row.weight))


@register_step(Inspect)
class InspectStep(RowStep):
    operator: Inspect

    def consume(self, port: int, row: RowCode) -> None:
        function = self.writer.constant("f", self.operator.function)
        self.code.line(f"{function}({user_form(self.writer, self.node.schema, row)})")
        self.emit(row)


@answer_of_bags.register(Map)
def _map_answer(operator: Map, node: Node, inputs: Bags) -> Bag:
    [(schema, bag)] = inputs
    seen, inside = to_user(schema), from_user(node.schema, what=node.name)
    return Counter(inside([operator.function(seen(row)) for row in copies(bag)]))


@answer_of_bags.register(FlatMap)
def _flat_map_answer(operator: FlatMap, node: Node, inputs: Bags) -> Bag:
    [(schema, bag)] = inputs
    seen, inside = to_user(schema), from_user(node.schema, what=node.name)
    return Counter(inside([item for row in copies(bag) for item in operator.function(seen(row))]))


@answer_of_bags.register(FilterMap)
def _filter_map_answer(operator: FilterMap, node: Node, inputs: Bags) -> Bag:
    [(schema, bag)] = inputs
    seen, inside = to_user(schema), from_user(node.schema, what=node.name)
    made = (operator.function(seen(row)) for row in copies(bag))
    return Counter(inside([row for row in made if row is not None]))


@answer_of_bags.register(Inspect)
def _inspect_answer(operator: Inspect, node: Node, inputs: Bags) -> Bag:
    return inputs[0][1]


# --- run time ------------------------------------------------------------------------------------


def row_failing(function: Callable[[Rows], object], rows: Rows) -> tuple[Any, ...]:
    """Find by bisection a row on which `function` fails, given that it fails on `rows`.

    Where it fails on none of them alone, any row is returned.
    """
    while len(rows) > 1:
        half = rows[: len(rows) // 2]
        try:
            function(half)
            rows = rows[len(half) :]
        except Exception:
            rows = half
    return rows[0]


register_runtime({"x_row_failing": row_failing})
