"""Checker: finds the rules of pull-streams that a trace breaks, and the events at fault."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from headrace.pull.errors import BadTrace
from headrace.pull.rules.docs_profile import DOCS
from headrace.pull.rules.edge_rules import PAIR
from headrace.pull.rules.matched_trace import Fault, Faults, Placed, TracedEdge
from headrace.pull.rules.strict_profile import STRICT
from headrace.pull.rules.trace import Event, Trace
from headrace.pull.rules.transformer_rules import TRANSFORMER, TransformerTrace

Profile = Literal["spec", "docs", "strict"]
"""Set of rules. spec: the specification. docs: rules in use. strict: invariants of an existing checker."""

EdgeRule = Callable[[TracedEdge], Faults]

EDGE_RULES: dict[Profile, tuple[EdgeRule, ...]] = {"spec": PAIR, "docs": DOCS, "strict": STRICT}
"""Rules of each profile for an edge. `spec` also has those of `TRANSFORMER`."""

PROFILES: tuple[Profile, ...] = tuple(EDGE_RULES)


@dataclass(frozen=True, slots=True)
class Violation:
    """Broken rule, with its location in a trace.

    rule: its number, after `TI.` or `TO.` if it is broken at that edge of a transformer.
    sentence: the rule itself. text: how it is broken.
    at, event: the event at fault and its index in the trace, from 0; None in an empty trace.
    other_at, other: the conflicting event; None if something is missing instead.
    """

    rule: str
    sentence: str
    at: int | None
    event: Event | None
    other_at: int | None
    other: Event | None
    text: str

    def __str__(self) -> str:
        at = "" if self.event is None else f" at {_place(self.at, self.event)}"
        other = "" if self.other is None else f" (see {_place(self.other_at, self.other)})"
        return f"{self.rule}{at}: {self.text}{other}"


def check(
    trace: Trace,
    profile: Profile = "spec",
    *,
    one_to_one: bool = True,
    except_for: Collection[str] = (),
) -> tuple[Violation, ...]:
    """Find every rule of a profile that a trace breaks, in the order of the events at fault.

    At a transformer the rules of an edge hold for both of its edges.

    one_to_one: whether a transformer emits one value per value. If not, rules T3 and T6 and the part of T2
    about values do not apply.
    except_for: numbers of rules that do not hold, such as T8 for a transformer that handles errors;
    those of other profiles may be among them.

    Raises `BadTrace` for an unknown profile or rule.

    >>> from headrace.pull.rules.trace import parse
    >>> for violation in check(parse("D:ask1 U:ans1=done D:ask2 U:ans2=value(7)")):
    ...     print(violation)
    P4 at 4 U:ans2=value(7): a value after done (see 2 U:ans1=done)
    """
    _refuse_unknown(profile, except_for)
    found = [
        violation
        for violation in _violations(trace, profile, one_to_one)
        if violation.rule.rpartition(".")[2] not in except_for
    ]
    return tuple(sorted(found, key=lambda violation: -1 if violation.at is None else violation.at))


def rules(profile: Profile) -> dict[str, str]:
    """Map the number of each rule in a profile to its sentence."""
    functions: list[Callable[..., Faults]] = [*EDGE_RULES[profile]]
    if profile == "spec":
        functions += TRANSFORMER
    return {number(rule): sentence(rule) for rule in functions}


def number(rule: Callable[..., Faults]) -> str:
    """Return the number of a rule, taken from its name."""
    return rule.__name__.partition("_")[0].upper()


def sentence(rule: Callable[..., Faults]) -> str:
    """Return the sentence of a rule: the first paragraph of its docstring, without the number."""
    first = inspect.cleandoc(rule.__doc__ or "").partition("\n\n")[0]
    return " ".join(first.split()).removeprefix(f"{number(rule)}. ")


def _refuse_unknown(profile: Profile, except_for: Collection[str]) -> None:
    if profile not in PROFILES:
        raise BadTrace(f"there is no profile {profile!r}", fix=f"one of {', '.join(PROFILES)}")
    known = {rule for one in PROFILES for rule in rules(one)} if except_for else set[str]()
    for rule in except_for:
        if rule not in known:
            raise BadTrace(f"there is no rule {rule!r}", fix="name rules by their numbers, such as T8")


def _violations(trace: Trace, profile: Profile, one_to_one: bool) -> Iterator[Violation]:
    events, layer, complete = trace.events, trace.layer, trace.complete
    if not trace.of_transformer:
        edge = TracedEdge.of(events, "D", "U", layer, complete)
        yield from _broken(EDGE_RULES[profile], edge)
        return
    above = TracedEdge.of(events, "TI", "U", layer, complete)
    below = TracedEdge.of(events, "D", "TO", layer, complete)
    yield from _broken(EDGE_RULES[profile], above, "TI.")
    yield from _broken(EDGE_RULES[profile], below, "TO.")
    if profile == "spec":
        yield from _broken(TRANSFORMER, TransformerTrace(above, below, one_to_one))


def _broken(
    functions: tuple[Callable[[Any], Faults], ...], seen: object, prefix: str = ""
) -> Iterator[Violation]:
    for rule in functions:
        for fault in rule(seen):
            yield _violation(f"{prefix}{number(rule)}", sentence(rule), fault)


def _violation(rule: str, demanded: str, fault: Fault) -> Violation:
    at, event = _seen(fault.at)
    other_at, other = _seen(fault.other)
    return Violation(rule, demanded, at, event, other_at, other, fault.text)


def _seen(place: Placed | None) -> tuple[int | None, Event | None]:
    return (None, None) if place is None else (place.at, place.event)


def _place(at: int | None, event: Event) -> str:
    return str(event) if at is None else f"{at + 1} {event}"
