"""`export` writes what the store has, no more and no less, and says where it comes from."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from huggingface_hub import ModelCard
from tiny_gemma import build_tiny_gemma
from toy_world import planned
from transformers import AutoModelForCausalLM, AutoTokenizer

from harness.export import card_of, find_policy, license_of
from harness.models.policy import generate
from harness.registry.declared import all_profiles, all_tables
from harness.runtime import Plan, Stage, Store
from harness.worlds.embedded.files import VERSION
from harness.worlds.real.models import identity_of

EVIL = "judge | <b>x</b>\n# [click](http://evil)"


def fill(folders: Path, *, judged: bool = True) -> Store:
    """Store every stage of row `dpo-1`, seed 0, as if it had run.

    The policy is a tiny Gemma-2 with random weights, and each benchmark scores 1, 2 and 3.
    """
    (run,) = planned("table4", "micro", (0,), ["dpo-1"]).runs.values()
    store = Store(folders / "store")
    for stage in Plan(run.targets):
        if stage.kind == "judge" and not judged:
            continue
        with store.writing(stage) as output:
            if stage.kind == "train":
                build_tiny_gemma(output / "model", seed=3)
                (output / "log.json").write_text("{}")
                (output / "model" / "training_args.bin").write_bytes(b"a pickle")
            if stage.kind == "judge":
                rows = [
                    {"prompt_id": f"q{i}", "column": column, "value": float(i + 1)}
                    for column in ("ah_wr", "ah_len", "ae_lc", "ae_wr", "mt_avg", "mt_t1", "mt_t2")
                    for i in range(3)
                ]
                pq.write_table(pa.Table.from_pylist(rows), output / "scores.parquet")
    return store


@pytest.fixture
def policy(call: Any, folders: Path, tmp_path: Path) -> Path:
    """Return the folder to which the policy was exported."""
    fill(folders)
    result = call("export", "table4/dpo-1", "--seed", "0", "--output", str(tmp_path / "policy"))
    assert result.exit_code == 0, result.stderr
    return tmp_path / "policy"


def trained() -> Stage:
    """Return the stage that has trained it."""
    (run,) = planned("table4", "micro", (0,), ["dpo-1"]).runs.values()
    last: Stage = run.training[-1]
    return last


def test_the_exported_policy_answers_as_the_one_in_the_store(policy: Path, folders: Path) -> None:
    """Plain transformers classes load the folder; logits and sampled answers are the same.

    Its files are copies, which the store does not share.
    """
    inside = Store(folders / "store").open(trained().fingerprint) / "model"
    ids = AutoTokenizer.from_pretrained(policy)("a b c d", return_tensors="pt").input_ids
    exported, stored = (AutoModelForCausalLM.from_pretrained(path) for path in (policy, inside))
    with torch.no_grad():
        assert torch.equal(exported(ids).logits, stored(ids).logits)
    asked = [[{"role": "user", "content": "a b c"}]]
    sampled: Any = {"n": 4, "temperature": 1.0, "top_p": 1.0, "max_new_tokens": 8, "seed": 0}
    answers = [generate(path, asked, batch_size=4, **sampled) for path in (policy, inside)]
    assert answers[0] == answers[1]
    assert any(answer.text for answer in answers[0][0])
    assert not os.path.samefile(policy / "model.safetensors", inside / "model.safetensors")


def test_the_folder_has_a_checkpoint_and_nothing_that_could_run_code(policy: Path) -> None:
    assert {path.name for path in policy.iterdir()} == {
        *("README.md", "lineage.json", "model.safetensors", "config.json"),
        *("chat_template.jinja", "generation_config.json"),
        *("tokenizer.json", "tokenizer_config.json"),
    }


def test_a_row_of_a_table_of_ones_own_is_named_by_the_file(
    call: Any, folders: Path, mine: Path, tmp_path: Path
) -> None:
    fill(folders)
    result = call("export", f"{mine}/dpo-1", "--output", str(tmp_path / "out"))
    assert result.exit_code == 0, result.stderr
    assert "mine/dpo-1" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


def test_the_lineage_names_every_stage_and_the_digest_of_every_file(policy: Path) -> None:
    """Behind one DPO iteration stand prompts, generate, annotate, pair and train, inputs first."""
    lineage = json.loads((policy / "lineage.json").read_text())
    stages = lineage["stages"]
    assert [s["kind"] for s in stages] == ["prompts", "generate", "annotate", "pair", "train"]
    assert stages[-1]["fingerprint"] == lineage["trained_by"] == trained().fingerprint
    known: set[str] = set()
    for stage in stages:
        assert set(stage["inputs"].values()) <= known
        known.add(stage["fingerprint"])
        assert stage["provenance"]["versions"]["torch"] == metadata.version("torch")
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in policy.iterdir()
        if path.name != "lineage.json"
    }
    assert {name: file["sha256"] for name, file in lineage["files"].items()} == found
    assert lineage["seed"] == 0
    assert set(lineage["judged_by"]) == {"arena_hard", "alpaca_eval", "mt_bench"}
    assert lineage["rows"][0] == "table4/dpo-1"


def test_the_card_has_the_scores_with_their_interval_and_judge(policy: Path) -> None:
    """1, 2 and 3: mean 2, standard error 1/sqrt(3), t(2) = 4.303, so 2 ± 2.484.

    Its head has them as the hub reads them.
    """
    card = ModelCard.load(policy / "README.md")
    line = f"| arena\\_hard | ah\\_wr | 2 | -0.4841 to 4.484 | 3 | {VERSION}/oracle |"
    assert line in card.content
    assert "no use outside the harness" in card.content
    assert card.data.tags == ["eva", "dpo", "scale:toy"]
    assert card.data.base_model is None
    found = {result.metric_type: result for result in card.data.eval_results}
    assert found["ah_wr"].metric_value == 2.0
    assert found["ah_wr"].dataset_type == "arena_hard"
    assert f"judged by {VERSION}/oracle" in found["ah_wr"].dataset_name


def test_a_policy_that_was_not_judged_has_no_score(
    call: Any, folders: Path, tmp_path: Path
) -> None:
    fill(folders, judged=False)
    result = call("export", "dpo-h1", "--output", str(tmp_path / "policy"))
    assert result.exit_code == 0, result.stderr
    card = (tmp_path / "policy" / "README.md").read_text()
    assert card.count("| not run | – | – |") == 14
    assert "model-index" not in card


def test_texts_in_a_card_stay_texts(folders: Path) -> None:
    """A creator's name with a line break, a heading, a link and a tag is one line of plain text."""
    store = fill(folders)
    policy = find_policy("dpo-h1", all_tables(), all_profiles()["micro"], 0)
    creator = policy.profile.creator.model_copy(update={"source": EVIL})
    evil = replace(policy, profile=policy.profile.model_copy(update={"creator": creator}))
    (line,) = [line for line in card_of(evil, store).splitlines() if "evil" in line]
    assert line.startswith("- **creator:** judge \\| \\<b\\>x\\</b\\>")
    assert "\\[click\\](http://evil)" in line


