"""Files of cases: those of the systems that Headrace follows, and our own, which every operator is in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.flow_builder import BUILDERS
from tests.conformance.operator_signatures import SIGNATURES
from tests.conformance.runner import KINDS, run_file
from tests.golden import assert_golden

CASES = Path(__file__).parent / "cases"


def problems(kind: str, path: Path) -> dict[str, str]:
    return {outcome.name: outcome.problem for outcome in run_file(kind, path) if outcome.failed}


def operators(name: str) -> set[str]:
    cases: list[dict[str, Any]] = json.loads((CASES / name).read_text())
    return {node["op"] for case in cases for node in case["nodes"].values()}


@pytest.mark.parametrize("kind", KINDS)
def test_all_cases_of_the_systems_that_headrace_follows_pass(kind: str, shared: Path) -> None:
    assert problems(kind, shared / "conformance" / f"{kind}.json") == {}


@pytest.mark.parametrize(
    ("kind", "file"),
    [
        ("ticks", "ticks"),
        ("ticks", "cycles"),
        ("errors", "errors"),
        ("propagation", "propagation"),
        ("pull", "pull"),
        ("compute", "compute"),
    ],
)
def test_our_own_cases_pass(kind: str, file: str) -> None:
    assert problems(kind, CASES / f"{file}.json") == {}


def test_every_operator_has_a_signature_a_builder_and_a_case() -> None:
    assert set(SIGNATURES) == set(BUILDERS)
    assert set(BUILDERS) - operators("ticks.json") - {"source", "sink"} == set()


@pytest.mark.parametrize("kind", ["ticks", "errors", "propagation", "pull", "compute"])
def test_a_case_that_fails_says_what_was_expected_and_what_was_found(kind: str) -> None:
    path = CASES / f"failing_{kind}.json"
    found = problems(kind, path)
    assert set(found) == {case["name"] for case in json.loads(path.read_text())}, "every one must fail"
    text = "".join(f"{name}: {problem}\n" for name, problem in found.items())
    assert_golden(path.with_suffix(".txt"), text)


@pytest.mark.parametrize("kind", ["pull", "compute"])
def test_a_case_in_words_is_told_apart_and_is_never_ok(kind: str) -> None:
    *run, last = run_file(kind, CASES / f"{kind}.json")
    assert all(outcome.ok and not outcome.in_words for outcome in run)
    assert (last.name, last.ok, last.failed, last.in_words) == ("told in words", False, False, True)
