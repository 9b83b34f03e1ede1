"""What a profile names of the world: identities, the cutting of pools, and the judge by rule."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from staging import given, read_json, run_stage, scores_in
from tiny_gemma import build_tiny_gemma

import harness
from harness.errors import HarnessError, UserError
from harness.models.loading import tokenize
from harness.models.policy import load_policy
from harness.registry.profile import BenchmarkSettings, Profile
from harness.worlds import NO_TOPIC, stage_io
from harness.worlds.instructions import tasks, world
from harness.worlds.instructions.creator import BY_POLICY, METHODS
from harness.worlds.instructions.kinds import Instruction
from harness.worlds.instructions.tasks import VERSION, Task, prompts, subjects_of


def test_an_identity_names_version_part_count_and_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    identity = tasks.identity_of("held_out", 50)
    name, _, digest = identity.partition("@")
    assert name == f"{VERSION}/held_out-50"
    assert len(digest) == 16
    others = [tasks.identity_of(part, n) for part, n in (("held_out", 51), ("new_kinds", 50))]
    assert len({identity.partition("@")[2], *(one.partition("@")[2] for one in others)}) == 3
    monkeypatch.setattr(tasks, "VERSION", "instructions-999")
    assert tasks.identity_of("held_out", 50) == f"instructions-999/held_out-50@{digest}"


def test_the_texts_are_those_of_the_identity() -> None:
    for part in ("prompts", "off_target", "held_out", "new_kinds"):
        assert tasks.texts_of(tasks.identity_of(part, 7)) == prompts(part, 7)


@pytest.mark.parametrize(
    "change",
    [("instructions-", "instructions-0"), ("held_out", "held_in"), ("-50@", "-49@"), ("@", "@0")],
)
def test_the_texts_of_another_version_are_refused(change: tuple[str, str]) -> None:
    identity = tasks.identity_of("held_out", 50).replace(*change)
    with pytest.raises(HarnessError, match=f"planned with `{identity}` and this is {VERSION}"):
        tasks.texts_of(identity)


def test_identities_of_any_version_are_of_this_world() -> None:
    assert tasks.has(tasks.identity_of("prompts", 2))
    assert tasks.has("instructions-0/rules")
    assert not tasks.has("embedded-1/prompts@0")


def test_the_pool_is_as_many_x_as_the_profile_says(laptop: Profile) -> None:
    own = world.Prompts(laptop)
    count = laptop.x * laptop.prompts.available
    assert own.identity() == {"source": tasks.identity_of("prompts", count)}
    assert tasks.texts_of(own.off_target()) == prompts("off_target", count)
    with pytest.raises(UserError, match="none matched to the hard benchmark"):
        own.matched()
    assert own.shown_word("river") == "river"


def test_a_creator_is_named_by_its_method() -> None:
    settings = partial(world.creator_settings, lambda: "policy@1")
    for method in METHODS:
        assert settings(method) == {"creator": f"{VERSION}/{method}"}
    own = settings(BY_POLICY)
    assert own == {"creator": f"{VERSION}/{BY_POLICY}", "writer": "policy@1"}
    with pytest.raises(UserError, match="no evolving method `evol`; use one of evol_instruct"):
        settings("evol")


def test_a_method_of_a_plugin_is_named_with_its_version(registries: None) -> None:
    """Its rewrites are held to the rules of this world."""
    asked, rewrite = prompts("prompts", 2)
    harness.creator("other", version="3")(lambda prompt, rng: rewrite)
    settings = world.creator_settings(lambda: "policy@1", "other")
    plugin = {"name": __name__, "version": "3"}
    assert settings == {"creator": f"{VERSION}/other", "creator_plugin": plugin}
    creator = world.InstructionsRuntime().evolver(settings).creator
    made = [creator.rewrite(text, np.random.default_rng(0)) for text in (asked, rewrite)]
    assert [(it.prompt, it.reason) for it in made] == [(rewrite, None), (None, "unchanged")]


def test_prompts_are_sorted_by_the_family_of_their_first_kind(
    laptop: Profile, tmp_path: Path
) -> None:
    topics = world.Prompts(laptop).topics()
    assert topics is not None
    poem, subject = "Write a short poem about {}", subjects_of("training")[0]
    texts = {
        "a": str(Task(poem, subject, (Instruction("no_comma"), Instruction("lowercase")))),
        "b": str(Task(poem, subject, (Instruction("lowercase"),))),
        "c": "Write a poem.",
    }
    rows = [{"prompt_id": name, "prompt": text} for name, text in texts.items()]
    stage_io.write_rows(tmp_path / "completions.parquet", rows)
    read = topics.read(tmp_path)
    assert read == [("a", "punctuation"), ("b", "case"), ("c", NO_TOPIC)]
    assert {topic for _, topic in read[:2]} <= set(topics.names)


POOL = tasks.identity_of("prompts", 60)


def cut(seed: int, first: int, count: int, **more: Any) -> dict[int, str]:
    return world.InstructionsRuntime().human_prompts(
        {"source": POOL, "seed": seed, "first": first, "count": count, **more}
    )


def test_pieces_of_one_seed_are_disjoint_and_make_up_the_pool() -> None:
    pieces = [cut(3, first, 20) for first in (0, 20, 40)]
    assert [len(piece) for piece in pieces] == [20, 20, 20]
    together = {at: text for piece in pieces for at, text in piece.items()}
    assert together == dict(enumerate(prompts("prompts", 60)))
    assert cut(3, 0, 40) == pieces[0] | pieces[1]
    assert list(cut(3, 0, 40)) == [*pieces[0], *pieces[1]]


def test_seeds_cut_the_pool_in_other_orders() -> None:
    """Two halves of 60 share 15 on average, within 5 standard deviations: sqrt(15 x 15 / 59)."""
    assert cut(0, 0, 30) == cut(0, 0, 30)
    shared = len(cut(0, 0, 30).keys() & cut(1, 0, 30).keys())
    assert abs(shared - 15) < 5 * (15 * 15 / 59) ** 0.5
    assert cut(0, 0, 60) == cut(1, 0, 60)


def test_off_target_prompts_are_numbered_after_the_pool() -> None:
    off = tasks.identity_of("off_target", 60)
    found = cut(3, 0, 30, off_target=off, on_target=10)
    assert {at: text for at, text in found.items() if at < 60} == cut(3, 0, 10)
    others = {at - 60: text for at, text in found.items() if at >= 60}
    assert len(others) == 20
    texts = prompts("off_target", 60)
    assert others == {at: texts[at] for at in others}


def declared(items: Any, *columns: str) -> BenchmarkSettings:
    said = {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 8, "judge": "instructions"}
    return BenchmarkSettings.model_validate({**said, "items": items, "columns": columns})


def test_an_unknown_benchmark_is_refused() -> None:
    nine = declared(9, "if_soft")
    assert tasks.benchmark_identity("held_out", nine) == tasks.identity_of("held_out", 9)
    with pytest.raises(UserError, match="knows no benchmark `heldout`; call it one of held_out"):
        tasks.benchmark_identity("heldout", nine)


def test_a_benchmark_has_as_many_prompts_whatever_score_comes_first() -> None:
    held_out = declared({"if_logp": 100, "if_soft": 600}, "if_logp", "if_soft")
    assert tasks.benchmark_identity("held_out", held_out) == tasks.identity_of("held_out", 600)


@pytest.mark.parametrize(
    ("name", "of", "match"),
    [
        ("held_out", declared(600, "if_soft", "if_logp"), "`if_logp` is measured on 100 answers"),
        (
            "held_out",
            declared({"if_soft": 9, "if_len": 5}, "if_soft", "if_len"),
            "`if_len` is measured on 9 answers",
        ),
        ("new_kinds", declared(9, "if_new_soft", "if_len"), "new_kinds yields no score `if_len`"),
    ],
)
def test_scores_that_are_not_measured_as_declared_are_refused(
    name: str, of: BenchmarkSettings, match: str
) -> None:
    with pytest.raises(UserError, match=match):
        tasks.benchmark_identity(name, of)


POEM = "Write a short poem about {}"
TWO = Task(POEM, "an old bicycle", (Instruction("lowercase"), Instruction("exclamations", 2)))
ONE = Task(POEM, "a red balloon", (Instruction("no_comma"),))
ANSWERS = (
    (TWO, "my bicycle is red! so red!", 9),  # both
    (TWO, "my bicycle is so red.", 7),  # lowercase alone
    (ONE, "A balloon, red as fire.", 6),  # a comma
    (ONE, "A balloon as red as fire\x1b[31m\x00", 8),  # followed
    (ONE, "", 0),  # no text
)


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that judges `ANSWERS` as those to a benchmark's first prompts."""
    asked = tuple(str(task) for task, *_ in ANSWERS)

    def judge(benchmark: str, **settings: Any) -> Path:
        monkeypatch.setattr(tasks, "prompts", lambda part, count: asked)
        monkeypatch.setattr(world, "resolve", Path)
        rows = [
            {
                "prompt_id": f"{benchmark}{i:05d}",
                "conversation": json.dumps([{"role": "user", "content": str(task)}]),
                "completion": answer,
                "n_tokens": tokens,
            }
            for i, (task, answer, tokens) in enumerate(ANSWERS)
        ]
        inputs = {"answers": given(tmp_path / "answers", "answers", rows)}
        identity = tasks.identity_of(benchmark, len(ANSWERS))
        settings = {"judge": tasks.JUDGE, "benchmark": identity, **settings}
        return run_stage(world.InstructionsRuntime().judge, tmp_path / "out", settings, inputs)

    return judge


