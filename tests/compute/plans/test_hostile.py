"""Plans that nobody's flow made: each is refused with the part that is wrong, and nothing of it is run."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from headrace import col, lit
from headrace.compute.errors import BadPlan, CallableRefused
from headrace.compute.plans import decode, encode
from headrace.compute.plans.generated import plan_pb2 as pb
from headrace.compute.protocol.commands import PlanBytes
from headrace.flow.flow import Flow
from tests.compute.plans.forging import RAN, doubled, plan_of, refused, terms
from tests.compute.plans.mutations import HOSTILE_TEXTS
from tests.compute.plans.test_round_trip import averages

# --- code in disguise ------------------------------------------------------------------


def acceptable(text: str) -> bool:
    return bool(text) and len(text) <= 1000 and all(c >= " " for c in text)


@pytest.mark.parametrize("name", list(filter(acceptable, HOSTILE_TEXTS)), ids=repr)
def test_whatever_things_are_called_is_never_code(name: str) -> None:
    def flow(name: str) -> Flow:
        flow = hr.Flow(name)
        left = flow.table(name, int).select(**{name: col.value, "other": col.value + 1})
        right = flow.table(f"{name}2", int).select(**{name: col.value, "text": lit(name)})
        joined = left.join(right, on=name)
        grouped = joined.group_by(name).agg(**{f"{name}'": hr.max(col[name]), "all": hr.collect(col.text)})
        flow.sink(name, grouped.filter(col[name] > 0).distinct())
        flow.sink(f"{name}2", joined.top_k(2, by=[col[name].desc()], per=["other"]))
        return flow

    def answers(flow: Flow, name: str, *values: int) -> list[list[Any]]:
        inputs: dict[str, Any] = {name: [hr.insert(v) for v in values], f"{name}2": [hr.insert(values[0])]}
        return [[tuple(row) for row, _ in changes] for changes in hr.Engine(flow).tick(**inputs).values()]

    grouped, best = answers(decode(encode(flow(name))), name, 1, 2)
    assert grouped == [(1, 1, [name])]
    assert best == [(1, 2, name)]


@pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=repr)
def test_constants_are_never_code(text: str) -> None:
    flow = hr.Flow("constants")
    rows = flow.table("rows", str)
    flow.sink("out", rows.filter((col.value == text) | col.value.is_in(text, "b")).select(same=lit(text)))
    again = decode(encode(flow))
    ((row, _),) = hr.Engine(again).tick(rows=[hr.insert(text), hr.insert("no")])["out"]
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
    terms(body)[0].column.name = "price"


def read_a_side(body: pb.Body) -> None:
    terms(body)[0].column.side = "left"


def call_with_too_few(body: pb.Body) -> None:
    terms(body)[2].call.arguments = 1


def call_with_more_than_there_are(body: pb.Body) -> None:
    terms(body)[2].call.arguments = 2**32 - 1


def give_an_option_to_what_has_none(body: pb.Body) -> None:
    terms(body)[2].call.options.add().integer = 10**6


def leave_terms_over(body: pb.Body) -> None:
    terms(body).insert(0, terms(body)[0])


def say_nothing(body: pb.Body) -> None:
    del terms(body)[:]


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
            decode(PlanBytes(octets))


def test_bytes_that_are_no_plan_are_refused() -> None:
    for octets in (b"", b"\0", b"\xff" * 50, b"plan", encode(averages()).body[:-3]):
        with pytest.raises(BadPlan):
            decode(PlanBytes(octets))


def test_names_for_people_are_shown_on_one_line() -> None:
    plan = encode(averages())
    places = pb.Places.FromString(plan.places)
    places.flow, places.places[3].name = "a\nb\x1b[2J", "c\r\n" + "d" * 10_000
    flow = decode(PlanBytes(plan.body, places.SerializeToString()))
    assert flow.name == "ab[2J"
    assert len(flow.nodes[3].name) < 300
    assert flow.nodes[3].name.isprintable()


def test_places_decide_nothing_and_files_named_there_are_not_read() -> None:
    places = pb.Places(flow="evil", files=["/etc/passwd"], places=[pb.Place(line=1, name="s")] * 20)
    with pytest.raises(BadPlan) as error:
        decode(PlanBytes(encode(averages()).body, places.SerializeToString()))
    assert "two operators" in str(error.value)
    assert "root" not in str(error.value)
    assert "<passwd>" in str(error.value)
