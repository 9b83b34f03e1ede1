"""Laws of the stages, run for real: a tiny world, two rows of table 4.

The world is made by the build tool's own function at a small size, so its policy has hardly
learnt anything; what is checked is what stages hand to one another, not how well it answers.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import build_micro as build
import numpy as np
import pytest
from build_micro import GENERAL, HARD, Course, PretrainConfig
from computing import compute, given, read_json, run_stage
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from harness.eva.informativeness import selected_count
from harness.eva.pairs import evolved_count
from harness.models.loading import from_folder, load_tokenizer
from harness.models.policy import generate
from harness.models.reader import Answered
from harness.models.reward_model import load_reward_model, score
from harness.pipeline.algorithm import Iteration, Planner, Run
from harness.pipeline.runs import TableRuns, plan_table
from harness.pipeline.steps import FUNCTIONS, assistant, pair_stage, train_stage, user
from harness.registry.profile import Profile
from harness.registry.recipe import Creator, Recipe
from harness.registry.schema import Table
from harness.runtime import Engine, Event, Plan, RunOutcome, Stage, Store
from harness.runtime.plan import Interrupted, StageFinished, StageProgress
from harness.worlds.embedded import files, reward
from harness.worlds.embedded.creator import METHODS
from harness.worlds.embedded.language import parse
from harness.worlds.embedded.reward import REWARD_MODELS, RewardConfig
from harness.worlds.embedded.texts import read_items
from harness.worlds.lookup import world_of
from harness.worlds.stage_io import PROMPT_SCHEMA, Rows, read_rows

X, SAMPLES, BATCH = 24, 3, 8
"""Prompts of an iteration, answers to each, pairs of an update: 3 updates of 8 pairs."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[str]]]:
    """A world built small, in use; and what the build said meanwhile."""
    folder = tmp_path_factory.mktemp("built") / "world"
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "POOL", 100)
        sizes = {"arena_hard": (HARD, 10), "alpaca_eval": (GENERAL, 12), "validation": (HARD, 6)}
        patch.setattr(build, "PAIRWISE", sizes)
        patch.setattr(build, "PER_CATEGORY", 1)
        patch.setattr(build, "PretrainConfig", _short_pretraining)
        patch.setattr(reward, "REWARD_MODELS", _short_reward_training())
        # Without a C++ compiler nothing is compiled, which would take longer than all else here.
        patch.setattr("harness.worlds.embedded.training.shutil.which", lambda name: None)
        build.build(folder, seed=1, on_event=said.append)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_WORLD", str(folder))
        yield folder, said


def _short_pretraining(seed: int) -> PretrainConfig:
    return PretrainConfig(
        seed=seed,
        operations=Course(40, 3e-3, 5),
        names=Course(10, 1.5e-3, 2),
        batch_size=4,
        pool_batches=4,
        threads=1,
    )


def _short_reward_training() -> dict[str, RewardConfig]:
    short: Any = {"steps": 2, "batch_size": 4, "warmup_steps": 1, "held_out": 20, "threads": 1}
    return {role: replace(config, **short) for role, config in REWARD_MODELS.items()}


@pytest.fixture(scope="module")
def profile(micro: Profile) -> Profile:
    """The embedded profile at the size of this file."""
    assert micro.training.dpo is not None
    dpo = micro.training.dpo.model_copy(update={"batch_size": BATCH})
    sampling = {"n": SAMPLES, "batch_size": 48, "max_new_tokens": 8}
    benchmarks = {
        name: benchmark.model_copy(update={"max_new_tokens": 8})
        for name, benchmark in micro.benchmarks.items()
    }
    return micro.model_copy(
        update={
            "x": X,
            "generation": micro.generation.model_copy(update=sampling),
            "training": micro.training.model_copy(update={"dpo": dpo}),
            "benchmarks": benchmarks,
        }
    )


@dataclass(frozen=True)
class Finished:
    """Two rows of table 4 and two further chains, run without disturbance."""

    runs: TableRuns
    twice: Run
    selected: Run
    work: Path

    @property
    def store(self) -> Store:
        return Store(self.work / "store")

    def rows(self, stage: Stage, name: str) -> Rows:
        return read_rows(self.store.open(stage.fingerprint) / f"{name}.parquet")

    def json(self, stage: Stage, name: str) -> dict[str, Any]:
        return read_json(self.store.open(stage.fingerprint) / f"{name}.json")

    @property
    def human(self) -> Iteration:
        return self.runs.runs["dpo-h1", 0].iterations[0]

    @property
    def eva(self) -> Iteration:
        return self.runs.runs["dpo-eva-a_min", 0].iterations[1]

    @property
    def targets(self) -> list[Stage]:
        return [*self.runs.targets, self.twice.training[-1], self.selected.training[-1]]


