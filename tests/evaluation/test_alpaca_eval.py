"""AlpacaEval: all 805, the package's prompts and parsers, win rates and both length controls."""

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from judge_stand_in import StandIn, client_of, completion

from harness.endpoint.client import ServedModel
from harness.errors import HarnessError, UserError
from harness.evaluation.benchmarks import alpaca_package
from harness.evaluation.benchmarks.alpaca_eval import (
    OWN_JUDGE,
    AlpacaEval,
    in_order,
    preference,
    score_preferences,
)
from harness.evaluation.benchmarks.alpaca_package import OWN_ANNOTATOR, length_controlled
from harness.evaluation.files import Question, read_records
from harness.evaluation.scores import Evaluation
from harness.worlds.real.evaluating import judge_answers

WON = 200
"""Instructions on which the toy judge prefers the toy model."""

INSTALLED = alpaca_package.installed()
needs_package = pytest.mark.skipif(not INSTALLED, reason="the extra `alpaca` is not installed")


def reference(i: int) -> dict[str, str]:
    instruction, output = f"instruction {i}", f"theirs-{i}"
    return {"instruction": instruction, "output": output, "generator": "gpt4_1106_preview"}


def own(i: int) -> dict[str, str]:
    text = f"ours-{i}" + (" good" if i < WON else " poor" * (1 + i % 7))
    return {"instruction": f"instruction {i}", "output": text, "generator": "m"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    path = folder / "reference_gpt4_1106_preview_outputs.json"
    path.write_text(json.dumps([reference(i) for i in range(805)]))
    (folder / "model_outputs.json").write_text(json.dumps([own(i) for i in range(805)]))
    return folder


def rank(body: Any) -> Any:
    """Rank the answer with `good` in it first, else the reference's; the first shown is `m`."""
    prompt = " ".join(message["content"] for message in body["messages"])
    ours_first = prompt.index("ours-") < prompt.index("theirs-")
    best = "m" if ours_first == ("good" in prompt) else "M"
    if "ours-3 " in prompt:
        return completion(None)
    ranks = [{"model": best, "rank": 1}, {"model": "mM".replace(best, ""), "rank": 2}]
    function = {"name": "f", "arguments": json.dumps({"ordered_models": ranks})}
    return completion(None, tool_calls=[{"id": "1", "type": "function", "function": function}])


def judge_of(server: StandIn, tmp_path: Path, model: str = OWN_JUDGE) -> ServedModel:
    return ServedModel(client_of(server, tmp_path, price=None, timeout_s=60.0), model)


def test_the_benchmark_has_805_instructions(data: Path) -> None:
    path = data / "reference_gpt4_1106_preview_outputs.json"
    path.write_text(json.dumps([reference(i) for i in range(804)]))
    with pytest.raises(UserError, match="804 different instructions; AlpacaEval has 805"):
        AlpacaEval.load(data)


def test_outputs_in_any_order_get_the_benchmark_s(data: Path) -> None:
    benchmark = AlpacaEval.load(data)
    shuffled = [own(i) for i in range(805)]
    random.Random(0).shuffle(shuffled)
    path = data / "model_outputs.json"
    path.write_text(json.dumps(shuffled))
    answers = benchmark.read_answers(path, None)
    assert answers.model == "m"
    texts = [answer.turns[0] for answer in answers.by_prompt.values()]
    assert texts == [own(i)["output"] for i in range(805)]


def test_an_output_that_is_no_text_is_one_sentence(data: Path) -> None:
    path = data / "model_outputs.json"
    path.write_text(json.dumps([{"instruction": f"instruction {i}"} for i in range(805)]))
    with pytest.raises(UserError, match="Record 1 has the wrong output"):
        AlpacaEval.load(data).read_answers(path, None)


def test_the_published_outputs_are_read(shared_dir: Path) -> None:
    folder = shared_dir / "benchmarks" / "alpaca_eval"
    benchmark = AlpacaEval.load(folder)
    path = folder / "gemma-7b-it" / "model_outputs.json"
    answers = benchmark.read_answers(path, None)
    assert (answers.model, len(answers.by_prompt)) == ("gemma-7b-it", 805)
    assert benchmark.own_anchor().model == "gpt4_1106_preview"


@pytest.mark.skipif(INSTALLED, reason="the extra `alpaca` is installed")
def test_a_judge_without_the_package_is_one_sentence(data: Path, tmp_path: Path) -> None:
    bench = AlpacaEval.load(data)
    answers = bench.read_answers(data / "model_outputs.json", None)
    with StandIn(rank) as server, pytest.raises(UserError, match="install the extra `alpaca`"):
        judge_answers(bench, answers, judge_of(server, tmp_path), tmp_path)


@needs_package
def test_a_run_asks_the_package_s_prompts_and_reads_with_its_parser(
    data: Path, tmp_path: Path
) -> None:
    """Derivation: 200 instructions are won, and the reply on one of them cannot be read."""
    bench = AlpacaEval.load(data)
    answers = bench.read_answers(data / "model_outputs.json", None)
    with StandIn(rank) as server:
        found = judge_answers(bench, answers, judge_of(server, tmp_path), tmp_path / "out")
        assert server.requests == 805
        body = server.bodies[0]
    assert (body["model"], body["temperature"], body["max_tokens"]) == (OWN_JUDGE, 0, 100)
    assert (body["top_p"], len(body["tools"])) == (1.0, 1)
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    first = ["ours-" in b["messages"][1]["content"].split("theirs-")[0] for b in server.bodies]
    assert 300 < sum(first) < 505
    assert found.scores["win_rate"] == pytest.approx(100 * (WON - 1) / 804)
    assert (found.n, found.n_missing) == (804, 1)
    assert found.scores["length_controlled_win_rate"] is None
    assert (found.judge, found.columns["win_rate"]) == (OWN_ANNOTATOR, "win_rate")
    path = tmp_path / "out" / "alpaca_eval" / "m" / OWN_ANNOTATOR / "judgments.jsonl"
    rows = read_records(path)
    assert [row["instruction"] for row in rows] == [f"instruction {i}" for i in range(805)]
    assert [row["preference"] for row in rows[:5]] == [2.0, 2.0, 2.0, None, 2.0]


def annotated(count: int = 805) -> list[dict[str, Any]]:
    return [
        {
            "instruction": f"instruction {i}", "preference": 1.0 + (i * 37 % 101) / 100,
            "output_1": reference(i)["output"], "generator_1": "gpt4_1106_preview",
            "output_2": own(i)["output"], "generator_2": "m",
            "annotator": "weighted_alpaca_eval_gpt4_turbo",
        }
        for i in range(count)
    ]  # fmt: skip


INSTRUCTIONS = [f"instruction {i}" for i in range(805)]
QUESTIONS = [Question(str(i), "", (text,)) for i, text in enumerate(INSTRUCTIONS)]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda rows: rows[3:], "m has 802 of AlpacaEval's 805 instructions"),
        (lambda rows: [*rows[1:], rows[5]], "or one that came before"),
        (lambda rows: [*rows, {**rows[0], "instruction": "new"}], "give just all of them"),
        (lambda rows: [{"annotator": rows[0]["annotator"], "generator_2": "m"}, *rows], "has no"),
    ],
)
def test_annotations_that_are_missing_doubled_or_foreign_are_one_sentence(
    change: Any, says: str
) -> None:
    for questions in (None, QUESTIONS):
        with pytest.raises(UserError, match=says):
            AlpacaEval.evaluations(change(annotated()), questions)


