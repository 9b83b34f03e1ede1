"""Laws of identities from outside the embedded world: what lies here, and what to type if not."""

import json
import os
import shutil
from pathlib import Path

import pytest

from harness.errors import UserError
from harness.pipeline.runs import plan_table
from harness.registry.declared import load_tables
from harness.registry.profile import Profile
from harness.runtime import Plan
from harness.worlds.lookup import runtime_of, world_of
from harness.worlds.needs import Demand
from harness.worlds.real.benchmarks import benchmark_identity, gaps
from harness.worlds.real.models import digest_of_folder, identity_of, resolve
from harness.worlds.real.world import INSTRUCTION

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def write_model(folder: Path, weights: bytes = b"weights") -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(weights)
    return folder


def test_what_is_not_there_is_named_with_what_to_type() -> None:
    """All that a run lacks at once, and `doctor`, are tested as commands."""
    with pytest.raises(UserError, match=r"hf download google/gemma-2-9b-it`.*license"):
        resolve("google/gemma-2-9b-it@not-downloaded")
    with pytest.raises(UserError, match="harness evaluate fetch mt_bench"):
        runtime_of("mt-bench@not-downloaded").questions("mt-bench@not-downloaded")


def test_a_folder_is_its_files_wherever_it_lies(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_model(machine / "models" / "own" / "model")
    identity = identity_of("own/model")
    assert identity == f"own/model@files-{digest_of_folder(folder)[:16]}"
    assert resolve(identity) == folder
    (folder / "README.md").write_text("no loader reads this")
    assert identity_of("own/model") == identity
    monkeypatch.setenv("HARNESS_MODELS", str(machine / "elsewhere"))
    (machine / "models").rename(machine / "elsewhere")
    assert identity_of("own/model") == identity


def test_other_files_are_refused(machine: Path) -> None:
    folder = write_model(machine / "models" / "own" / "model")
    identity = identity_of("own/model")
    (folder / "model.safetensors").write_bytes(b"WEIGHTS")
    os.utime(folder / "model.safetensors", ns=(1, 1))
    assert identity_of("own/model") != identity
    with pytest.raises(UserError, match="are not those that this run was planned with"):
        resolve(identity)
    (folder / "config.json").unlink()
    with pytest.raises(UserError, match=r"is not at .* any more"):
        resolve(identity)


def test_a_file_is_read_once_while_size_and_time_stay(machine: Path) -> None:
    """A file that changed behind its size and time keeps its digest: it was not read again."""
    folder = write_model(machine / "models" / "own" / "model")
    weights, before = folder / "model.safetensors", digest_of_folder(folder)
    time = weights.stat().st_mtime_ns
    weights.write_bytes(b"WEIGHTS")
    os.utime(weights, ns=(time, time))
    assert digest_of_folder(folder) == before
    os.utime(weights, ns=(time + 1, time + 1))
    assert digest_of_folder(folder) != before


def test_a_download_that_broke_off_is_none(machine: Path) -> None:
    folder = write_model(machine / "models" / "own" / "model")
    index = {"weight_map": {"a": "model.safetensors", "b": "second.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert identity_of("own/model") == "own/model@not-downloaded"
    (folder / "second.safetensors").write_bytes(b"rest")
    assert identity_of("own/model").startswith("own/model@files-")


def test_the_hubs_cache_is_known_by_its_commit(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache's layout: `refs/main` holds the commit, which is a folder of `snapshots`."""
    cached = machine / "hub" / "models--own--model"
    snapshot = write_model(cached / "snapshots" / COMMIT)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(COMMIT)
    assert identity_of("own/model") == f"own/model@{COMMIT}"
    assert resolve(f"own/model@{COMMIT}") == snapshot
    write_model(machine / "here" / "own" / "model")  # a folder that happens to be called so
    monkeypatch.chdir(machine / "here")
    assert resolve(f"own/model@{COMMIT}") == snapshot
    write_model(machine / "models" / "own" / "model")
    assert identity_of("own/model").startswith("own/model@files-")
    assert identity_of(f"own/model@{COMMIT}") == f"own/model@{COMMIT}"


def test_a_pinned_commit_is_known_before_it_is_there(machine: Path) -> None:
    write_model(machine / "models" / "own" / "model")  # nothing says which commit a folder is
    assert identity_of(f"own/model@{COMMIT}") == f"own/model@{COMMIT}"
    with pytest.raises(UserError, match=f"hf download own/model --revision {COMMIT}`"):
        resolve(f"own/model@{COMMIT}")


@pytest.mark.parametrize(
    "name", ["model", "../model", "own/..", "own/model@main", "own/a/b", "/own/model"]
)
def test_no_name_leads_out_of_the_folder(name: str) -> None:
    with pytest.raises(UserError, match="is not a model of the hub"):
        identity_of(name)


def test_a_benchmark_is_what_its_files_say(machine: Path, benchmarks: Path, paper: Profile) -> None:
    shutil.copytree(benchmarks, machine / "benchmarks")
    declared = paper.benchmarks["mt_bench"]
    identity = benchmark_identity("mt_bench", declared)
    assert identity.startswith("mt-bench@")
    items = runtime_of(identity).questions(identity)
    assert len(items) == 80
    assert (items[0].turn_1, items[0].turn_2, items[0].category) == ("0?", "and 0?", "writing")
    prompts = machine / "benchmarks" / "mt-bench" / "judge_prompts.jsonl"
    prompts.write_text(prompts.read_text().replace("You rate", "You like"))
    assert benchmark_identity("mt_bench", declared) != identity
    with pytest.raises(UserError, match="are not those that this run was planned with"):
        runtime_of(identity).questions(identity)


def test_a_part_of_a_benchmark_is_not_the_benchmark(
    benchmarks: Path, paper: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_BENCHMARKS", str(benchmarks))
    fewer = paper.benchmarks["arena_hard"].model_copy(update={"items": 499})
    with pytest.raises(UserError, match="has 500 questions and the profile says 499"):
        benchmark_identity("arena_hard", fewer)
    other = paper.benchmarks["arena_hard"].model_copy(update={"against": "gpt-4o"})
    with pytest.raises(UserError, match="with gpt-4-0314 or base and the profile says gpt-4o"):
        benchmark_identity("arena_hard", other)
    with pytest.raises(UserError, match="no benchmark of real models is called `harder`"):
        benchmark_identity("harder", fewer)


def test_the_world_does_not_mix_with_real_models(paper: Profile) -> None:
    creator = paper.creator.model_copy(update={"source": "world"})
    mixed = paper.model_copy(update={"reward_models": {"pointwise": "world"}, "creator": creator})
    with pytest.raises(UserError, match="`reward_models` from the embedded world"):
        world_of(mixed).reward_model("pointwise")
    with pytest.raises(UserError, match=r"`creator.source` from the embedded world"):
        world_of(mixed).creator("evol_instruct")


def test_scores_that_will_not_be_there_are_named_before_a_run(
    paper: Profile, machine: Path, benchmarks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version_of = "harness.evaluation.benchmark.version_of"
    monkeypatch.setattr(version_of, lambda package: "not-installed")

    def named(table: str) -> list[str]:
        plan = Plan(plan_table(load_tables()[table], paper, [0]).targets)
        judged = Demand(paper, plan).benchmarks
        found = [gap for it in judged.items() for gap in gaps(*it)]
        return [gap.partition(" will not be available")[0] for gap in found]

    assert named("table4") == ["ah_len", "ae_wr", "ae_lc"]
    assert named("table9") == ["table 9's tasks"]
    monkeypatch.setattr(version_of, lambda package: "1.0")
    assert named("table4") == ["ae_lc"]
    shutil.copytree(benchmarks, machine / "benchmarks")
    (machine / "benchmarks" / "alpaca-eval" / "df_gamed.csv").write_text("difficulties")
    assert named("table4") == []


def test_a_real_policy_is_told_in_words_how_to_revise(paper: Profile, micro: Profile) -> None:
    """The embedded policy's own sentence stays what it is told there, and in no fingerprint."""
    table = load_tables()["table16"]
    for profile, told in ((paper, INSTRUCTION), (micro, None)):
        rewrites = [s for s in Plan(plan_table(table, profile, [0]).targets) if s.kind == "rewrite"]
        assert {stage.settings.get("instruction") for stage in rewrites} == {told}
