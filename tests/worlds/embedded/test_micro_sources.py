"""Laws of the prompt source and the benchmarks: disjoint, repeatable, partly out of reach."""

from pathlib import Path

import build_micro as build
import pyarrow.parquet as pq
import pytest
from build_micro import HUMAN, draw_prompts, two_turn_items
from micro_reading import read

from harness.worlds.embedded import files
from harness.worlds.embedded.language import CATEGORIES, Task
from harness.worlds.embedded.texts import TOPICS, read_items, read_prompts, topic_of

POOLS = ("prompts", "matched", "off_target")
TEXTS = (*POOLS, *build.PAIRWISE, "mt_bench")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The world's texts at their full size."""
    folder = tmp_path_factory.mktemp("texts")
    build.write_texts(folder, build.SEED)
    return folder


def test_no_text_is_in_two_of_the_sets_or_twice_in_one(written: Path) -> None:
    first_turns = {name: read_prompts(written / f"{name}.parquet") for name in POOLS}
    for name in set(TEXTS) - set(POOLS):
        first_turns[name] = [item.turn_1 for item in read_items(written / f"{name}.parquet")]
    sizes = {name: len(texts) for name, texts in first_turns.items()}
    assert sizes == dict.fromkeys(POOLS, 2400) | {
        "arena_hard": 2000, "alpaca_eval": 800, "validation": 1500, "mt_bench": 320
    }  # fmt: skip
    everything = [text for several in first_turns.values() for text in several]
    assert len(everything) == 11820 == len(set(everything))


def test_the_shipped_texts_are_what_the_seed_gives(written: Path) -> None:
    """Contents rather than bytes: a Parquet file names the library version that wrote it."""
    for name in TEXTS:
        shipped = pq.read_table(files.SHIPPED / f"{name}.parquet")
        assert shipped.equals(pq.read_table(written / f"{name}.parquet")), name


def test_what_is_taken_is_left_out_and_nothing_else() -> None:
    some = draw_prompts("human", HUMAN, 5, 40)
    rest = draw_prompts("human", HUMAN, 5, 30, some[::4])
    assert rest == [text for text in some if text not in some[::4]]


def test_a_tasks_topic_is_that_of_most_of_its_names_and_of_equals_the_first() -> None:
    (a, b, *_), (c, d, *_) = TOPICS[4], TOPICS[9]
    for names, topic in (((a,), 4), ((c, d, a), 9), ((a, c, d), 9), ((c, a), 9), ((a, c), 4)):
        assert topic_of(Task(("1",), names)) == topic
    assert topic_of(Task(None, (a, b, c, d))) == 4


def test_the_two_turn_benchmark_has_as_many_items_in_each_category() -> None:
    items = two_turn_items(0, 5, set())
    assert [item.category for item in items] == [c for c in CATEGORIES for _ in range(5)]
    for item in items:
        first, second = read(item.turn_1), read(item.turn_2)
        assert first.operations[0].category == item.category
        assert second.items is None
        assert item.reference is None
