"""check_sink: any sink, with sources that do everything a source may do."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import product
from typing import Any

from penstock.pull.checker import Profile
from penstock.pull.compose import pull
from penstock.pull.pieces import Sink
from penstock.pull.plain import sink
from penstock.pull.probe import Recorder, probe
from penstock.pull.protocol import Read
from penstock.pull.trace import Answer, Request
from penstock.testing.pull.combinations import mixed, source_cases
from penstock.testing.pull.reference_source import SourceCase, source_of
from penstock.testing.pull.trial import Trial, described, seeded, try_out


def check_sink(
    make: Callable[[], Sink | Callable[[Read], Any]],
    *,
    result: Callable[[list[int]], Any] | None = None,
    partial: Callable[[list[int]], Any] | None = None,
    fails: type[Exception] | tuple[type[Exception], ...] = (),
    profiles: Collection[Profile] = ("spec", "docs"),
    except_for: Collection[str] = (),
    seeds: int = 200,
    seed: int | None = None,
) -> int:
    """Try a sink with every combination of what a source may do, then in random orders.

    make:    a new sink, or a new function of the `read` upstream, for each run.
    result:  from the values of the stream (1, 2, 3, ... or none) to the result of the run; None: any.
    partial: from them to what `Run.partial` is where the stream has failed after them; None: anything.
    fails:   classes of exceptions that it may fail with by itself.
    profiles, except_for, seeds, seed: see `check_source`; `docs` where the sink is told to ask one at a time.

    Returns how many runs there were. Raises `ModuleFailed`, which says what is wrong in which run.

    >>> from penstock.pull import collect
    >>> check_sink(collect, result=list) > 200
    True
    """
    runs = 0
    few = list(product(source_cases(all=True), (1, 3)))
    for (above, window), order in seeded(few, mixed(list(few)), seeds, seed):
        recorder = Recorder(stop_at_once=False)
        made = make()
        piece = made if isinstance(made, Sink) else sink(made)
        pipeline = pull(source_of(above), probe(recorder, below=True), piece)
        asks = f"at most {window} at once"
        trial = try_out(pipeline, recorder, parameters=f"{above} | {asks}", seed=order, window=window)
        kept: list[Profile] = [profile for profile in profiles if profile != "docs" or window == 1]
        trial.judge_trace(kept, except_for=except_for)
        trial.judge_run()
        if trial.run.finished and trial.escaped is None:
            _judge_result(trial, above, result, partial, fails)
        trial.raise_()
        runs += 1
    return runs


def _judge_result(
    trial: Trial,
    above: SourceCase,
    result: Callable[[list[int]], Any] | None,
    partial: Callable[[list[int]], Any] | None,
    fails: type[Exception] | tuple[type[Exception], ...],
) -> None:
    run, values = trial.run, list(range(1, above.count + 1))
    if _failed_above(trial):
        if run.error is not above.end and not isinstance(run.error, fails):
            trial.break_("end", f"the run ended with {described(run.error or True)}, not {above.end!r}")
        elif partial is not None and run.error is above.end and run.partial != partial(values):
            trial.break_("partial", f"{run.partial!r} was kept instead of {partial(values)!r}")
    elif run.error is not None:
        # A source that has failed, and was told to stop before the sink knew, answers with its error.
        if run.error is not above.end and not isinstance(run.error, fails):
            trial.break_("end", f"the run failed with {run.error!r}")
    elif result is not None and run.result() != result(values):
        trial.break_("result", f"the result is {run.result()!r} instead of {result(values)!r}")


def _failed_above(trial: Trial) -> bool:
    """Whether the source has failed before the sink told it to stop."""
    for event in trial.recorder.events:
        if isinstance(event, Request) and event.terminates:
            return False
        if isinstance(event, Answer) and event.terminates:
            return event.kind == "error"
    return False
