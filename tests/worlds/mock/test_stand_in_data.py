"""The stand-ins' benchmarks and prompts are read by the real benchmarks' readers."""

from __future__ import annotations

from pathlib import Path

from harness.evaluation.benchmark import Benchmark
from harness.evaluation.benchmarks import arena_hard, mt_bench, own_annotator
from harness.evaluation.benchmarks.arena_hard import ArenaHard
from harness.evaluation.benchmarks.mt_bench import MtBench
from harness.evaluation.benchmarks.own_annotator import OwnAnnotator
from harness.registry.declared import load_tables
from harness.registry.profile import load_profiles, table_unsupported
from harness.worlds.mock import build
from harness.worlds.mock.server import SUBJECTS, prompts, reply
from harness.worlds.real.prompts import pool_settings, read_pool


def benchmarks() -> dict[str, Benchmark]:
    folder = build.folders()
    return {
        "arena_hard": ArenaHard.load(folder["arena-hard"]),
        "alpaca_eval": OwnAnnotator.load(folder["alpaca-eval"]),
        "mt_bench": MtBench.load(folder["mt-bench"]),
    }


def test_the_real_readers_find_as_many_items_as_the_profile_says(work: Path) -> None:
    profile = load_profiles()["stand-in"]
    for name, benchmark in benchmarks().items():
        assert len(benchmark.questions) == profile.benchmarks[name].items
        texts = [question.turns[0] for question in benchmark.questions]
        assert len(set(texts)) == len(texts)
        assert not set(texts) & set(prompts())


def test_every_question_has_what_it_is_compared_with(work: Path) -> None:
    found = benchmarks()
    arena, mt = found["arena_hard"].inputs, found["mt_bench"].inputs
    assert isinstance(arena, arena_hard.Inputs)
    assert len(arena.baseline.to(arena.questions)) == 12
    assert isinstance(mt, mt_bench.Inputs)
    assert {q.category for q in mt.questions} == set(mt_bench.TEMPERATURES)
    alpaca = found["alpaca_eval"].inputs
    assert isinstance(alpaca, own_annotator.OwnInputs)
    assert len(alpaca.references) == 24
    assert alpaca.reference == "stand-in"


def test_the_prompts_are_six_pieces_and_found_in_the_work_folder(work: Path) -> None:
    """Twelve questions on twelve subjects are 144 prompts, six times the profile's 24."""
    profile = load_profiles()["stand-in"]
    pool = read_pool(pool_settings(profile.prompts))
    assert pool == prompts()
    assert len(set(pool)) == 144 == profile.prompts.available * profile.x


def test_a_reply_is_on_the_subject_and_drawn_by_its_number() -> None:
    said = reply("Explain how bread works.", 5)
    assert all(f"{sentence}." in " ".join(SUBJECTS["bread"]) for sentence in said.split(". ")[:-1])
    assert said == reply("Explain how bread works.", 5)
    assert len({reply("Explain how bread works.", number) for number in range(20)}) > 5


def test_the_profile_offers_what_the_papers_does_but_for_table_9() -> None:
    """Table 9's tasks are lm-evaluation-harness's own and cannot be made up."""
    profiles, tables = load_profiles(), load_tables()
    paper, stand_in = profiles["paper"], profiles["stand-in"]
    same = ("algorithms", "arms", "train_modes", "rewriter", "selection", "pairs")
    assert all(getattr(paper, name) == getattr(stand_in, name) for name in same)
    assert set(paper.reward_models) == set(stand_in.reward_models)
    assert paper.creator.methods == stand_in.creator.methods
    assert set(paper.benchmarks) - set(stand_in.benchmarks) == {"downstream"}
    lacking = {name for name, table in tables.items() if table_unsupported(table, stand_in)}
    assert lacking == {"table9", "reward-models"}
