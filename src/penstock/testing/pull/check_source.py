"""check_source: any source, with sinks that do everything a sink may do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from penstock.pull.checker import Profile
from penstock.pull.compose import pull
from penstock.pull.pieces import Source
from penstock.pull.plain import source
from penstock.pull.probe import Recorder, probe
from penstock.pull.protocol import End, Read
from penstock.testing.pull.combinations import batching_cases, mixed, profiles_for, sink_cases
from penstock.testing.pull.reference_sink import Seen, SinkCase, reference_sink
from penstock.testing.pull.trial import Trial, described, seeded, try_out


def check_source(
    make: Callable[[], Source | Read],
    *,
    expected: Sequence[Any] | None = None,
    end: End | type[Exception] = True,
    ordered: bool = True,
    endless: bool = False,
    profiles: Collection[Profile] = ("spec", "docs"),
    except_for: Collection[str] = (),
    seeds: int = 200,
    seed: int | None = None,
) -> int:
    """Try a source with every combination of what a sink may do, then in `seeds` random orders.

    make:     a new source, or a new function `read(abort, answer)`, for each run.
    expected: its values, `ordered` or in any order; None: any. Of a stopped stream, the first.
    end:      how it ends by itself: True, an exception or a class of exceptions.
    endless:  it does not end by itself.
    profiles: of the rules that its traces are judged by; `docs` where the sink keeps to them too.
    except_for: rules that it breaks on purpose.
    seed:     only this order: to see a failure again.

    Returns how many runs there were. Raises `ModuleFailed`, which says what is wrong in which run.

    >>> from penstock.pull import values
    >>> check_source(lambda: values([1, 2, 3]), expected=[1, 2, 3]) > 200
    True
    """
    runs = 0
    if end is not True:
        # Its own failure may come before it hears of that of the sink, and is then the first cause.
        except_for = {*except_for, "P7"}
    batching = batching_cases(endless=endless)
    few = sink_cases(all=False, endless=endless) + batching
    many = mixed(sink_cases(all=True, endless=endless) + batching)
    for case, order in seeded(few, many, seeds, seed):
        seen, recorder = Seen(), Recorder(stop_at_once=False)
        made = make()
        piece = made if isinstance(made, Source) else source(made)
        pipeline = pull(piece, probe(recorder), reference_sink(case, seen))
        trial = try_out(pipeline, recorder, parameters=str(case), seed=order)
        trial.judge_trace(profiles_for(case, profiles), except_for=except_for)
        trial.judge_run()
        trial.judge_answers(seen)
        _judge_end(trial, case, seen, end)
        if expected is not None:
            trial.judge_values(seen.values, expected, whole=not seen.stopped, ordered=ordered)
        trial.raise_()
        runs += 1
    return runs


def _judge_end(trial: Trial, case: SinkCase, seen: Seen, end: End | type[Exception]) -> None:
    fits = isinstance(seen.end, end) if isinstance(end, type) else seen.end is end
    if seen.stopped:
        fits = fits or seen.end is case.by or (case.indicates and seen.end is None)
    if not fits:
        trial.break_("end", f"the stream ended with {described(seen.end)}, not with {described(end)}")
