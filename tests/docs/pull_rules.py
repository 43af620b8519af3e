"""The rules of pull-streams as a part of `docs/reference/pull-streams.md`.

Numbers and sentences come from the code, verdicts on the traces below from the checker.
`HEADRACE_WRITE_GOLDEN=1 pytest tests/docs/test_pull_streams.py` writes the part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from headrace.pull.rules.checker import PROFILES, Profile, check, rules
from headrace.pull.rules.trace import read_trace
from tests.docs.pages import DOCS

PAGE = DOCS / "reference" / "pull-streams.md"
BEGIN = "<!-- generated: rules, by tests/docs/pull_rules.py -->"
END = "<!-- end of the generated part -->"

TITLES: dict[Profile, str] = {
    "spec": "Profile `spec`: the specification",
    "docs": "Profile `docs`: the rules in use among modules in JavaScript",
    "strict": "Profile `strict`: the invariants of the checker beside the article",
}

# A trace that breaks the rule.
BROKEN_BY: dict[str, str] = {
    "P1": "D:ask1 U:ans2=value(7) U:ans1=done",
    "P2": "D:ask1 U:ans1=done U:ans1=done",
    "P3": "D:ask1 D:ask2 U:ans2=value(7) U:ans1=value(8)",
    "P4": "D:ask1 U:ans1=done D:ask2 U:ans2=value(7)",
    "P5": "D:abort1 U:ans1=value(7)",
    "P6": "D:ask1 U:ans1=error(E) D:ask2 U:ans2=done",
    "P7": "D:error1(E) U:ans1=error(F)",
    "P8": "D:done1 U:ans1=done",
    "P9": "D:ask1 U:ans1=value(7) D:abort2",
    "P10": "D:done1 D:ask2 U:ans2=value(7)",
    "L": "layer: 1\nD:abort1 U:ans1=done",
    "W1": "D:ask1 U:ans1=value(7) D:ask1 U:ans1=done",
    "B1": "D:ask1*2 U:ans1=values(7, 8, 9)",
    "T2": "D:ask1 TI:ask1 TO:ans1=value(7) U:ansT1=value(7)",
    "T3": "TI:ask1 D:ask1 U:ansT1=value(7) TO:ans1=value(7)",
    "T4": "D:abort1 TI:abort1 TO:ans1=done U:ansT1=done",
    "T5": "D:ask1 TI:ask1 U:ansT1=value(7) TO:ans1=value(7) D:done2",
    "T6": "D:ask1 D:ask2 TI:ask1 TI:ask2 U:ansT1=value(7) U:ansT2=done TO:ans1=done TO:ans2=done",
    "T8": "D:ask1 TI:ask1 U:ansT1=error(E) TO:ans1=done",
    "S0": "D:ask1 U:ans1=done U:ans1=done",
    "S1": "D:ask1 D:ask2 U:ans1=value(7) U:ans2=done",
    "S2": "D:ask1 U:ans1=done D:abort2 U:ans2=done",
    "S3": "D:ask1 D:abort2 U:ans1=value(7) U:ans2=done",
    "S4": "D:abort1 U:ans1=value(7)",
    "S5": "D:ask1 U:ans1=done D:ask2 U:ans2=value(7)",
    "S6": "D:ask1 U:ans1=value(7) D:done2",
    "S7": "D:abort1 U:ans1=done D:abort2 U:ans2=done",
    "I0": "D:ask1 U:ans2=value(7) U:ans1=done",
    "I1": "D:ask1 U:ans1=done D:ask2 U:ans2=done",
    "I2": "D:ask1 D:abort2 U:ans1=done",
    "I3": "D:ask1 U:ans1=done U:ans1=done",
    "I4": "D:ask1 D:abort2 U:ans2=done U:ans1=done",
    "I5": "D:ask1 D:abort2 U:ans1=value(7) U:ans2=done",
    "I6": "D:abort1 U:ans1=done D:abort2 U:ans2=done",
    "I7": "D:ask1 U:ans1=value(7)",
}

# Where the profiles differ.
COMPARED: dict[str, str] = {
    "two asks at once": "D:ask1 D:ask2 U:ans1=value(7) U:ans2=done",
    "an ask after the end": "D:ask1 U:ans1=done D:ask2 U:ans2=done",
    "a second abort": "D:abort1 U:ans1=done D:abort2 U:ans2=done",
    "after an abort, a pending ask gets its value": "D:ask1 D:abort2 U:ans1=value(7) U:ans2=done",
    "after an abort, a pending ask gets the end": "D:ask1 D:abort2 U:ans1=done U:ans2=done",
    "the abort is confirmed before the pending ask": "D:ask1 D:abort2 U:ans2=done U:ans1=done",
    "an indication": "D:ask1 U:ans1=value(7) D:done2",
    "closing after an abort fails": "D:abort1 U:ans1=error(E)",
    "an abort after a failure is confirmed by done": "D:ask1 U:ans1=error(E) D:abort2 U:ans2=done",
    "an error of downstream is confirmed by another": "D:error1(E) U:ans1=error(F)",
    "an indicated error, then another error, confirmed by done": "D:errorInd1(E) D:error2(F) U:ans2=done",
    "one number twice": "D:ask1 U:ans1=value(1) D:ask1 U:ans1=value(2)",
    "nobody ends the stream": "D:ask1 U:ans1=value(7)",
    "a transformer hides an error": "D:ask1 TI:ask1 U:ansT1=error(E) TO:ans1=done",
}


def broken(trace: str, profile: Profile) -> list[str]:
    """The rules of a profile that a trace breaks."""
    return sorted({violation.rule for violation in check(read_trace(trace), profile)})


def rules_part() -> str:
    """The text between `BEGIN` and `END`."""
    return "\n".join(_lines())


def page_with_part(page: str) -> str:
    """The page with the part as it is today."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{rules_part()}\n{END}{rest.partition(END)[2]}"


def _lines() -> Iterator[str]:
    for profile, title in TITLES.items():
        yield from (f"### {title}", "", "| rule | | a trace that breaks it |", "|---|---|---|")
        for rule, sentence in rules(profile).items():
            yield f"| {rule} | {_escaped(sentence)} | {_code(BROKEN_BY[rule])} |"
        yield ""
    yield from (
        "### The profiles compared",
        "",
        f"| | trace | {' | '.join(PROFILES)} |",
        "|---|---|---|---|---|",
    )
    for case, trace in COMPARED.items():
        said = (", ".join(broken(trace, profile)) or "ok" for profile in PROFILES)
        yield f"| {case} | `{trace}` | {' | '.join(said)} |"
    yield ""


def _escaped(sentence: str) -> str:
    return re.sub(r"([|<])", r"\\\1", sentence)


def _code(trace: str) -> str:
    return " ".join(f"`{line}`" for line in trace.splitlines())
