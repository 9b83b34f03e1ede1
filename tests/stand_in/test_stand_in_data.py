"""The stand-ins' benchmarks and prompts are read by the real benchmarks' readers."""

from __future__ import annotations

from pathlib import Path

from harness.evaluation.benchmark import Benchmark
from harness.evaluation.benchmarks import alpaca_eval, arena_hard, mt_bench
from harness.evaluation.benchmarks.arena_hard import ArenaHard
from harness.evaluation.benchmarks.mt_bench import MtBench
from harness.registry.declared import load_tables
from harness.registry.profile import Profile, load_profiles, table_unsupported
from harness.worlds.real.prompts import pool_settings, read_pool
from stand_in import build
from stand_in.annotator import Ranked
from stand_in.server import SUBJECTS, prompts, reply


def benchmarks() -> dict[str, Benchmark]:
    folder = build.folders()
    return {
        "arena_hard": ArenaHard.load(folder["arena-hard"]),
        "ranked": Ranked.load(folder["ranked"]),
        "mt_bench": MtBench.load(folder["mt-bench"]),
    }


def test_the_real_readers_find_as_many_items_as_the_profile_says(profile: Profile) -> None:
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
    ranked = found["ranked"].inputs
    assert isinstance(ranked, alpaca_eval.Inputs)
    assert len(ranked.references) == 24
    assert ranked.reference == "stand-in"


def test_the_prompts_are_six_pieces_and_found_in_the_work_folder(profile: Profile) -> None:
    """Twelve questions on twelve subjects are 144 prompts, six times the profile's 24."""
    pool = read_pool(pool_settings(profile.prompts))
    assert pool == prompts()
    assert len(set(pool)) == 144 == profile.prompts.available * profile.x


def test_a_reply_is_on_the_subject_and_drawn_by_its_number() -> None:
    said = reply("Explain how bread works.", 5)
    assert all(f"{sentence}." in " ".join(SUBJECTS["bread"]) for sentence in said.split(". ")[:-1])
    assert said == reply("Explain how bread works.", 5)
    assert len({reply("Explain how bread works.", number) for number in range(20)}) > 5


def test_the_profile_offers_what_the_papers_does_but_for_table_9(profile: Profile) -> None:
    """Table 9's tasks are lm-evaluation-harness's own and cannot be made up."""
    paper, stand_in, tables = load_profiles()["paper"], profile, load_tables()
    same = ("algorithms", "arms", "train_modes", "rewriter", "selection", "pairs")
    assert all(getattr(paper, name) == getattr(stand_in, name) for name in same)
    assert set(paper.reward_models) == set(stand_in.reward_models)
    assert paper.creator.methods == stand_in.creator.methods
    assert set(paper.benchmarks) - set(stand_in.benchmarks) == {"downstream", "alpaca_eval"}
    assert set(paper.scores) - set(stand_in.scores) == set(paper.benchmarks["downstream"].columns)
    lacking = {name for name, table in tables.items() if table_unsupported(table, stand_in)}
    assert lacking == {"table9", "reward-models", "choosing", "selectors"}
