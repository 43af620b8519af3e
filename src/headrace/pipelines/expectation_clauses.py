"""Expectations in SQL: `CONSTRAINT name EXPECT (condition) [ON VIOLATION DROP ROW | FAIL UPDATE]`.

Spark's parser knows neither these clauses nor OR REFRESH. They are blanked in the text before Spark reads it,
character by character, so that lines and columns in its errors stay those of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from headrace.errors import SourceLocation
from headrace.pipelines.errors import BadDefinition
from headrace.pipelines.expectations import Expectation, OnViolation

_TOKEN = re.compile(
    r"""
      (?P<blank> \s+ | --(?:\\\n|[^\r\n])* )
    | (?P<comment> /\* )
    | (?P<text> [rR]'[^']*' | [rR]"[^"]*" | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" )
    | (?P<word> `(?:[^`]|``)*` | \w+ )
    | (?P<sign> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_ENDS = re.compile(r"/\*|\*/")

_DATASETS = {("MATERIALIZED", "VIEW"), ("STREAMING", "TABLE"), ("TEMPORARY", "VIEW")}

_FIX = "CONSTRAINT name EXPECT (condition) [ON VIOLATION DROP ROW | ON VIOLATION FAIL UPDATE]"


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def word(self) -> str:
        """The text as a keyword."""
        return self.text.upper()

    @property
    def name(self) -> str:
        """The text as a name, without backticks."""
        return self.text[1:-1].replace("``", "`") if self.text.startswith("`") else self.text


@dataclass(frozen=True, slots=True)
class ExpectationClause:
    """Expectation in a statement. dataset: the name that the statement creates, as written."""

    dataset: str
    expectation: Expectation


def cut_expectations(text: str, file: Path) -> tuple[str, list[ExpectationClause]]:
    """Return a file's text with clauses of expectations and OR REFRESH blanked, and the clauses.

    Raises `BadDefinition` for a clause that cannot be read.
    """
    if not re.search(r"\b(?:EXPECT|REFRESH)\b", text, re.IGNORECASE):
        return text, []
    cutter = _Cutter(text, file)
    for statement in _statements(text):
        cutter.cut(statement)
    return cutter.remaining(), cutter.clauses


def _tokens(text: str) -> Iterator[_Token]:
    """Yield the tokens of a text, without white space and comments, which may be nested."""
    at = 0
    while found := _TOKEN.match(text, at):
        at = found.end()
        if found.lastgroup == "comment":
            depth = 1
            while depth and (end := _COMMENT_ENDS.search(text, at)):
                at, depth = end.end(), depth + (1 if end[0] == "/*" else -1)
            if depth:
                return
        elif found.lastgroup != "blank":
            yield _Token(found[0], found.start())


def _statements(text: str) -> Iterator[list[_Token]]:
    statement: list[_Token] = []
    for token in _tokens(text):
        if token.text == ";":
            yield statement
            statement = []
        else:
            statement.append(token)
    yield statement


@dataclass(slots=True)
class _Cutter:
    """Reader of clauses. blanked: parts of the text to be replaced by white space."""

    text: str
    file: Path
    clauses: list[ExpectationClause] = field(default_factory=list[ExpectationClause])
    blanked: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def remaining(self) -> str:
        parts, at = list[str](), 0
        for start, end in sorted(self.blanked):
            parts += [self.text[at:start], re.sub(r"[^\r\n]", " ", self.text[start:end])]
            at = end
        return "".join((*parts, self.text[at:]))

    def cut(self, statement: Sequence[_Token]) -> None:
        """Cut the clauses out of a statement that creates a dataset."""
        words = [token.word for token in statement]
        if words[:1] != ["CREATE"]:
            return
        at = 3 if words[1:3] in (["OR", "REFRESH"], ["OR", "REPLACE"]) else 1
        if tuple(words[at : at + 2]) not in _DATASETS:
            return
        if words[2:3] == ["REFRESH"]:
            self.blanked.append((statement[1].start, statement[2].end))
        at += 2
        if words[at : at + 3] == ["IF", "NOT", "EXISTS"]:
            at += 3
        first = at
        while words[at + 1 : at + 2] == ["."]:
            at += 2
        if words[at + 1 : at + 2] == ["("]:
            name = "".join(token.text for token in statement[first : at + 1])
            self._cut_list(name, statement, at + 1)

    def _cut_list(self, dataset: str, statement: Sequence[_Token], opened: int) -> None:
        """Cut clauses out of the list of columns that is opened at a token."""
        closed = self._closing(statement, opened)
        commas = [at for at in _outermost(statement, opened, closed) if statement[at].text == ","]
        bounds = [opened, *commas, closed]
        items = [range(start + 1, end) for start, end in pairwise(bounds)]
        kept = [at for at, item in enumerate(items) if not self._is_expectation(statement, item)]
        for at, item in enumerate(items):
            if at not in kept:
                self._read(dataset, [statement[each] for each in item])
                self._blank(statement[item[0]], statement[item[-1]])
        # One comma stays before each item that stays, but for the first.
        for at in {*range(len(commas))} - {each - 1 for each in kept[1:]}:
            self._blank(statement[commas[at]], statement[commas[at]])
        if not kept:
            self._blank(statement[opened], statement[opened])
            self._blank(statement[closed], statement[closed])

    def _is_expectation(self, statement: Sequence[_Token], item: range) -> bool:
        words = [statement[at].word for at in item[:3]]
        return words[:1] == ["CONSTRAINT"] and "EXPECT" in words[1:]

    def _blank(self, first: _Token, last: _Token) -> None:
        self.blanked.append((first.start, last.end))

    def _closing(self, tokens: Sequence[_Token], opened: int) -> int:
        """Return the index of the parenthesis that closes another one."""
        depth = 0
        for at in range(opened, len(tokens)):
            depth += {"(": 1, ")": -1}.get(tokens[at].text, 0)
            if not depth:
                return at
        raise self._refused(tokens[opened], "A parenthesis is not closed.")

    def _read(self, dataset: str, clause: Sequence[_Token]) -> None:
        words = [token.word for token in clause]
        if words[2:3] != ["EXPECT"]:
            raise self._refused(clause[0], "It has no name.")
        if words[3:4] != ["("]:
            raise self._refused(clause[0], "Its condition is not in parentheses.")
        closed = self._closing(clause, 3)
        condition = self.text[clause[3].end : clause[closed].start].strip()
        action = _ACTIONS.get(" ".join(words[closed + 1 :]))
        if action is None:
            after = self.text[clause[closed].end : clause[-1].end].strip()
            raise self._refused(clause[0], f"After its condition comes {after!r}.")
        location = self._location(clause[0])
        self.clauses.append(
            ExpectationClause(dataset, Expectation(clause[1].name, condition, action, location))
        )

    def _location(self, token: _Token) -> SourceLocation:
        return SourceLocation(str(self.file), self.text.count("\n", 0, token.start) + 1)

    def _refused(self, token: _Token, why: str) -> BadDefinition:
        return BadDefinition(
            "an expectation cannot be read", where=[self._location(token)], why=why, fix=_FIX, dataset=""
        )


def _outermost(tokens: Sequence[_Token], opened: int, closed: int) -> Iterator[int]:
    """Yield the indices of tokens in a pair of parentheses, but not in inner ones, nor in `<>` of a type."""
    parentheses = angles = 0
    for at in range(opened + 1, closed):
        sign = tokens[at].text
        parentheses += {"(": 1, ")": -1}.get(sign, 0)
        if not parentheses:
            angles += {"<": 1, ">": -1}.get(sign, 0)
            if not angles:
                yield at


_ACTIONS = {
    "": OnViolation.WARN,
    "ON VIOLATION DROP ROW": OnViolation.DROP,
    "ON VIOLATION FAIL UPDATE": OnViolation.FAIL,
}
