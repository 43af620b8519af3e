"""A short soak; benches/soak.py is as long as you like."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="grpcio is not installed")

from benches.soak import soak


@pytest.mark.verify(ci=False)
@pytest.mark.seeds(1)
def test_everything_is_right_after_minutes_of_overload_and_kills(seed: int, tmp_path: Path) -> None:
    found = asyncio.run(soak(4, seed, 20, tmp_path))
    assert found.wrong == []
