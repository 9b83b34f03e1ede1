"""Laws of prompt sources: the same texts are the same pool, whatever holds them."""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import HarnessError, UserError
from harness.registry.profile import PromptSettings
from harness.worlds.real.prompts import (
    SHORTEST,
    cut,
    piece_bounds,
    pool_settings,
    read_local,
    read_pool,
)

TEXTS = ["Why?", "Sort 3 1 2.", "Was heißt „grün“?\nSag es.", "Why?"]
REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def jsonl(folder: Path, texts: Sequence[Any] = TEXTS) -> Path:
    path = folder / "prompts.jsonl"
    rows = [json.dumps({"prompt_id": str(i), "prompt": text}) for i, text in enumerate(texts)]
    path.write_text("\n".join(rows) + "\n\n", encoding="utf-8")
    return path


def data_set(folder: Path) -> Path:
    """A folder laid out as the data set of the hub is."""
    root = folder / "ultrafeedback"
    (root / "data").mkdir(parents=True)
    message = [{"content": "x", "role": "user"}]
    splits = {
        "train_iteration_1": TEXTS[:1],
        "train_iteration_2": TEXTS[1:3],
        "train_iteration_3": TEXTS[3:],
        "test_iteration_1": ["Test?"],
    }
    for split, texts in splits.items():
        n = len(texts)
        columns = {"prompt_id": ["a"] * n, "prompt": texts, "chosen": [message] * n}
        pq.write_table(pa.table(columns), root / "data" / f"{split}-00000-of-00001.parquet")
    return root


def prompts(source: Path | str, **fields: Any) -> PromptSettings:
    return PromptSettings(source=str(source), available=6, **fields)


def test_a_pool_is_identified_by_its_texts(tmp_path: Path) -> None:
    """Whatever else the lines have."""
    path = jsonl(tmp_path)
    found = pool_settings(prompts(path))
    assert read_pool(found) == TEXTS
    assert str(found["source"]).startswith("local@")
    path.write_text("\n".join(json.dumps({"prompt": text}) for text in TEXTS), encoding="utf-8")
    assert pool_settings(prompts(path)) == found


def test_splits_are_joined_in_the_order_asked_for(tmp_path: Path) -> None:
    def read(*splits: int) -> list[str]:
        names: Any = [f"train_iteration_{i}" for i in splits]
        return read_pool({"pool": {"hub": root, "revision": REVISION, "splits": names}})

    root = str(data_set(tmp_path))
    assert read(3, 1) == [TEXTS[3], TEXTS[0]]
    assert read(1, 2, 3) == TEXTS
    with pytest.raises(UserError, match=r"train_iteration_4"):
        read(4)


def test_a_run_reads_what_was_planned_whatever_becomes_of_the_file(tmp_path: Path) -> None:
    path = jsonl(tmp_path)
    settings = pool_settings(prompts(path))
    path.write_text('{"prompt": "Another?"}\n')
    assert read_pool(settings) == TEXTS
    path.unlink()
    assert read_pool(settings) == TEXTS


def test_a_copy_that_is_damaged_is_noticed_and_made_again(tmp_path: Path) -> None:
    path = jsonl(tmp_path)
    settings = pool_settings(prompts(path))
    (copy,) = (tmp_path / "work" / "prompts").glob("*.jsonl")
    for damage in ('{"prompt": "other"}', "x"):
        copy.write_text(damage)
        with pytest.raises(HarnessError, match="are not what they were"):
            read_pool(settings)
        assert pool_settings(prompts(path)) == settings
        assert read_pool(settings) == TEXTS
    copy.unlink()
    with pytest.raises(HarnessError, match="start the run again with the file"):
        read_pool(settings)


def test_a_data_set_of_the_hub_is_pinned() -> None:
    settings = pool_settings(prompts("owner/name", revision=REVISION, splits=("train",)))
    assert settings == {
        "source": "owner/name@0123456789abcdef",
        "pool": {"hub": "owner/name", "revision": REVISION, "splits": ["train"]},
    }
    for fields in ({"splits": ("train",)}, {"revision": REVISION}):
        with pytest.raises(UserError, match=r"pin it by its commit in `prompts.revision`"):
            pool_settings(prompts("owner/name", **fields))