def test_annotations_get_the_benchmark_s_order_and_a_file_may_hold_several_models(
    tmp_path: Path,
) -> None:
    """Derivation: the mean of 0 to 100 hundredths over 805 items; the other model wins half."""
    other = [{**row, "generator_2": "n", "preference": 1.5} for row in annotated()]
    shuffled = annotated() + other
    random.Random(1).shuffle(shuffled)
    found = AlpacaEval.evaluations(shuffled, QUESTIONS, tmp_path)
    first, second = sorted(found, key=lambda e: e.model)
    expected = 100 * sum((i * 37 % 101) / 100 for i in range(805)) / 805
    assert first.scores["win_rate"] == pytest.approx(expected)
    assert (second.model, second.scores["win_rate"]) == ("n", 50.0)
    ordered = in_order([row for row in shuffled if row["generator_2"] == "m"], "m", INSTRUCTIONS)
    assert [row["instruction"] for row in ordered] == INSTRUCTIONS


@pytest.fixture
def difficulties(tmp_path: Path) -> Path:
    """Write a toy `df_gamed.csv`: two gamed baselines, difficulties that are not real."""
    rng = random.Random(0)
    hard = [rng.gauss(0, 1) for _ in range(805)]
    lines = ["model,index,preference,std_delta_len,instruction_difficulty,not_gamed_baseline"]
    for model in ("verbose", "concise"):
        for i in range(805):
            lines.append(f"{model},{i},{rng.random()},{rng.gauss(0, 1)},{hard[i]},False")
    path = tmp_path / "df_gamed.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_there_is_no_length_controlled_win_rate_without_its_data(difficulties: Path) -> None:
    absent = difficulties / "absent"
    assert length_controlled(annotated(), absent) == "there is no df_gamed.csv"
    assert "has the digest" in str(length_controlled(annotated(), difficulties))


