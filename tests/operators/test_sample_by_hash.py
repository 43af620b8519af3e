"""A sample by hash: the same on every engine, in every run, and of rows that come and go."""

from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace import col
from headrace.errors import HeadraceError


class Visit(NamedTuple):
    user: int
    page: str


VISITS = [Visit(user, page) for user in range(400) for page in ("home", "cart")]


def _sampled(**options: Any) -> set[Visit]:
    flow = hr.Flow("sampled")
    flow.sink("kept", flow.source("visits", Visit).sample_by_hash(**options))
    return {change.row for change in hr.Engine(flow).tick(visits=VISITS)["kept"]}


def test_about_a_fraction_of_the_keys_is_kept_with_all_their_rows() -> None:
    kept = _sampled(fraction=0.25, by="user")
    users = {visit.user for visit in kept}
    assert kept == {visit for visit in VISITS if visit.user in users}
    assert 70 <= len(users) <= 130


def test_a_smaller_sample_is_part_of_a_larger_one_and_seeds_choose_others() -> None:
    small, large = _sampled(fraction=0.1), _sampled(fraction=0.4)
    assert small < large
    assert _sampled(fraction=0.4, seed=1) != large
    assert (_sampled(fraction=0), _sampled(fraction=1)) == (set(), set(VISITS))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"fraction": 1.5}, "a fraction from 0 to 1, got 1.5"),
        ({"fraction": -0.1}, "a fraction from 0 to 1, got -0.1"),
        ({"fraction": float("nan")}, "a fraction from 0 to 1, got nan"),
        ({"fraction": True}, "a fraction from 0 to 1, got True"),
        ({"fraction": "10 %"}, "a fraction from 0 to 1, got '10 %'"),
        ({"fraction": 0.5, "seed": 0.5}, "a whole number as seed, got 0.5"),
        ({"fraction": 0.5, "seed": 2**63}, "a whole number as seed"),
        ({"fraction": 0.5, "by": "usr"}, "no column 'usr'"),
        ({"fraction": 0.5, "by": [1]}, "needs an expression, got 1"),
        ({"fraction": 0.5, "by": hr.max(col.user)}, "needs an expression, got the aggregate"),
    ],
)
def test_a_mistake_is_refused_where_it_stands(options: dict[str, Any], what: str) -> None:
    visits = hr.Flow("mistaken").table("visits", Visit)
    with pytest.raises(HeadraceError, match=what) as refused:
        visits.sample_by_hash(**options)
    assert refused.value.where[0].location.file == __file__
    assert refused.value.fix


def test_a_column_of_any_type_has_no_hash() -> None:
    with pytest.raises(HeadraceError, match="has no hash that is the same everywhere"):
        hr.Flow("any").source("things", object).sample_by_hash(0.5)
