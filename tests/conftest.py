"""What all tests share: Hypothesis profiles, seeds, the folder of shared data, a Spark session."""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, core, settings
from hypothesis.internal.conjecture import providers

from headrace.testing.pull import module_checks
from tests.postgres_server import Postgres, binaries, postgres_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[1]
FRESH = os.environ.get("HEADRACE_FUZZ_SEED")
"""The first of the seeds of this run, from which Hypothesis draws too; None where a run is as all others."""

# A failure prints the blob that reproduces it.
_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "same",
    max_examples=40,
    deadline=None,
    print_blob=True,
    suppress_health_check=_SLOW,
    derandomize=True,
    database=None,
)
settings.register_profile("fresh", settings.get_profile("same"), derandomize=False, max_examples=300)
settings.register_profile("thorough", settings.get_profile("fresh"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fresh" if FRESH else "same"))

if settings().derandomize:
    # Hypothesis draws from the constants in the code of a project too, of the modules that happen to be
    # imported: what a test draws would depend on which ones ran before it, and on the name of the checkout.
    providers._get_local_constants = lambda constants=providers.Constants(): constants
if FRESH:
    core.global_force_seed = module_checks.FIRST_SEED = int(FRESH)


SKIPPED_IN_CI = {
    r"refused, as it should be|the oracle knows|it reads order": "the backend doesn't do this, by design",
    r"a store in memory is of one process|there is one file of this kind": "no case of this test",
    r"the connector is on the class path": "the test is about its absence",
    r"needs Spark's connector for Kafka and a broker": "Debian and PyPI have no broker",
    r"no shared data": "it is no part of the project",
}
"""Reasons to skip a test in CI, as patterns, with what excuses them. Any other skip fails there: what a test
needs is installed by `.ci/run` and requirements/dev.txt."""


def refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if os.environ.get("CI") != "true" or report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return
    reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
    if not any(re.search(pattern, reason) for pattern in SKIPPED_IN_CI):
        report.outcome = "failed"
        report.longrepr = f"{reason}\nA failure in CI: install what is missing, or excuse it in {__file__}."


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    refuse_skip(report)
    return report


# A test that calls one of these draws too, without a decorator that would tell.
_DRAWS = {"check_source", "check_transformer", "check_sink", "run_state_machine_as_test"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and _DRAWS & set(item.function.__code__.co_names):
            item.add_marker("seeds")
    if "PYTEST_XDIST_WORKER" in os.environ:
        # Files are dealt out in this order. Those with Spark take longest; the last ones should be short.
        with_spark = {item.path for item in items if item.get_closest_marker("spark")}
        items.sort(key=lambda item: item.path not in with_spark)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Gives a test marked `seeds(count)` its `seed`, or with `together=` its `seeds`, so many at a time.

    verify_from: from this one on they are for `make verify`.
    """
    marker = metafunc.definition.get_closest_marker("seeds")
    if marker is None or not marker.args:
        return
    first, (count,) = int(FRESH or 0), marker.args
    long = first + marker.kwargs.get("verify_from", count)

    def given(what: Any, at: int) -> Any:
        return pytest.param(what, marks=[pytest.mark.verify] if at >= long else [])

    if together := marker.kwargs.get("together"):
        parts = [range(at, min(at + together, first + count)) for at in range(first, first + count, together)]
        ids = [f"{part.start} to {part.stop - 1}" for part in parts]
        metafunc.parametrize("seeds", [given(part, part.start) for part in parts], ids=ids)
    else:
        metafunc.parametrize("seed", [given(seed, seed) for seed in range(first, first + count)])


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with real data and conformance files: HEADRACE_SHARED, or `shared` beside the repository."""
    folder = Path(os.environ.get("HEADRACE_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"no shared data at {folder} (HEADRACE_SHARED names another folder)")
    return folder


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server of this test run."""
    pytest.importorskip("pg8000", reason="pg8000 is not installed")
    programs = binaries()
    if programs is None:
        pytest.skip("no PostgreSQL server is installed (Debian: apt-get install postgresql)")
    with postgres_server(programs) as server:
        yield server


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of a test run."""
    import headrace.spark

    session = headrace.spark.session(app_name="headrace tests")
    yield session
    session.stop()
