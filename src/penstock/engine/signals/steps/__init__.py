"""Steps of the signal operators. Importing this package registers them."""

from penstock.engine.signals.steps import history, lifts, silence, statistics

__all__ = ["history", "lifts", "silence", "statistics"]
