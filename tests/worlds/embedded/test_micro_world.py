"""Laws of the world's card: identities name bytes, and resolving checks them."""

import shutil
from pathlib import Path

import pytest
from world_of_names import write_world

from harness.errors import HarnessError
from harness.worlds.embedded import files


@pytest.fixture
def small_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A world of a few bytes, in use."""
    folder = write_world(tmp_path / "world")
    (folder / "theta0" / "model.safetensors").write_bytes(b"weights")
    files.write_card(folder, {"seed": 0})
    monkeypatch.setenv("HARNESS_WORLD", str(folder))
    return folder


def test_an_identity_is_version_asset_and_the_start_of_its_digest_wherever_the_world_lies(
    small_world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = files.card()
    assert card.notes == {"seed": 0}
    assert set(card.assets) == set(files.ASSETS)
    for name, path in files.ASSETS.items():
        digest = files.digest(small_world / path)
        assert len(digest) == 64
        assert card.identity(name) == f"{files.VERSION}/{name}@{digest[:16]}"
    monkeypatch.setenv("HARNESS_WORLD", str(small_world.rename(tmp_path / "elsewhere")))
    assert files.card() == card


@pytest.mark.parametrize("name", ["theta0/model.safetensors", "theta0/config.json",
                                  "prompts.parquet"])  # fmt: skip
def test_a_changed_byte_is_noticed(
    small_world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """In a copy, because what was resolved once is not read again by the same process."""
    copy = tmp_path / "copy"
    shutil.copytree(small_world, copy)
    content = bytearray((copy / name).read_bytes())
    content[0] ^= 1
    (copy / name).write_bytes(bytes(content))
    monkeypatch.setenv("HARNESS_WORLD", str(copy))
    asset = name.partition("/")[0].removesuffix(".parquet")
    with pytest.raises(HarnessError, match=r"digest of .* is not the one its card names"):
        files.resolve(files.card().identity(asset))
    assert files.resolve(files.card().identity("arena_hard")).exists()


def test_a_folders_digest_covers_names_weights_and_settings_but_not_the_card_for_people(
    small_world: Path,
) -> None:
    model = small_world / "theta0"
    before = files.digest(model)
    (model / "README.md").write_text("a card for people", encoding="utf-8")
    assert files.digest(model) == before
    (model / "chat_template.jinja").write_text("x", encoding="utf-8")
    with_template = files.digest(model)
    assert with_template != before
    (model / "chat_template.jinja").rename(model / "template.jinja")
    assert files.digest(model) not in {before, with_template}


def test_a_missing_file_is_one_sentence_that_names_it(small_world: Path) -> None:
    identity = files.card().identity("mt_bench")
    (small_world / "mt_bench.parquet").unlink()
    with pytest.raises(HarnessError, match=r"asset `mt_bench` is missing at .*mt_bench\.parquet"):
        files.resolve(identity)


def test_an_asset_the_world_does_not_have_is_one_sentence(small_world: Path) -> None:
    with pytest.raises(HarnessError, match=rf"{files.VERSION} has no asset `rm_huge`"):
        files.card().identity("rm_huge")
    with pytest.raises(HarnessError, match="asset `rm_huge` is missing"):
        files.resolve(f"{files.VERSION}/rm_huge@0123456789abcdef")


@pytest.mark.parametrize("text", [None, "", "{", "[]", "{}", '{"version": "micro-2"}'])
def test_a_missing_or_broken_card_is_one_sentence_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    if text is not None:
        (tmp_path / "card.json").write_text(text, encoding="utf-8")
    monkeypatch.setenv("HARNESS_WORLD", str(tmp_path))
    with pytest.raises(HarnessError, match=r"card\.json cannot be read .*build_micro") as e:
        files.card()
    assert "\n" not in str(e.value)
