"""Pull-stream cases: traces, with the rules they break in two profiles.

Cases of kinds other than `trace` describe the behaviour of a module in words. They are counted separately and
not run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from headrace.pull.errors import BadTrace
from headrace.pull.rules.checker import Profile, check
from headrace.pull.rules.trace import Layer, Trace, parse
from tests.conformance.case_format import Fields, Kind

_LABELS: Mapping[Profile, tuple[str, str]] = {
    "spec": ("valid", "spec_violations"),
    "docs": ("valid_docs_spec", "docs_spec_violations"),
}
"""Per profile, the fields for whether a trace conforms and for the rules it breaks."""


@dataclass(frozen=True, slots=True)
class PullCase:
    """Trace case. trace: None for a case in words. broken: rules expected to be broken, by profile."""

    trace: Trace | None
    broken: Mapping[Profile, frozenset[str]] = field(default_factory=lambda: dict[Profile, frozenset[str]]())


def read_case(fields: Fields) -> PullCase:
    kind = fields.text("kind")
    if kind != "trace":
        if "events" in fields:
            raise fields.build_error(
                f"a case of kind {kind!r} has events", "make it a trace, or leave them out"
            )
        return PullCase(None)
    return PullCase(_trace(fields), {profile: _broken(fields, profile) for profile in _LABELS})


def _trace(fields: Fields) -> Trace:
    layer, complete, events = fields.number("layer"), fields.flag("complete"), fields.texts("events")
    if layer not in (1, 2, 3):
        raise fields.build_error(f"layer is {layer}, not 1, 2 or 3")
    try:
        return parse(events, layer=cast(Layer, layer), complete=complete)
    except BadTrace as error:
        raise fields.build_error(f"events: {error.what}", error.fix) from None


def _broken(fields: Fields, profile: Profile) -> frozenset[str]:
    valid, violations = _LABELS[profile]
    broken = frozenset(fields.texts(violations))
    if fields.flag(valid) == bool(broken):
        raise fields.build_error(f"{valid} and {violations} contradict each other")
    return broken


def run_case(case: PullCase) -> str:
    if case.trace is None:
        return ""
    problems: list[str] = []
    for profile, expected in case.broken.items():
        found = {violation.rule for violation in check(case.trace, profile)}
        if found != expected:
            problems.append(f"{profile}: expected {_named(expected)}, found {_named(found)}")
    return "; ".join(problems)


def is_in_words(case: PullCase) -> bool:
    return case.trace is None


def _named(rules: set[str] | frozenset[str]) -> str:
    return ", ".join(sorted(rules)) or "no rule broken"


PULL = Kind(read_case, run_case, is_in_words)
