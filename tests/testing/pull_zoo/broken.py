"""What a broken module is caught by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Broken = Callable[[], Any]
ZOO: list[Any] = []


def breaks(rule: str) -> Callable[[Broken], Broken]:
    """The rule that a maker's module must be caught by."""

    def mark(make: Broken) -> Broken:
        ZOO.append(pytest.param(make, rule, id=make.__name__))
        return make

    return mark
