"""`make test` runs everything but what `make verify` runs, and the same way each time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import settings

from tests.conftest import refuse_skip

ROOT = Path(__file__).resolve().parents[2]

DRAWS = """
import sys
from hypothesis import given, strategies as st
import tests.conftest
sys.path.append(sys.argv[1])
if sys.argv[2:]:
    import more_code

drawn = []
given(st.integers() | st.text())(lambda value: drawn.append(value))()
print(drawn)
"""


def recipe(target: str) -> str:
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert found, target
    return found[1].strip()


def test_make_test_leaves_out_the_tests_of_make_verify_and_no_others() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert recipe("test") == '$(PYTEST) -m "not verify"'
    assert recipe("verify") == '$(PYTEST) -m "$(VERIFY)"'
    assert "\nVERIFY := verify\n" in makefile
    everything = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    for words in (makefile, *everything["addopts"]):
        assert not re.search(r"--(deselect|ignore|last-failed|failed-first|exitfirst)|-k ", words)
    assert {"src/headrace", "examples", "tests"} <= set(everything["testpaths"])
    assert everything["filterwarnings"] == ["error"]


def test_ci_runs_the_checks_the_tests_and_what_fits_of_the_long_ones() -> None:
    assert re.findall(r"make .*", (ROOT / ".ci" / "run").read_text())[-2:] == [
        "make check docs test </dev/null",
        'make verify VERIFY="verify and not verify(ci=False)" </dev/null',
    ]


@pytest.mark.parametrize(
    ("in_ci", "reason", "outcome"),
    [
        ("true", "Skipped: no Chromium is installed", "failed"),
        ("true", "Skipped: could not import 'polars'", "failed"),
        ("true", "Skipped: refused, as it should be: signals", "skipped"),
        ("", "Skipped: no Chromium is installed", "skipped"),
    ],
)
def test_a_skip_for_want_of_a_package_fails_in_ci(
    in_ci: str, reason: str, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", in_ci)
    at = ("test_x.py", 1, reason)
    for report in (
        pytest.TestReport("x", at, {}, "skipped", at, "setup"),
        pytest.CollectReport("x", "skipped", at, []),
    ):
        refuse_skip(report)
        assert report.outcome == outcome
        assert reason in str(report.longrepr)


def test_a_marker_is_registered_or_an_error(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.getoption("strict_markers")
    registered = {line.partition(":")[0].partition("(")[0] for line in pytestconfig.getini("markers")}
    assert {"spark", "seeds", "verify"} <= registered


@pytest.mark.skipif("HEADRACE_FUZZ_SEED" in os.environ, reason="a search is another way each time")
def test_examples_are_the_same_each_time_and_nothing_is_remembered() -> None:
    assert settings().derandomize
    assert settings().database is None


def test_examples_do_not_depend_on_the_code_that_is_imported(tmp_path: Path) -> None:
    """Hypothesis takes constants from it, unless it is told not to."""
    (tmp_path / "more_code.py").write_text("\n".join(f"a{n}, b{n} = 7{n}7, 'word {n}'" for n in range(99)))
    environment = {key: value for key, value in os.environ.items() if key != "HEADRACE_FUZZ_SEED"}
    drawn = [
        subprocess.run(
            [sys.executable, "-c", DRAWS, str(tmp_path), *more],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for more in ([], ["more"])
    ]
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) > 500