def test_against_other_answers_than_the_reference_s_there_is_no_length_control(
    difficulties: Path,
) -> None:
    """The package's data are of comparisons with gpt-4; a reward model's has our regression."""
    rows = [{**row, "generator_1": "base"} for row in annotated()]
    (found,) = AlpacaEval.evaluations(rows, QUESTIONS, difficulties.parent)
    assert found.scores["length_controlled_win_rate"] is None
    assert "compare with gpt-4-1106-preview" in found.notes["length_controlled_win_rate"]
    by_reward = [{**row, "annotator": "reward:r"} for row in rows]
    (found,) = AlpacaEval.evaluations(by_reward, QUESTIONS, difficulties.parent)
    assert 0.0 < (found.scores["length_controlled_win_rate"] or 0.0) < 100.0


@needs_package
@pytest.mark.parametrize("unrated", [(), (4, 700)])
def test_it_is_the_package_s_own_number_on_any_data(
    difficulties: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unrated: tuple[int, ...]
) -> None:
    """The package finds the same file where the hub's client would have put it."""
    from alpaca_eval.metrics import glm_winrate
    from huggingface_hub import hf_hub_download

    rows = annotated()
    for position in unrated:
        rows[position]["preference"] = None
    ours = length_controlled(rows, difficulties, digest(difficulties))
    assert not isinstance(ours, str)
    store = tmp_path / "hub" / "datasets--tatsu-lab--alpaca_eval"
    (store / "refs").mkdir(parents=True)
    (store / "refs" / "main").write_text("0" * 40)
    (store / "snapshots" / ("0" * 40)).mkdir(parents=True)
    (store / "snapshots" / ("0" * 40) / "df_gamed.csv").write_bytes(difficulties.read_bytes())

    def offline(**options: Any) -> str:
        return str(hf_hub_download(**options | {"local_files_only": True}))

    monkeypatch.setattr(glm_winrate.constants, "DEFAULT_CACHE_DIR", str(tmp_path / "hub"))
    monkeypatch.setattr(glm_winrate, "hf_hub_download", offline)
    theirs = glm_winrate.get_length_controlled_winrate(rows, save_weights_dir=None)
    assert ours.shape == (805,)
    assert ours.mean() == pytest.approx(theirs["length_controlled_winrate"], abs=1e-9)
    assert 0.0 < ours.mean() < 100.0


