"""Plans with damage and forgeries: refused, or flows that a user could have written and that run."""

from __future__ import annotations

import random

import pytest

import headrace as hr
from headrace.compute.errors import BadPlan, CallableRefused, MessageTooLarge
from headrace.compute.plans import decode, decode_expr, encode, schema_from_bytes, schema_to_bytes
from headrace.compute.plans.conversion import encode_expr
from headrace.compute.protocol.commands import PlanBytes
from headrace.expr.row_classes import schema_of
from tests.compute.plans.mutations import damaged, forged
from tests.compute.plans.test_round_trip import Bid, averages
from tests.operators.examples import ALL, example
from tests.signals.test_statistics_in_flows import STATISTICS


def without_functions() -> list[bytes]:
    plans = [encode(averages()).body]
    for name in ALL:
        try:
            plans.append(encode(example(name)).body)
        except CallableRefused:
            continue
    for make in STATISTICS.values():
        flow = hr.Flow("a statistic")
        a, b, t = (flow.signal(name, float) for name in "abt")
        flow.sink("out", make(a, b, t))
        plans.append(encode(flow).body)
    return plans


PLANS = without_functions()


def check(octets: bytes) -> bool:
    """Whether it was read; then it is whole."""
    try:
        flow = decode(PlanBytes(octets))
    except (BadPlan, CallableRefused, MessageTooLarge):
        return False
    assert encode(flow).body == octets
    return True


@pytest.mark.seeds(8)
def test_damaged_plans_are_refused_or_are_plans(seed: int) -> None:
    numbers = random.Random(seed)
    for _ in range(40):
        check(damaged(numbers.choice(PLANS), numbers))


@pytest.mark.seeds(8)
def test_forged_plans_are_refused_or_are_plans(seed: int) -> None:
    numbers = random.Random(seed)
    read = [check(forged(numbers.choice(PLANS), PLANS, numbers)) for _ in range(60)]
    # Some are other flows: a test that refuses all would show nothing.
    assert any(read)
    assert not all(read)


def test_damaged_expressions_and_schemas_are_refused_or_are_such() -> None:
    schema, numbers = schema_of(Bid), random.Random(1)
    condition = encode_expr((hr.col.price > 1.5) & hr.col.who.is_in("a", "b"), schema)
    for _ in range(300):
        for read, octets in (
            (lambda d: decode_expr(d, schema), condition),
            (schema_from_bytes, schema_to_bytes(schema)),
        ):
            try:
                read(damaged(octets, numbers))
            except (BadPlan, MessageTooLarge):
                continue
