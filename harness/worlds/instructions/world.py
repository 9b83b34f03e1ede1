"""What a profile names of this world: prompts, creator, and benchmarks judged by rule.

Each part is chosen on its own (`instructions` as `prompts.source`, `creator.source`, reward model
or judge), so a larger policy takes the same prompts, rewards and benchmarks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness import worlds
from harness.errors import UserError
from harness.eva.evolving import OwnCreator, own_method, plugin_settings
from harness.registry.profile import Profile
from harness.runtime.stage import Json, StageContext
from harness.words import ignore
from harness.worlds import NO_TOPIC, Evolver, Item, Settings, Topics, stage_io
from harness.worlds.instructions.creator import (
    BY_POLICY,
    METHODS,
    PolicyCreator,
    RuleCreator,
    why_unusable,
)
from harness.worlds.instructions.kinds import KINDS, words
from harness.worlds.instructions.rules import distinct, is_text, share_followed, task_of
from harness.worlds.instructions.tasks import (
    BENCHMARKS,
    GUARDED,
    VERSION,
    identity_of,
    part_of,
    read,
    texts_of,
)
from harness.worlds.real.models import resolve
from harness.worlds.real.world import HubRuntime

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.endpoint.client import Done


class Prompts(worlds.Prompts):
    """The pool of prompts, cut by seed as a data set of the hub is."""

    def __init__(self, profile: Profile) -> None:
        self._count = profile.x * profile.prompts.available

    def identity(self) -> Settings:
        return {"source": identity_of("prompts", self._count)}

    def off_target(self) -> str:
        """Return the identity of prompts of the kinds that the benchmark lacks."""
        return identity_of("off_target", self._count)

    def topics(self) -> Topics | None:
        families = dict.fromkeys(kind.family for kind in KINDS.values())
        return Topics(tuple(families), None, lambda folder: stage_io.read_topics(folder, _topic))


def creator_settings(policy: Callable[[], str], method: str) -> Settings:
    """Return the settings of rewriting by rule, by the base policy, or by a plug-in's method."""
    plugin, known = plugin_settings(method), (*METHODS, BY_POLICY)
    if not plugin and method not in known:
        raise UserError(
            f"the world `instructions` has no evolving method `{method}`; use one of "
            f"{', '.join(known)}"
        )
    own: Settings = {"writer": policy()} if method == BY_POLICY else {}
    return {"creator": f"{VERSION}/{method}", **own, **plugin}


def _topic(prompt: str) -> str:
    task = read(prompt)
    return NO_TOPIC if task is None else KINDS[task.kinds[0]].family


class InstructionsRuntime(HubRuntime):
    """Rewrites and judges by rule; a policy that helps may be of any world."""

    def human_prompts(self, settings: Mapping[str, Json]) -> dict[int, str]:
        return stage_io.draw_prompts(settings, texts_of)

    def evolver(self, settings: Mapping[str, Json], done: Done = ignore) -> Evolver:
        own = own_method(settings)
        if own is not None:
            return Evolver(OwnCreator(own, why_unusable))
        method = str(settings["creator"]).rpartition("/")[2]
        if method == BY_POLICY:
            return Evolver(PolicyCreator(resolve(str(settings["writer"]))))
        return Evolver(RuleCreator(METHODS[method]))

    def questions(self, identity: str) -> Sequence[Item]:
        name, _ = part_of(identity)
        return [
            Item(f"{name}{at:05d}", task_of(text).kinds[0], text)
            for at, text in enumerate(texts_of(identity))
        ]

    def judge(self, ctx: StageContext) -> None:
        """Judge answers by rule.

        Per prompt: all instructions followed (`strict`), the share of them (`soft`), both in %;
        and, to show what a score was bought with, length in tokens, the share of distinct words in
        %, and, for the first prompts, the mean log-probability of a token under the base policy, in
        nats.
        """
        identity = str(ctx.settings["benchmark"])
        rows = stage_io.read_rows(ctx.inputs["answers"] / "answers.parquet")
        asked = {item.item_id: item for item in self.questions(identity)}
        name, _ = part_of(identity)
        judgments, scores = stage_io.Rows(), stage_io.Rows()

        def add(row: Mapping[str, Any], what: str, value: float) -> None:
            if (column := BENCHMARKS[name].get(what)) is not None:
                scores.append({"prompt_id": row["prompt_id"], "column": column, "value": value})

        for row in rows:
            judgment, values = _judged(row, asked[row["prompt_id"]])
            judgments.append(judgment)
            for what, value in values.items():
                add(row, what, value)
        if "base" in ctx.settings:
            logps = log_probabilities(resolve(str(ctx.settings["base"])), rows[:GUARDED])
            for row, value in zip(rows, logps, strict=False):
                add(row, "logp", float(value))
        found: dict[str, list[float]] = {}
        for score in scores:
            found.setdefault(score["column"], []).append(score["value"])
        summary = {
            "scores": {column: float(np.mean(own)) for column, own in found.items()},
            "n": len(rows),
            "n_missing": 0,
        }
        stage_io.write_judged(ctx, judgments, scores, summary)


def _judged(row: Mapping[str, Any], item: Item) -> tuple[dict[str, Any], dict[str, float]]:
    task, answer = task_of(item.turn_1), row["completion"]
    share = share_followed(task, answer)
    said = {one.kind: "yes" if one.followed(answer) else "no" for one in task.instructions}
    judgment = {
        "prompt_id": item.item_id,
        "category": item.category,
        "number": 1,
        "reply": "; ".join(f"{kind}: {word}" for kind, word in said.items()),
        "verdict": f"{share:.3f}" if is_text(task, answer) else "not a text about it",
    }
    return judgment, {
        "strict": 100.0 * (share == 1.0),
        "soft": 100.0 * share,
        "len": float(row["n_tokens"]),
        "distinct": 100.0 * distinct(words(answer)),
    }


def log_probabilities(policy: Path, rows: stage_io.Rows) -> NDArray[np.float64]:
    """Return the mean log-probability, in nats, of each answer's tokens under a policy.

    An answer without tokens has that of the token that ended its turn.
    """
    import torch

    from harness.models.loading import batches_by_length, pad, tokenize
    from harness.models.policy import load_policy

    model = load_policy(policy)
    asked = [json.loads(row["conversation"]) for row in rows]
    heads = tokenize(model.tokenizer, asked, add_generation_prompt=True)
    tails = model.tokenizer([row["completion"] for row in rows], add_special_tokens=False)
    end = [model.tokenizer.eos_token_id]
    both = [head + (tail or end) for head, tail in zip(heads, tails["input_ids"], strict=True)]
    found = np.empty(len(rows))
    with torch.inference_mode():
        for batch in batches_by_length(both, 16):
            ids, mask = pad(model.tokenizer, [both[i] for i in batch], "right", "cpu")
            logits = model.model(input_ids=ids, attention_mask=mask).logits[:, :-1].float()
            taken = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
            for place, i in enumerate(batch):
                found[i] = float(taken[place, len(heads[i]) - 1 : len(both[i]) - 1].mean())
    return found
