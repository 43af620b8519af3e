"""`headrace check` and `doctor`: find mistakes in files, and problems of Spark on this machine.

`check` reads files of flows, queries and pipelines without running them. Findings are text for people,
annotations for GitHub, or JSON for programs. `doctor` says how to fix each problem that it finds.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.exit_codes import FAILED, REFUSED, exit_code
from headrace.cli.options import complete_flow
from headrace.errors import BadInput, HeadraceError, SparkUnavailable
from headrace.file_system import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.analysis.claims import ClaimResult
    from headrace.analysis.flow_report import Finding
    from headrace.errors import SourceLocation
    from headrace.flow.flow import Flow
    from headrace.spark.host_examination import SparkFinding


_SPEC_ENDINGS = (".yml", ".yaml")

_LOOKED_FOR = "no flow at module level, no function without required arguments that is annotated `-> Flow`"


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """Outcome of one argument. subjects: number of its flows or tables."""

    name: str
    subjects: int
    findings: Sequence[Finding]
    claims: Sequence[ClaimResult] = ()


class OutputFormat(Enum):
    """Output format of findings."""

    TEXT = "text"
    GITHUB = "github"
    JSON = "json"


def check(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="file.py, file.py:flow, module:flow, query.sql, or the folder or spec file of a pipeline.",
            autocompletion=complete_flow,
        ),
    ],
    claims: Annotated[
        bool,
        typer.Option(
            "--claims",
            help="Also test what flows claim of functions (commutative, idempotent, monotone, lattices).",
        ),
    ] = False,
    examples: Annotated[
        int | None,
        typer.Option(min=1, help="Number of examples per claim. Default: 1000.", show_default=False),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on warnings too.")] = False,
    output_format: Annotated[
        OutputFormat, typer.Option(help="Text, annotations of a GitHub workflow, or a JSON list.")
    ] = OutputFormat.TEXT,
) -> None:
    """Find unknown columns, wrong types, unused sources and other mistakes, without data.

    Only the files themselves are run, as an import would. Spark plans queries in SQL and pipelines; a query
    whose plan is kept beside it needs neither Spark nor Java. The exit code is 1 if there are errors.
    """
    if examples is not None and not claims:
        raise BadInput("--examples requires --claims", fix="add --claims, or remove --examples")
    checked = [_checked(name, (examples or 1000) if claims else None) for name in _without_repeats(files)]
    found = {
        (placed.code, placed.file, placed.line, placed.what): placed
        for each in checked
        for placed in (PlacedFinding.of(finding, each.name) for finding in each.findings)
    }
    # Annotations and JSON are for programs, so everything else goes to standard error.
    notes = output_format is not OutputFormat.TEXT
    for line in _notes(checked):
        typer.echo(line, err=notes)
    for line in lines_of(found.values(), output_format):
        typer.echo(line)
    if notes and sys.stdout is sys.__stdout__:
        # What a checked file registered with atexit must not follow the list.
        sys.stdout.flush()
        os.dup2(2, 1)
    severities = [placed.severity for placed in found.values()]
    errors, warnings = severities.count("error"), severities.count("warning")
    typer.echo(_summary(checked, errors, warnings, claims=claims), err=notes)
    if any(_is_refused(finding.error) for each in checked for finding in each.findings):
        raise typer.Exit(REFUSED)
    if errors or (strict and warnings):
        raise typer.Exit(FAILED)


def _without_repeats(files: Sequence[str]) -> Iterator[str]:
    """Replace folders and files of pipelines by the spec of their project, and yield each name once."""
    from headrace.pipelines.spec import spec_of

    seen: set[str] = set()
    for name in files:
        spec = spec_of(Path(name)) if Path(name).exists() else None
        target = name if spec is None else str(spec)
        if target not in seen:
            seen.add(target)
            yield target


def _checked(name: str, examples: int | None) -> CheckedFile:
    """Check one argument. Output of its code goes to standard error, separate from the findings."""
    from headrace.analysis.flow_report import Finding, Severity
    from headrace.cli.load_flow import separate_imports, without_hard_exits

    with separate_imports(), _output_to_stderr(), redirect_stdout(sys.stderr), without_hard_exits():
        if not Path(name).is_dir() and not name.endswith(_SPEC_ENDINGS):
            return _checked_flows(name, examples)
        try:
            return _checked_project(name)
        except HeadraceError as error:
            return CheckedFile(name, 1, [Finding(Severity.ERROR, error)])


@contextmanager
def _output_to_stderr() -> Generator[None]:
    """Redirect the descriptor of standard output to standard error, child processes included."""
    if sys.stdout is not sys.__stdout__:  # replaced, by a test
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _checked_flows(name: str, examples: int | None) -> CheckedFile:
    from headrace.analysis.claims import try_claims
    from headrace.analysis.flow_report import Finding, Severity, findings_of
    from headrace.cli.load_flow import load_flows

    findings: list[Finding] = []
    claims: list[ClaimResult] = []
    outcomes = _without_copies(load_flows(name))
    for outcome in outcomes:
        if isinstance(outcome, HeadraceError):
            findings.append(Finding(Severity.ERROR, outcome))
            continue
        found = list(findings_of(outcome))
        if examples and all(finding.severity is Severity.WARNING for finding in found):
            tried = list(try_claims(outcome, examples=examples))
            found += [Finding(Severity.ERROR, each.broken) for each in tried if each.broken is not None]
            claims += tried
        findings += found
    return CheckedFile(name, len(outcomes), findings, claims)


def _without_copies(outcomes: Iterator[Flow | HeadraceError]) -> list[Flow | HeadraceError]:
    """Drop duplicate flows built by the same lines, such as a function's result kept in a variable."""
    found: dict[object, Flow | HeadraceError] = {}
    for outcome in outcomes:
        key: object = outcome
        if not isinstance(outcome, HeadraceError):
            key = (outcome.name, tuple(node.location for node in outcome.nodes))
        found.setdefault(key, outcome)
    return list(found.values())


