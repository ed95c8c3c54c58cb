"""The command line, as a user runs it."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from orthoslice.cli import app


def test_demo_prints_ordered_numbers() -> None:
    result = CliRunner().invoke(app, ["demo", "3", "8"])
    assert result.exit_code == 0
    rows = {row["quantity"]: row for row in json.loads(result.stdout)["rows"]}
    assert list(rows) == ["SW_2", "W_2", "PW_2"]
    for name in ("SW_2", "PW_2"):
        assert rows[name]["low"] < rows[name]["estimate"] < rows[name]["high"]
    assert rows["SW_2"]["estimate"] < rows["W_2"]["low"] < rows["W_2"]["high"] < rows["PW_2"]["estimate"]


def test_demo_prints_a_table_when_asked() -> None:
    result = CliRunner().invoke(app, ["demo", "--words"])
    assert result.exit_code == 0
    for text in ("SW_2", "PW_2", "W_2", "certain bounds", "Digit 0 (178, 64) against digit 1 (182, 64)"):
        assert text in result.stdout


@pytest.mark.parametrize("arguments", [["demo", "12"], ["demo", "--p", "0.5"], ["nothing"]])
def test_bad_usage_exits_with_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2
