"""Plans that nobody's flow made: each is refused with the part that is wrong, and nothing of it is run."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps
from penstock import col, lit
from penstock.compute.errors import BadPlan, CallableRefused, ComputeError, MessageTooLarge
from penstock.compute.plans import LIMITS, PlanLimits, decode, encode, predicate_of, schema_from_bytes
from penstock.compute.plans.generated import plan_pb2 as pb
from penstock.compute.protocol.dataflow import Plan
from penstock.expr.types import DecimalType, Field, Schema
from penstock.flow.event_time import MOST_BOUNDS
from penstock.flow.flow import Flow
from tests.compute.plans.mutations import HOSTILE_TEXTS
from tests.compute.plans.test_round_trip import averages

RAN: list[object] = []


def plan_of(body: pb.Body) -> Plan:
    return Plan(body.SerializeToString(deterministic=True))


def parsed(flow: Flow) -> pb.Body:
    return pb.Body.FromString(encode(flow).body)


def refused(body: pb.Body) -> ComputeError:
    with pytest.raises((BadPlan, MessageTooLarge)) as error:
        decode(plan_of(body))
    assert not RAN
    return error.value


def doubled() -> pb.Body:
    """numbers -> filter -> select -> sink"""
    flow = ps.Flow("doubled")
    numbers = flow.table("numbers", int).filter(col.value > 1)
    flow.sink("out", numbers.select(twice=col.value * 2))
    return parsed(flow)


# --- code in disguise ------------------------------------------------------------------


def acceptable(text: str) -> bool:
    return bool(text) and len(text) <= 1000 and all(c >= " " for c in text)


@pytest.mark.parametrize("name", list(filter(acceptable, HOSTILE_TEXTS)), ids=repr)
def test_whatever_things_are_called_is_never_code(name: str) -> None:
    def flow(name: str) -> Flow:
        flow = ps.Flow(name)
        left = flow.table(name, int).select(**{name: col.value, "other": col.value + 1})
        right = flow.table(f"{name}2", int).select(**{name: col.value, "text": lit(name)})
        joined = left.join(right, on=name)
        grouped = joined.group_by(name).agg(**{f"{name}'": ps.max(col[name]), "all": ps.collect(col.text)})
        flow.sink(name, grouped.filter(col[name] > 0).distinct())
        flow.sink(f"{name}2", joined.top_k(2, by=[col[name].desc()], per=["other"]))
        return flow

    def answers(flow: Flow, name: str, *values: int) -> list[list[Any]]:
        inputs: dict[str, Any] = {name: [ps.insert(v) for v in values], f"{name}2": [ps.insert(values[0])]}
        return [[tuple(row) for row, _ in changes] for changes in ps.Engine(flow).tick(**inputs).values()]

    grouped, best = answers(decode(encode(flow(name))), name, 1, 2)
    assert grouped == [(1, 1, [name])]
    assert best == [(1, 2, name)]


@pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=repr)
def test_constants_are_never_code(text: str) -> None:
    flow = ps.Flow("constants")
    rows = flow.table("rows", str)
    flow.sink("out", rows.filter((col.value == text) | col.value.is_in(text, "b")).select(same=lit(text)))
    again = decode(encode(flow))
    ((row, _),) = ps.Engine(again).tick(rows=[ps.insert(text), ps.insert("no")])["out"]
    assert tuple(row) == (text,)


class Trap:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return RAN.append, ("it ran",)


def test_pickles_are_not_opened_where_functions_are_not_allowed() -> None:
    body = doubled()
    body.functions = pickle.dumps([Trap()])
    with pytest.raises(CallableRefused):
        decode(plan_of(body))
    assert not RAN


def test_pickles_that_nothing_uses_are_refused_where_functions_are_allowed() -> None:
    body = doubled()
    body.functions = pickle.dumps([1])
    with pytest.raises(BadPlan):
        decode(plan_of(body), allow_callables=True)


# --- what is not known -------------------------------------------------------------------


def change_operator(body: pb.Body) -> None:
    body.nodes[1].operator.name = "os.system"


def change_function(body: pb.Body) -> None:
    body.nodes[2].operator.members[0].value.sequence.items[0].sequence.items[1].expr.terms[
        2
    ].call.function = "__import__"


def change_field(body: pb.Body) -> None:
    body.nodes[1].operator.members[0].name = "__class__"


def name_twice(body: pb.Body) -> None:
    body.nodes[1].operator.members.append(body.nodes[1].operator.members[0])


def change_type(body: pb.Body) -> None:
    body.nodes[0].schema.fields[0].type.plain = "object"


def use_a_record_as_operator(body: pb.Body) -> None:
    body.nodes[1].operator.CopyFrom(pb.Record(name="lattice.max"))


def use_a_function(body: pb.Body) -> None:
    body.nodes[1].operator.members[0].value.function = 3


def use_a_known_function(body: pb.Body) -> None:
    body.nodes[1].operator.members[0].value.known_function = "eval"


def leave_out_a_value(body: pb.Body) -> None:
    body.nodes[1].operator.members[0].value.Clear()


def leave_out_a_field(body: pb.Body) -> None:
    del body.nodes[1].operator.members[:]


def later_version(body: pb.Body) -> None:
    body.version = 2


# --- graphs that cannot be ---------------------------------------------------------------


def read_itself(body: pb.Body) -> None:
    body.nodes[1].inputs[0] = 1


def read_what_comes_later(body: pb.Body) -> None:
    body.nodes[1].inputs[0] = 2


def read_what_is_not_there(body: pb.Body) -> None:
    body.nodes[1].inputs[0] = 2**32 - 1


def read_nothing(body: pb.Body) -> None:
    del body.nodes[1].inputs[:]


def read_too_much(body: pb.Body) -> None:
    body.nodes[1].inputs.append(0)


def have_a_sink_twice(body: pb.Body) -> None:
    body.nodes.append(body.nodes[3])


def have_a_source_twice(body: pb.Body) -> None:
    body.nodes.insert(1, body.nodes[0])


def have_no_sink(body: pb.Body) -> None:
    del body.nodes[3]


# --- lies -----------------------------------------------------------------------------------


def claim_another_type(body: pb.Body) -> None:
    body.nodes[2].schema.fields[0].type.plain = "str"


def claim_that_null_cannot_be(body: pb.Body) -> None:
    body.nodes[0].schema.fields[0].nullable = True


def claim_another_name(body: pb.Body) -> None:
    body.nodes[2].schema.fields[0].name = "thrice"


def claim_another_column(body: pb.Body) -> None:
    field = body.nodes[2].schema.fields.add(name="more")
    field.type.plain = "int64"


def call_two_columns_alike(body: pb.Body) -> None:
    body.nodes[2].schema.fields.append(body.nodes[2].schema.fields[0])


def have_no_columns(body: pb.Body) -> None:
    del body.nodes[2].schema.fields[:]


def be_scalar_and_wide(body: pb.Body) -> None:
    body.nodes[0].schema.scalar = True
    body.nodes[0].schema.fields.append(pb.Field(name="b", type=pb.Type(plain="int64")))


# --- confusion -----------------------------------------------------------------------------


def give_text_for_an_expression(body: pb.Body) -> None:
    body.nodes[1].operator.members[0].value.text = "value > 1"


def give_a_schema_for_an_expression(body: pb.Body) -> None:
    body.nodes[1].operator.members[0].value.schema.CopyFrom(body.nodes[0].schema)


def filter_by_a_number(body: pb.Body) -> None:
    term = pb.Term(column=pb.ColumnTerm(name="value"))
    body.nodes[1].operator.members[0].value.expr.CopyFrom(pb.Expr(terms=[term]))


def read_an_unknown_column(body: pb.Body) -> None:
    _terms(body)[0].column.name = "price"


def read_a_side(body: pb.Body) -> None:
    _terms(body)[0].column.side = "left"


def call_with_too_few(body: pb.Body) -> None:
    _terms(body)[2].call.arguments = 1


def call_with_more_than_there_are(body: pb.Body) -> None:
    _terms(body)[2].call.arguments = 2**32 - 1


def give_an_option_to_what_has_none(body: pb.Body) -> None:
    _terms(body)[2].call.options.add().integer = 10**6


def leave_terms_over(body: pb.Body) -> None:
    _terms(body).insert(0, _terms(body)[0])


def say_nothing(body: pb.Body) -> None:
    del _terms(body)[:]


def _terms(body: pb.Body) -> Any:
    return body.nodes[1].operator.members[0].value.expr.terms


ATTACKS = [
    change_operator,
    change_function,
    change_field,
    name_twice,
    change_type,
    use_a_record_as_operator,
    use_a_function,
    use_a_known_function,
    leave_out_a_value,
    leave_out_a_field,
    later_version,
    read_itself,
    read_what_comes_later,
    read_what_is_not_there,
    read_nothing,
    read_too_much,
    have_a_sink_twice,
    have_a_source_twice,
    have_no_sink,
    claim_another_type,
    claim_that_null_cannot_be,
    claim_another_name,
    claim_another_column,
    call_two_columns_alike,
    have_no_columns,
    be_scalar_and_wide,
    give_text_for_an_expression,
    give_a_schema_for_an_expression,
    filter_by_a_number,
    read_an_unknown_column,
    read_a_side,
    call_with_too_few,
    call_with_more_than_there_are,
    give_an_option_to_what_has_none,
    leave_terms_over,
    say_nothing,
]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_a_plan_that_nobody_wrote_is_refused(attack: Callable[[pb.Body], None]) -> None:
    body = doubled()
    assert decode(plan_of(body))
    attack(body)
    error = refused(body)
    assert isinstance(error, BadPlan)
    assert isinstance(error.facts["part"], str)
    assert error.fix


def test_the_part_that_is_wrong_is_named() -> None:
    body = doubled()
    read_an_unknown_column(body)
    error = refused(body)
    assert error.facts["part"].startswith("operator 1")
    body = doubled()
    change_function(body)
    assert refused(body).facts["part"] == "operator 2, columns"


# --- too much ---------------------------------------------------------------------------------


def nested(depth: int) -> pb.Body:
    body = doubled()
    terms = _terms(body)
    for _ in range(depth):
        terms.add(call=pb.CallTerm(function="not", arguments=1))
    return body


def test_expressions_may_not_be_too_deep() -> None:
    for depth in (LIMITS.depth, 2_000, 20_000):
        assert "deep" in refused(nested(depth)).what


def test_expressions_that_python_could_not_compile_are_refused() -> None:
    body = doubled()
    for _ in range(LIMITS.depth - 5):
        _terms(body).add(literal=pb.LiteralTerm(value=pb.Value(truth=True)))
        _terms(body).add(call=pb.CallTerm(function="eq", arguments=2))
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
    flow = ps.Flow("nested")
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
    flow = ps.Flow("tags")
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
    flow = ps.Flow("rounded")
    flow.sink("out", flow.table("rows", float).select(rounded=col.value.round(2)))
    body = parsed(flow)
    columns = body.nodes[1].operator.members[0].value.sequence.items[0].sequence
    columns.items[1].expr.terms[1].call.options[0].integer = digits
    refused(body)


def test_decimals_cannot_be_huge() -> None:
    flow = ps.Flow("decimals")
    flow.sink("out", flow.table("rows", int).filter(col.value > 1))
    for text in ("1e999999999", "1e-999999999", "9" * 5000, "NaN", "sNaN", "Infinity", "x"):
        body = parsed(flow)
        _terms(body)[1].literal.value.decimal = text
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
    flow = ps.Flow("ways")
    rows = flow.source("rows", int).watermark(col.value, lateness=1)
    for hours in range(1, 40):
        rows = rows.union(rows.select(value=col.value + hours))
    flow.sink("out", rows.distinct())
    body = parsed(flow)
    assert [n.operator.name for n in body.nodes][-2:] == ["operator.distinct", "operator.sink"]
    assert max(len(bounds) for times in flow.times for bounds in times.values()) == MOST_BOUNDS


# --- one form ----------------------------------------------------------------------------------


def test_a_plan_has_one_form() -> None:
    plan = encode(averages())
    body = pb.Body.FromString(plan.body)
    unknown_field = plan.body + b"\xf8\x07\x01"  # field 127
    twice = plan.body + b"\x08\x01"  # the version, again
    body.nodes[0].operator.members.add(name="bounded").value.truth = False  # as it is anyway
    for octets in (unknown_field, twice, body.SerializeToString()):
        assert pb.Body.FromString(octets).version == 1
        with pytest.raises(BadPlan, match="form"):
            decode(Plan(octets))


def test_bytes_that_are_no_plan_are_refused() -> None:
    for octets in (b"", b"\0", b"\xff" * 50, b"plan", encode(averages()).body[:-3]):
        with pytest.raises(BadPlan):
            decode(Plan(octets))


def test_names_for_people_are_shown_on_one_line() -> None:
    plan = encode(averages())
    places = pb.Places.FromString(plan.places)
    places.flow, places.places[3].name = "a\nb\x1b[2J", "c\r\n" + "d" * 10_000
    flow = decode(Plan(plan.body, places.SerializeToString()))
    assert flow.name == "ab[2J"
    assert len(flow.nodes[3].name) < 300
    assert flow.nodes[3].name.isprintable()


def test_places_decide_nothing_and_files_named_there_are_not_read() -> None:
    places = pb.Places(flow="evil", files=["/etc/passwd"], places=[pb.Place(line=1, name="s")] * 20)
    with pytest.raises(BadPlan) as error:
        decode(Plan(encode(averages()).body, places.SerializeToString()))
    assert "two operators" in str(error.value)
    assert "root" not in str(error.value)
    assert "<passwd>" in str(error.value)
