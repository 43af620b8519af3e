"""What a plan claims of the columns of an operator's output is computed anew, for every operator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.compute.errors import BadPlan
from headrace.compute.plans import decode, encode
from headrace.compute.plans.generated import plan_pb2 as pb
from headrace.compute.protocol.commands import PlanBytes
from headrace.graph.node import Operator
from headrace.operators.keyed_fold import FoldKeyed
from headrace.operators.map import FilterMap, FlatMap, Map
from headrace.operators.scan import Scan
from tests.operators.examples import ALL, example

# What these give is decided by a function.
DECIDED: tuple[type[Operator], ...] = (FilterMap, FlatMap, FoldKeyed, Map, Scan)


def lies(schema: pb.Schema) -> Iterator[pb.Schema]:
    """Schemas that are not this one: each with another type, a missing or a further column, or less null."""
    for at, field in enumerate(schema.fields):
        typed = pb.Schema.FromString(schema.SerializeToString())
        typed.fields[at].type.CopyFrom(pb.Type(plain="date"))
        yield typed
        if field.nullable:
            never = pb.Schema.FromString(schema.SerializeToString())
            never.fields[at].nullable = False
            yield never
        fewer = pb.Schema.FromString(schema.SerializeToString())
        del fewer.fields[at]
        yield fewer
    more = pb.Schema.FromString(schema.SerializeToString())
    more.fields.add(name="more").type.plain = "int64"
    more.scalar = False
    yield more


@pytest.mark.parametrize("name", ALL)
def test_no_operator_can_lie_about_its_columns(name: str) -> None:
    flow = example(name)
    plan = encode(flow, allow_callables=True)
    for node in flow.nodes:
        if isinstance(node.operator, DECIDED):
            continue
        body = pb.Body.FromString(plan.body)
        for schema in list(lies(body.nodes[node.id].schema)):
            body.nodes[node.id].schema.CopyFrom(schema)
            with pytest.raises(BadPlan):
                decode(PlanBytes(body.SerializeToString(deterministic=True)), allow_callables=True)
