"""Whatever a flow can hold has a name in plans, a check, and a word on whether it can be served."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import pytest

import headrace.flow
from headrace.compute.errors import BadPlan, CallableRefused
from headrace.compute.plans import decode, encode
from headrace.compute.plans.registry import CHOICES, OPERATORS, RECORDS, record_fields, record_type_hints
from headrace.graph.node import Operator
from headrace.lattice import Lattice
from headrace.operators.aggregate.aggregation import Aggregation
from headrace.operators.lattice_fold import LatticeGrowth
from headrace.operators.statistics.statistic import Statistic
from tests.operators.examples import example

ROOT = Path(__file__).resolve().parents[3]


def all_of(base: type) -> Iterator[type]:
    """The classes of the library under `base` that have objects."""
    for module in pkgutil.walk_packages(headrace.operators.__path__, "headrace.operators."):
        importlib.import_module(module.name)
    for found in base.__subclasses__():
        yield from all_of(found)
        if found.__module__.startswith("headrace.operators.") or found.__module__ == "headrace.lattice":
            yield found


def leaves(base: type) -> set[type]:
    """Those of which the library makes objects; a dataclass with slots was made twice."""
    return {
        getattr(importlib.import_module(c.__module__), c.__name__)
        for c in all_of(base)
        if dataclasses.is_dataclass(c) and "kind" in {name for k in c.__mro__ for name in vars(k)}
    }


def test_every_operator_has_a_name_in_plans() -> None:
    # A loop makes this one of another; no user can.
    assert leaves(Operator) - set(OPERATORS.values()) == {LatticeGrowth}


def test_every_statistic_aggregate_and_lattice_has_a_name_in_plans() -> None:
    registered = set(RECORDS.values())
    bases = {c for c in leaves(Statistic) if not _has_own_kind(c)}
    assert leaves(Statistic) - bases <= registered
    for base in (Aggregation, Lattice):
        # Bases that several share have no name in plans.
        named = [c for c in all_of(base) if not c.__name__.startswith(("_", "ValueAggregation"))]
        assert {getattr(importlib.import_module(c.__module__), c.__name__) for c in named} <= registered


def _has_own_kind(cls: type) -> bool:
    return "kind" in vars(cls)


def test_every_enumeration_in_a_field_has_a_name_in_plans() -> None:
    found = {
        type(default)
        for record in RECORDS.values()
        for field in record_fields(record)
        for default in (field.default if isinstance(field.default, tuple) else (field.default,))
        if isinstance(default, Enum)
    }
    assert found - {dataclasses.MISSING.__class__} <= set(CHOICES.values())


def test_what_may_stand_in_each_field_is_known() -> None:
    for record in RECORDS.values():
        hints = record_type_hints(record)
        assert all(field.name in hints for field in record_fields(record))


# --- functions ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["map: map", "filter: callable", "fold: fold", "sort: sort"])
def test_functions_travel_only_where_both_sides_allow_it(name: str) -> None:
    flow = example(name)
    if next((c for n in flow.nodes for c in n.operator.callables()), None) is None:
        assert decode(encode(flow)).name == flow.name
        return
    with pytest.raises(CallableRefused) as refused:
        encode(flow)
    assert refused.value.where
    assert refused.value.facts["operators"]
    plan = encode(flow, allow_callables=True)
    with pytest.raises(CallableRefused):
        decode(plan)
    assert decode(plan, allow_callables=True).name == flow.name


def test_bytes_that_are_no_functions_are_refused_where_functions_are_allowed() -> None:
    from headrace.compute.plans.generated import plan_pb2 as pb
    from headrace.compute.protocol.commands import PlanBytes

    body = pb.Body.FromString(encode(example("map: map"), allow_callables=True).body)
    body.functions = b"no pickle"
    with pytest.raises(BadPlan):
        decode(PlanBytes(body.SerializeToString()), allow_callables=True)
