"""Exports a trained policy from the store to a folder with its model card and lineage.

*The policy* is the last one trained by a run, found by run id or row.

*The card* gives the policy's description, origin and scores. All data goes through the Markdown
filter, and the card's metadata is written by the hub's library, so that no name or judge can inject
a heading, a link or a key. The license is that of the model it was trained from, according to that
model's own card, if that is on this machine.

*The folder* has copies of the trained files, not links, so that it can be on another disk and be
changed without harming the store. It is written next to its destination and renamed when complete.
Its lineage is the store's manifests of all stages behind the policy, inputs first.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UserError
from harness.foreign import READ_BY_LOADERS
from harness.pipeline.algorithm import Planner, Run
from harness.pipeline.runs import cells_served
from harness.registry.declared import find_table
from harness.registry.documents import nearest
from harness.registry.paper import the_paper
from harness.registry.profile import Profile, roles_of, source_in_words, unsupported
from harness.registry.recipe import Recipe
from harness.registry.schema import Table
from harness.report.render import template
from harness.report.scores import RunScores, read_wanted
from harness.runtime.files import FileEntry, dumps, explained, seal_files
from harness.runtime.manifest import git_state
from harness.runtime.plan import Plan
from harness.runtime.stage import Stage
from harness.runtime.store import Store
from harness.worlds.lookup import resolve, world_of
from harness.worlds.real.world import World

CARD = "README.md"
LINEAGE = "lineage.json"

FORMAT = 2
"""Format version of `lineage.json`."""

MODEL = "model/"
"""The policy's folder in a training stage's output."""

NOT_RUN = "not run"
"""Placeholder for a score that was not measured."""


@dataclass(frozen=True)
class TrainedPolicy:
    """The policy at the end of a run.

    Attributes:
        run: The run, with all benchmarks of the profile.
        world: Resolves the profile's names.
        places: The rows that the run serves, as `table/row`, the requested one first.
    """

    run: Run
    profile: Profile
    world: World
    places: tuple[str, ...]

    @property
    def stage(self) -> Stage:
        return self.run.training[-1]

    @property
    def base(self) -> str:
        """Identity of the model that the run started from."""
        return self.world.policy()

    @property
    def title(self) -> str:
        return f"{self.run.run_id}, {self.run.profile}, seed {self.run.seed}"


def find_policy(
    name: str, tables: Mapping[str, Table], profile: Profile, seed: int
) -> TrainedPolicy:
    """Return the policy of a run id or row (`table4/eva-a_min`), whether trained or not."""
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


def _named(name: str, tables: Mapping[str, Table]) -> tuple[str, Recipe]:
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
        close = nearest(name, known, most=0)
        raise UserError(f"there is no run `{name}`{close or '; name a row, as `table4/eva-a_min`'}")
    return name, known[name]


def license_of(base: str) -> str | None:
    """Return the hub's name for a model's license, or None if unknown here."""
    from huggingface_hub import ModelCard

    try:
        said = ModelCard.load(resolve(base) / CARD).data.license
    except Exception:  # noqa: BLE001 (not on this machine, or not a valid card)
        return None
    # The card is untrusted: accept only what looks like a license name.
    named = isinstance(said, str) and re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,60}", said)
    return said if named else None


def card_of(policy: TrainedPolicy, store: Store) -> str:
    scores, license, run = _scores(policy, store), license_of(policy.base), policy.run
    source = policy.profile.prompts
    return template("model_card.md.j2").render(
        head=_head(policy, scores, license),
        paper=the_paper(),
        policy=policy,
        prompts=source_in_words("@".join(filter(None, (source.source, source.revision)))),
        creator=source_in_words(policy.profile.creator.source),
        reward_models=[
            policy.world.reward_model(role)
            if role in policy.profile.reward_models
            else f"{role}, of the run's own"
            for role in dict.fromkeys(roles_of(run.recipe))
        ],
        recipe=json.dumps(run.recipe.canonical(), indent=2, ensure_ascii=False),
        scores=scores,
        license=license,
    )


def _head(policy: TrainedPolicy, scores: Iterable[Sequence[str]], license: str | None) -> str:
    """Return the card's metadata for the hub, including its scores."""
    from huggingface_hub import EvalResult, ModelCardData

    results = [
        EvalResult(
            task_type="text-generation",
            dataset_type=benchmark,
            dataset_name=f"{benchmark}, judged by {judge}",
            metric_type=score,
            metric_name=score,
            metric_value=float(mean),
        )
        for benchmark, score, mean, _, _, judge in scores
        if mean != NOT_RUN
    ]
    scale, algorithm = f"scale:{policy.profile.scale}", str(policy.run.recipe.algorithm)
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag="text-generation",
        license=license,
        base_model=None if policy.world.self_contained else policy.base.partition("@")[0],
        tags=[the_paper().method, algorithm, scale],
        model_name=policy.title if results else None,
        eval_results=results or None,
    )
    return f"{data.to_yaml()}\n"


