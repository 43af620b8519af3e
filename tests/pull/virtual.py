"""What the fixture `virtual` is."""

from __future__ import annotations

from collections.abc import Callable

from headrace.testing.pull import VirtualRuntime

Virtual = Callable[..., VirtualRuntime]
"""Makes a `VirtualRuntime` that is closed when the test is over."""
