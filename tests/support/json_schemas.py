"""docs/commands.schema.json: whether what a command prints with --json is as documented."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DOCUMENT = json.loads((Path(__file__).parents[2] / "docs" / "commands.schema.json").read_text())


def wrong_in(name: str, form: Any) -> list[str]:
    """What does not fit the definition of this name."""
    from jsonschema import Draft202012Validator

    validator = Draft202012Validator(DOCUMENT | {"$ref": f"#/$defs/{name}"})
    return [f"{list(error.absolute_path)}: {error.message}" for error in validator.iter_errors(form)]
