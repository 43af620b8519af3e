"""Every case of the conformance file that is described in words has a test, or a reason to have none."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

from tests.pull.described import LEFT_OUT, TESTED

BEHAVIOURS = Path(__file__).with_name("behaviours")


def load_all() -> None:
    for file in sorted(BEHAVIOURS.glob("test_*.py")):
        importlib.import_module(f"tests.pull.behaviours.{file.stem}")


def described(shared: Path) -> set[str]:
    cases = json.loads((shared / "conformance" / "pull.json").read_text())
    return {case["name"] for case in cases if case["kind"] != "trace"}


def test_every_described_case_has_a_test_or_a_reason(shared: Path) -> None:
    load_all()
    assert described(shared) - TESTED.keys() - LEFT_OUT.keys() == set()


def test_every_name_is_that_of_a_described_case(shared: Path) -> None:
    load_all()
    assert (TESTED.keys() | LEFT_OUT.keys()) - described(shared) == set()


def test_what_has_a_test_is_not_left_out() -> None:
    load_all()
    assert TESTED.keys() & LEFT_OUT.keys() == set()
    assert all(LEFT_OUT.values())
