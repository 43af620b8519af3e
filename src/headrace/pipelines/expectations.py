"""Expectations: conditions that the rows of a table should meet, and what becomes of rows that don't.

They are declared by decorators, in any order with those of `pyspark.pipelines`, or in SQL
(`expectation_clauses`). A row passes if the condition is true: null fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

from headrace.pipelines.errors import BadDefinition
from headrace.source_location import SourceLocation, caller_at

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

Condition: TypeAlias = "str | Column"
Decorated = TypeVar("Decorated")

_DECLARED = "__headrace_expectations__"
"""Attribute of a query function: the expectations declared below its dataset."""


class OnViolation(Enum):
    """Action on rows that violate an expectation."""

    WARN = "warn"
    """The row is kept and counted."""
    DROP = "drop"
    """The row goes to the table of dropped rows."""
    FAIL = "fail"
    """The update fails, and the table stays as it was."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """Condition on the rows of a table.

    condition: as written. column: what is evaluated where it was not declared as text.
    """

    name: str
    condition: str
    on_violation: OnViolation
    location: SourceLocation
    column: Any = field(default=None, compare=False, repr=False)

    @property
    def text(self) -> str:
        """Condition in one line."""
        return " ".join(self.condition.split())


class ExpectationCounts(NamedTuple):
    """Numbers of rows that passed an expectation, and that failed it."""

    passed: int
    failed: int


def check_names(expectations: Sequence[Expectation], dataset: str) -> None:
    """Raise `BadDefinition` for names that are empty or occur twice."""
    known: dict[str, Expectation] = {}
    for each in expectations:
        if not each.name.strip():
            raise BadDefinition(
                f"an expectation of {dataset} has no name",
                where=[each.location],
                fix="name it: counts and dropped rows show the name",
                dataset=dataset,
            )
        other = known.setdefault(each.name, each)
        if other is not each:
            raise BadDefinition(
                f"{dataset} has two expectations {each.name!r}",
                where=[other.location, each.location],
                fix="give one of them another name",
                dataset=dataset,
            )


# -- decorators --------------------------------------------------------------------------------------


@runtime_checkable
class ExpectationRegistry(Protocol):
    """Registry of definitions that takes expectations, too."""

    def expect_of_last(self, declared: Sequence[Expectation]) -> None:
        """Add expectations to the dataset that was registered last."""
        ...


def expect(name: str, condition: Condition) -> Callable[[Decorated], Decorated]:
    """Count rows that violate a condition, and keep them.

    name: shown with the counts. condition: SQL text or a column, over the columns of the dataset.

    Decorates a query function above or below `@dp.materialized_view`, `@dp.table` or `@dp.temporary_view`.
    Raises `BadDefinition`.
    """
    return _decorator({name: condition}, OnViolation.WARN)


def expect_or_drop(name: str, condition: Condition) -> Callable[[Decorated], Decorated]:
    """Drop rows that violate a condition, and keep them beside the table. Like `expect` otherwise."""
    return _decorator({name: condition}, OnViolation.DROP)


def expect_or_fail(name: str, condition: Condition) -> Callable[[Decorated], Decorated]:
    """Fail the update if a row violates a condition. Like `expect` otherwise."""
    return _decorator({name: condition}, OnViolation.FAIL)


def expect_all(expectations: Mapping[str, Condition]) -> Callable[[Decorated], Decorated]:
    """Declare several expectations, conditions by name, like `expect`."""
    return _decorator(expectations, OnViolation.WARN)


def expect_all_or_drop(expectations: Mapping[str, Condition]) -> Callable[[Decorated], Decorated]:
    """Declare several expectations, conditions by name, like `expect_or_drop`."""
    return _decorator(expectations, OnViolation.DROP)


def expect_all_or_fail(expectations: Mapping[str, Condition]) -> Callable[[Decorated], Decorated]:
    """Declare several expectations, conditions by name, like `expect_or_fail`."""
    return _decorator(expectations, OnViolation.FAIL)


def create_streaming_table(
    name: str,
    *,
    comment: str | None = None,
    table_properties: dict[str, str] | None = None,
    partition_cols: list[str] | None = None,
    cluster_by: list[str] | None = None,
    schema: StructType | str | None = None,
    format: str | None = None,
    expect_all: Mapping[str, Condition] | None = None,
    expect_all_or_drop: Mapping[str, Condition] | None = None,
    expect_all_or_fail: Mapping[str, Condition] | None = None,
) -> None:
    """Create a streaming table like `pyspark.pipelines.create_streaming_table`, with expectations.

    expect_all, expect_all_or_drop, expect_all_or_fail: conditions by name, as in the decorators.

    Raises `BadDefinition`.
    """
    from pyspark import pipelines

    given = {
        OnViolation.WARN: expect_all,
        OnViolation.DROP: expect_all_or_drop,
        OnViolation.FAIL: expect_all_or_fail,
    }
    declared = [each for action, conditions in given.items() for each in _declared(conditions or {}, action)]
    registry = _registry()
    with caller_at(SourceLocation.of_caller()):
        pipelines.create_streaming_table(
            name,
            comment=comment,
            table_properties=table_properties,
            partition_cols=partition_cols,
            cluster_by=cluster_by,
            schema=schema,
            format=format,
        )
    registry.expect_of_last(declared)


def declared_below(function: Any) -> tuple[Expectation, ...]:
    """Return the expectations declared on a query function, in the order of the file."""
    return getattr(function, _DECLARED, ())


def _decorator(conditions: Mapping[str, Condition], action: OnViolation) -> Callable[[Decorated], Decorated]:
    declared = _declared(conditions, action)

    def decorate(decorated: Decorated) -> Decorated:
        registry = _registry()
        if decorated is None:  # The decorators of `pyspark.pipelines` return nothing.
            registry.expect_of_last(declared)
        else:
            setattr(decorated, _DECLARED, (*declared, *declared_below(decorated)))
        return decorated

    return decorate


def _declared(conditions: Mapping[str, Condition], action: OnViolation) -> tuple[Expectation, ...]:
    location = SourceLocation.of_caller()
    return tuple(_expectation(name, condition, action, location) for name, condition in conditions.items())


def _expectation(name: Any, condition: Any, action: OnViolation, location: SourceLocation) -> Expectation:
    if isinstance(condition, str) and isinstance(name, str):
        return Expectation(name, condition.strip(), action, location)
    made = getattr(condition, "_jc", None)
    if not isinstance(name, str) or made is None:
        raise BadDefinition(
            f"the expectation {name!r} has the condition {condition!r}",
            where=[location],
            fix="give a name, and SQL text or a column: 'id IS NOT NULL', F.col('id').isNotNull()",
            dataset="",
        )
    return Expectation(name, str(made.toString()), action, location, condition)


def _registry() -> ExpectationRegistry:
    from pyspark.pipelines.graph_element_registry import get_active_graph_element_registry

    registry = get_active_graph_element_registry()
    if not isinstance(registry, ExpectationRegistry):
        raise BadDefinition(
            "spark-pipelines doesn't check expectations",
            where=[SourceLocation.of_caller()],
            fix="run the project with headrace pipeline run, or leave the expectations out",
            dataset="",
        )
    return registry


def with_action(expectations: Iterable[Expectation], *actions: OnViolation) -> tuple[Expectation, ...]:
    """Return the expectations with one of some actions."""
    return tuple(each for each in expectations if each.on_violation in actions)
