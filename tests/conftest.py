"""What all tests share: Hypothesis profiles, the folder of shared data, one Spark session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.postgres_server import Postgres, binaries, postgres_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[1]

# A failure prints the blob that reproduces it. In CI the examples are the same on every run, so that a
# change never fails for an example that an earlier one was spared; at home they are new every time.
_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("home", deadline=None, print_blob=True, suppress_health_check=_SLOW)
settings.register_profile("ci", settings.get_profile("home"), derandomize=True, database=None)
settings.register_profile("thorough", settings.get_profile("home"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "home"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with real data and conformance files: PENSTOCK_SHARED, or `shared` beside the repository."""
    folder = Path(os.environ.get("PENSTOCK_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"no shared data at {folder} (PENSTOCK_SHARED names another folder)")
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
    import penstock.spark

    session = penstock.spark.session(app_name="penstock tests")
    yield session
    session.stop()
