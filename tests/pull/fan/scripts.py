"""Sources that do what a script says, for models: values, delays, an end, and how they close."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from headrace.pull import PullSource
from headrace.pull.module_context import Module
from headrace.pull.protocol import AnswerTo, End, Read


class Broken(Exception):
    """What a script fails with."""


@dataclass(eq=False)
class Script:
    """values: each with the seconds it takes. end: after them.
    closing, closes_with: the seconds that a stop takes, and what it is confirmed by, if not by its cause.
    linear: it is asked for one value at a time.

    What it saw: `asked` counts the asks, `told` holds what it was told to stop by, `ended` how often it did,
    `late` what should not have come any more.
    """

    values: list[tuple[float, Any]]
    end: End = True
    closing: float = 0.0
    closes_with: Exception | None = None
    linear: bool = True
    opened: int = 0
    asked: int = 0
    told: list[End] = field(default_factory=list[End])
    ended: int = 0
    late: list[str] = field(default_factory=list[str])

    @property
    def items(self) -> list[Any]:
        return [value for _seconds, value in self.values]

    def source(self) -> PullSource:
        return PullSource.of("script", self._open, linear=self.linear)

    def _open(self, module: Module) -> Read:
        self.opened += 1
        asked, answered = 0, 0
        ready: dict[int, AnswerTo] = {}
        over = False

        def read(abort: End | None, answer: AnswerTo) -> None:
            nonlocal asked
            if over or self.told:
                self.late.append("told again" if abort else "asked after its end")
            if abort is not None:
                self.told.append(abort)
                after(self.closing, close, abort, answer)
                return
            self.asked += 1
            seconds = self.values[asked][0] if asked < len(self.values) else 0.0
            asked += 1
            after(seconds, give, asked - 1, answer)

        def give(at: int, answer: AnswerTo) -> None:
            nonlocal answered, over
            ready[at] = answer
            while answered in ready and not over:
                if answered < len(self.values):
                    ready[answered](None, self.values[answered][1])
                else:
                    over = True
                    self.ended += 1
                    ready[answered](self.end)
                answered += 1

        def close(abort: End, answer: AnswerTo) -> None:
            nonlocal over
            self.ended += not over
            over = True
            answer(self.closes_with or abort)

        def after(seconds: float, call: Any, *args: Any) -> None:
            if seconds:
                module.later(seconds, call, *args)
            else:
                call(*args)

        return read

    def is_quiet(self) -> bool:
        """Whether it was not opened, or has ended, was told to stop at most once, and nothing after that."""
        return self.ended == self.opened <= 1 and len(self.told) <= 1 and not self.late


SECONDS = st.sampled_from([0.0, 0.0, 0.0, 1.0, 2.5])


def scripts(
    items: st.SearchStrategy[Any] = st.integers(0, 9), *, may_fail: bool = True, sort: bool = False
) -> st.SearchStrategy[Script]:
    """Scripts of up to 5 values."""

    def build(
        found: list[Any], seconds: list[float], end: bool, closing: float, breaks: bool, linear: bool
    ) -> Script:
        if sort:
            found = sorted(found)
        timed = list(zip(seconds, found, strict=False))
        fails = Broken("the end") if may_fail and not end else True
        return Script(timed, fails, closing, Broken("closing") if breaks and may_fail else None, linear)

    return st.builds(
        build,
        st.lists(items, max_size=5),
        st.lists(SECONDS, min_size=5, max_size=5),
        st.sampled_from([True, True, True, False]),
        SECONDS,
        st.sampled_from([False, False, False, True]),
        st.booleans(),
    )
