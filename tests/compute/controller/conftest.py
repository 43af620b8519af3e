"""A world for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compute.controller.world import World


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.state.close()