def _checked_project(name: str) -> CheckedFile:
    from headrace.pipelines.errors import BadSpec
    from headrace.pipelines.spec import read_spec
    from headrace.spark.session import need_pyspark

    path = Path(name)
    if path.is_dir():
        raise BadSpec(
            f"{name} is not the folder of a pipeline",
            why="There is no spec file in it or above it. Flows are checked file by file.",
            fix=f"headrace check {path / '*.py'}",
        )
    spec = read_spec(path)
    need_pyspark()
    from headrace.pipelines.maintenance import findings_of_project
    from headrace.pipelines.planned_project import spark_for

    with spark_for(spec) as start:
        tables, findings = findings_of_project(spec, start())
    return CheckedFile(str(spec.file), tables, findings)


def _notes(checked: Sequence[CheckedFile]) -> Iterator[str]:
    yield from (str(claim) for each in checked for claim in each.claims)
    empty = [each.name for each in checked if not each.subjects and not each.findings]
    if empty:
        yield f"nothing to check in {', '.join(empty)}:\n    {_LOOKED_FOR}"


def _summary(checked: Sequence[CheckedFile], errors: int, warnings: int, *, claims: bool) -> str:
    tried = [result for each in checked for result in each.claims]
    broken = sum(result.broken is not None for result in tried)
    of_claims = f"{_count(len(tried), 'claim')} tried, {broken} broken" if tried else "no claims made"
    subject = f"{_count(len(checked), 'file')} checked" + f", {of_claims}" * claims
    found = [_count(errors, "error")] * bool(errors) + [_count(warnings, "warning")] * bool(warnings)
    return f"{subject}: {', '.join(found) or 'no findings'}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _is_refused(error: HeadraceError) -> bool:
    """Return whether a file could not be checked at all: the error has no location in user code."""
    return not error.where and exit_code(error) == REFUSED


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
        typer.echo(_doctor_summary(found.findings))
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


