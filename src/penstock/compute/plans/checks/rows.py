"""Checks of operators that go row by row, and of where rows enter and leave."""

from __future__ import annotations

from penstock.compute.plans.checks.context import Claimed, output_of
from penstock.expr.check import check
from penstock.expr.tree import Expr, Literal
from penstock.expr.types import BOOL, INT64, AnyType, BoolType, Field, ListType
from penstock.flow.operators.assume_ordered import AssumeOrdered
from penstock.flow.operators.filter import Filter
from penstock.flow.operators.filter_map import FilterMap
from penstock.flow.operators.flat_map import FlatMap
from penstock.flow.operators.flatten import Flatten
from penstock.flow.operators.initialize import Initialize
from penstock.flow.operators.inspect import Inspect
from penstock.flow.operators.map import Map
from penstock.flow.operators.null import Null
from penstock.flow.operators.partition import Partition
from penstock.flow.operators.select import Select
from penstock.flow.operators.sink import Sink
from penstock.flow.operators.source import Source
from penstock.flow.signal import ANY_VALUE
from penstock.graph.node import Operator

Fields = tuple[Field, ...] | None


@output_of.register(Source)
def _source(operator: Source, claimed: Claimed) -> Fields:
    claimed.position.name(operator.name)
    claimed.need(operator.append or not operator.bounded, "a table cannot be bounded")
    claimed.need(operator.schema == claimed.schema, "the source has other columns than its rows")
    return operator.schema.fields


@output_of.register(Sink)
def _sink(operator: Sink, claimed: Claimed) -> Fields:
    claimed.position.name(operator.name)
    if claimed.reads_signal and not claimed.input.scalar:
        return ANY_VALUE.fields
    return claimed.input.fields


@output_of.register(Select)
def _select(operator: Select, claimed: Claimed) -> Fields:
    return claimed.computed(operator.columns)


@output_of.register(Filter)
def _filter(operator: Filter, claimed: Claimed) -> Fields:
    if isinstance(operator.predicate, Expr):
        claimed.need(claimed.type_of(operator.predicate) == BOOL, "a filter is not true or false")
    return claimed.input.fields


@output_of.register(Map)
@output_of.register(FlatMap)
@output_of.register(FilterMap)
def _any_rows(operator: Operator, claimed: Claimed) -> Fields:
    return None


@output_of.register(Inspect)
def _same_rows(operator: Inspect, claimed: Claimed) -> Fields:
    return claimed.input.fields


@output_of.register(AssumeOrdered)
def _assume_ordered(operator: AssumeOrdered, claimed: Claimed) -> Fields:
    claimed.reason(operator.nondet)
    return claimed.input.fields


@output_of.register(Null)
def _null(operator: Null, claimed: Claimed) -> Fields:
    return claimed.input.fields if operator.swallows else None


@output_of.register(Initialize)
def _initialize(operator: Initialize, claimed: Claimed) -> Fields:
    return ANY_VALUE.fields


@output_of.register(Flatten)
def _flatten(operator: Flatten, claimed: Claimed) -> Fields:
    fields, at = claimed.input.fields, operator.at
    claimed.need(0 <= at < len(fields), "there is no such column to flatten")
    field = fields[at]
    claimed.need(isinstance(field.type, ListType | AnyType), "the column to flatten is no list")
    if isinstance(field.type, ListType):
        field = Field(field.name, field.type.element, field.type.nullable)
    return (*fields[:at], field, *fields[at + 1 :])


@output_of.register(Partition)
def _partition(operator: Partition, claimed: Claimed) -> Fields:
    fields = claimed.input.fields
    different = operator.tags and len(set(operator.tags)) == len(operator.tags)
    claimed.need(bool(different), "the ports are not different")
    claimed.need(len(claimed.schema.fields) == len(fields) + 1, "the number of the port is missing")
    if isinstance(operator.by, Expr):
        found = check(operator.by, claimed.input).type
        if not (isinstance(found, BoolType) and operator.tags == (False, True)):
            for tag in operator.tags:
                check(operator.by == Literal(tag), claimed.input)
    port = claimed.schema.names[-1]
    claimed.need(claimed.input.position(port) is None, f"there is a column {port!r} already")
    return (*fields, Field(port, INT64))
