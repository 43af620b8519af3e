"""Steps of the signal operators. Importing this package registers them."""

from headrace.engine.signals.steps import filters, history, lifts, statistics

__all__ = ["filters", "history", "lifts", "statistics"]
