"""What a kind of conformance cases must say: how a case is read, and how it is run.

A kind is a module beside this one that makes a `Kind` of two functions:

    def read_case(fields: Fields) -> PropagationCase: ...
    def run_case(case: PropagationCase) -> str: ...

    PROPAGATION = Kind(read_case, run_case)

and an entry in `runner.KINDS`. `read_case` takes one JSON object and checks all
of it; what is missing or of the wrong type raises `BadCase`, which `Fields`
does by itself for whatever is asked of it. `run_case` returns "" where the case comes out as it should,
else one short text with what was expected and what was found. It may raise:
what it raises is a failure of the case, told with its type.

A kind whose files hold cases in words, which nothing can run, says by `in_words` which they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock.testing.conformance.fields import Fields

C = TypeVar("C")


def _never(_case: Any) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Kind(Generic[C]):
    """read: a case from its JSON object. run: what is wrong with the answer, "" if nothing is.

    in_words: whether a case only describes something; such a case is not run.
    """

    read: Callable[[Fields], C]
    run: Callable[[C], str]
    in_words: Callable[[C], bool] = _never


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a case came out. problem: what was expected and found instead; empty where all is well.

    in_words: whether the case describes something in words and was not run.
    """

    name: str
    problem: str = ""
    in_words: bool = False

    @property
    def ok(self) -> bool:
        """Whether the case was run, and came out as it should."""
        return not self.problem and not self.in_words

    @property
    def failed(self) -> bool:
        return bool(self.problem)


AnyKind = Kind[Any]