def examine_running(spark: SparkSession, checkpoint: str | None) -> Sequence[SparkFinding]:
    from headrace.spark.examination import examine_session

    return list(examine_session(spark, checkpoint))


def _print_finding(finding: SparkFinding) -> None:
    level = finding.level.value
    colour = _COLOURS.get(level, typer.colors.RED)
    typer.echo(typer.style(f"{level:<8}", fg=colour) + str(finding)[8:])


def _doctor_summary(findings: Sequence[SparkFinding]) -> str:
    levels = [finding.level.value for finding in findings]
    counts = (f"{levels.count(level)} {level}" for level in dict.fromkeys(("ok", *levels)))
    return f"\n{len(findings)} findings: {', '.join(counts)}"


@dataclass(frozen=True, slots=True)
class PlacedFinding:
    """A finding with the file it is about.

    file: relative to the current folder if it lies below it. line: None for a file as a whole.
    """

    severity: str
    code: str
    name: str
    file: str
    line: int | None
    what: str
    why: str
    fix: str
    where: tuple[tuple[str, int, str], ...]

    @classmethod
    def of(cls, finding: Finding, file: str) -> PlacedFinding:
        """Create from a finding. file: used if the finding has no location."""
        error, at = finding.error, finding.location
        return cls(
            finding.severity.value,
            error.code,
            type(error).__name__,
            _shown(at) if at else file,
            at.line if at else None,
            error.what,
            error.why,
            error.fix,
            tuple((_shown(step.location), step.location.line, step.note) for step in error.where),
        )

    def as_text(self) -> str:
        place = _in_one_line(self.file) + ("" if self.line is None else f":{self.line}")
        steps = [f"{_in_one_line(file)}:{line}   {note}".rstrip() for file, line, note in self.where]
        show_steps = len(steps) > 1 or any(note for *_, note in self.where)
        parts = [
            "\n".join(steps) if show_steps else "",
            self.why,
            f"Fix: {self.fix}" if self.fix else "",
        ]
        rest = "\n".join(part for part in parts if part).replace("\n", "\n    ")
        return (
            f"{place}: {self.severity}: {self.code} {self.name}: {_in_one_line(self.what)}"
            + f"\n    {rest}" * bool(rest)
        )

    def as_annotation(self) -> str:
        """Return a workflow command of GitHub, with the escapes that GitHub documents."""
        title = f"{self.code} {self.name}"
        properties = {"file": self.file, "line": self.line, "title": title}
        given = ",".join(
            f"{key}={_property(value)}" for key, value in properties.items() if value is not None
        )
        parts = (self.what, self.why, f"Fix: {self.fix}" if self.fix else "")
        return f"::{self.severity} {given}::{_data(chr(10).join(part for part in parts if part))}"

    def as_json(self) -> Mapping[str, Any]:
        """Return the stable JSON form documented in docs/how-to/check-in-ci.md. New keys may be added."""
        keys = ("severity", "code", "name", "file", "line", "what", "why", "fix")
        where = [{"file": file, "line": line, "note": note} for file, line, note in self.where]
        return {**{key: getattr(self, key) for key in keys}, "where": where}


def lines_of(findings: Iterable[PlacedFinding], output_format: OutputFormat) -> Iterator[str]:
    """Yield the lines of standard output: for JSON, a single list, even without findings."""
    if output_format is OutputFormat.JSON:
        yield json.dumps([finding.as_json() for finding in findings], indent=2)
    for finding in findings if output_format is not OutputFormat.JSON else ():
        yield finding.as_annotation() if output_format is OutputFormat.GITHUB else finding.as_text()


def _in_one_line(text: str) -> str:
    """Escape line breaks and control characters, which file names may contain."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _shown(location: SourceLocation) -> str:
    path = Path(location.file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else location.file


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: object) -> str:
    return _data(str(value)).replace(":", "%3A").replace(",", "%2C")