def test_a_data_set_that_cannot_be_fetched_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*arguments: Any, **options: Any) -> Any:
        raise ConnectionError("Couldn't reach 'owner/name' on the Hub")

    monkeypatch.setattr("datasets.load_dataset", offline)
    settings = pool_settings(prompts("owner/name", revision=REVISION, splits=("train",)))
    with pytest.raises(UserError, match=r"cannot read the prompts of owner/name.*HF_HUB_OFFLINE=0"):
        read_pool(settings)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("prompts.jsonl", b'{"prompt": "a"}\nnot json\n', r"line 2 of .*prompts.jsonl is not JSON"),
        ("prompts.jsonl", b'{"prompt": "a"}\n["a"]\n', "does not hold JSON objects"),
        ("prompts.jsonl", b'{"question": "a"}\n', "prompt 1 of .* is blank or not text"),
        (
            "prompts.jsonl",
            b'{"prompt": "a"}\n{"prompt": " "}',
            "prompt 2 of .* is blank or not text",
        ),
        ("prompts.jsonl", b'{"prompt": 3}\n', "prompt 1 of .* is blank or not text"),
        ("prompts.jsonl", b'{"prompt": "\xe4"}\n', "Cannot read"),
        ("prompts.jsonl", None, "there are no prompts at"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_sentence(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_local(tmp_path / name)


def test_other_mistakes_are_one_sentence_each(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="single file and has no splits"):
        read_local(jsonl(tmp_path), ("train",))
    with pytest.raises(UserError, match="is not a source of prompts"):
        pool_settings(prompts("prompts.csv"))
    (tmp_path / "prompts.parquet").touch()
    with pytest.raises(UserError, match="is not a source of prompts"):
        pool_settings(prompts(str(tmp_path / "prompts.parquet")))


def test_a_pool_makes_pieces_of_x_or_nearly_equal_ones_or_is_refused() -> None:
    """59,720 / 6 = 9,953 1/3: four pieces of 9,953 and two of 9,954; 95% of 6 x 100 are 570."""
    bounds = piece_bounds(59_720, 10_000, 6)
    sizes = sorted(after - before for before, after in pairwise(bounds))
    assert sizes == [9953] * 4 + [9954] * 2
    assert (bounds[0], bounds[-1]) == (0, 59_720)
    assert piece_bounds(59_720, 2_000, 6) == [0, 2000, 4000, 6000, 8000, 10_000, 12_000]
    assert piece_bounds(570, 100, 6)[-1] == 570
    with pytest.raises(UserError, match="569 prompts are too few for 6 pieces of 100"):
        piece_bounds(569, 100, 6)


def positions(size: int, seed: int, x: int, pieces: int, first: int, count: int) -> list[int]:
    asked = {"seed": seed, "x": x, "pieces": pieces, "first": first, "count": count}
    return cut(asked, size)


@given(st.integers(0, 99), st.integers(1, 40), st.integers(1, 6), st.integers(0, 10))
def test_pieces_of_a_seed_share_no_prompt(seed: int, x: int, pieces: int, missing: int) -> None:
    size = max(int(SHORTEST * x * pieces) + 1, x * pieces - missing)
    parts = [positions(size, seed, x, pieces, x * i, x) for i in range(pieces)]
    joined = [position for piece in parts for position in piece]
    assert joined == positions(size, seed, x, pieces, 0, x * pieces)
    assert len(set(joined)) == len(joined) == min(size, x * pieces)
    assert set(joined) <= set(range(size))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("seed", [0, 8964])
def test_the_order_is_that_of_the_librarys_shuffle(seed: int) -> None:
    """With the seed of the authors' script, their order."""
    shuffled = Dataset.from_dict({"i": list(range(500))}).shuffle(seed=seed)
    assert positions(500, seed, 100, 5, 0, 500) == shuffled["i"][:]


@pytest.mark.parametrize(("first", "count"), [(50, 100), (0, 150), (500, 200)])
def test_only_whole_pieces_that_there_are_can_be_cut(first: int, count: int) -> None:
    with pytest.raises(UserError, match="not whole pieces of 100 among 6"):
        positions(600, 0, 100, 6, first, count)
