"""Byte flips and truncations in the store: each is found and named."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzzing import Fuzzer, forms
from hypothesis import strategies as st

from harness.runtime import Stage, Store, StoreError

STAGE = Stage("train", 1, {"seed": 0, "rate": 1e-05, "words": ["ä", None]}, {}, "seed 0 · dpo-1")
NEXT = Stage("judge", 2, {"benchmark": "arena"}, {"policy": STAGE}, "seed 0 · dpo-1 · judge")
VERBS = ("status", "path", "manifest", "open", "progress", "failure")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    for stage in (STAGE, NEXT):
        with store.writing(stage) as output:
            (output / "model").mkdir()
            (output / "model" / "weights.bin").write_bytes(bytes(range(100)))
            (output / "progress.jsonl").write_text('{"step": 1, "metrics": {"loss": 0.5}}\n')
    store.record_failure(Stage("pair", 1, {}, {}, "pairs"), "ValueError: no", "Traceback")
    return store


def files_of(store: Store) -> list[Path]:
    kept = (store.root / name for name in ("stages", "failures"))
    return sorted(path for folder in kept for path in folder.rglob("*") if path.is_file())


def look(store: Store, fingerprint: str) -> list[str]:
    """Ask everything about a stage; return the sentences, letting anything else through."""
    said = []
    for verb in VERBS:
        try:
            getattr(store, verb)(fingerprint)
        except StoreError as error:
            said.append(str(error))
    assert not [sentence for sentence in said if "\n" in sentence or len(sentence) > 1500]
    return said


def refused(store: Store, path: Path) -> None:
    """Make sure that whoever checks the store is told of a damaged file by its name."""
    fingerprint = path.stem if "failures" in path.parts else path.relative_to(store.root).parts[2]
    with pytest.raises(StoreError) as caught:
        Store(store.root).check()
    assert fingerprint[:12] in str(caught.value)
    assert look(Store(store.root), fingerprint)


@forms(quick=150)
def test_no_flipped_or_lost_byte_goes_unseen(store: Store, fuzzer: Fuzzer) -> None:
    """A failure record has no digest: there a change is found where it leaves no record."""
    files = files_of(store)
    whole = {path: path.read_bytes() for path in files}
    assert [path.name for path in files].count("stage.json") == 2

    def attempt(path: Path, where: float, bit: int, cut: bool) -> None:
        raw = whole[path]
        at = int(where * len(raw))
        flipped = raw[:at] + bytes([raw[at] ^ (1 << bit)]) + raw[at + 1 :]
        path.write_bytes(raw[:at] if cut else flipped)
        try:
            if "failures" not in path.parts:
                refused(store, path)
            else:
                look(Store(store.root), path.stem)
        finally:
            path.write_bytes(raw)

    position = st.floats(0, 1, exclude_max=True)
    fuzzer.fuzz(attempt, st.sampled_from(files), position, st.integers(0, 7), st.booleans())
    assert len(Store(store.root).check()) == 2
