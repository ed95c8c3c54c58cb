"""Reports: a comparison as one HTML page, as the command ``orthoslice report`` writes it."""

from orthoslice.cli.report import render_report, write_report

__all__ = ["render_report", "write_report"]
