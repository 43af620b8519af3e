"""Every example runs on every engine."""

from __future__ import annotations

import pytest

from penstock.testing import Backend, InProcess


@pytest.fixture(params=["in process"])
def backend(request: pytest.FixtureRequest) -> Backend:
    return InProcess()
