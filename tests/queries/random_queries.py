"""Random queries of Spark SQL over two tables, with answers that depend on no order left open."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.queries.test_functions import EXACT, ROWS, V

_INTEGERS = ("-1", "0", "1", "2", "3", "7")
_TEXTS = ("'a'", "'ab'", "'b'", "''", "'a%'")


class Left(NamedTuple):
    id: int
    a: int | None
    s: str | None


class Right(NamedTuple):
    id: int
    b: int | None
    t: str | None


TABLES = {"l": Left, "r": Right, "v": V}

SPELLINGS = tuple(text for texts in EXACT.values() for text in texts)
"""Calls of scalar functions on columns of `v`."""


def random_row(choice: random.Random, table: str) -> Left | Right | V:
    if table == "v":
        return choice.choice(ROWS)
    number = choice.choice([None, *range(-1, 5)])
    text = choice.choice([None, "a", "ab", "b", ""])
    return TABLES[table](choice.randrange(6), number, text)


@dataclass(frozen=True, slots=True)
class Relation:
    """Text of a relation for FROM, with its columns of numbers and of texts."""

    text: str
    numbers: tuple[str, ...]
    texts: tuple[str, ...]


class QueryWriter:
    """Writer of random queries."""

    def __init__(self, seed: int) -> None:
        self.choice = random.Random(seed)
        self._names = 0

    def query(self) -> str:
        """Write a query with at most three columns, named x, y and z."""
        return self.pick(
            self.rows,
            self.rows,
            self.groups,
            self.groups,
            self.windows,
            self.union,
            self.distinct,
            self.first,
            self.totals,
            self.functions,
        )()

    def pick(self, *choices: Any) -> Any:
        return self.choice.choice(choices)

    def name(self) -> str:
        self._names += 1
        return f"q{self._names}"

    # -- queries ----------------------------------------------------------------------------------

    def rows(self) -> str:
        relation = self.relation(2)
        number, text = self.number(relation), self.text(relation)
        return f"SELECT {number} AS x, {text} AS y {self.source(relation)}"

    def groups(self) -> str:
        relation = self.relation(2)
        key = self.pick(self.number, self.text)(relation, 1)
        having = self.pick("", "", " HAVING count(*) > 1", f" HAVING {self.aggregate(relation)} IS NOT NULL")
        by = self.pick("GROUP BY {}", "GROUP BY {}", "GROUP BY ROLLUP ({})").format(key)
        return (
            f"SELECT {key} AS x, {self.aggregate(relation)} AS y, {self.aggregate(relation)} AS z"
            f" {self.source(relation)} {by}{having}"
        )

    def totals(self) -> str:
        relation = self.relation(1)
        return f"SELECT {self.aggregate(relation)} AS x, count(*) AS y {self.source(relation)}"

    def functions(self) -> str:
        """Write a query of functions that are not drawn elsewhere."""
        made, other = (f"({self.pick(*SPELLINGS)})" for _ in range(2))
        return self.pick(
            f"SELECT id, {made} AS x, {other} AS y FROM v WHERE id > {self.pick(0, 1, 2)}",
            f"SELECT {made} AS x FROM v WHERE {other} IS NOT NULL",
            f"SELECT {made} AS x, count(*) AS y FROM v GROUP BY {made}",
            f"SELECT b AS x, min({made}) AS y, count(DISTINCT {other}) AS z FROM v GROUP BY b",
            f"SELECT one.id, {made} AS x FROM v AS one LEFT ANTI JOIN r ON one.id = r.id"
            if "id" not in made
            else f"SELECT DISTINCT {made} AS x FROM v",
        )

    def windows(self) -> str:
        table = self.pick("l", "r")
        relation = self.table(table)
        columns = (*relation.numbers, *relation.texts)
        per = self.pick("", f"PARTITION BY {self.pick(*columns)} ")
        descending = self.pick("", " DESC")
        # By all columns: what is equal even so are copies.
        by = ", ".join(f"{c}{descending if at == 0 else ''}" for at, c in enumerate(self.shuffled(columns)))
        over = f"({per}ORDER BY {by}{self.pick('', self.frame())})"
        number = self.pick(*relation.numbers)
        plain = f"({per}ORDER BY {by})"
        function = self.pick(
            f"row_number() OVER {plain}",
            f"rank() OVER ({per}ORDER BY {number})",
            f"dense_rank() OVER ({per}ORDER BY {number})",
            f"percent_rank() OVER ({per}ORDER BY {number})",
            f"cume_dist() OVER ({per}ORDER BY {number})",
            f"ntile(3) OVER {plain}",
            f"lag({number}) OVER {plain}",
            f"lead({number}, 2, 0) OVER {plain}",
            f"first_value({number}) OVER {over}",
            f"last_value({number}) OVER {over}",
            f"nth_value({number}, 2) OVER {over}",
            f"sum({number}) OVER {over}",
            f"count({number}) OVER {over}",
            f"min({number}) OVER {over}",
            f"max({number}) OVER {over}",
            f"avg({number}) OVER {over}",
            f"bit_xor({number}) OVER {over}",
            f"percentile_approx({number}, 0.4) OVER {over}",
            f"median({number}) OVER ({per})",
            f"sum({number}) OVER ({per}ORDER BY {number} RANGE BETWEEN 1 PRECEDING AND 2 FOLLOWING)",
        )
        inner = f"SELECT {self.pick(*columns)} AS x, {function} AS y {self.source(relation)}"
        return self.pick(inner, f"SELECT x, y FROM ({inner}) WHERE y > 1")

    def frame(self) -> str:
        start = self.pick("UNBOUNDED PRECEDING", "2 PRECEDING", "CURRENT ROW")
        end = self.pick("CURRENT ROW", "1 FOLLOWING", "UNBOUNDED FOLLOWING")
        return f" ROWS BETWEEN {start} AND {end}"

    def union(self) -> str:
        one, other = self.relation(1), self.relation(1)
        which = self.pick("UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL")
        return (
            f"SELECT {self.number(one)} AS x {self.source(one)} {which}"
            f" SELECT {self.number(other)} {self.source(other)}"
        )

    def distinct(self) -> str:
        relation = self.relation(2)
        return (
            f"SELECT DISTINCT {self.number(relation)} AS x, {self.text(relation)} AS y FROM {relation.text}"
        )

    def first(self) -> str:
        relation = self.table(self.pick("l", "r"))
        columns = (*relation.numbers, *relation.texts)
        by = ", ".join(c + self.pick("", " DESC", " NULLS LAST") for c in self.shuffled(columns))
        offset = self.pick("", " OFFSET 1")
        listed = ", ".join(columns)
        return f"SELECT {listed} {self.source(relation)} ORDER BY {by} LIMIT 3{offset}"

    def shuffled(self, items: tuple[str, ...]) -> list[str]:
        return self.choice.sample(items, len(items))

    # -- relations --------------------------------------------------------------------------------

    def table(self, table: str) -> Relation:
        name = self.name()
        id_, number, text = (f"{name}.{column}" for column in TABLES[table]._fields)
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
        ]
        if depth:
            one, other = (self.condition(relation, depth - 1) for _ in range(2))
            ways += [f"({one} AND {other})", f"({one} OR {other})", f"NOT ({one})"]
        return self.pick(*ways)

    def aggregate(self, relation: Relation) -> str:
        number, text = self.number(relation, 1), self.text(relation, 1)
        made = self.pick(
            "count(*)",
            f"count({number})",
            f"count({text})",
            f"sum({number})",
            f"min({number})",
            f"max({text})",
            f"avg({number})",
            f"count(DISTINCT {number})",
            f"min({text})",
            self.further_aggregate(number, text),
            self.further_aggregate(number, text),
        )
        plain = "DISTINCT" not in made and self.choice.random() < 0.2
        return f"{made} FILTER (WHERE {self.condition(relation, 1)})" if plain else made

    def further_aggregate(self, number: str, text: str) -> str:
        part, descending = self.pick("0.0", "0.3", "0.5", "0.9"), self.pick("", " DESC")
        return self.pick(
            f"count(DISTINCT {number}, {text})",
            f"sum(DISTINCT {number})",
            f"avg(DISTINCT {number})",
            f"median({number})",
            f"percentile({number}, array({part}, 1.0))",
            f"percentile(DISTINCT {number}, {part})",
            f"percentile_cont({part}) WITHIN GROUP (ORDER BY {number}{descending})",
            f"percentile_disc({part}) WITHIN GROUP (ORDER BY {number}{descending})",
            f"percentile_approx({number}, {part})",
            f"mode() WITHIN GROUP (ORDER BY {text}{descending})",
            f"listagg({text}, ',') WITHIN GROUP (ORDER BY {text}{descending})",
            f"bit_and({number})",
            f"bit_or({number})",
            f"bit_xor({number})",
        )
