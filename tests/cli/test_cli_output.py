"""The schema of what a verb prints with `--json` is made from its models."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from harness.cli.output import OUTPUTS

WITHOUT_VERSION = {"report", "claims", "error-rates", "sweep"}
"""What prints a list, of cells or of verdicts, or a report in the form in which it is published."""


@pytest.mark.parametrize("verb", OUTPUTS)
def test_every_schema_is_one_and_all_but_lists_have_a_version(
    call: Callable[..., Any], verb: str
) -> None:
    result = call("--json-schema", verb)
    assert result.exit_code == 0, result.stderr
    schema = json.loads(result.stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert ("schema_version" in json.dumps(schema)) == (verb not in WITHOUT_VERSION)


def test_a_verb_without_a_schema_is_a_sentence(call: Callable[..., Any]) -> None:
    result = call("--json-schema", "paln")
    assert result.exit_code == 2
    assert "`paln` is no verb with a schema" in result.stderr
    assert "Traceback" not in result.stderr
