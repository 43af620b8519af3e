"""The cases of the compute protocol: run, or stood for by a test, or left out for a reason."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.compute.conformance.table import (
    CONTROLLER,
    LOGIC,
    PROTOCOL_AND_TRANSPORT,
    REPLICA,
    TESTED,
    WITHOUT_TEST,
)
from tests.conformance.case_format import Outcome
from tests.conformance.runner import run_file

TESTS = Path(__file__).parents[1]


def outcomes(shared: Path) -> list[Outcome]:
    return run_file("compute", shared / "conformance" / "compute.json")


def test_every_case_in_words_has_a_test_or_a_reason(shared: Path) -> None:
    in_words = {outcome.name for outcome in outcomes(shared) if outcome.in_words}
    assert in_words - TESTED.keys() - WITHOUT_TEST.keys() == set()


def test_the_table_names_only_cases_that_are_told_in_words(shared: Path) -> None:
    in_words = {outcome.name for outcome in outcomes(shared) if outcome.in_words}
    assert (TESTED.keys() | WITHOUT_TEST.keys()) - in_words == set()


def test_no_case_stands_in_the_table_twice() -> None:
    assert len(TESTED) == sum(map(len, (LOGIC, PROTOCOL_AND_TRANSPORT, CONTROLLER, REPLICA)))
    assert TESTED.keys() & WITHOUT_TEST.keys() == set()
    assert all(WITHOUT_TEST.values())


def test_the_tests_of_the_table_exist() -> None:
    missing = {case: test for case, test in TESTED.items() if not exists(test)}
    assert missing == {}


def exists(test: str) -> bool:
    file, _, function = test.partition("::")
    path = TESTS / file
    return path.is_file() and bool(
        re.search(rf"^(?:async )?def {re.escape(function)}\(", path.read_text(), re.MULTILINE)
    )


def test_the_cases_that_are_data_are_run(shared: Path) -> None:
    cases = json.loads((shared / "conformance" / "compute.json").read_text())
    data = {case["name"] for case in cases if case.get("oracle_checked")}
    run = {outcome.name for outcome in outcomes(shared) if outcome.ok}
    assert data - run - WITHOUT_TEST.keys() == set()
