"""Claims are tried, not trusted: what holds passes, what does not is told with few small rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace import col
from headrace.analysis.claim_examples import find_list, pools
from headrace.analysis.claims import try_claims
from headrace.errors import BrokenClaim
from headrace.expr.row_classes import from_user, schema_of
from headrace.lattice import Max, Merging, SetUnion
from headrace.testing import check_claims
from tests.cli.conftest import Run
from tests.golden import assert_golden

AnyStream = hr.Stream[Any, Any, Any, Any]
HERE = Path(__file__).parent


class Sale(NamedTuple):
    shop: str
    price: int
    rate: float | None = None


def flow_of(build: Callable[[AnyStream], AnyStream], rows: Any = int) -> hr.Flow:
    flow = hr.Flow("claims", ticks="given")
    flow.sink("out", build(flow.source("rows", rows)))
    return flow


RIGHT: dict[str, tuple[Callable[[AnyStream], AnyStream], Any]] = {
    "sum": (lambda n: n.fold(0, lambda sum, x: sum + x, commutative=True), int),
    "sum per tick": (lambda n: n.fold(0, lambda sum, x: sum + x, commutative=True, lifetime="tick"), int),
    "greatest": (lambda n: n.reduce(max, commutative=True, idempotent=True, monotone=True), int),
    "least": (lambda n: n.reduce(min, commutative=True, idempotent=True), int),
    "set": (
        lambda n: n.fold(frozenset, lambda s, x: s | {x}, commutative=True, idempotent=True, monotone=True),
        object,
    ),
    "list": (lambda n: n.fold(list, lambda s, x: sorted([*s, x]), commutative=True, returns=list[int]), int),
    "count per shop": (
        lambda s: s.fold_keyed("shop", 0, lambda n, sale: n + 1, commutative=True, monotone=True),
        Sale,
    ),
    "rows of one key are alike in it": (
        lambda s: s.fold_keyed("shop", "", lambda shop, sale: sale.shop, commutative=True, idempotent=True),
        Sale,
    ),
    "value of an expression": (
        lambda s: s.fold_keyed(
            "shop", 0, max, value=col.price * col.price, commutative=True, idempotent=True, monotone=True
        ),
        Sale,
    ),
    "values that may be null": (
        lambda s: s.reduce_keyed("shop", lambda a, b: b if a is None else a, value="rate", monotone=False),
        Sale,
    ),
    "lattice": (lambda n: n.lattice_fold(Max()), int),
    "lattice per tick": (lambda n: n.lattice_fold(SetUnion(), lifetime="tick"), object),
    "lattice per tick that begins with null": (lambda n: n.lattice_reduce(Max(), lifetime="tick"), int),
    "lattice of any value": (lambda n: n.lattice_reduce(SetUnion()), object),
    "lattice of a state": (lambda n: n.state(Merging(None, max)), int),
}
WRONG: dict[str, tuple[Callable[[AnyStream], AnyStream], Any, str]] = {
    "difference": (lambda n: n.fold(0, lambda a, x: x - a, commutative=True), int, "commutative"),
    "float sum": (lambda n: n.fold(0.0, lambda a, x: a + x, commutative=True), float, "commutative"),
    "least of floats, one of which is NaN": (lambda n: n.reduce(min, commutative=True), float, "commutative"),
    "text": (lambda n: n.fold("", lambda a, x: a + x, commutative=True), str, "commutative"),
    "last": (lambda n: n.reduce(lambda a, b: b, idempotent=True), int, "idempotent"),
    "count": (lambda n: n.fold(0, lambda n, x: n + 1, idempotent=True), object, "idempotent"),
    "sum of any sign": (lambda n: n.fold(0, lambda a, x: a + x, monotone=True), int, "monotone"),
    "raises in one order": (
        lambda n: n.fold(1, lambda a, x: x + 1 // a if x else a, commutative=True),
        int,
        "commutative",
    ),
    "lattice": (lambda n: n.lattice_fold(Merging(0, lambda a, b: a + b)), int, "<lambda> is a lattice"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_rightly_claimed_holds_on_examples(name: str) -> None:
    build, rows = RIGHT[name]
    assert all(tried.examples > 20 for tried in check_claims(flow_of(build, rows)))


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrongly_claimed_is_refuted_by_few_rows(name: str) -> None:
    build, rows, claim = WRONG[name]
    flow = flow_of(build, rows)
    with pytest.raises(BrokenClaim):
        check_claims(flow)
    (tried,) = try_claims(flow)
    assert (tried.claim, str(tried)) == (claim, f"{tried.operator}: {claim}: does not hold")
    found = getattr(tried.broken, "rows", None) or [getattr(tried.broken, "values", ())]
    assert all(len(items) <= 4 for items in found)


def test_a_flow_without_claims_has_nothing_to_try() -> None:
    assert check_claims(flow_of(lambda n: n.fold(0, lambda a, x: a + x).filter(col.value > 1))) == []


def test_rows_may_be_given_where_no_others_will_do() -> None:
    class Parcel:
        def __init__(self, weight: int) -> None:
            self.weight = weight

    def build(parcels: AnyStream) -> AnyStream:
        return parcels.fold(0, lambda sum, parcel: sum + parcel.weight, commutative=True, name="weight")

    flow = flow_of(build, object)
    (untried,) = check_claims(flow)
    assert (untried.examples, "not tried" in str(untried)) == (0, True)
    (tried,) = check_claims(flow, rows={"weight": [Parcel(1), Parcel(2)]})
    assert tried.examples > 100


class Wide(NamedTuple):
    a: int | None
    b: list[Sale]
    c: bool
    d: object


@pytest.mark.parametrize("rows", [int, object, Sale, Wide, list[int]])
def test_rows_that_are_tried_are_rows_of_the_type(rows: Any) -> None:
    schema = schema_of(rows)
    for pool in pools(schema):
        assert len(from_user(schema, what="rows")(pool)) == len(pool) >= 5


def test_the_counterexample_is_short_and_simple() -> None:
    assert find_list(range(100), lambda items: sum(items) > 9 and len(items) > 2, 1, 6) == [0, 0, 10]


CLAIMS = """
import headrace as hr
from headrace.lattice import Max, Merging

