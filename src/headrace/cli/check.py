"""`headrace check`: find mistakes in files of flows, queries and pipelines without running them."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.completion import complete_flow
from headrace.cli.exit_codes import FAILED, REFUSED, exit_code
from headrace.cli.findings_output import OutputFormat, PlacedFinding, lines_of
from headrace.errors import BadInput, HeadraceError

if TYPE_CHECKING:
    from headrace.analysis.flow_report import Finding
    from headrace.flow.flow import Flow
    from headrace.testing.claims import ClaimResult

_SPEC_ENDINGS = (".yml", ".yaml")

_LOOKED_FOR = "no flow at module level, no function without required arguments that is annotated `-> Flow`"


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """Outcome of one argument. subjects: number of its flows or tables."""

    name: str
    subjects: int
    findings: Sequence[Finding]
    claims: Sequence[ClaimResult] = ()


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
    """Check one argument. Its own output goes to standard error, out of the way of the findings."""
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
    """Let what writes to the descriptor of standard output, such as a process, write to standard error."""
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
    from headrace.analysis.flow_report import Finding, Severity, findings_of
    from headrace.cli.load_flow import load_flows
    from headrace.testing.claims import try_claims

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
    """Leave out flows built by the same lines: a function's, and the variable that holds its result."""
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
    from headrace.pipelines.explanation import findings_of_project
    from headrace.pipelines.run import spark_for

    with spark_for(spec) as spark:
        tables, findings = findings_of_project(spec, spark)
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
    """Return whether a file could not be checked at all: an error at no line of the user's."""
    return not error.where and exit_code(error) == REFUSED