def run(
    work: Path, targets: list[Stage], on_event: Callable[[Event], None] = lambda event: None
) -> RunOutcome:
    """Run stages with one worker into the store under a folder."""
    engine = Engine(Store(work / "store"), FUNCTIONS, work / "logs", jobs=1, on_event=on_event)
    return engine.run(Plan(targets))


@pytest.fixture(scope="module")
def finished(
    built: tuple[Path, list[str]],
    tables: dict[str, Table],
    profile: Profile,
    tmp_path_factory: pytest.TempPathFactory,
) -> Finished:
    """The runs of this file, computed.

    The chain that evolves twice has half of its mix evolved: rewrites of six deep prompts can be
    too few for four fifths of 24.
    """
    runs = plan_table(tables["table4"], profile, (0,), ["dpo-1", "eva-a_min"])
    planner = Planner(world_of(profile))
    creator = Creator(evolved_share=0.5)
    twice = planner.run(
        "twice", Recipe(algorithm="dpo", chain=("human", "eva", "eva"), creator=creator), 0
    )
    selected = planner.run("selected", Recipe(algorithm="dpo", chain=("human", "select")), 0)
    work = tmp_path_factory.mktemp("work")
    compute(work, *runs.targets, twice.training[-1], selected.training[-1])
    return Finished(runs, twice, selected, work)


def stages(finished: Finished, kind: str) -> list[Stage]:
    found = [stage for stage in Plan(finished.targets) if stage.kind == kind]
    assert found
    return found


def test_a_build_makes_every_asset_and_a_card_that_names_it(built: tuple[Path, list[str]]) -> None:
    folder, said = built
    card = files.card()
    for name, path in files.ASSETS.items():
        assert files.resolve(card.identity(name)) == folder / path
    assert card.notes["seed"] == 1
    settings = card.notes["theta0"]["settings"]
    assert (settings["operations"]["steps"], settings["names"]["steps"]) == (40, 10)
    assert {"processor", "device", "compiled", "torch"} <= card.notes["machine"].keys()
    for role in REWARD_MODELS:
        noted = card.notes[f"rm_{role}"]
        assert 0 <= noted["held_out_accuracy"] <= 1
    assert said[0] == "prompts and benchmarks"
    assert any(line.startswith("θ0: step 50 of 50, loss ") for line in said)


def test_built_models_are_bfloat16_checkpoints_with_a_tokenizer_and_a_model_card(
    built: tuple[Path, list[str]],
) -> None:
    folder, _ = built
    titles = {"theta0": "Base policy θ0"}
    titles |= {f"rm_{role}": f"Reward model {role}" for role in REWARD_MODELS}
    for name, title in titles.items():
        kind = AutoModelForCausalLM if name == "theta0" else AutoModelForSequenceClassification
        config = read_json(folder / name / "config.json")
        assert (config["model_type"], config["dtype"]) == ("gemma2", "bfloat16")
        model = from_folder(kind, folder / name)
        parameters = sum(p.numel() for p in model.parameters())
        assert 400_000 < parameters < 1_400_000
        assert len(load_tokenizer(folder / name)) == config["vocab_size"]
        card = (folder / name / "README.md").read_text(encoding="utf-8")
        assert f"# {title} of the embedded world {files.VERSION}" in card
        assert f"{parameters:,} parameters" in card
        assert f"Digest {files.digest(folder / name)}" in card
        assert (folder / name / "model.safetensors").stat().st_size < 2 * 1.4e6


def test_each_kind_writes_its_own_files(finished: Finished) -> None:
    expected = {
        "prompts": {"prompts.parquet"},
        "generate": {"completions.parquet"},
        "annotate": {"rewards.parquet", "summary.json"},
        "select": {"selected.parquet", "summary.json"},
        "evolve": {"attempts.parquet", "prompts.parquet", "summary.json"},
        "pair": {"pairs.parquet", "summary.json"},
        "mix": {"pairs.parquet", "summary.json"},
        "answer": {"answers.parquet"},
        "judge": {"judgments.parquet", "scores.parquet", "summary.json"},
    }
    for stage in Plan(finished.targets):
        files = set(finished.store.manifest(stage.fingerprint)["files"])
        if stage.kind == "train":
            assert {"log.json", "model/model.safetensors", "model/config.json"} <= files
            assert not any(name.endswith((".bin", ".pt", ".pkl")) for name in files)
        else:
            assert files == expected[stage.kind]