@needs_package
def test_its_values_spread_as_its_score_does_when_verdicts_are_drawn_again(
    difficulties: Path,
) -> None:
    """Twelve sets of verdicts for a model that wins three in ten at any length.

    The spread of twelve scores is known within a factor of 1.6 (95%).
    """
    rng, found = np.random.default_rng(0), []
    theirs, ours = (np.exp(rng.normal(7.0, 0.5, 805)).astype(int) for _ in range(2))
    for _ in range(12):
        rows = [
            {**row, "output_1": "x" * theirs[i], "output_2": "x" * ours[i], "preference": 1.0 + won}
            for i, (row, won) in enumerate(zip(annotated(), rng.random(805) < 0.3, strict=True))
        ]
        values = length_controlled(rows, difficulties, digest(difficulties))
        assert not isinstance(values, str)
        found.append((values.mean(), values.std(ddof=1) / 805**0.5))
    scores, errors = np.array(found).T
    assert 1 / 1.6 < errors.mean() / scores.std(ddof=1) < 1.6


def test_another_model_s_scores_are_filed_under_the_annotator_and_it() -> None:
    assert AlpacaEval.filed_judge("gpt-4-1106-preview") == "alpaca_eval_gpt4_turbo_fn"
    assert AlpacaEval.filed_judge("gpt-6-sol") == "alpaca_eval_gpt4_turbo_fn/gpt-6-sol"


def scored(*values: float | None, length_control: bool = False) -> Evaluation:
    items = [preference(str(i), value) for i, value in enumerate(values)]
    lengths = {str(i): float(i - 1) for i in range(len(values))}
    return score_preferences(items, "m", lengths=lengths if length_control else None)


def test_a_draw_is_half_a_win_written_either_way() -> None:
    """Derivation: (1 + 0 + 0.5 + 0.5 + 0.25) / 5 = 45%."""
    score = scored(2, 1, 1.5, 0, 1.25)
    assert score.scores["win_rate"] == pytest.approx(45.0)
    assert score.by_prompt("win_rate") == pytest.approx(
        {"0": 100.0, "1": 0.0, "2": 50.0, "3": 50.0, "4": 25.0}
    )


def test_what_is_no_preference_is_counted_and_left_out() -> None:
    score = scored(2, None, float("nan"), 3, -1, 1)
    assert score.scores["win_rate"] == pytest.approx(50.0)
    assert (score.n, score.n_missing) == (2, 4)
    score = score_preferences([preference("a", None), preference("b", 2.0)], "m")
    assert (score.prompts, score.n, score.n_missing) == (("a", "b"), 1, 1)
    assert score.scores["win_rate"] == 100.0


def test_length_control_is_a_column_only_where_asked_for() -> None:
    assert set(scored(2, 1, 1.5).scores) == {"win_rate"}
    score = scored(2, 1, 1.5, None, length_control=True)
    assert set(score.scores) == {"win_rate", "length_controlled_win_rate"}
    column = score.values["length_controlled_win_rate"]
    assert column.mean() == pytest.approx(score.scores["length_controlled_win_rate"])
    assert column[3] == pytest.approx(column.mean())


def test_length_control_that_is_not_identified_has_no_value_and_says_so() -> None:
    """Longer answers always win: what happens at equal lengths cannot be told."""
    score = scored(1, 1, 2, 2, length_control=True)
    assert score.scores["length_controlled_win_rate"] is None
    assert "length_controlled_win_rate" not in score.values
    assert score.notes == {"length_controlled_win_rate": "not identified"}


def test_no_valid_preference_is_an_error_and_not_a_zero() -> None:
    with pytest.raises(HarnessError, match="None of the 1 preferences"):
        scored(None)


@given(st.lists(st.none() | st.floats(1, 2), min_size=1).filter(lambda x: any(x)))
def test_per_prompt_values_average_to_the_win_rate(preferences: list[float | None]) -> None:
    score = scored(*preferences)
    assert score.values["win_rate"].mean() == pytest.approx(score.scores["win_rate"], abs=1e-9)