def test_answers_are_scored_as_worked_out_by_hand(judged: Any) -> None:
    """Strict 2 of 5; soft (1 + 1/2 + 0 + 1 + 0) / 5; tokens 30 / 5.

    Words: "my bicycle is red so red" has 5 distinct of 6, "my bicycle is so red" all, "a balloon
    red as fire" all, "a balloon as red as fire m" 6 of 7 (a color's code ends in an m), none all.
    """
    out = judged("held_out")
    summary = read_json(out / "summary.json")
    assert summary["scores"] == pytest.approx(
        {
            "if_strict": 40.0,
            "if_soft": 50.0,
            "if_len": 6.0,
            "if_distinct": 100 * (5 / 6 + 1 + 1 + 6 / 7 + 1) / 5,
        }
    )
    assert (summary["n"], summary["n_missing"]) == (5, 0)
    scores = scores_in(out)
    strict = [value for (_, column), value in scores.items() if column == "if_strict"]
    assert strict == [100.0, 0.0, 0.0, 100.0, 0.0]
    judgments = stage_io.read_rows(out / "judgments.parquet")
    assert [row["reply"] for row in judgments] == [
        "lowercase: yes; exclamations: yes",
        "lowercase: yes; exclamations: no",
        "no_comma: no",
        "no_comma: yes",
        "no_comma: no",
    ]
    assert [row["verdict"] for row in judgments] == [
        "1.000", "0.500", "0.000", "1.000", "not a text about it",
    ]  # fmt: skip
    assert {row["category"] for row in judgments} == {"lowercase", "no_comma"}


