"""Random queries of Spark SQL, with answers that depend on no order left open."""

from __future__ import annotations

from collections.abc import Sequence

from tests.queries.random_functions import CALLS
from tests.queries.random_relations import Relation, RelationWriter
from tests.queries.window_spellings import DISTANCES, ORDERS, frames

_OF_AGGREGATES = ("sort_array", "array_distinct", "aggregate", "hll_sketch_estimate")
"""Functions of what aggregates make, which take no FILTER. What is read of histograms does not
depend on how many bins Spark gives a value."""


_CONSTANTS = (
    "(VALUES (1, 'a'), (2, NULL), (1, 'b'), (NULL, 'z')) AS c(k, u)",
    "(SELECT id AS k, 'r' AS u FROM range(7, -3, -2)) AS c",
)


class QueryWriter(RelationWriter):
    """Writer of random queries."""

    def query(self) -> str:
        """Write a query."""
        return self.pick_in_turn(
            *[self.rows] * 4,
            *[self.groups] * 6,
            *[self.windows] * 4,
            *(self.union, self.union, self.distinct, self.first, self.first, self.totals),
            *[self.functions] * 15,
            *[self.construct] * 8,
        )()

    # -- queries ----------------------------------------------------------------------------------

    def rows(self) -> str:
        relation = self.relation(2)
        number, text = self.number(relation), self.text(relation)
        hint = self.pick(
            "",
            "/*+ REPARTITION(2) */ ",
            f"/*+ REPARTITION(3, {relation.numbers[0]}) */ ",
            "/*+ REBALANCE */ ",
        )
        return f"SELECT {hint}{number} AS x, {text} AS y {self.source(relation)}"

    def groups(self) -> str:
        relation = self.relation(2)
        key = self.pick(self.number, self.text)(relation, 1)
        made = [self.aggregate(relation) for _ in range(7)]
        if all(any(function in each for each in made) for function in ("DISTINCT", "listagg")):
            # Spark 4.3 fails to plan it beside several kinds of distinct values.
            alone = self.pick("listagg", "DISTINCT")
            made = [each for each in made if alone not in each] or ["count(*)"]
        having = self.pick("", "", " HAVING count(*) > 1", f" HAVING {made[0]} IS NOT NULL")
        by = self.pick("GROUP BY {}", "GROUP BY {}", "GROUP BY ROLLUP ({})", "GROUP BY CUBE ({})").format(key)
        if by == f"GROUP BY {key}":
            made.append(f"{self.pick('first', 'last', 'any_value')}({key})")
        listed = ", ".join(f"{each} AS y{at}" for at, each in enumerate(made))
        return f"SELECT {key} AS x, {listed} {self.source(relation)} {by}{having}"

    def totals(self) -> str:
        relation = self.relation(1)
        return f"SELECT {self.aggregate(relation)} AS x, count(*) AS y {self.source(relation)}"

    def functions(self) -> str:
        """Write a query of functions that are not drawn elsewhere."""
        table = self.pick_in_turn(*["v"] * 10, *["lists", "maps"] * 3, "texts")
        calls = [f"({self.pick_next(CALLS[table], 24)})" for _ in range(24)]
        calls += [f"({self.pick(*CALLS[table])})" for _ in range(4)]
        self.choice.shuffle(calls)
        other = calls[1]
        listed = ", ".join(f"{each} AS x{at}" for at, each in enumerate(calls))
        rows = self.pick(
            f"SELECT id, {listed} FROM {table} WHERE id > {self.pick(0, 1, 2)}",
            f"SELECT {listed} FROM {table} WHERE {other} IS NOT NULL",
            f"SELECT {listed} FROM {table} JOIN (SELECT id AS other FROM r) ON other = id",
            f"SELECT {listed} FROM {table} LEFT ANTI JOIN (SELECT a AS other FROM l) ON other = id",
        )
        if table == "maps":  # which Spark does not compare
            return rows
        aggregates = ", ".join(
            f"{self.pick('min', 'max')}({one}) AS x{at}, count(DISTINCT {two}) AS y{at}"
            for at, (one, two) in enumerate(zip(calls[::2], calls[1::2], strict=True))
        )
        return self.pick(
            rows,
            rows,
            f"SELECT DISTINCT {listed} FROM {table}",
            f"SELECT {listed}, count(*) AS n FROM {table} GROUP BY {', '.join(calls)}",
            f"SELECT id % 3 AS k, {aggregates} FROM {table} GROUP BY id % 3",
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
        functions = (
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
        function, *others = [self.pick_next(functions, 3) for _ in range(3)]
        listed = f"{function} AS y, {others[0]} AS z, {others[1]} AS u"
        inner = f"SELECT {self.pick(*columns)} AS x, {listed} {self.source(relation)}"
        return self.pick(inner, f"SELECT x, y, z, u FROM ({inner}) WHERE y {self.pick('> 1', '<= 2')}")

    def frame(self) -> str:
        start = self.pick("UNBOUNDED PRECEDING", "2 PRECEDING", "CURRENT ROW")
        end = self.pick("CURRENT ROW", "1 FOLLOWING", "UNBOUNDED FOLLOWING")
        return f" ROWS BETWEEN {start} AND {end}"

    def ranges(self) -> str:
        """Write windows of frames by distance over each type that has some."""
        column = self.pick_in_turn(*DISTANCES)
        near, other = self.pick(*DISTANCES[column])
        per = self.pick("", "PARTITION BY b ")
        windows = [
            f"({per}ORDER BY {column} {self.pick(*ORDERS)} {self.pick(*frames(near, other))})" for _ in "xyz"
        ]
        listed = ", ".join(
            f"{self.pick('count(*)', 'sum(id)', 'min(s)', 'max(u)')} OVER {window} AS x{at}"
            for at, window in enumerate(windows)
        )
        cast = {"local": "t AS TIMESTAMP_NTZ", "f": "x AS FLOAT"}.get(column)
        if cast is not None:
            return f"SELECT id, {column}, {listed} FROM (SELECT *, CAST({cast}) AS {column} FROM v)"
        # Spark adds distances to numbers as they are, and fails beyond the last one.
        numbers = ("i", "n", "d")
        small = f" WHERE {column} IS NULL OR abs({column}) < 1000" if column in numbers else ""
        made = {"local": "CAST(t AS TIMESTAMP_NTZ)", "span": "t - TIMESTAMP'2024-02-29 00:00:00'"}.get(column)
        source = f"(SELECT *, {made} AS {column} FROM v)" if made else "v"
        return f"SELECT id, {column}, {listed} FROM {source}{small}"

    def union(self) -> str:
        one, other = self.relation(1), self.relation(1)
        which = self.pick_in_turn("UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL")
        return (
            f"SELECT {self.number(one)} AS x {self.source(one)} {which}"
            f" SELECT {self.number(other)} {self.source(other)}"
        )

    def first_branch(self) -> str:
        """Write a union whose first branch has columns inside that it does not hand on."""
        one, other = self.relation(1), self.relation(1)
        a, b, source = self.number(one), self.number(one), self.source(one)
        of_sets = f"SELECT {b} {self.source(one)}"
        first = self.pick_in_turn(
            f"SELECT explode(array({a}, {b})) AS x {source}",
            f"SELECT x FROM (SELECT posexplode(array({a}, {b})) AS (p, x) {source})",
            f"SELECT inline(array(named_struct('x', {a}), named_struct('x', {b}))) {source}",
            f"SELECT stack(2, {a}, {b}) AS x {source}",
            f"(SELECT {a} AS x {source} EXCEPT ALL {of_sets})",
            f"(SELECT {a} AS x {source} INTERSECT ALL {of_sets})",
            f"(SELECT {a} AS x {source} EXCEPT {of_sets})",
            f"(SELECT {a} AS x {source} ORDER BY 1 LIMIT 2)",
        )
        which = self.pick("UNION ALL", "UNION ALL", "UNION", "INTERSECT", "EXCEPT ALL")
        return f"{first} {which} SELECT {self.number(other)} {self.source(other)}"

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

    # -- rarer constructs -------------------------------------------------------------------------

    def construct(self) -> str:
        return self.pick_in_turn(
            *[self.recursion] * 3,
            self.time_windows,
            *[self.generated] * 3,
            *[self.ranges] * 2,
            *[self.first_branch] * 2,
            *[self.tableless] * 2,
            *[self.pivot] * 2,
            self.sets,
            self.of_maps,
            self.of_maps,
            self.of_doubles,
            self.group_limit,
            self.lateral,
            self.constants,
            *[self.python] * 3,
        )()

    def recursion(self) -> str:
        return self.pick_in_turn(
            "WITH RECURSIVE t(s, d, n) AS (SELECT id, b, 1 FROM r UNION ALL SELECT t.s, r.b, n + 1 FROM t"
            f" JOIN r ON t.d = r.id WHERE n < {self.pick(2, 3)})"
            " SELECT s, d, count(*) AS n FROM t GROUP BY s, d",
            "WITH RECURSIVE t(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM t WHERE n < 4)"
            f" SELECT n, a, s FROM t {self.pick('JOIN', 'LEFT JOIN')} l ON n = id",
            f"WITH RECURSIVE t AS (SELECT id AS n, id FROM r UNION ALL SELECT n + {self.pick(1, 2)}, t.id"
            " FROM t WHERE n < 6) SELECT n, id AS m FROM t",
            f"WITH RECURSIVE t(n) AS (SELECT id FROM l UNION ALL SELECT {self.pick('', 'DISTINCT ')}n + 1"
            " FROM t"
            f" {self.pick('', 'LEFT SEMI JOIN r ON n = b ', 'LEFT ANTI JOIN r ON n = b ')}WHERE n < 6)"
            " SELECT n, count(*) AS c FROM t GROUP BY n",
            "WITH RECURSIVE t(s, d) AS (SELECT id, b FROM r WHERE id < b UNION ALL SELECT one.s, two.d"
            " FROM t AS"
            " one JOIN t AS two ON one.d = two.s) SELECT s, d, count(*) AS n FROM t GROUP BY s, d",
            f"WITH RECURSIVE t(n) AS (SELECT {self.pick('1', 'min(id) FROM l')} UNION ALL SELECT n + 1"
            " FROM t)"
            f" SELECT n FROM t LIMIT {self.pick(1, 3, 7)}",
        )

    def tableless(self) -> str:
        """Write a query of constants and generators without a table, alone or beside one."""
        a, b = self.pick(*"0123"), self.pick(*"0123", "NULL")
        rows = self.pick_in_turn(
            f"SELECT {a} AS k UNION ALL SELECT {b}",
            f"SELECT {a} AS k {self.pick('UNION', 'EXCEPT', 'INTERSECT', 'EXCEPT ALL')} SELECT {b}",
            f"SELECT explode(array({a}, {b})) AS k",
            f"SELECT max(k) AS k FROM (SELECT {a} AS k UNION SELECT {b})",
            f"SELECT {a} AS k WHERE {self.pick('true', 'false', 'EXISTS (SELECT 1 FROM r)')}",
            f"SELECT stack(2, {a}, {b}) AS k",
            f"SELECT {a} AS k FROM l HAVING {self.pick('1 < 2', '1 > 2', 'count(*) > 2')}",
            f"SELECT count(DISTINCT a) FILTER (WHERE {self.pick('false', 'a > 1')}) AS k FROM l",
        )
        return self.pick(
            rows,
            f"SELECT id, k FROM l {self.pick('JOIN', 'LEFT JOIN', 'FULL JOIN')} ({rows}) AS c ON id = k",
            f"SELECT k, s FROM l, ({rows}) AS c",
            f"SELECT id FROM l WHERE a {self.pick('IN', 'NOT IN')} ({rows})",
            f"SELECT id, count(NULL) OVER () AS x FROM l WHERE EXISTS ({rows})",
        )

    def time_windows(self) -> str:
        made = self.pick("count(*)", "sum(n)", "max(k)", "min(n)")
        return self.pick(
            f"SELECT window(ts, '10 minutes') AS w, k, {made} AS y FROM events GROUP BY 1, 2",
            f"SELECT window.end AS e, {made} AS y FROM events"
            " GROUP BY window(ts, '10 minutes', '5 minutes', '2 minutes')",
            f"SELECT session_window(ts, '9 minutes') AS w, k, {made} AS y FROM events GROUP BY 1, 2",
        )

    def generated(self) -> str:
        relation = self.relation(1)
        a, b = self.number(relation), self.number(relation)
        text, outer = self.text(relation), self.pick("", "_outer")
        exploded = self.pick(
            f"explode{outer}(array({a}, {b}))",
            f"explode{outer}(split({text}, 'a'))",
            f"explode{outer}(CASE WHEN {self.condition(relation)} THEN array({a}) END)",
            f"explode(map(1, {a}, 2, {b}))",
        )
        made = self.pick_in_turn(
            exploded,
            f"posexplode{outer}(array({a}, {b}))",
            f"inline{outer}(array(named_struct('p', {a}, 'q', {text}), named_struct('p', {b}, 'q', 'z')))",
            f"stack(2, {a}, {text}, {b}, 'z')",
        )
        return f"SELECT {relation.numbers[0]} AS x, {made} {self.source(relation)}"

    def pivot(self) -> str:
        return self.pick_in_turn(
            f"SELECT * FROM l PIVOT ({self.pick('sum(a)', 'min(a)', 'count(*)')}"
            " FOR s IN ('a' AS p, 'ab' AS q, NULL AS z))",
            "SELECT * FROM r PIVOT (count(*) AS m, max(id) AS n FOR (t, b) IN (('a', 1), ('b', 2)))",
            f"SELECT * FROM l UNPIVOT {self.pick('', 'INCLUDE NULLS ')}(v FOR n IN (id, a))",
        )

    def sets(self) -> str:
        relation = self.relation(1)
        one, other = self.pick(*relation.numbers), self.pick(*relation.texts)
        by = self.pick(f"CUBE ({one}, {other})", f"GROUPING SETS (({one}), ({other}), ())")
        return (
            f"SELECT {one} AS x, {other} AS y, grouping_id() AS g, {self.aggregate(relation)} AS z"
            f" {self.source(relation)} GROUP BY {by}"
        )

    def of_maps(self) -> str:
        # Spark takes null values of maps that it groups by for zeros.
        call = self.pick("k", "map_filter(m, (k, v) -> v IS NOT NULL)", "map('b', id % 2, 'a', i)")
        call = f"map_filter({call}, (key, value) -> value IS NOT NULL)"
        return self.pick(
            f"SELECT {call} AS x, count(*) AS y, max(i) AS z FROM maps GROUP BY {call}",
            f"SELECT s AS x, count(DISTINCT {call}) AS y FROM maps GROUP BY s",
            f"SELECT id, key, value FROM maps LATERAL VIEW {self.pick('', 'OUTER ')}explode({call}) e"
            " AS key, value",
        )

    def of_doubles(self) -> str:
        return self.pick(
            "SELECT id, count(*) OVER (PARTITION BY x) AS y FROM v",
            "SELECT id, rank() OVER (PARTITION BY x / 2 ORDER BY id) AS y FROM v",
            f"SELECT one.id AS x, two.id AS y FROM v AS one {self.pick('JOIN', 'LEFT JOIN')} v AS two"
            " ON one.x = two.x * 1.0D",
            f"SELECT id FROM v WHERE x {self.pick('IN', 'NOT IN')} (SELECT x FROM lists)",
        )

    def group_limit(self) -> str:
        function = self.pick("row_number", "rank", "dense_rank")
        per, by = self.pick("id", "a", "s"), ", ".join(self.shuffled(("id", "a", "s")))
        return (
            "SELECT id, a, s FROM"
            f" (SELECT *, {function}() OVER (PARTITION BY {per} ORDER BY {by}) AS p FROM l)"
            f" WHERE p <= {self.pick(1, 2)}"
        )

    def lateral(self) -> str:
        return self.pick(
            f"SELECT l.id, m FROM l, LATERAL (SELECT {self.pick('max(b)', 'count(*)')} AS m FROM r"
            " WHERE r.id = a)",
            f"SELECT l.id, m FROM l, LATERAL (SELECT {self.pick('sum(b)', 'count(*)', 'max(t)')} OVER"
            " (ORDER BY"
            f" {self.pick('b', 'b DESC', 't')}) AS m FROM r WHERE r.id = a)",
            "SELECT l.id, (SELECT max(m) FROM (SELECT rank() OVER (ORDER BY b) AS m FROM r WHERE r.id ="
            " a)) AS n"
            " FROM l",
            f"SELECT l.id, m FROM l, LATERAL (SELECT {self.pick('b', 't', 'id', 'b + 1')} AS m FROM r"
            f" WHERE r.id = a ORDER BY b{self.pick('', ' DESC', ' NULLS LAST')}, t{self.pick('', ' DESC')}"
            f" LIMIT {self.pick(1, 2)}{self.pick('', ' OFFSET 1')})",
            "SELECT l.id, (SELECT sum(b) FROM r WHERE r.id = l.id) AS m,"
            f" (SELECT {self.pick('max', 'min')}(t) FROM r) AS n FROM l",
        )

    def constants(self) -> str:
        how = self.pick("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN")
        return (
            f"SELECT * FROM (SELECT id, {self.pick('a', 's')} FROM l) AS one {how}"
            f" {self.pick(*_CONSTANTS)} ON id = k"
        )

    def python(self) -> str:
        """Write a call of a function in Python (see `tests.queries.random_checks`)."""
        relation = self.relation(1)
        function = self.pick("plus_one", "plus_three", "plus_four")
        number, other = self.number(relation), self.pick(*relation.numbers)
        return self.pick(
            f"SELECT {function}({number}) AS x, {other} AS y {self.source(relation)}",
            f"SELECT {function}({number}) AS x, plus_two({other}) AS y {self.source(relation)}",
            f"SELECT plus_two({number}) AS x, count(*) AS y {self.source(relation)} GROUP BY 1",
            f"SELECT {other} AS x FROM {relation.text} WHERE {function}({number}) > 2",
            f"SELECT {other} AS x, sum({function}({number})) AS y {self.source(relation)} GROUP BY {other}",
        )

    # -- aggregates -------------------------------------------------------------------------------

    def aggregate(self, relation: Relation) -> str:
        number, text = self.number(relation, 1), self.text(relation, 1)
        usual = (
            *("count(*)", f"count({number})", f"count({text})", f"sum({number})", f"min({number})"),
            *(f"max({text})", f"avg({number})", f"count(DISTINCT {number})", f"min({text})"),
        )
        further = [*self.further_aggregates(number, text), *self.statistics(relation)]
        made = self.pick(*usual, *[self.pick_next(further, 7)] * 26)
        plain = "DISTINCT" not in made and not made.startswith(_OF_AGGREGATES) and self.choice.random() < 0.2
        return f"{made} FILTER (WHERE {self.condition(relation, 1)})" if plain else made

    def further_aggregates(self, number: str, text: str) -> Sequence[str]:
        part, descending = self.pick("0.0", "0.3", "0.5", "0.9"), self.pick("", " DESC")
        return (
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
            f"try_sum({number})",
            f"try_avg({number})",
            f"max_by({text}, struct({number}, {text}))",
            f"min_by({number}, struct({text}, {number}))",
            f"sort_array(collect_list({number}))",
            f"sort_array(collect_set({text}))",
            f"approx_count_distinct({number})",
            f"hll_sketch_estimate(hll_sketch_agg(CAST({number} AS BIGINT)))",
            f"hll_sketch_estimate(hll_union(hll_sketch_agg({text}), hll_sketch_agg(CAST({number} AS INT))))",
            f"array_distinct(transform(histogram_numeric({number}, 99), b -> b.x))",
            f"aggregate(histogram_numeric({number}, 99), 0.0D, (total, b) -> total + b.y)",
            f"count_if({number} > 1)",
            f"bool_or({number} > 1)",
            f"bool_and({number} > 1)",
        )

    def statistics(self, relation: Relation) -> Sequence[str]:
        a, b = self.number(relation, 1), self.number(relation, 1)
        of_one = ("var_samp", "var_pop", "stddev_samp", "stddev_pop", "skewness", "kurtosis")
        of_two = (
            *("covar_samp", "covar_pop", "corr", "regr_slope", "regr_intercept", "regr_r2", "regr_sxx"),
            *("regr_sxy", "regr_syy", "regr_count", "regr_avgx", "regr_avgy"),
        )
        return [f"{each}({a})" for each in of_one] + [f"{each}({a}, {b})" for each in of_two]
