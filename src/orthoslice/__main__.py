"""`python -m orthoslice`."""

from orthoslice.cli import app

app()
