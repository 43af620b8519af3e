"""Trial: a single run of a module under test, in a given event order, that collects the problems found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from headrace.pull.compose import Pipeline
from headrace.pull.edge_recorder import Recorder
from headrace.pull.errors import EndNotConfirmed
from headrace.pull.pipeline_run import Run
from headrace.pull.protocol import End
from headrace.pull.rules.checker import Profile, check
from headrace.testing.pull.neighbour_modules import Seen
from headrace.testing.pull.virtual_runtime import RandomRuntime, VirtualRuntime

C = TypeVar("C")

FIRST_SEED = 0
"""First seed to try; set another one to search for new failures."""


class ModuleFailed(AssertionError):
    """Raised when a module under test misbehaves.

    rule: number of the broken protocol rule; otherwise a word for the problem.
    parameters: parameters of the modules around it. trace: events at its edges.
    seed: seed of the order; None for the usual order.
    """

    def __init__(self, rule: str, text: str, *, parameters: str, seed: int | None, trace: str) -> None:
        again = "in the usual order" if seed is None else f"again with seed={seed}"
        super().__init__(f"{rule}: {text}\n  {parameters}\n  {again}\n  {trace}")
        self.rule = rule
        self.parameters = parameters
        self.seed = seed
        self.trace = trace


@dataclass(eq=False)
class Trial:
    """Run of a pipeline around the module under test. left: timers and tasks remaining after the run."""

    parameters: str
    seed: int | None
    recorder: Recorder
    run: Run
    escaped: Exception | None = None
    left: int = 0
    wrong: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def break_(self, rule: str, text: str) -> None:
        """Record a problem."""
        self.wrong.append((rule, text))

    def judge_trace(
        self, profiles: Collection[Profile], *, one_to_one: bool = False, except_for: Collection[str] = ()
    ) -> None:
        """Check the trace against the rules."""
        trace = self.recorder.trace()
        for profile in profiles:
            for violation in check(trace, profile, one_to_one=one_to_one):
                if violation.rule.rpartition(".")[2] not in except_for:
                    self.break_(violation.rule, f"{violation.sentence}\n  {violation}")

    def check_finished(self) -> None:
        """Check that the run is finished and left nothing behind."""
        if self.escaped is not None:
            self.break_("escaped", f"{self.escaped!r} was raised through the runtime")
        elif not self.run.finished:
            self.break_("stuck", str(self.run.unfinished_error()))
        elif isinstance(self.run.error, EndNotConfirmed):
            self.break_("stuck", str(self.run.error))
        elif self.left:
            self.break_("left", f"{self.left} timers or tasks are left after the end")

    def judge_answers(self, seen: Seen) -> None:
        """Check that each request of the reference sink was answered once, in order."""
        for request, answers in seen.answers.items():
            if len(answers) != 1:
                self.break_("answers", f"request {request} was answered {len(answers)} times")
        if seen.order != sorted(seen.order):
            self.break_("order", f"requests were answered in the order {seen.order}")

    def judge_values(
        self, values: Sequence[Any], expected: Sequence[Any], *, whole: bool, ordered: bool = True
    ) -> None:
        """Check the values received: all expected ones, or a prefix if the stream was stopped."""
        if ordered:
            right = list(values) == list(expected[: len(values)])
        else:
            right = not Counter(map(repr, values)) - Counter(map(repr, expected))
        if not right or (whole and len(values) != len(expected)):
            some = "" if whole else "the first of "
            self.break_("values", f"{list(values)} came instead of {some}{list(expected)}")

    def raise_(self) -> None:
        """Raise the first problem, if any."""
        if self.wrong:
            rule, text = self.wrong[0]
            raise ModuleFailed(
                rule,
                text,
                parameters=self.parameters,
                seed=self.seed,
                trace=str(self.recorder.trace()),
            )


def try_out(
    pipeline: Pipeline, recorder: Recorder, *, parameters: str, seed: int | None, window: int | None = None
) -> Trial:
    """Run a pipeline until it is finished or stuck. seed: determines the order, or None for the usual one."""
    runtime = VirtualRuntime() if seed is None else RandomRuntime(seed)
    run = Run(runtime, window=window)
    trial = Trial(parameters, seed, recorder, run)

    def build() -> None:
        pipeline.open_in(run)
        run.built()

    def stand_still(_run: Run) -> None:
        runtime.passing = False

    run.when_finished(stand_still)
    try:
        runtime.enter(build)
        trial.left = runtime.left
    except Exception as error:
        trial.escaped = error
    finally:
        run.abandon()
        runtime.close()
    return trial


def cases_with_seeds(
    cases: Sequence[C], more: Sequence[C], seeds: int, seed: int | None
) -> Iterator[tuple[C, int | None]]:
    """Yield the cases to try with seeds: all in the usual order, then one of `more` for each seed.

    seed: only this seed.
    """
    if seed is not None:
        yield more[seed % len(more)], seed
        return
    for case in cases:
        yield case, None
    for found in range(FIRST_SEED, FIRST_SEED + seeds):
        yield more[found % len(more)], found


def described(end: End | type[Exception] | None) -> str:
    """Format an end for a failure message."""
    return "no end" if end is None else "done" if end is True else repr(end)
