"""docs/explanation/nexmark.md shows the flows and the SQL that run (HEADRACE_WRITE_GOLDEN=1 writes it)."""

from examples.nexmark.page import page
from examples.nexmark.queries import QUERIES
from tests.conftest import ROOT
from tests.golden import assert_golden


def test_the_page_is_made_of_the_queries() -> None:
    assert_golden(ROOT / "docs" / "explanation" / "nexmark.md", page())


def test_every_query_of_the_benchmark_is_there_and_in_order() -> None:
    assert list(QUERIES) == [f"q{number}" for number in range(23)]
    assert all(query.name == name for name, query in QUERIES.items())


def test_the_columns_of_a_flow_are_those_that_its_sql_names() -> None:
    from examples.nexmark.oracle import Database

    database = Database()
    for query in QUERIES.values():
        graph = query.flow().graph()
        columns = [field.name for field in graph.nodes[graph.sinks[query.name]].schema.fields]
        assert database.columns(query) == columns, query.name
