"""The command as a process of its own, as in the tests of the command line."""

from tests.cli.conftest import folder, penstock

__all__ = ["folder", "penstock"]
