"""`python -m penstock.cli`."""

from penstock.cli.main import app

app()
