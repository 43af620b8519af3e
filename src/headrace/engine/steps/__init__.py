"""Steps: the generated Python of each operator. Importing the package registers them."""

from headrace.engine.steps import (
    partials,
    state_expiry,
)

__all__ = [
    "partials",
    "state_expiry",
]
