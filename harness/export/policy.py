"""The policy that a run trained last, found by the run's name or a row's, and its model card.

The card says what it is, where it comes from and what it scores. Every text that is data goes
through the Markdown filter, and the card's head is written by a YAML writer, so that no name or
judge can add a heading, a link or a key of its own.

A policy may be used under the terms of the model it was trained from. That model's own card names
its licence in the block of YAML at its head, where the model lies on this machine; for models
whose card is not here, what their publishers say is known below.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from harness.errors import HarnessError, UserError
from harness.registry.documents import nearest
from harness.registry.load import find_table
from harness.registry.profile import MEANINGLESS, Profile, roles_of, source_in_words, unsupported
from harness.registry.recipe import Recipe
from harness.registry.schema import Table
from harness.registry.yaml_reader import YamlFault, parse_yaml
from harness.report.render import template
from harness.report.scores import numbers, read_wanted
from harness.runtime.stage import Stage
from harness.runtime.store import Store
from harness.trainer.plan import Planner, Run
from harness.trainer.runs import cells_served
from harness.worlds.lookup import resolve, world_of
from harness.worlds.protocol import World


@dataclass(frozen=True)
class TrainedPolicy:
    """The policy at the end of a run.

    Attributes:
        run: the run, with every benchmark of the profile wanted.
        profile: the profile.
        world: says what the profile's names stand for.
        places: the rows that the run stands behind, as `table/row`; first the one asked for.
    """

    run: Run
    profile: Profile
    world: World
    places: tuple[str, ...]

    @property
    def stage(self) -> Stage:
        """The stage that trained the policy."""
        return self.run.training[-1]

    @property
    def base(self) -> str:
        """Identity of the model that the run began with."""
        return self.world.policy()

    @property
    def title(self) -> str:
        """The run with its scale and seed, for people."""
        return f"{self.run.run_id}, {self.run.profile}, seed {self.run.seed}"


def find_policy(
    name: str, tables: Mapping[str, Table], profile: Profile, seed: int
) -> TrainedPolicy:
    """Return the policy of a run's id or a row as `table4/eva-a_min`, whether trained or not."""
    run_id, recipe = _named(name, tables)
    if recipe.is_base:
        raise UserError(
            f"`{name}` is the base model, which no run trains; take {profile.policy} itself"
        )
    reasons = unsupported(recipe, (), profile)
    if reasons:
        raise UserError(
            f"`{name}` cannot run on the profile `{profile.name}`: {'; '.join(reasons)}"
        )
    world = world_of(profile)
    run = Planner(world).run(run_id, recipe, seed)
    places = sorted(cells_served(tables)[run_id], key=lambda place: place != name)
    return TrainedPolicy(run, profile, world, tuple(places))


def check_trained(policy: TrainedPolicy, store: Store) -> None:
    """Check that a policy is in the store, to its last byte."""
    run, stage = policy.run, policy.stage
    state = store.status(stage.fingerprint)
    if state == "done":
        store.verify(stage.fingerprint)
        return
    table, _, row = policy.places[0].partition("/")
    raise UserError(
        f"the run `{run.run_id}` with seed {run.seed} on `{run.profile}` is not finished (its last "
        f"training is {state}); type `harness run {table} --profile {run.profile} --rows {row} "
        f"--seeds {run.seed}` first"
    )


def _named(name: str, tables: Mapping[str, Table]) -> tuple[str, Recipe]:
    """Return run id and recipe of a row or a run."""
    table, slash, row_id = name.partition("/")
    if slash:
        row = find_table(tables, table).row(row_id)
        recipes = dict(tables[table].recipes(row))
        if row.kind == "prompts":
            raise UserError(f"`{name}` scores prompts and has no policy; name a run or another row")
        if len(recipes) > 1:
            raise UserError(
                f"`{name}` has a run for each column; name one of them: {', '.join(recipes)}"
            )
        return next(iter(recipes.items()))
    known: dict[str, Recipe] = {}
    for each in tables.values():
        for row in each.rows:
            known.update(each.recipes(row))
    if name not in known:
        raise UserError(f"there is no run `{name}`{nearest(name, known)}; rows are `table4/dpo-1`")
    return name, known[name]


