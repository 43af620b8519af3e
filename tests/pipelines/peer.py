"""The example as a project of PySpark's own `spark-pipelines`, which `headrace pipeline` is compared with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PATH = "HEADRACE_SPARK_PIPELINES"
"""Variable with the path of a `spark-pipelines` that can run; without it, the one beside this Python."""

PACKAGES = {
    "google.rpc": "googleapis-common-protos",
    "grpc": "grpcio",
    "grpc_status": "grpcio-status",
    "pandas": "pandas",
    "pyarrow": "pyarrow",
    "yaml": "PyYAML",
    "zstandard": "zstandard",
}
"""Packages that `pyspark[pipelines]` needs, by module."""

_MISSING = f"""
import importlib.util
for module, package in {PACKAGES}.items():
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        found = None
    if found is None:
        print(package)
"""

CUSTOMERS = """
CREATE MATERIALIZED VIEW customers AS SELECT id, name, city FROM (
    SELECT *, row_number() OVER (PARTITION BY id ORDER BY version DESC) AS place FROM bronze_customers
) WHERE place = 1 AND op <> 'D';

CREATE MATERIALIZED VIEW customer_versions AS
SELECT id, name, city, version AS __START_AT, following AS __END_AT FROM (
    SELECT *, lead(version) OVER (PARTITION BY id ORDER BY version) AS following FROM (
        SELECT *, lag(struct(op, name, city)) OVER (PARTITION BY id ORDER BY version) AS before
        FROM bronze_customers
    ) WHERE NOT before <=> struct(op, name, city)
) WHERE op <> 'D';
"""
"""Views that compute the AUTO CDC tables, which fail there on the formats that Spark ships."""

WITH_COLUMNS = 'kept.withColumn("day", F.to_date("at")).withColumn("note", F.trim("note"))'
SELECTED = (
    'kept.select("id", "customer", "cents", "at", F.trim("note").alias("note"), F.to_date("at").alias("day"))'
)
"""A query of `orders` that keeps its dependency there: by `withColumn` a second run misses the new orders."""

CONFIGURATION = """
configuration:
  spark.sql.session.timeZone: UTC
  spark.sql.parquet.outputTimestampType: TIMESTAMP_MICROS
"""


@dataclass(frozen=True)
class Peer:
    """`spark-pipelines` at a path, beside the Python that it is installed for."""

    path: Path

    @classmethod
    def there(cls) -> Peer:
        given = os.environ.get(PATH)
        return cls(Path(given) if given else Path(sys.executable).with_name("spark-pipelines"))

    @property
    def python(self) -> Path:
        return self.path.with_name("python")

    @property
    def command(self) -> Sequence[str]:
        # In its default catalogue, which is in memory, a project cannot run twice.
        return [str(self.path), "--conf", "spark.sql.catalogImplementation=hive"]

    @property
    def environment(self) -> Mapping[str, str]:
        return {**os.environ, "PYSPARK_PYTHON": str(self.python), "SPARK_LOCAL_IP": "127.0.0.1"}

    def missing_packages(self) -> list[str]:
        """Return the packages without which it cannot start."""
        done = subprocess.run([self.python, "-c", _MISSING], capture_output=True, text=True, check=True)
        return done.stdout.split()

    def prepare(self, ours: Path, theirs: Path) -> None:
        """Make the peer's project: the same input, an absolute storage, and what it can run."""
        shutil.copytree(ours, theirs, ignore=shutil.ignore_patterns("input", "storage", "__pycache__"))
        (theirs / "input").symlink_to(ours / "input")
        _replace(theirs / "spark-pipeline.yml", "storage: storage", f"storage: file://{theirs}/storage")
        with (theirs / "spark-pipeline.yml").open("a") as spec:
            spec.write(CONFIGURATION)
        _replace(theirs / "transformations/silver.py", WITH_COLUMNS, SELECTED)
        (theirs / "transformations/customers.py").unlink()
        (theirs / "transformations/customers.sql").write_text(CUSTOMERS)


def _replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text, (file, old)
    file.write_text(text.replace(old, new))
