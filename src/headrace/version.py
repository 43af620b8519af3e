"""Version of the distribution, read by `pyproject.toml` and recorded in plan files."""

__version__ = "0.1.0"
