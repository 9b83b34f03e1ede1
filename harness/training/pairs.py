"""Preference pairs as trainers read them: texts become messages, and over-long pairs are left out.

A pair that does not fit is left out whole and counted. Cutting it, as the authors do, would train
on an answer that ends nowhere; TRL's trainers differ here from one another: one drops such pairs
without a word, the others cut an answer down to nothing and return a loss that is not a number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from transformers import PreTrainedTokenizerBase

from harness.models.loading import tokenize

Pairs: TypeAlias = "pa.Table | Sequence[Mapping[str, Any]]"

TEXTS = ("prompt", "chosen", "rejected")
SIDES = ("chosen", "rejected")


def read_pairs(pairs: Pairs) -> list[dict[str, Any]]:
    """Return the pairs as rows whose columns `prompt`, `chosen` and `rejected` are texts."""
    rows = pairs.to_pylist() if isinstance(pairs, pa.Table) else pairs
    return [{**row, **{name: str(row[name]) for name in TEXTS}} for row in rows]


def as_messages(row: Mapping[str, Any]) -> dict[str, list[dict[str, str]]]:
    """Return the texts of a pair as the conversations that TRL's trainers take."""
    return {
        "prompt": [{"role": "user", "content": row["prompt"]}],
        "chosen": [{"role": "assistant", "content": row["chosen"]}],
        "rejected": [{"role": "assistant", "content": row["rejected"]}],
    }


def short_enough(
    rows: Sequence[dict[str, Any]],
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    max_prompt_length: int | None = None,
) -> list[dict[str, Any]]:
    """Return the pairs that fit.

    Args:
        rows: pairs as `read_pairs` returns them.
        tokenizer: the policy's tokenizer, with its chat template.
        max_length: longest prompt plus completion in tokens, for either side, the template's own
            tokens included.
        max_prompt_length: longest prompt in tokens, generation header included; None sets no limit.
    """
    conversations = [as_messages(row) for row in rows]
    whole = [[*texts["prompt"], *texts[side]] for texts in conversations for side in SIDES]
    lengths = [len(ids) for ids in tokenize(tokenizer, whole, add_generation_prompt=False)]
    fits = [max(both) <= max_length for both in zip(lengths[::2], lengths[1::2], strict=True)]
    if max_prompt_length is not None:
        prompts = [texts["prompt"] for texts in conversations]
        heads = tokenize(tokenizer, prompts, add_generation_prompt=True)
        fits = [ok and len(ids) <= max_prompt_length for ok, ids in zip(fits, heads, strict=True)]
    return [row for row, ok in zip(rows, fits, strict=True) if ok]
