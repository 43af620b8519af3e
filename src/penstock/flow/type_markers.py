"""Type markers for facts of streams, for type checkers.

A subclass is the stronger guarantee and the parameters of `Stream` are
covariant, so a `Bounded` stream goes wherever an `Unbounded` one does. The
union of two markers is their meet: `Bounded | Unbounded` is not `Bounded`.
The build-time check (`penstock.analysis`) is the authority; this one is early.
"""


class Unbounded:
    """Marker of streams that may never end."""


class Bounded(Unbounded):
    """Marker of streams whose rows all come in the first tick."""


class Changes:
    """Marker of streams with retractions."""


class Append(Changes):
    """Marker of append streams."""


class NoOrder:
    """Marker of streams without a meaningful order."""


class Ordered(NoOrder):
    """Marker of streams with a meaningful order."""