_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,60}")
_HEAD = re.compile(r"\A---\s*\n(.*?)\n---\s*(\n|\Z)", re.DOTALL)

GEMMA_TERMS = "https://ai.google.dev/gemma/terms"

PUBLISHED: Mapping[str, tuple[str, str | None]] = {"google/gemma-": ("gemma", GEMMA_TERMS)}
"""Licence and its text, by how a model's name begins."""


@dataclass(frozen=True)
class Licence:
    """A licence by the hub's name for it, with an address of its text where one is known."""

    name: str
    link: str | None = None


def licence_of(base: str) -> Licence | None:
    """Return the licence of a model by its identity; None where nothing here says."""
    for beginning, (name, link) in PUBLISHED.items():
        if base.startswith(beginning):
            return Licence(name, link)
    try:
        card = resolve(base) / "README.md"
        text = card.read_text(encoding="utf-8") if card.is_file() else ""
    except (HarnessError, OSError, UnicodeDecodeError):
        return None
    said = head_of(text).get("license")
    # A card is somebody's text: only what looks like the name of a licence is taken over.
    return Licence(said) if isinstance(said, str) and _NAME.fullmatch(said) else None


def head_of(card: str) -> Mapping[str, Any]:
    """Return the block of YAML at the head of a model card; empty where there is none."""
    match = _HEAD.match(card)
    try:
        found = parse_yaml(match[1]) if match else None
    except YamlFault:
        return {}
    return found if isinstance(found, dict) else {}


CARD = "README.md"

NOT_RUN = "not run"
"""Stands for a score that was not measured."""

SCALES = {
    "toy": "a toy: it lives in an embedded world and speaks no human language",
    "reduced": "reduced: a smaller model or fewer prompts than the paper's",
    "paper": "the paper's own",
}


def card_of(policy: TrainedPolicy, store: Store) -> str:
    """Return the card of a trained policy as Markdown with a head of YAML."""
    profile, run, world = policy.profile, policy.run, policy.world
    source = profile.prompts
    base, _, revision = policy.base.partition("@")
    meaning = None if profile.stand_ins is None else MEANINGLESS
    scores = _scores(policy, store)
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
        head=_head(policy, scores),
        title=policy.title,
        facts=facts,
        recipe=json.dumps(run.recipe.canonical(), indent=2, ensure_ascii=False),
        scores=scores,
        licence=licence_of(policy.base),
        meaning=meaning,
        toy=profile.scale == "toy",
    )


def _head(policy: TrainedPolicy, scores: Iterable[Sequence[str]]) -> str:
    """Return the card's head: what the hub reads of it, with the lines of the card's scores."""
    licence = licence_of(policy.base)
    head: dict[str, Any] = {"library_name": "transformers", "pipeline_tag": "text-generation"}
    if licence is not None:
        head["license"] = licence.name
        if licence.link is not None:
            head["license_link"] = licence.link
    if not policy.world.self_contained:
        head["base_model"] = policy.base.partition("@")[0]
    head["tags"] = ["eva", str(policy.run.recipe.algorithm), f"scale:{policy.profile.scale}"]
    results = [
        {
            "task": {"type": "text-generation"},
            "dataset": {"name": f"{benchmark}, judged by {judge}", "type": benchmark},
            "metrics": [{"type": score, "value": float(mean), "name": score}],
        }
        for benchmark, score, mean, _, _, judge in scores
        if mean != NOT_RUN
    ]
    if results:  # the hub takes no model without results
        head["model-index"] = [{"name": policy.title, "results": results}]
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
            mean = f"{found.mean:.4g}" if known else NOT_RUN
            interval = f"{found.ci_low:.4g} to {found.ci_high:.4g}" if known else "–"
            lines.append((name, score, mean, interval, str(len(values)) if known else "–", judge))
    return lines
