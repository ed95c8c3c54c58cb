"""The JSON Schema of answers of the command line, and a check that a record follows it."""

from __future__ import annotations

import json
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
SCHEMA = json.loads((DOCS / "cli.schema.json").read_text(encoding="utf-8"))


def check(value, rule=SCHEMA, where="record"):
    """Raise unless a value follows a JSON Schema of the keywords used here, and has no key beyond it."""
    if "$ref" in rule:
        rule = SCHEMA["$defs"][rule["$ref"].removeprefix("#/$defs/")]
    known = {"$schema", "$id", "$defs", "title", "description", "type", "properties", "required", "items"}
    assert set(rule) <= known | {"enum", "const", "minItems", "maxItems", "minimum", "maximum"}, where
    kinds = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "null": type(None),
    }
    allowed = rule.get("type", list(kinds))
    allowed = [allowed] if isinstance(allowed, str) else allowed
    is_truth = isinstance(value, bool)
    assert any(isinstance(value, kinds[k]) and is_truth <= (k == "boolean") for k in allowed), (
        f"{where}: {value!r}"
    )
    assert value in rule.get("enum", [value]), where
    assert value == rule.get("const", value), where
    if isinstance(value, dict) and "properties" in rule:
        assert set(value) <= set(rule["properties"]), f"{where}: {set(value) - set(rule['properties'])}"
        assert set(rule.get("required", ())) <= set(value), f"{where}: {set(rule['required']) - set(value)}"
        for key, part in value.items():
            check(part, rule["properties"][key], f"{where}.{key}")
    elif isinstance(value, list):
        assert rule.get("minItems", 0) <= len(value) <= rule.get("maxItems", len(value)), where
        for part in value:
            check(part, rule.get("items", {}), f"{where}[]")
    elif isinstance(value, int | float) and not is_truth:
        assert rule.get("minimum", value) <= value <= rule.get("maximum", value), f"{where}: {value}"
