"""Laws of the prompt source and the benchmarks: disjoint, repeatable, partly out of reach."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from harness.worlds.embedded import build, files
from harness.worlds.embedded.creator import LONGEST_LIST, NEVER_ADDED
from harness.worlds.embedded.language import (
    BENCHMARK_PHRASE,
    BY_NAME,
    CATEGORIES,
    NAMES,
    OPERATIONS,
    parse,
    score,
)
from harness.worlds.embedded.texts import (
    GENERAL,
    HARD,
    HUMAN,
    Distribution,
    Item,
    human_prompts,
    pairwise_items,
    read_items,
    read_prompts,
    two_turn_items,
    write_items,
    write_prompts,
)

TEXTS = ("prompts", *build.PAIRWISE, "mt_bench")


def holds(text: str, phrase: str) -> bool:
    return f" {phrase} " in f" {text} "


def out_of_reach(text: str) -> bool:
    """Whether a prompt is worded, or its list so long, as no rewrite of the creator's ever is."""
    task = parse(text)
    assert task is not None
    worded = any(holds(text, o.phrases[BENCHMARK_PHRASE]) for o in OPERATIONS)
    return worded or text.startswith("given ") or len(task.items or ()) > LONGEST_LIST


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The world's texts at their full size."""
    folder = tmp_path_factory.mktemp("texts")
    build.write_texts(folder, build.SEED)
    return folder


def test_no_text_is_in_two_of_the_sets_or_twice_in_one(written: Path) -> None:
    texts = {name: read_items(written / f"{name}.parquet") for name in TEXTS if name != "prompts"}
    first_turns = {name: [item.turn_1 for item in items] for name, items in texts.items()}
    first_turns["prompts"] = read_prompts(written / "prompts.parquet")
    everything = [text for several in first_turns.values() for text in several]
    assert len(everything) == 6000 + 500 + 400 + 1500 + 160 == len(set(everything))


def test_no_text_is_in_two_sets_of_another_seed_and_of_small_sizes() -> None:
    """One item, one operation, one wording: 12 x 20 texts, of which most are taken or drawn.

    So collisions are avoided rather than unlikely.
    """
    narrow = Distribution((1.0,), (1, 1), 1, 1, HARD.weights)
    rng = random.Random(0)
    taken = {narrow.word(narrow.draw(rng), rng) for _ in range(200)}
    before = set(taken)
    items = pairwise_items("arena_hard", narrow, 3, 60, taken)
    texts = {item.turn_1 for item in items}
    assert len(texts) == 60
    assert not texts & before
    assert taken == before | texts


def test_writing_the_texts_again_gives_the_same_bytes(written: Path, tmp_path: Path) -> None:
    build.write_texts(tmp_path, build.SEED)
    for name in TEXTS:
        file = f"{name}.parquet"
        assert (tmp_path / file).read_bytes() == (written / file).read_bytes()


def test_the_shipped_texts_are_what_the_seed_gives(written: Path) -> None:
    """Contents rather than bytes: a Parquet file names the library version that wrote it."""
    if not (files.SHIPPED / "card.json").exists():
        pytest.skip("no world is shipped")
    for name in TEXTS:
        shipped = pq.read_table(files.SHIPPED / f"{name}.parquet")
        assert shipped.equals(pq.read_table(written / f"{name}.parquet")), name


def test_a_smaller_pool_is_the_beginning_of_a_larger_one_of_the_same_seed() -> None:
    assert human_prompts(5, 40) == human_prompts(5, 90)[:40]
    assert human_prompts(5, 40) != human_prompts(6, 40)


def test_human_prompts_are_short_shallow_and_in_everyday_words() -> None:
    """Lists of 4 to 6, at most three operations, the first two phrasings, no benchmark frame."""
    for text in human_prompts(0, 2000):
        task = parse(text)
        assert task is not None
        assert task.items is not None
        assert 4 <= len(task.items) <= 6
        assert len(task.operations) <= 3
        assert not out_of_reach(text)
        for name in task.operations:
            assert any(holds(text, phrase) for phrase in BY_NAME[name].phrases[:2])


