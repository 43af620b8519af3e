"""Fixtures of the tests of pull-streams."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from headrace.testing.pull import VirtualRuntime
from tests.pull.virtual import Virtual


@pytest.fixture
def virtual() -> Iterator[Virtual]:
    with ExitStack() as stack:

        def make(**options: Any) -> VirtualRuntime:
            return stack.enter_context(VirtualRuntime(**options))

        yield make
