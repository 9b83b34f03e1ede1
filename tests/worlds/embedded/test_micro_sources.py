"""Laws of the prompt source and the benchmarks: disjoint, repeatable, partly out of reach."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from micro_reading import assert_share, read

from harness.worlds import Item
from harness.worlds.embedded import build, files
from harness.worlds.embedded.creator import LONGEST_LIST, VOCABULARY
from harness.worlds.embedded.language import CATEGORIES, Task, score
from harness.worlds.embedded.texts import (
    GENERAL,
    HARD,
    HUMAN,
    MATCHED,
    OFF_TARGET,
    RANKED,
    RELIABILITY,
    TOPIC_OF,
    TOPICS,
    Distribution,
    best_known_topics,
    draw_prompts,
    pairwise_items,
    read_items,
    read_prompts,
    topic_of,
    two_turn_items,
    write_items,
    write_prompts,
)

POOLS = ("prompts", "matched", "off_target")
TEXTS = (*POOLS, *build.PAIRWISE, "mt_bench")

HARMONIC = sum(1 / place for place in range(1, 25))
"""3.776, by which Zipf's 1 / place is divided to be a topic's share."""


def out_of_reach(text: str) -> bool:
    """Whether a prompt is in a frame, or has a name or a list so long, that no rewrite adds."""
    task = read(text)
    strange = not set(task.names) <= VOCABULARY
    return strange or text.startswith("given ") or len(task.items or ()) > LONGEST_LIST


def uses(texts: Iterable[str]) -> Counter[int]:
    """How often names are used, by their rank from 1."""
    rank = {name: place for place, name in enumerate(RANKED, start=1)}
    return Counter(rank[name] for text in texts for name in read(text).names)


def topics(texts: Iterable[str]) -> Counter[int]:
    """How often names of a topic are used, by the place of the topic from 1."""
    return Counter(1 + TOPIC_OF[name] for text in texts for name in read(text).names)


def assert_share_of(places: range, counts: Counter[int], expected: float) -> None:
    assert_share(sum(counts[place] for place in places), counts.total(), expected)


def assert_even(counts: Counter[int]) -> None:
    """Check by chi-square that every name is used alike: 239 within 4.5 x sqrt(2 x 239)."""
    mean = counts.total() / 240
    distance = sum((counts[rank] - mean) ** 2 / mean for rank in range(1, 241))
    assert abs(distance - 239) < 4.5 * math.sqrt(2 * 239)


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


ONE_NAME = Distribution((1.0,), (1, 1), 1, (1.0, *[0.0] * 239))
"""One item, one name, one frame: 20 texts, of which most are soon taken or drawn."""


def test_no_text_is_in_two_sets_of_another_seed_and_of_small_sizes() -> None:
    """So collisions are avoided rather than unlikely."""
    pool = draw_prompts("human", ONE_NAME, 3, 8)
    other = draw_prompts("matched", ONE_NAME, 3, 6, pool)
    taken = {*pool, *other}
    items = pairwise_items("arena_hard", ONE_NAME, 3, 6, taken)
    assert len(taken) == 20
    assert taken == {*pool, *other, *(item.turn_1 for item in items)}


def test_the_shipped_texts_are_what_the_seed_gives(written: Path) -> None:
    """Contents rather than bytes: a Parquet file names the library version that wrote it."""
    for name in TEXTS:
        shipped = pq.read_table(files.SHIPPED / f"{name}.parquet")
        assert shipped.equals(pq.read_table(written / f"{name}.parquet")), name


def test_a_smaller_pool_is_the_beginning_of_a_larger_one_of_the_same_seed() -> None:
    small = draw_prompts("human", HUMAN, 5, 40)
    assert small == draw_prompts("human", HUMAN, 5, 90)[:40]
    assert small != draw_prompts("human", HUMAN, 6, 40)
    assert small != draw_prompts("matched", HUMAN, 5, 40)


def test_what_is_taken_is_left_out_and_nothing_else() -> None:
    some = draw_prompts("human", HUMAN, 5, 40)
    rest = draw_prompts("human", HUMAN, 5, 30, some[::4])
    assert rest == [text for text in some if text not in some[::4]]


@pytest.mark.parametrize("distribution", [HUMAN, MATCHED, OFF_TARGET])
def test_prompts_to_train_on_are_short_shallow_and_in_no_benchmarks_frame(
    distribution: Distribution,
) -> None:
    """Lists of 4 or 5, one to three operations with shares 0.6, 0.3 and 0.1."""
    tasks = [(text, read(text)) for text in draw_prompts("form", distribution, 0, 2000)]
    assert {len(task.items or ()) for _, task in tasks} == {4, 5}
    depths = Counter(len(task.names) for _, task in tasks)
    for depth, share in ((1, 0.6), (2, 0.3), (3, 0.1)):
        assert_share(depths[depth], 2000, share)
    openings = {text.split()[0] for text, _ in tasks}
    assert "given" not in openings
    assert {"take", "please", "here"} <= openings


def test_topics_are_24_times_ten_names() -> None:
    assert [len(topic) for topic in TOPICS] == [10] * 24
    assert sorted(name for topic in TOPICS for name in topic) == sorted(RANKED)
    assert {name: TOPICS[at] for name, at in TOPIC_OF.items()} == {
        name: topic for topic in TOPICS for name in topic
    }


def test_names_of_a_topic_are_known_about_as_well() -> None:
    """Of the variance of names, 240^2 / 12 = 4,800 ranks^2, noise takes 30^2 of 5,700: 16%.

    So 84% lies between topics, less or more by chance with 24 of them.
    """
    known = [[RELIABILITY[name] for name in topic] for topic in TOPICS]
    means = [sum(topic) / 10 for topic in known]
    grand = sum(means) / 24
    between = sum((mean - grand) ** 2 for mean in means) / 24
    total = sum((x - grand) ** 2 for topic in known for x in topic) / 240
    assert between / total == pytest.approx(4800 / 5700, abs=0.1)


def test_what_people_ask_about_is_known_better_but_not_in_the_same_order() -> None:
    """Places in the order of 24 topics have a variance of 48, and noise of 9 is added: r = 0.92."""
    means = [sum(RELIABILITY[name] for name in topic) / 10 for topic in TOPICS]
    assert -0.97 < statistics.correlation(range(24), means) < -0.75
    assert set(best_known_topics(3)) == set(sorted(range(24), key=lambda at: -means[at])[:3])


def test_a_tasks_topic_is_that_of_most_of_its_names_and_of_equals_the_first() -> None:
    (a, b, *_), (c, d, *_) = TOPICS[4], TOPICS[9]
    for names, topic in (((a,), 4), ((c, d, a), 9), ((a, c, d), 9), ((c, a), 9), ((a, c), 4)):
        assert topic_of(Task(("1",), names)) == topic
    assert topic_of(Task(None, (a, b, c, d))) == 4


@pytest.mark.parametrize("distribution", [HUMAN, OFF_TARGET])
def test_the_names_of_a_human_prompt_are_of_one_topic_and_distinct(
    distribution: Distribution,
) -> None:
    for text in draw_prompts("form", distribution, 0, 1000):
        names = read(text).names
        assert len(set(names)) == len(names)
        assert len({TOPIC_OF[name] for name in names}) == 1


def test_people_ask_about_topics_as_zipf_has_it_and_about_names_of_a_topic_alike() -> None:
    """By prompts: the first topic has 1 / 3.776 = 26.5%, the first three 48.6%, half of all 17.8%.

    The first topic's ten names have a tenth each, by chi-square within 9 + 4.5 x sqrt(2 x 9).
    """
    drawn = draw_prompts("human", HUMAN, 0, 4000)
    counts = Counter(1 + topic_of(read(text)) for text in drawn)
    for places, percent in ((range(1, 2), 26.5), (range(1, 4), 48.6), (range(13, 25), 17.8)):
        share = sum(1 / place for place in places) / HARMONIC
        assert 100 * share == pytest.approx(percent, abs=0.05)
        assert_share_of(places, counts, share)
    own = Counter(name for text in drawn for name in read(text).names if TOPIC_OF[name] == 0)
    mean = own.total() / 10
    assert sum((own[name] - mean) ** 2 / mean for name in TOPICS[0]) < 9 + 4.5 * math.sqrt(2 * 9)


def test_one_x_of_human_prompts_mentions_some_180_names_and_six_x_all(written: Path) -> None:
    """Some 178 by arithmetic, and 239 of 240.

    A prompt has 1.5 of its topic's ten names, so that a name of the topic at place k is in one with
    q = 0.15 / 3.776k, and in n with 1 - (1 - q)^n.
    """
    pool = read_prompts(written / "prompts.parquet")
    for count, expected in ((400, 178), (2400, 239)):
        chances = [0.15 / HARMONIC / place for place in range(1, 25)]
        assert 10 * sum(1 - (1 - q) ** count for q in chances) == pytest.approx(expected, abs=0.5)
        assert len(uses(pool[:count])) == pytest.approx(expected, abs=10)
    assert len(uses(pool)) == 240


def test_off_target_prompts_ask_about_the_three_topics_that_are_known_best_alike(
    written: Path,
) -> None:
    counts = Counter(topic_of(read(t)) for t in read_prompts(written / "off_target.parquet"))
    assert set(counts) == set(best_known_topics(3))
    for hits in counts.values():
        assert_share(hits, counts.total(), 1 / 3)


def test_matched_prompts_and_the_hard_benchmarks_use_all_names_alike(written: Path) -> None:
    """3,600, 3,600 and 2,700 uses of 240 names."""
    assert_even(uses(read_prompts(written / "matched.parquet")))
    for name in ("arena_hard", "validation"):
        assert_even(uses(item.turn_1 for item in read_items(written / f"{name}.parquet")))


def test_the_general_benchmark_uses_names_halfway_between_people_and_evenly(written: Path) -> None:
    """The first topic has (26.5% + 1/24) / 2 = 15.3%, the rarer half (17.8% + 50%) / 2 = 33.9%."""
    counts = topics(item.turn_1 for item in read_items(written / "alpaca_eval.parquet"))
    assert_share(counts[1], counts.total(), 0.1533)
    assert_share_of(range(13, 25), counts, 0.339)


def test_half_of_the_hard_benchmark_is_out_of_the_creators_reach() -> None:
    """By its names and its frame.

    A name is known with 3/4, so that all of one, two or three are with 0.4 x 0.75 + 0.4 x 0.5625 +
    0.2 x 0.4219 = 0.609; the frame is not the fifth with 0.8: 0.488 are within reach.
    """
    items = pairwise_items("arena_hard", HARD, 0, 1000, set())
    assert sum(out_of_reach(item.turn_1) for item in items) / 1000 == pytest.approx(0.512, abs=0.07)
    names = [name for item in items for name in read(item.turn_1).names]
    strange = sum(name not in VOCABULARY for name in names) / len(names)
    assert strange == pytest.approx(0.25, abs=0.05)


def test_references_are_lists_that_are_good_but_not_perfect() -> None:
    items = pairwise_items("alpaca_eval", GENERAL, 0, 300, set())
    marks = [score(item.turn_1, item.reference or "") for item in items]
    assert 0.75 < sum(marks) / 300 < 1.0
    assert marks.count(1.0) > 150
    harder = pairwise_items("arena_hard", HARD, 0, 300, set())
    assert sum(score(i.turn_1, i.reference or "") for i in harder) < sum(marks)


def test_the_two_turn_benchmark_has_as_many_items_in_each_category() -> None:
    items = two_turn_items(0, 5, set())
    assert [item.category for item in items] == [c for c in CATEGORIES for _ in range(5)]
    for item in items:
        first, second = read(item.turn_1), read(item.turn_2)
        assert first.operations[0].category == item.category
        assert second.items is None
        assert item.reference is None


def test_items_and_prompts_survive_being_written_and_read(tmp_path: Path) -> None:
    items = [
        Item("x-0", "math", "now reverse-1"),
        Item("x-1", "stem", "a", turn_2="b", reference="1"),
    ]
    write_items(items, tmp_path / "items.parquet")
    assert read_items(tmp_path / "items.parquet") == items
    write_prompts(["b", "a"], tmp_path / "prompts.parquet")
    assert read_prompts(tmp_path / "prompts.parquet") == ["b", "a"]