def test_every_prompt_is_answered_n_times_in_order(finished: Finished) -> None:
    for stage in stages(finished, "generate"):
        asked = _prompts_of(finished, stage.inputs["prompts"])
        rows = finished.rows(stage, "completions")
        assert [(row["prompt_id"], row["sample"]) for row in rows] == [
            (row["prompt_id"], sample) for row in asked for sample in range(SAMPLES)
        ]
        assert all(0 <= row["n_tokens"] <= 8 for row in rows)
        lineage = ("prompt", "source", "parent_id", "generation", "method")
        for row, prompt in zip(rows[::SAMPLES], asked, strict=True):
            assert {name: row[name] for name in lineage} == {name: prompt[name] for name in lineage}


def _prompts_of(finished: Finished, stage: Stage) -> Rows:
    names = {"select": "selected", "mix": "pairs"}
    return finished.rows(stage, names.get(stage.kind, "prompts"))


def test_completions_are_those_of_the_policy_that_the_stage_names(
    finished: Finished, built: tuple[Path, list[str]], profile: Profile
) -> None:
    """Sampled again here from θ0, with the stage's seed."""
    stage = finished.human.pairs.inputs["completions"]
    rows = finished.rows(stage, "completions")
    prompts = finished.rows(finished.human.prompts, "prompts")
    conversations = [user(row["prompt"]) for row in prompts]
    again = generate(
        built[0] / "theta0",
        conversations,
        n=SAMPLES,
        temperature=profile.generation.temperature,
        top_p=profile.generation.top_p,
        max_new_tokens=8,
        batch_size=48,
        seed=stage.seed,
    )
    assert [row["completion"] for row in rows] == [c.text for several in again for c in several]


def test_rewards_are_the_reward_models_scores_of_prompt_and_completion(
    finished: Finished, built: tuple[Path, list[str]]
) -> None:
    """Scored again here; in other batches, so within rounding."""
    stage = finished.human.pairs
    completions = finished.rows(stage.inputs["completions"], "completions")
    rewards = finished.rows(stage.inputs["rewards"], "rewards")
    keys = ("prompt_id", "sample")
    assert [[r[k] for k in keys] for r in rewards] == [[c[k] for k in keys] for c in completions]
    answered = [Answered(user(row["prompt"]), (row["completion"],)) for row in completions]
    model = load_reward_model(built[0] / "rm_pointwise")
    again, _ = score(model, answered, batch_size=16)
    np.testing.assert_allclose([row["reward"] for row in rewards], again, atol=1e-4)
    assert np.ptp(again) > 0


def _by_prompt(rows: Rows, value: str) -> dict[str, list[Any]]:
    grouped: dict[str, list[Any]] = {}
    for row in rows:
        grouped.setdefault(row["prompt_id"], []).append(row[value])
    return grouped


def test_pairs_set_the_best_completion_against_the_worst(finished: Finished) -> None:
    for stage in stages(finished, "pair"):
        texts = _by_prompt(finished.rows(stage.inputs["completions"], "completions"), "completion")
        rewards = _by_prompt(finished.rows(stage.inputs["rewards"], "rewards"), "reward")
        pairs = finished.rows(stage, "pairs")
        for pair in pairs:
            mine = rewards[pair["prompt_id"]]
            best, worst = mine.index(max(mine)), mine.index(min(mine))
            assert pair["chosen"] == texts[pair["prompt_id"]][best]
            assert pair["rejected"] == texts[pair["prompt_id"]][worst]
            assert (pair["reward_chosen"], pair["reward_rejected"]) == (max(mine), min(mine))
        summary = finished.json(stage, "summary")
        assert summary["pairs"] == len(pairs)
        paired = [rewards[pair["prompt_id"]] for pair in pairs]
        assert summary["ties"] == sum(max(mine) == min(mine) for mine in paired)