def _scores(policy: TrainedPolicy, store: Store) -> list[tuple[str, ...]]:
    """Return a row per benchmark score: mean, interval and items (or `not run`), and judge."""
    run, profile = policy.run, policy.profile
    named = [(name, score) for name in run.judges for score in profile.benchmarks[name].columns]
    wanted = [(run.run_id, run.seed, score) for _, score in named]
    measured = read_wanted({(run.run_id, run.seed): run}, wanted, profile, store)
    scores, lines = RunScores(measured, (run.seed,)), list[tuple[str, ...]]()
    for name, score in named:
        found = scores.of_gain(run.run_id, None, score)
        told = (NOT_RUN, "–", "–")
        if found.mean is not None and found.ci_low is not None:
            items = len(measured[run.run_id, run.seed, score])
            told = f"{found.mean:.4g}", f"{found.ci_low:.4g} to {found.ci_high:.4g}", str(items)
        lines.append((name, score, *told, str(run.judges[name].settings["judge"])))
    return lines


def export(
    policy: TrainedPolicy, store: Store, target: Path, root: Path
) -> Mapping[str, FileEntry]:
    """Write a trained policy's folder and return its files by name; `root` is the checkout."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError(f"{target} is not empty; give a new folder with `--output`")
    run, state = policy.run, store.status(policy.stage.fingerprint)
    if state != "done":
        table, _, row = policy.places[0].partition("/")
        raise UserError(
            f"the run `{run.run_id}` with seed {run.seed} on `{run.profile}` is not finished (its "
            f"last training is {state}); type `harness run {table} --profile {run.profile} "
            f"--rows {row} --seeds {run.seed}` first"
        )
    with explained(f"exporting {policy.title}", target):
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            files = _fill(draft, policy, store, root)
            draft.chmod(0o755)  # temporary folders are private to their owner
            os.rename(draft, target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return files


def _fill(draft: Path, policy: TrainedPolicy, store: Store, root: Path) -> Mapping[str, FileEntry]:
    """Write the folder's files; return their digests, except the lineage's."""
    run, trained_by = policy.run, policy.stage.fingerprint
    written, entry = store.manifest(trained_by)["files"], store.open(trained_by)
    for name in written:
        if name.startswith(MODEL) and name.endswith(READ_BY_LOADERS):
            copy = draft / name.removeprefix(MODEL)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(entry / name, copy)
    (draft / CARD).write_text(card_of(policy, store), encoding="utf-8")
    files = seal_files(draft)
    lineage = {
        "format": FORMAT,
        "run": run.run_id,
        "profile": run.profile,
        "scale": policy.profile.scale,
        "seed": run.seed,
        "recipe": run.recipe.canonical(),
        "base_model": policy.base,
        "rows": list(policy.places),
        "trained_by": trained_by,
        "judged_by": {
            name: judge.fingerprint
            for name, judge in run.judges.items()
            if store.status(judge.fingerprint) == "done"
        },
        "exported_by_commit": git_state(root)[0],
        "stages": [store.manifest(stage.fingerprint) for stage in Plan([policy.stage])],
        "files": files,
    }
    (draft / LINEAGE).write_text(dumps(lineage), encoding="utf-8")
    return files
