"""Where the profile `strict` reports less than the checker that it follows, on purpose.

There an indication, or one answer out of order, makes later requests look unanswered (I2) or misplaced (I4).
"""

from __future__ import annotations

import pytest

from headrace.pull.rules.checker import check
from headrace.pull.rules.trace import read_trace

# A labelled trace, and what `strict` reports; that checker adds I2, mostly with I4.
LESS = {
    "D:done1 D:abort2 U:ans2=done": {"I6"},
    "D:done1 D:ask2 U:ans2=done": {"I1", "I6"},
    "D:done1 D:ask2 U:ans2=value(1)": {"I1", "I5", "I6"},
    "D:abort1 D:abort2 U:ans2=done U:ans1=done": {"I4", "I6"},
    "D:ask1 D:ask2 U:ans2=error(E) U:ans1=value(1)": {"I4", "I5"},
    "D:ask1 TI:ask1 D:abort2 TI:abort2 U:ansT1=value(1) TI:ask3 "
    "U:ansT2=done TO:ans2=done U:ansT3=done TO:ans1=done": {
        "TI.I1",
        "TI.I5",
        "TI.I6",
        "TO.I4",
    },
}


@pytest.mark.parametrize("trace", LESS)
def test_strict_reports_each_mistake_once(trace: str) -> None:
    assert {violation.rule for violation in check(read_trace(trace), "strict")} == LESS[trace]
