"""The command line: parse, make the public calls, render."""

from orthoslice.cli import comparing, keeping, upkeep  # noqa: F401 (commands in the order of the help)
from orthoslice.cli.app import app

__all__ = ["app"]
