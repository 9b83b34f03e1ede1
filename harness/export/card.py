"""The model card of an exported policy: what it is, where it comes from, what it scores.

Every text that is data goes through the Markdown filter, and the card's head is written by a YAML
writer, so that no name or judge can add a heading, a link or a key of its own.
"""

from __future__ import annotations

import json
from typing import Any

import yaml

from harness.export.licence import licence_of
from harness.export.policy import TrainedPolicy
from harness.registry.profile import MEANINGLESS, roles_of, source_in_words
from harness.report.render import template
from harness.report.scores import numbers, read_wanted
from harness.runtime.store import Store

CARD = "README.md"

SCALES = {
    "toy": "a toy: it lives in an embedded world and speaks no human language",
    "reduced": "reduced: a smaller model or fewer prompts than the paper's",
    "paper": "the paper's own",
}


def card_of(policy: TrainedPolicy, store: Store) -> str:
    """Return the card of a trained policy as Markdown with a head of YAML.

    Raises:
        StoreError: a stored score is not what was written.
    """
    profile, run, world = policy.profile, policy.run, policy.world
    source = profile.prompts
    base, _, revision = policy.base.partition("@")
    meaning = None if profile.stand_ins is None else MEANINGLESS
    facts = {
        "run": run.run_id,
        "rows": ", ".join(policy.places),
        "algorithm": str(run.recipe.algorithm),
        "profile": f"{profile.name}; {profile.description}",
        "scale": SCALES[profile.scale] if meaning is None else f"a toy: {meaning}",
        "seed": str(run.seed),
        "base model": base,
        "its revision": revision or "not recorded",
        "prompts": source_in_words("@".join(filter(None, (source.source, source.revision)))),
        "reward model": ", ".join(
            world.reward_model(role)
            if role in profile.reward_models
            else f"{role}, of the run's own"
            for role in dict.fromkeys(roles_of(run.recipe))
        ),
        "creator": source_in_words(profile.creator.source),
        "trained by": policy.stage.fingerprint,
    }
    return template("model_card.md.j2").render(
        head=_head(policy),
        title=policy.title,
        facts=facts,
        recipe=json.dumps(run.recipe.canonical(), indent=2, ensure_ascii=False),
        scores=_scores(policy, store),
        licence=licence_of(policy.base),
        meaning=meaning,
        toy=profile.scale == "toy",
    )


def _head(policy: TrainedPolicy) -> str:
    """Return the card's head: what the hub reads of it."""
    licence = licence_of(policy.base)
    head: dict[str, Any] = {"library_name": "transformers", "pipeline_tag": "text-generation"}
    if licence is not None:
        head["license"] = licence.name
        if licence.link is not None:
            head["license_link"] = licence.link
    if not policy.world.self_contained:
        head["base_model"] = policy.base.partition("@")[0]
    head["tags"] = ["eva", str(policy.run.recipe.algorithm), f"scale:{policy.profile.scale}"]
    return yaml.safe_dump(head, sort_keys=False, allow_unicode=True)


def _scores(policy: TrainedPolicy, store: Store) -> list[tuple[str, ...]]:
    """Return a line for each score of each benchmark: what was measured, by whom, or `not run`."""
    run, profile = policy.run, policy.profile
    benchmarks = {name: profile.benchmarks[name] for name in run.judges}
    wanted = [(run.run_id, run.seed, score) for b in benchmarks.values() for score in b.columns]
    measured = read_wanted({(run.run_id, run.seed): run}, wanted, profile, store)
    lines: list[tuple[str, ...]] = []
    for name, benchmark in benchmarks.items():
        judge = str(run.judges[name].settings["judge"])
        for score in benchmark.columns:
            values = measured.get((run.run_id, run.seed, score), {})
            found = numbers(measured, run.run_id, None, (run.seed,), score)
            known = found.mean is not None and found.ci_low is not None
            mean = f"{found.mean:.4g}" if known else "not run"
            interval = f"{found.ci_low:.4g} to {found.ci_high:.4g}" if known else "–"
            lines.append((name, score, mean, interval, str(len(values)) if known else "–", judge))
    return lines
