"""The cases are mistakes: nobody but their test imports them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.cli.load_flow import separate_imports

collect_ignore_glob = ["cases/*.py"]


@pytest.fixture(autouse=True)
def imports_forgotten() -> Iterator[None]:
    """Commands run in this process: their modules must not stay for other tests."""
    with separate_imports():
        yield
