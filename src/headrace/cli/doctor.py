"""`headrace doctor`: find problems of Spark on this machine, and how to fix them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.exit_codes import FAILED
from headrace.errors import BadInput, HeadraceError, SparkUnavailable
from headrace.path_or_url import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.spark.host_examination import Finding

_COLOURS = {"ok": typer.colors.GREEN, "slow": typer.colors.YELLOW, "meaning": typer.colors.MAGENTA}


def doctor(
    master: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Start a session there (local[2], spark://..., yarn, k8s://..., sc://...) and examine it "
            "with one small job.",
        ),
    ] = None,
    spark_conf: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Setting of the session; repeatable."),
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="With --master: folder that all workers must reach.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object instead of lines.")] = False,
) -> None:
    """Examine Java, memory, versions and settings, and print each finding with its fix.

    Levels: ok; slow (costs time); meaning (answers may differ as described); broken (flows cannot run on
    Spark, and the exit code is 1). Spark itself may be missing if neither --master nor --spark-conf is given.
    """
    from headrace.spark.examination import doctor as examine
    from headrace.spark.host_examination import Examination

    settings = parse_settings(spark_conf or ())
    if checkpoint is not None and master is None:
        raise BadInput("--checkpoint is checked by workers of a session", fix="add --master URL")
    if checkpoint is not None:
        checkpoint = local_path(checkpoint, "--checkpoint")
    found = examine(
        settings=settings if master is None and settings else None,
        needed=master is not None or bool(settings),
    )
    if master is not None and not found.broken:
        spark = _connected(master, settings)
        try:
            found = Examination((*found.findings, *examine_running(spark, checkpoint)))
        finally:
            spark.stop()
    if as_json:
        report = {"broken": found.broken, "findings": [finding.to_json() for finding in found.findings]}
        typer.echo(json.dumps(report, indent=2))
    else:
        for finding in found.findings:
            _print_finding(finding)
        typer.echo(_summary(found.findings))
    if found.broken:
        raise typer.Exit(FAILED)


def parse_settings(texts: Sequence[str]) -> dict[str, str]:
    """Parse repeated KEY=VALUE options into a dict. Raises `BadInput`."""
    settings: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise BadInput(
                f"--spark-conf {text}: expected KEY=VALUE", fix="--spark-conf spark.sql.ansi.enabled=true"
            )
        settings[key] = value
    return settings


def open_session(master: str, settings: dict[str, str]) -> SparkSession:
    """Open a session on `master`: Headrace's own for local masters, Spark's default elsewhere."""
    if master.startswith("local"):
        from headrace.spark.session import session

        return session(master=master, config=settings)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("headrace doctor")
    builder = builder.remote(master) if master.startswith("sc://") else builder.master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _connected(master: str, settings: dict[str, str]) -> SparkSession:
    try:
        return open_session(master, settings)
    except HeadraceError:
        raise
    except Exception as error:  # Spark raises all kinds of errors for an invalid or unreachable master.
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise SparkUnavailable(
            f"cannot open a session on {master}",
            why=lines[0],
            fix="correct --master, or check that the cluster runs and is reachable from here",
        ) from error


def examine_running(spark: SparkSession, checkpoint: str | None) -> Sequence[Finding]:
    from headrace.spark.examination import examine_session

    return list(examine_session(spark, checkpoint))


def _print_finding(finding: Finding) -> None:
    level = finding.level.value
    colour = _COLOURS.get(level, typer.colors.RED)
    typer.echo(typer.style(f"{level:<8}", fg=colour) + str(finding)[8:])


def _summary(findings: Sequence[Finding]) -> str:
    levels = [finding.level.value for finding in findings]
    counts = (f"{levels.count(level)} {level}" for level in dict.fromkeys(("ok", *levels)))
    return f"\n{len(findings)} findings: {', '.join(counts)}"