def test_a_folder_with_something_in_it_is_left_alone(
    call: Any, folders: Path, tmp_path: Path
) -> None:
    fill(folders)
    out = tmp_path / "policy"
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    result = call("export", "dpo-h1", "--output", str(out))
    assert result.exit_code == 2
    assert "is not empty" in result.stderr
    assert [path.name for path in out.iterdir()] == ["mine.txt"]


def test_a_broken_policy_leaves_no_folder(call: Any, folders: Path, tmp_path: Path) -> None:
    weights = fill(folders).path(trained().fingerprint) / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0\0")
    result = call("export", "dpo-h1", "--output", str(tmp_path / "policy"))
    assert result.exit_code == 1
    assert "is broken" in result.stderr
    assert not list(tmp_path.glob("*policy*"))


def test_a_license_is_taken_from_a_card_only_where_it_is_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_MODELS", str(tmp_path))
    monkeypatch.setenv("HARNESS_WORK", str(tmp_path / "work"))
    (tmp_path / "own" / "model").mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "own" / "model" / name).write_text("{}")
    model, card = identity_of("own/model"), tmp_path / "own" / "model" / "README.md"
    card.write_text("---\nlicense: apache-2.0\n---\nText")
    assert license_of(model) == "apache-2.0"
    card.write_text('---\nlicense: "mit](http://evil)"\n---\nText')
    assert license_of(model) is None
    assert license_of("own/other@not-downloaded") is None