@pytest.mark.parametrize("only", [False, True])
def test_ties_are_counted_among_the_prompts_asked_for(tmp_path: Path, only: bool) -> None:
    """Of three prompts the second and third are tied, and the first two are asked for."""
    named = dict.fromkeys(PROMPT_SCHEMA.names)
    rows: Rows = [
        {**named, "prompt_id": f"h{i}", "sample": s, "completion": "1",
         "reward": float(i == 0 and s == 1)}
        for i in range(3)
        for s in (0, 1)
    ]  # fmt: skip
    inputs = {name: given(tmp_path / name, name, rows) for name in ("completions", "rewards")}
    if only:
        inputs["only"] = given(tmp_path / "only", "prompts", rows[:4])
    output = run_stage(pair_stage, tmp_path / "output", {}, inputs)
    ties = 1 if only else 2
    summary = read_json(output / "summary.json")
    assert summary == {"pairs": 1 + ties, "ties": ties}
    pairs = read_rows(output / "pairs.parquet")
    assert [pair["prompt_id"] for pair in pairs] == ["h0", "h1", "h2"][: summary["pairs"]]


def test_a_quarter_of_the_prompts_is_selected_by_the_gap_of_best_and_worst(
    finished: Finished,
) -> None:
    """A_min is best minus worst; the weight its min-max over all 24, over the sum of these."""
    stage = stages(finished, "select")[0]
    assert stage.settings["metric"] == "a_min"
    rewards = _by_prompt(finished.rows(stage.inputs["rewards"], "rewards"), "reward")
    gaps = {prompt: max(mine) - min(mine) for prompt, mine in rewards.items()}
    low, high = min(gaps.values()), max(gaps.values())
    total = sum(gap - low for gap in gaps.values()) / (high - low)
    rows = finished.rows(stage, "selected")
    assert len(rows) == len({row["prompt_id"] for row in rows}) == selected_count(X, 0.25) == 6
    assert [row["draw"] for row in rows] == list(range(6))
    for row in rows:
        gap = gaps[row["prompt_id"]]
        assert row["informativeness"] == pytest.approx(gap)
        assert row["weight"] == pytest.approx((gap - low) / (high - low) / total)
        assert row["weight"] > 0
    assert finished.json(stage, "summary") == {
        "metric": "a_min",
        "prompts": X,
        "selected": 6,
        "without_weight": 0,
        "without_spread": sum(gap == 0 for gap in gaps.values()) / X,
    }


def test_evolved_prompts_know_where_they_come_from(finished: Finished) -> None:
    """In the first evolution and in the second, which starts from a mix of both kinds."""
    evolutions = stages(finished, "evolve")
    assert [stage.settings["iteration"] for stage in evolutions] == [2, 3]
    for stage in evolutions:
        before = {
            row["prompt_id"]: row for row in finished.rows(stage.inputs["selected"], "selected")
        }
        rows = finished.rows(stage, "prompts")
        known = dict(before)
        for row in rows:
            parent = known[row["parent_id"]]
            assert row["generation"] == parent["generation"] + 1
            assert row["source"] == "evolved"
            assert row["method"] in METHODS["evol_instruct"]
            assert parse(row["prompt"]) is not None
            assert row["prompt"] != parent["prompt"]
            start, iteration, place = row["prompt_id"].rsplit(".", 2)
            assert start in before
            assert int(iteration) == stage.settings["iteration"]
            assert 1 <= int(place) <= 4
            known[row["prompt_id"]] = row
        assert len(known) == len(before) + len(rows)
        summary = finished.json(stage, "summary")
        assert (summary["seeds"], summary["prompts"]) == (6, len(rows))
        assert summary["prompts"] + summary["dropped"] == 4 * 6
        assert summary["calls"] == summary["prompts"] + sum(summary["unusable"].values())
        assert summary["duplicates"] == len(rows) - len({row["prompt"] for row in rows})


def test_four_fifths_of_the_mix_are_evolved_and_the_rest_is_replayed(finished: Finished) -> None:
    """0.8 x 24 = 19.2, so 19 evolved pairs and 5 of the prompts they came from."""
    stage = finished.eva.pairs
    rows = finished.rows(stage, "pairs")
    sources = Counter(row["source"] for row in rows)
    assert sources == {"evolved": 19, "human": 5}
    assert sources["evolved"] == evolved_count(X, 0.8) == round(0.8 * X)
    given = [
        row
        for name in ("base", "evolved")
        for row in finished.rows(stage.inputs[name], "pairs")
    ]  # fmt: skip
    assert len({row["prompt_id"] for row in rows}) == X
    assert all(row in given for row in rows)
    assert [row["source"] for row in rows] != sorted(row["source"] for row in rows)


