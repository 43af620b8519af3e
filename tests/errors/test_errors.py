"""Every mistake that a user can make while building a flow, with the whole text of its error.

`cases/x.py` is the mistake, `cases/x.txt` beside it what the user is told.
"""

from __future__ import annotations

import pickle
import runpy
from pathlib import Path

import pytest

from headrace.errors import HeadraceError
from tests.golden import assert_golden

CASES = sorted((Path(__file__).parent / "cases").glob("*.py"))


def mistake(case: Path) -> HeadraceError:
    with pytest.raises(HeadraceError) as error:
        runpy.run_path(str(case))
    return error.value


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_the_error_reads_as_it_should(case: Path) -> None:
    assert_golden(case.with_suffix(".txt"), f"{mistake(case)}\n")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_the_error_points_at_lines_of_the_user_alone(case: Path) -> None:
    where = mistake(case).where
    assert where
    assert {step.location.file for step in where} == {str(case)}
    assert all(step.location.text for step in where)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_the_error_says_what_to_do(case: Path) -> None:
    assert mistake(case).fix


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_the_error_survives_a_journey_between_processes(case: Path) -> None:
    error = mistake(case)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.facts) == (type(error), str(error), error.facts)


def test_no_text_is_left_without_its_mistake() -> None:
    texts = {path.stem for path in CASES[0].parent.glob("*.txt")}
    assert texts == {case.stem for case in CASES}
