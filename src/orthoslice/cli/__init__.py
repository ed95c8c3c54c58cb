"""The command line: parse, make the public calls, render."""

from orthoslice.cli.app import app

__all__ = ["app"]