def test_every_training_starts_at_log_2_from_the_policy_before_it(finished: Finished) -> None:
    """24 pairs in batches of 8 are 3 updates; the 6 selected ones are 1."""
    for stage in stages(finished, "train"):
        log = finished.json(stage, "log")
        pairs = len(finished.rows(stage.inputs["pairs"], "pairs"))
        steps = math.ceil(pairs / BATCH)
        assert log["summary"]["loss_first"] == pytest.approx(math.log(2), abs=1e-5)
        assert log["history"][0]["loss"] == log["summary"]["loss_first"]
        assert log["summary"]["trained_pairs"] == log["summary"]["pairs"] == pairs
        assert [point["step"] for point in log["history"]] == list(range(1, steps + 1))
        curve = finished.store.progress(stage.fingerprint)
        assert [{"step": p.step, **p.metrics} for p in curve] == log["history"]


def test_benchmarks_are_answered_turn_by_turn(
    finished: Finished, built: tuple[Path, list[str]]
) -> None:
    judged = finished.runs.runs["dpo-eva-a_min", 0].judged
    for name, turns in (("arena_hard", (1,)), ("alpaca_eval", (1,)), ("mt_bench", (1, 2))):
        items = {item.item_id: item for item in read_items(built[0] / f"{name}.parquet")}
        rows = finished.rows(judged[name].inputs["answers"], "answers")
        asked = {(row["prompt_id"], row["turn"]): row for row in rows}
        assert asked.keys() == {(item_id, turn) for item_id in items for turn in turns}
        assert len(rows) == len(asked)
        for (item_id, turn), row in asked.items():
            conversation = json.loads(row["conversation"])
            expected = user(items[item_id].turn_1)
            if turn == 2:
                first = asked[item_id, 1]["completion"]
                expected += [assistant(first), *user(items[item_id].turn_2 or "")]
            assert conversation == expected


def test_every_score_is_the_plain_mean_of_its_per_prompt_values(finished: Finished) -> None:
    found = set()
    for stage in stages(finished, "judge"):
        values: dict[str, list[float]] = {}
        for row in finished.rows(stage, "scores"):
            values.setdefault(row["column"], []).append(row["value"])
        scores = finished.json(stage, "summary")["scores"]
        for column, expected in scores.items():
            if expected is None:  # the tiny benchmark may not identify a length-controlled rate
                assert column == "ae_lc"
                assert column not in values
                continue
            assert math.fsum(values[column]) / len(values[column]) == pytest.approx(expected)
            found.add(column)
    assert found >= {"ah_wr", "ah_len", "ae_wr", "mt_avg", "mt_t1", "mt_t2"}


def test_a_run_that_was_stopped_and_continued_gives_the_same_bytes(
    finished: Finished, tmp_path: Path
) -> None:
    """By a worker process, stopped in the middle of the last training; then run again.

    All output files are compared, scores, answers and weights included; manifests hold times.
    """
    last = finished.eva.policy
    seen: list[Event] = []

    def stop(event: Event) -> None:
        seen.append(event)
        if isinstance(event, StageProgress) and event.stage == last:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="run the same command again"):
        run(tmp_path, finished.runs.targets, stop)
    assert list((tmp_path / "store" / "tmp").iterdir()) == []
    store = Store(tmp_path / "store")
    assert store.status(last.fingerprint) == "missing"
    done = [event.stage for event in seen if isinstance(event, StageFinished)]
    outcome = run(tmp_path, finished.runs.targets)
    assert outcome.ok
    assert last in outcome.finished
    assert not set(outcome.finished) & set(done)
    for stage in Plan(finished.runs.targets):
        ours, theirs = (s.manifest(stage.fingerprint) for s in (store, finished.store))
        assert ours["files"] == theirs["files"], stage.title


def test_training_on_nothing_but_ties_leaves_the_policy_as_it_was(tmp_path: Path) -> None:
    tie = {**dict.fromkeys(PROMPT_SCHEMA.names), "chosen": "1", "rejected": "1"}
    rows: Rows = [{**tie, "reward_chosen": 0.5, "reward_rejected": 0.5}]
    (tmp_path / "before" / "model").mkdir(parents=True)
    (tmp_path / "before" / "model" / "weights").write_text("as they were")
    inputs = {"pairs": given(tmp_path / "pairs", "pairs", rows), "policy": tmp_path / "before"}
    out = run_stage(train_stage, tmp_path / "out", {"drop_ties": True}, inputs)
    assert (out / "model" / "weights").read_text() == "as they were"
    log = json.loads((out / "log.json").read_text())
    assert log == {"history": [], "summary": {"pairs": 1, "trained_pairs": 0, "steps": 0}}
