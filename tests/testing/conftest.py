"""The command as a process of its own, as in the tests of the command line."""

from tests.cli.conftest import folder, headrace

__all__ = ["folder", "headrace"]
