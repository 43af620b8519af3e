"""The steps of the operators on signals. Importing this package registers them."""

from penstock.engine.signals.steps import bridges, history, lifts, silence, statistics

__all__ = ["bridges", "history", "lifts", "silence", "statistics"]
