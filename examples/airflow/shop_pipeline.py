"""DAG of one task: the tables of a pipeline, brought up to date each hour.

Airflow's Python needs no Headrace: the task runs the command of the project's own environment, whose lines
become the task's log. `SHOP_PROJECT` is the project's folder, `SHOP_METRICS` a file for node_exporter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

from airflow.sdk import dag, task
from airflow.sdk.exceptions import AirflowFailException

PROJECT = Path(os.environ.get("SHOP_PROJECT", "/srv/shop"))
HEADRACE = os.environ.get("SHOP_HEADRACE", str(PROJECT / ".venv/bin/headrace"))
METRICS = os.environ.get("SHOP_METRICS", "/var/lib/node_exporter/shop.prom")

REFUSED = 2
"""Exit code of a run that was refused before it began, such as for a wrong query. Trying again won't help."""


def command() -> list[str]:
    return [HEADRACE, "pipeline", "run", "--log-format", "json", "--metrics-file", METRICS]


def run_pipeline() -> list[str]:
    """Run the pipeline and return the tables that have changed, which later tasks get.

    Raises `CalledProcessError`, after which Airflow tries again: a run that failed has left all tables whole,
    and the next one goes on. Raises `AirflowFailException` if there is no use in trying again.
    """
    changed: list[str] = []
    with subprocess.Popen(command(), cwd=PROJECT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                sys.stdout.write(line)
                event = json.loads(line) if line.startswith("{") else {}
                if event.get("changed"):
                    changed.append(event["table"])
        except BaseException:
            process.terminate()  # A time-out of the task. The run ends after the tick at work.
            raise
    if process.returncode == REFUSED:
        raise AirflowFailException("the run was refused: its log says why")
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command())
    return changed


@dag(schedule="@hourly", start_date=datetime(2026, 1, 1), catchup=False, max_active_runs=1)
def shop_pipeline() -> None:
    task(
        retries=3,
        retry_delay=timedelta(minutes=5),
        retry_exponential_backoff=True,
        execution_timeout=timedelta(hours=1),
    )(run_pipeline)()


shop_pipeline()