flow = hr.Flow("claims")
n = flow.source("n", int)
flow.sink("sum", n.fold(0, lambda sum, x: sum + x, commutative=True, monotone=True, name="sum"))
flow.sink("once", n.fold(0, lambda all, x: all + x, idempotent=True, name="once"))
flow.sink("order", n.reduce(lambda a, b: a - b, commutative=True, name="order"))
flow.sink("top", n.lattice_fold(Max(), name="top"))
flow.sink("mean", n.lattice_fold(Merging(0, lambda a, b: (a + b) // 2), name="mean"))
"""


def test_the_command_prints_a_line_per_claim_and_what_refutes_it(headrace: Run, folder: Path) -> None:
    (folder / "claims.py").write_text(CLAIMS)
    done = headrace("check", "claims.py", "--claims")
    assert (done.returncode, done.stderr) == (1, "")
    assert_golden(HERE / "golden" / "claims.txt", done.stdout)


def test_the_command_is_content_with_what_holds(headrace: Run, folder: Path) -> None:
    right = "\n".join(line for line in CLAIMS.splitlines() if "name=" not in line or "top" in line)
    (folder / "right.py").write_text(right)
    done = headrace("check", "right.py", "--claims", "--examples", "10")
    assert (done.returncode, done.stdout) == (
        0,
        "top: Max is a lattice: holds on 50 examples\n1 file checked, 1 claim tried, 0 broken: no findings\n",
    )
    done = headrace("check", "flows:flow", "--claims")
    assert done.stdout == "1 file checked, no claims made: no findings\n"
