"""check_transformer: any transformer, between sources and sinks that do everything these may do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import product
from typing import Any

from penstock.pull.checker import Profile
from penstock.pull.compose import pull
from penstock.pull.pieces import Transformer
from penstock.pull.plain import transformer
from penstock.pull.probe import Recorder, probe_around
from penstock.pull.protocol import Read
from penstock.pull.trace import Answer, Request
from penstock.testing.pull.combinations import batching_cases, mixed, profiles_for, sink_cases, source_cases
from penstock.testing.pull.reference_sink import Seen, SinkCase, reference_sink
from penstock.testing.pull.reference_source import SourceCase, source_of
from penstock.testing.pull.trial import Trial, described, seeded, try_out

Expected = Callable[[list[int]], Sequence[Any]]


def check_transformer(
    make: Callable[[], Transformer | Callable[[Read], Read]],
    *,
    one_to_one: bool = True,
    expected: Expected | None = None,
    ordered: bool = True,
    endless: bool = False,
    recovers: bool = False,
    fails: type[Exception] | tuple[type[Exception], ...] = (),
    profiles: Collection[Profile] = ("spec", "docs"),
    except_for: Collection[str] = (),
    seeds: int = 200,
    seed: int | None = None,
) -> int:
    """Try a transformer with every combination of what a source and a sink may do, then in random orders.

    make:       a new transformer, or a new function from the `read` upstream to its own, for each run.
    one_to_one: it makes one value of each value.
    expected:   from the values of a stream (1, 2, 3, ... or none) to those that it makes of them,
                `ordered` or in any order; None: any.
    endless:    it makes an endless stream of each; sinks then always stop it.
    recovers:   it may end by done where upstream has failed.
    fails:      classes of exceptions that it may end with by itself.
    profiles, except_for, seeds, seed: see `check_source`.

    Returns how many runs there were. Raises `ModuleFailed`, which says what is wrong in which run.

    >>> from penstock.pull import map
    >>> check_transformer(lambda: map(str), expected=lambda xs: [str(x) for x in xs]) > 800
    True
    """
    runs = 0
    if fails != ():
        # Its own failure may come before it hears of that of the sink, and is then the first cause.
        except_for = {*except_for, "P7"}
    batching = batching_cases(endless=endless)
    few = list(product(source_cases(all=False), sink_cases(all=False, endless=endless) + batching))
    many = mixed(list(product(source_cases(all=True), sink_cases(all=True, endless=endless) + batching)))
    for (above, below), order in seeded(few, many, seeds, seed):
        seen, recorder = Seen(), Recorder(stop_at_once=False)
        made = make()
        piece = made if isinstance(made, Transformer) else transformer(made)
        pipeline = pull(source_of(above), probe_around(piece, recorder), reference_sink(below, seen))
        trial = try_out(pipeline, recorder, parameters=f"{above} | {below}", seed=order)
        trial.judge_trace(profiles_for(below, profiles), one_to_one=one_to_one, except_for=except_for)
        trial.judge_run()
        trial.judge_answers(seen)
        _judge_end(trial, above, below, seen, recovers, fails)
        if expected is not None:
            whole = seen.end is True or (one_to_one and seen.end is above.end)
            made_of = expected(list(range(1, above.count + 1)))
            trial.judge_values(seen.values, made_of, whole=whole and not seen.stopped, ordered=ordered)
        trial.raise_()
        runs += 1
    return runs


def _judge_end(
    trial: Trial,
    above: SourceCase,
    below: SinkCase,
    seen: Seen,
    recovers: bool,
    fails: type[Exception] | tuple[type[Exception], ...],
) -> None:
    """The stream ends as upstream did, or as the transformer or the sink has stopped it."""
    end, failed = seen.end, _failed_above(trial)
    if seen.stopped:
        fits = end in (True, above.end, below.by) or (below.indicates and end is None)
    elif failed:
        fits = end is above.end or (recovers and end is True)
    else:
        fits = end is True
    if not fits and not isinstance(end, fails):
        should = above.end if failed else True
        trial.break_("end", f"the stream ended with {described(end)}, not with {described(should)}")


def _failed_above(trial: Trial) -> bool:
    """Whether the source has failed before the transformer told it to stop."""
    for event in trial.recorder.events:
        if isinstance(event, Request) and event.port == "TI" and event.terminates:
            return False
        if isinstance(event, Answer) and event.port == "U" and event.terminates:
            return event.kind == "error"
    return False
