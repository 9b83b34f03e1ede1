"""A trained policy outside the store: a folder with its card and lineage.

*The policy* is the one that a run trained last, found by the run's name or a row's.

*The card* says what it is, where it comes from and what it scores. Every text that is data goes
through the Markdown filter, and the card's head is written by a YAML writer, so that no name or
judge can add a heading, a link or a key of its own. A policy may be used under the terms of the
model it was trained from. That model's own card names its licence in the block of YAML at its head,
where the model lies on this machine; for models whose card is not here, what their publishers say
is known below.

*The folder* has the trained files copied, not linked, so that it may lie on another disk and be
changed without harm to the store. It is written beside its place and renamed when it is whole. Its
lineage is every stage behind the policy, as the store's manifests say, inputs first.
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
from typing import Any, NamedTuple

from harness.errors import HarnessError, UserError
from harness.foreign import READ_BY_LOADERS
from harness.pipeline.algorithm import Planner, Run
from harness.pipeline.runs import cells_served
from harness.registry.declared import find_table
from harness.registry.documents import YamlFault, nearest, parse_yaml
from harness.registry.paper import the_paper
from harness.registry.profile import Profile, roles_of, source_in_words, unsupported
from harness.registry.recipe import Recipe
from harness.registry.schema import Table
from harness.report.render import template
from harness.report.scores import numbers, read_wanted
from harness.runtime.files import FileEntry, dumps, explained, seal_files
from harness.runtime.manifest import git_state
from harness.runtime.plan import Plan
from harness.runtime.stage import Stage
from harness.runtime.store import Store
from harness.worlds.lookup import resolve, world_of
from harness.worlds.real.world import World


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
        return self.run.training[-1]

    @property
    def base(self) -> str:
        """Identity of the model that the run began with."""
        return self.world.policy()

    @property
    def title(self) -> str:
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


class Licence(NamedTuple):
    """A licence by the hub's name for it, with an address of its text where one is known."""

    name: str
    link: str | None = None


PUBLISHED = {"google/gemma-": Licence("gemma", "https://ai.google.dev/gemma/terms")}
"""Licences by how a model's name begins."""


def licence_of(base: str) -> Licence | None:
    """Return the licence of a model by its identity; None where nothing here says."""
    for beginning, known in PUBLISHED.items():
        if base.startswith(beginning):
            return known
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
    profile, run, world = policy.profile, policy.run, policy.world
    source = profile.prompts
    base, _, revision = policy.base.partition("@")
    scores = _scores(policy, store)
    facts = {
        "run": run.run_id,
        "rows": ", ".join(policy.places),
        "algorithm": str(run.recipe.algorithm),
        "profile": f"{profile.name}; {profile.description}",
        "scale": SCALES[profile.scale],
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
        paper=the_paper(),
        title=policy.title,
        facts=facts,
        recipe=json.dumps(run.recipe.canonical(), indent=2, ensure_ascii=False),
        scores=scores,
        licence=licence_of(policy.base),
        toy=profile.scale == "toy",
    )


def _head(policy: TrainedPolicy, scores: Iterable[Sequence[str]]) -> str:
    """Return the card's head: what the hub reads of it, with the lines of the card's scores."""
    from huggingface_hub import EvalResult, ModelCardData

    licence = licence_of(policy.base)
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
    method, scale = the_paper().method, f"scale:{policy.profile.scale}"
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag="text-generation",
        license=licence and licence.name,
        license_link=licence and licence.link,
        base_model=None if policy.world.self_contained else policy.base.partition("@")[0],
        tags=[method, str(policy.run.recipe.algorithm), scale],
        model_name=policy.title if results else None,
        eval_results=results or None,
    )
    return f"{data.to_yaml()}\n"


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


# The folder.

FORMAT = 2
"""Version of the form of `lineage.json`."""


def lineage(
    policy: TrainedPolicy, store: Store, files: Mapping[str, FileEntry], commit: str | None
) -> dict[str, Any]:
    """Return a trained policy's lineage as JSON data; `commit` is the exporting checkout's."""
    run = policy.run
    return {
        "format": FORMAT,
        "run": run.run_id,
        "profile": run.profile,
        "scale": policy.profile.scale,
        "seed": run.seed,
        "recipe": run.recipe.canonical(),
        "base_model": policy.base,
        "rows": list(policy.places),
        "trained_by": policy.stage.fingerprint,
        "judged_by": {
            name: judge.fingerprint
            for name, judge in run.judges.items()
            if store.status(judge.fingerprint) == "done"
        },
        "exported_by_commit": commit,
        "stages": [store.manifest(stage.fingerprint) for stage in Plan([policy.stage])],
        "files": dict(files),
    }


LINEAGE = "lineage.json"

MODEL = "model/"
"""Where a training stage's output has the policy."""


def export(
    policy: TrainedPolicy, store: Store, target: Path, root: Path
) -> Mapping[str, FileEntry]:
    """Write a trained policy's folder, and return its files by name; `root` is the checkout."""
    check_free(target)
    check_trained(policy, store)
    with explained(f"exporting {policy.title}", target):
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            files = _fill(draft, policy, store, root)
            draft.chmod(0o755)  # a temporary folder is its maker's alone
            os.rename(draft, target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return files


def check_free(target: Path) -> None:
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise UserError(f"{target} is no folder; give a new one with `--output`")
    if target.is_dir() and any(target.iterdir()):
        raise UserError(f"{target} is not empty; give a new folder with `--output`")


def _fill(draft: Path, policy: TrainedPolicy, store: Store, root: Path) -> Mapping[str, FileEntry]:
    """Write the folder's files; return their digests, that of the lineage excepted."""
    written = store.manifest(policy.stage.fingerprint)["files"]
    entry = store.open(policy.stage.fingerprint)
    for name in written:
        inner = name.removeprefix(MODEL)
        if not name.startswith(MODEL) or not name.endswith(READ_BY_LOADERS):
            continue
        copy = draft / inner
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(entry / name, copy)
    (draft / CARD).write_text(card_of(policy, store), encoding="utf-8")
    files = seal_files(draft)
    for inner in files.keys() - {CARD}:
        if files[inner] != written[MODEL + inner]:
            raise HarnessError(f"the copy of {inner} differs from the original; export it again")
    commit, _ = git_state(root)
    (draft / LINEAGE).write_text(dumps(lineage(policy, store, files, commit)), encoding="utf-8")
    return files
