"""JSON Schemas of table, figure, claims, deviations and profile files, for editors.

The schemas are made from the models and kept beside this module; each YAML file names its own in
its first line. `python -m harness.registry.json_schema` writes them anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.registry.claims import FigureClaims
from harness.registry.deviations import Deviations
from harness.registry.figures import figure_schema
from harness.registry.profile import Profile
from harness.registry.recipe import Recipe
from harness.registry.schema import Table

FOLDER = Path(__file__).resolve().parent / "schemas"


def table_schema() -> dict[str, Any]:
    """Return the JSON Schema of a table file."""
    schema = Table.model_json_schema()
    recipe = Recipe.model_json_schema()
    definitions = schema["$defs"]
    definitions |= recipe.pop("$defs")
    definitions["Recipe"] = recipe
    source = schema["properties"]["source"]
    source["anyOf"] = [{"const": "ours"} if s == {"type": "null"} else s for s in source["anyOf"]]
    # Every layer holds some settings of a recipe; none of them is required on its own.
    for holder in (schema, definitions["Row"], definitions["Column"]):
        described = holder["properties"]["recipe"].get("description", "")
        holder["properties"]["recipe"] = {"$ref": "#/$defs/Recipe", "description": described}
    return _titled(schema, "A table of the paper")


def schemas() -> dict[str, str]:
    """Return the text of each schema file by its name."""
    made = {
        "table.json": table_schema(),
        "figure.json": _titled(figure_schema(), "A figure of the paper"),
        "claims.json": _titled(
            FigureClaims.model_json_schema(), "Claims of figures and of the text"
        ),
        "deviations.json": _titled(Deviations.model_json_schema(), "Deviations and ambiguities"),
        "profile.json": _titled(Profile.model_json_schema(), "A profile"),
    }
    return {name: json.dumps(schema, indent=2) + "\n" for name, schema in made.items()}


def _titled(schema: dict[str, Any], title: str) -> dict[str, Any]:
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return head | schema | {"title": title}


def write() -> None:
    """Write the schema files."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in schemas().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
