"""Version of the distribution, which `pyproject.toml` reads and files of plans record."""

__version__ = "0.1.0"
