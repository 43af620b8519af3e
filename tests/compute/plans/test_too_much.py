"""Plans that would keep who reads them busy, or fill its memory, are refused before they can."""

from __future__ import annotations

import sys

import pytest

import headrace as hr
from headrace import col
from headrace.compute.errors import BadPlan, MessageTooLarge
from headrace.compute.plans import LIMITS, PlanLimits, decode, encode, predicate_of, schema_from_bytes
from headrace.compute.plans.generated import plan_pb2 as pb
from headrace.expr.types import DecimalType, Field, Schema
from headrace.flow.timed_columns import MAX_BOUNDS
from tests.compute.plans.forging import doubled, parsed, refused, terms
from tests.compute.plans.test_round_trip import averages


def nested(depth: int) -> pb.Body:
    body = doubled()
    for _ in range(depth):
        terms(body).add(call=pb.CallTerm(function="not", arguments=1))
    return body


def test_expressions_may_not_be_too_deep() -> None:
    for depth in (LIMITS.depth, 2_000, 20_000):
        assert "deep" in refused(nested(depth)).what


def test_expressions_that_python_could_not_compile_are_refused() -> None:
    body = doubled()
    for _ in range(LIMITS.depth - 5):
        terms(body).add(literal=pb.LiteralTerm(value=pb.Value(truth=True)))
        terms(body).add(call=pb.CallTerm(function="eq", arguments=2))
    assert "nested too deeply" in str(refused(body))


def test_types_and_values_may_not_be_nested_too_deeply() -> None:
    body = doubled()
    nested = pb.Type(plain="int64")
    for _ in range(20):
        nested = pb.Type(list=pb.ListType(element=nested))
    body.nodes[0].schema.fields[0].type.CopyFrom(nested)
    body.nodes[0].operator.members[1].value.schema.CopyFrom(body.nodes[0].schema)
    refused(body)
    octets = b"\x0a\x05int64"
    for _ in range(10_000):
        octets = _field(0x22, _field(0x0A, octets))
    with pytest.raises(BadPlan):
        schema_from_bytes(_field(0x0A, _field(0x12, octets)))
    value = pb.Value(truth=True)
    for _ in range(40):
        value = pb.Value(sequence=pb.Values(items=[value]))
    body = doubled()
    body.nodes[1].operator.members[0].value.CopyFrom(value)
    refused(body)


def _field(tag: int, content: bytes) -> bytes:
    """A field of a message, with bytes as its content."""
    size, length = len(content), bytearray([tag])
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes(length) + bytes([size]) + content


def test_a_plan_may_not_be_too_large() -> None:
    plan = encode(averages())
    with pytest.raises(MessageTooLarge) as error:
        decode(plan, limits=PlanLimits(size=len(plan.body) - 1))
    assert (error.value.facts["size"], error.value.facts["limit"]) == (len(plan.body), len(plan.body) - 1)
    for limits in (PlanLimits(nodes=3), PlanLimits(inputs=3), PlanLimits(terms=3), PlanLimits(columns=2)):
        with pytest.raises(BadPlan):
            decode(plan, limits=limits)


def test_what_nobody_would_read_is_not_encoded() -> None:
    flow = hr.Flow("nested")
    tag: object = 1
    for _ in range(300):
        tag = (tag,)
    flow.sink("out", flow.signal("a", int).delay(1, init=tag))
    with pytest.raises(BadPlan):
        encode(flow)
    with pytest.raises(MessageTooLarge):
        encode(averages(), limits=PlanLimits(size=100))
    with pytest.raises(BadPlan):
        encode(averages(), limits=PlanLimits(nodes=3))


def test_numbers_cannot_blow_up_what_reads_them() -> None:
    flow = hr.Flow("tags")
    flow.sink("out", flow.table("rows", int).union(flow.table("more", int)))
    body = parsed(flow)
    for count in (2, 2**31, 2**63 - 1):
        body.nodes[2].operator.members[0].value.integer = count
        if count > 2:
            refused(body)
    body.nodes[2].operator.members[0].value.large_integer = b"\x7f" + b"\xff" * 100_000
    refused(body)


@pytest.mark.parametrize("digits", [401, -401, 10**9, -(10**9), 2**63 - 1])
def test_rounding_cannot_make_huge_powers(digits: int) -> None:
    flow = hr.Flow("rounded")
    flow.sink("out", flow.table("rows", float).select(rounded=col.value.round(2)))
    body = parsed(flow)
    columns = body.nodes[1].operator.members[0].value.sequence.items[0].sequence
    columns.items[1].expr.terms[1].call.options[0].integer = digits
    refused(body)


def test_decimals_cannot_be_huge() -> None:
    flow = hr.Flow("decimals")
    flow.sink("out", flow.table("rows", int).filter(col.value > 1))
    for text in ("1e999999999", "1e-999999999", "9" * 5000, "NaN", "sNaN", "Infinity", "x"):
        body = parsed(flow)
        terms(body)[1].literal.value.decimal = text
        refused(body)


def test_numbers_of_one_hash_cannot_keep_who_reads_them_busy() -> None:
    colliding = [at * sys.hash_info.modulus for at in range(8, 100)]
    decimals = [pb.Term(literal=pb.LiteralTerm(value=pb.Value(decimal=str(each)))) for each in colliding]
    call = pb.Term(call=pb.CallTerm(function="is_in", arguments=1 + len(decimals)))
    price = pb.Term(column=pb.ColumnTerm(name="price"))
    schema = Schema((Field("price", DecimalType(38, 0)),))
    with pytest.raises(BadPlan, match="one hash"):
        predicate_of(pb.Expr(terms=[price, *decimals, call]).SerializeToString(deterministic=True), schema)

    body = doubled()
    large = [each.to_bytes(9, "big", signed=True) for each in colliding if each >= 2**63]
    items = pb.Values(items=[pb.Value(large_integer=each) for each in large])
    body.nodes[1].operator.members[0].value.CopyFrom(pb.Value(set=items))
    assert "one hash" in refused(body).what


def test_a_time_that_is_moved_on_ever_more_ways_is_timed_no_longer() -> None:
    flow = hr.Flow("ways")
    rows = flow.source("rows", int).watermark(col.value, lateness=1)
    for hours in range(1, 40):
        rows = rows.union(rows.select(value=col.value + hours))
    flow.sink("out", rows.distinct())
    body = parsed(flow)
    assert [n.operator.name for n in body.nodes][-2:] == ["operator.distinct", "operator.sink"]
    assert max(len(bounds) for times in flow.times for bounds in times.values()) == MAX_BOUNDS
