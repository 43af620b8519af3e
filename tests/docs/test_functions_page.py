"""docs/reference/functions.md has every function, and what its example gives."""

import penstock as ps
from tests.docs.functions_page import EXAMPLES, MEANINGS, PAGE, page
from tests.golden import assert_golden


def test_the_page_is_up_to_date() -> None:
    assert_golden(PAGE, page())


def test_every_function_has_an_example() -> None:
    assert list(EXAMPLES) == sorted(EXAMPLES) == dir(ps.functions)


def test_every_function_has_a_meaning() -> None:
    assert list(MEANINGS) == dir(ps.functions)
