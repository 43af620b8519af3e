"""Twenty kills: runs of a pipeline with their Java, at random moments; then all tables against DuckDB.

The pipeline is examples/pipeline, whose input grows between the runs. It is the test of
`tests/pipelines/test_kills.py`, seven times as long.

    PYTHONPATH=. python benches/pipeline_kills.py [--kills 20] [--seed 1]
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import headrace.spark
from tests.pipelines.project import Project
from tests.pipelines.test_example import EXAMPLE
from tests.pipelines.test_kills import kill_processes


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--kills", type=int, default=20)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "project")
        shutil.copytree(EXAMPLE, root, ignore=shutil.ignore_patterns("input", "storage", "__pycache__"))
        kill_processes(Project(root, headrace.spark.session()), given.kills, given.seed)
    print(f"{given.kills} kills: all tables are those of all input")


if __name__ == "__main__":
    main()