def test_new_kinds_are_scored_without_the_guards(judged: Any) -> None:
    summary = read_json(judged("new_kinds") / "summary.json")
    assert summary["scores"] == {"if_new_strict": 40.0, "if_new_soft": 50.0}


def test_the_first_answers_have_a_log_probability(
    judged: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = np.array([-1.0, -2.0, -4.5])

    def log_probabilities(policy: Path, rows: stage_io.Rows) -> Any:
        assert policy == Path("base@1")
        assert len(rows) == 3
        return given

    monkeypatch.setattr(world, "log_probabilities", log_probabilities)
    monkeypatch.setattr(world, "GUARDED", 3)
    out = judged("held_out", base="base@1")
    assert read_json(out / "summary.json")["scores"]["if_logp"] == -2.5
    assert len([it for it in scores_in(out) if it[1] == "if_logp"]) == 3


@pytest.mark.parametrize("pads", [True, False])
def test_the_log_probability_is_that_of_the_answers_tokens_alone(
    pads: bool, tmp_path: Path
) -> None:
    """Each answer on its own, without padding, says what the batch of unequal lengths says.

    One without tokens has that of the end of its turn, so that all rows have the same prompts.
    """
    folder = build_tiny_gemma(tmp_path / "policy")
    if not pads:
        settings = folder / "tokenizer_config.json"
        known = json.loads(settings.read_text())
        settings.write_text(json.dumps(known | {"pad_token": None}))
    texts = [("a b", "c d e"), ("a", "b"), ("c c c c", "a a a a a a"), ("a b", "")]
    rows = [
        {"conversation": json.dumps([{"role": "user", "content": asked}]), "completion": answer}
        for asked, answer in texts
    ]
    model = load_policy(folder)
    expected = []
    for asked, answer in texts:
        message = {"role": "user", "content": asked}
        [head] = tokenize(model.tokenizer, [[message]], add_generation_prompt=True)
        tail = model.tokenizer(answer, add_special_tokens=False)["input_ids"]
        assert len(tail) == len(answer.split())
        tail = tail or [model.tokenizer.eos_token_id]
        with torch.inference_mode():
            logits = model.model(input_ids=torch.tensor([head + tail])).logits[0].float()
        logps = logits.log_softmax(-1)
        own = [float(logps[len(head) - 1 + i, token]) for i, token in enumerate(tail)]
        expected.append(sum(own) / len(own))
    found = world.log_probabilities(folder, rows)
    assert found == pytest.approx(expected, abs=1e-4)
