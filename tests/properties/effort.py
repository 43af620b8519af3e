"""How many examples a property gets: its share of what the Hypothesis profile allows."""

from __future__ import annotations

from hypothesis import settings


def examples(share: float) -> settings:
    """`share` times as many examples as the profile's default (40 at home and in CI)."""
    return settings(max_examples=max(1, round(settings().max_examples * share)))
