"""Random relations for FROM, and random expressions over their columns, in the text of Spark SQL."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_INTEGERS = ("-1", "0", "1", "2", "3", "7")
_TEXTS = ("'a'", "'ab'", "'b'", "''", "'a%'")
_COLUMNS = {"l": ("id", "a", "s"), "r": ("id", "b", "t")}


@dataclass(frozen=True, slots=True)
class Relation:
    """Text of a relation for FROM, with its columns of numbers and of texts."""

    text: str
    numbers: tuple[str, ...]
    texts: tuple[str, ...]


class RelationWriter:
    """Writer of random relations over the tables `l` and `r`. seed: of all that it draws."""

    def __init__(self, seed: int) -> None:
        self.choice = random.Random(seed)
        self._turn, self._picked = seed, 0
        self._names = 0

    def pick(self, *choices: Any) -> Any:
        return self.choice.choice(choices)

    def pick_in_turn(self, *choices: Any) -> Any:
        """Pick by the seed: seeds that follow each other pick one choice after the other.

        Seeds with the same choice are then numbered anew, so their next picks in turn follow each other too.
        """
        rounds, at = divmod(self._turn, len(choices))
        self._turn = rounds * choices.count(choices[at]) + choices[:at].count(choices[at])
        return choices[at]

    def pick_next(self, choices: Sequence[str], per_query: int) -> str:
        """Pick the choice after the last one; the first one follows the last of the query before."""
        self._picked += 1
        return choices[(self._turn * per_query + self._picked) % len(choices)]

    def name(self) -> str:
        self._names += 1
        return f"q{self._names}"

    def shuffled(self, items: tuple[str, ...]) -> list[str]:
        return self.choice.sample(items, len(items))

    # -- relations --------------------------------------------------------------------------------

    def table(self, table: str) -> Relation:
        name = self.name()
        id_, number, text = (f"{name}.{column}" for column in _COLUMNS[table])
        return Relation(f"{table} AS {name}", (number, id_), (text,))

    def relation(self, depth: int) -> Relation:
        if not depth or self.choice.random() < 0.4:
            return self.table(self.pick("l", "r"))
        return self.pick(self.join, self.join, self.derived)(depth - 1)

    def join(self, depth: int) -> Relation:
        left, right = self.relation(depth), self.relation(0)
        both = Relation("", (*left.numbers, *right.numbers), (*left.texts, *right.texts))
        mine, theirs = self.pick(*left.numbers), self.pick(*right.numbers)
        on = self.pick(
            f"{mine} = {theirs}", f"{mine} = {theirs}", f"{mine} <=> {theirs}", f"{mine} < {theirs}"
        )
        on += self.pick("", "", f" AND {self.condition(both, 1)}")
        how = self.pick(
            "JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"
        )
        of_left = how in ("LEFT SEMI JOIN", "LEFT ANTI JOIN")
        text = f"{left.text} {how} {right.text} ON {on}"
        return Relation(
            text, left.numbers if of_left else both.numbers, left.texts if of_left else both.texts
        )

    def derived(self, depth: int) -> Relation:
        inner, name = self.relation(depth), self.name()
        key, text = self.number(inner, 0), self.pick(*inner.texts)
        query = self.pick(
            f"SELECT {key} AS k, {text} AS u {self.source(inner)}",
            f"SELECT {key} AS k, max({text}) AS u FROM {inner.text} GROUP BY {key}",
            f"SELECT DISTINCT {key} AS k, {text} AS u FROM {inner.text}",
        )
        return Relation(f"({query}) AS {name}", (f"{name}.k",), (f"{name}.u",))

    def source(self, relation: Relation) -> str:
        """Write FROM and WHERE."""
        return f"FROM {relation.text}{self.where(relation)}"

    def where(self, relation: Relation) -> str:
        if self.choice.random() < 0.4:
            return ""
        return f" WHERE {self.pick(self.condition, self.condition, self.subquery)(relation)}"

    def subquery(self, relation: Relation) -> str:
        other, mine = self.table(self.pick("l", "r")), self.pick(*relation.numbers)
        theirs = self.pick(*other.numbers)
        exists = f"EXISTS (SELECT 1 FROM {other.text} WHERE {theirs} = {mine})"
        return self.pick(
            exists,
            f"NOT {exists}",
            f"{mine} IN (SELECT {theirs} FROM {other.text})",
            f"{mine} NOT IN (SELECT {theirs} FROM {other.text})",
            f"{exists} OR {self.condition(relation, 1)}",
            f"{mine} > (SELECT avg({theirs}) FROM {other.text})",
        )

    # -- expressions ------------------------------------------------------------------------------

    def number(self, relation: Relation, depth: int = 2) -> str:
        if not depth or self.choice.random() < 0.5:
            return self.pick(*relation.numbers)
        a, b = self.number(relation, depth - 1), self.number(relation, depth - 1)
        return self.pick(
            f"({a} + {b})",
            f"({a} * {self.pick(*_INTEGERS)})",
            f"-({a})",
            f"abs({a} - {b})",
            f"CASE WHEN {self.condition(relation, depth - 1)} THEN {a} ELSE {b} END",
            f"coalesce({a}, {b}, 0)",
            f"nullif({a}, {b})",
            f"least({a}, {b})",
            f"greatest({a}, {b})",
            f"pmod({a}, 3)",
            f"if({self.condition(relation, depth - 1)}, {a}, NULL)",
            f"CAST(length({self.text(relation, depth - 1)}) AS BIGINT)",
            f"CAST(regexp_count({self.text(relation, depth - 1)}, '[ab]') AS BIGINT)",
            f"CAST(regexp_instr({self.text(relation, depth - 1)}, 'b') AS BIGINT)",
            f"shiftleft({a}, 1)",
            f"bround({a}, -1)",
            f"factorial(CAST({self.pick(*relation.numbers)} AS INT))",
            f"unix_timestamp(timestamp_seconds({self.pick(*relation.numbers)}))",
            f"timestampdiff(HOUR, timestamp_seconds({self.pick(*relation.numbers)}), timestamp'1971-01-01')",
            f"CAST(find_in_set({self.pick(*relation.texts)}, 'a,ab,b') AS BIGINT)",
        )

    def text(self, relation: Relation, depth: int = 2) -> str:
        if not depth or self.choice.random() < 0.6:
            return self.pick(*relation.texts)
        a = self.text(relation, depth - 1)
        return self.pick(
            f"upper({a})",
            f"concat({a}, {self.pick(*_TEXTS)})",
            f"substring({a}, 1, 1)",
            f"lpad({a}, 3, 'x')",
            f"reverse({a})",
            f"coalesce({a}, 'none')",
            f"replace({a}, 'a', 'b')",
            f"repeat({a}, 2)",
            f"CASE WHEN {self.condition(relation, depth - 1)} THEN {a} END",
            f"initcap({a})",
            f"regexp_replace({a}, '(a)(b)?', '$1-')",
            f"regexp_extract({a}, '(a+)(b)', 2)",
            f"concat_ws('-', {a}, {self.pick(*relation.texts)})",
            f"hex({a})",
            f"mask({a}, {self.pick(repr('X'), 'NULL')}, 'y')",
            f"soundex({a})",
            f"url_encode({a})",
            f"format_string('%s|%3d', {a}, {self.pick(*relation.numbers)})",
            f"date_format(timestamp_seconds({self.pick(*relation.numbers)}), 'yyyy-MM-dd HH:mm:ss')",
            f"concat_ws(',', split({a}, 'a'))",
            f"CAST({self.number(relation, depth - 1)} AS STRING)",
        )

    def condition(self, relation: Relation, depth: int = 2) -> str:
        a, b = self.number(relation, 0), self.number(relation, max(0, depth - 1))
        text = self.pick(*relation.texts)
        ways = [
            f"{a} {self.pick('=', '<', '>=', '<>', '<=>')} {b}",
            f"{a} {self.pick('<', '>', '=')} {self.pick(*_INTEGERS)}",
            f"{a} IS NULL",
            f"{text} IS NOT NULL",
            f"{text} LIKE {self.pick(*_TEXTS)}",
            f"{a} IN ({', '.join(self.shuffled(_INTEGERS)[:2])})",
            f"{text} IN ('a', 'b')",
            f"{a} BETWEEN 0 AND 3",
            f"startswith({text}, 'a')",
            f"{text} RLIKE '^a?b$'",
            f"{text} ILIKE 'A%'",
            f"{text} {self.pick('', 'NOT ')}ILIKE {self.pick('ANY', 'ALL')} ('A%', '_b', NULL)",
        ]
        if depth:
            one, other = (self.condition(relation, depth - 1) for _ in range(2))
            ways += [f"({one} AND {other})", f"({one} OR {other})", f"NOT ({one})"]
        return self.pick(*ways)