def test_human_prompts_ask_more_for_what_the_policy_does_well() -> None:
    """Weights are cubes: reverse at 0.95 against every_other at 0.42 is 0.857 to 0.074, 11.6."""
    counts = dict.fromkeys(NAMES, 0)
    for text in human_prompts(0, 4000):
        task = parse(text)
        assert task is not None
        for name in task.operations:
            counts[name] += 1
    assert 7 < counts["reverse"] / counts["every_other"] < 18


def test_more_than_half_of_the_hard_benchmark_is_out_of_the_creators_reach() -> None:
    """By its wording and long lists; operations that are never added come on top.

    Of 2.6 operations on average none is in the fourth phrasing with 0.75^2.6 = 0.47, and the frame
    is not the fifth with 0.8: 0.62 are worded as no rewrite is.
    """
    items = pairwise_items("arena_hard", HARD, 0, 500, set())
    assert sum(out_of_reach(item.turn_1) for item in items) / 500 > 0.5
    tasks = [parse(item.turn_1) for item in items]
    rare = [t for t in tasks if t is not None and set(t.operations) & set(NEVER_ADDED)]
    assert len(rare) / 500 > 0.25


def test_the_hard_benchmark_is_two_to_four_deep_and_even_over_the_operations() -> None:
    items = pairwise_items("arena_hard", HARD, 0, 500, set())
    counts = dict.fromkeys(NAMES, 0)
    for item in items:
        task = parse(item.turn_1)
        assert task is not None
        assert 2 <= len(task.operations) <= 4
        for name in task.operations:
            counts[name] += 1
    mean = sum(counts.values()) / 12
    assert all(0.7 * mean < count < 1.3 * mean for count in counts.values())


def test_sources_grow_harder_from_human_to_general_to_hard() -> None:
    def mean_depth(distribution: Distribution) -> float:
        return sum(depth * share for depth, share in enumerate(distribution.depths, start=1))

    assert mean_depth(HUMAN) < mean_depth(GENERAL) < mean_depth(HARD)


def test_references_are_lists_that_are_good_but_not_perfect() -> None:
    items = pairwise_items("alpaca_eval", GENERAL, 0, 300, set())
    marks = [score(item.turn_1, item.reference or "") for item in items]
    assert 0.75 < sum(marks) / 300 < 1.0
    assert marks.count(1.0) > 150
    harder = pairwise_items("arena_hard", HARD, 0, 300, set())
    assert sum(score(i.turn_1, i.reference or "") for i in harder) < sum(marks)


def test_a_pairwise_items_category_is_that_of_its_first_operation() -> None:
    for item in pairwise_items("validation", HARD, 1, 60, set()):
        task = parse(item.turn_1)
        assert task is not None
        assert item.category == BY_NAME[task.operations[0]].category
        assert item.turn_2 is None


def test_the_two_turn_benchmark_has_as_many_items_in_each_category() -> None:
    items = two_turn_items(0, 5, set())
    assert [item.category for item in items] == [c for c in CATEGORIES for _ in range(5)]
    for item in items:
        first, second = parse(item.turn_1), parse(item.turn_2 or "")
        assert first is not None
        assert second is not None
        assert BY_NAME[first.operations[0]].category == item.category
        assert second.items is None
        assert item.reference is None


def test_item_ids_are_unique_and_name_their_benchmark() -> None:
    items = [*pairwise_items("arena_hard", HARD, 0, 30, set()), *two_turn_items(0, 2, set())]
    assert len({item.item_id for item in items}) == 30 + 16
    assert items[0].item_id == "arena_hard-0000"
    assert items[-1].item_id == "mt_bench-0015"


def test_items_and_prompts_survive_being_written_and_read(tmp_path: Path) -> None:
    items = [
        Item("x-0", "math", "now reverse it"),
        Item("x-1", "stem", "a", turn_2="b", reference="1"),
    ]
    write_items(items, tmp_path / "items.parquet")
    assert read_items(tmp_path / "items.parquet") == items
    write_prompts(["b", "a"], tmp_path / "prompts.parquet")
    assert read_prompts(tmp_path / "prompts.parquet") == ["b", "a"]
