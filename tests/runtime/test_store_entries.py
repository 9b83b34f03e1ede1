"""The store: whole entries or none, and every fault in one sentence."""

import errno
import math
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.runtime import Stage, StageContext, Store, files
from harness.runtime import store as store_module
from harness.runtime.files import StoreError
from harness.runtime.manifest import git_state
from harness.runtime.stage import PROGRESS, append_point

STAGE = Stage("train", 1, {"seed": 0}, {}, "seed 0 · dpo-1 · train 1")
FP = STAGE.fingerprint
WEIGHTS = "model/weights.txt"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def write(store: Store, text: str = "weights", stage: Stage = STAGE) -> Path:
    with store.writing(stage) as output:
        (output / "model").mkdir()
        (output / "model" / "weights.txt").write_text(text)
    return store.path(stage.fingerprint)


def leftovers(store: Store) -> list[Path]:
    return list((store.root / "tmp").iterdir())


def test_an_entry_that_a_rival_publishes_while_we_look_is_no_broken_one(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    entry = write(store)
    aside = entry.rename(tmp_path / "aside")
    look = os.lstat

    def looked(path: str, **more: Any) -> os.stat_result:
        try:
            return look(path, **more)
        except FileNotFoundError:
            if aside.exists():
                aside.rename(entry)  # what a rival's publication is: one renaming
            raise

    monkeypatch.setattr(os, "lstat", looked)
    assert Store(store.root).status(FP) == "done"


def test_a_stage_is_missing_then_done_and_its_manifest_says_all(store: Store) -> None:
    """The digest is sha256 of the seven bytes `weights`, from `printf weights | sha256sum`."""
    assert store.status(FP) == "missing"
    with pytest.raises(StoreError, match="is not in the store"):
        store.path(FP)
    entry = write(store)
    assert store.status(FP) == "done"
    assert entry == store.open(FP) == store.root / "stages" / FP[:2] / FP
    manifest = store.manifest(FP)
    assert manifest["settings"] == {"seed": 0}
    assert (manifest["kind"], manifest["version"], manifest["label"]) == ("train", 1, STAGE.label)
    assert manifest["files"] == {
        "model/weights.txt": {
            "sha256": "9a129038d9a00aed0cf6a7ea059ca50a813449061ab87848cf1a13eafdf33b2c",
            "bytes": 7,
        }
    }
    assert manifest["wall_s"] >= 0
    assert manifest["started"] <= manifest["finished"]
    assert set(manifest["provenance"]["versions"]) >= {"torch", "trl", "numpy"}
    assert [m["fingerprint"] for m in store.stages()] == [FP]
    assert leftovers(store) == []


ASKED: dict[str, Callable[[Store], object]] = {
    "status": lambda store: store.status(FP),
    "path": lambda store: store.path(FP),
    "manifest": lambda store: store.manifest(FP),
    "open": lambda store: store.open(FP),
    "progress": lambda store: store.progress(FP),
    "stages": lambda store: list(store.stages()),
    "check": lambda store: store.check(),
}
"""Whatever is asked about an entry."""


def broken(store: Store) -> str:
    """Return the one sentence that whoever asks about the entry is told, which names it."""
    said = set()
    for ask in ASKED.values():
        with pytest.raises(StoreError) as caught:
            ask(Store(store.root))
        said.add(str(caught.value))
    (sentence,) = said
    assert f"delete {store.root / 'stages' / FP[:2] / FP} and run" in sentence
    assert FP[:12] in sentence
    assert "\n" not in sentence
    return sentence


def says(text: str) -> Callable[[Path], object]:
    """Return what writes a manifest."""
    return lambda entry: (entry / "stage.json").write_text(text)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        *(
            (says(text), "its digest differs")
            for text in ("", '{"kind": "train", "ver', "[]", "{}", "[" * 100_000)
        ),
        (lambda entry: (entry / "stage.json").unlink(), "stage.json is missing"),
        (lambda entry: emptied(entry).mkdir(), "stage.json is missing"),
        (lambda entry: emptied(entry).write_text("x"), "stage.json is missing"),
    ],
)
def test_an_entry_without_a_whole_manifest_is_named_until_the_next_write_replaces_it(
    store: Store, damage: Callable[[Path], object], said: str
) -> None:
    damage(write(store))
    assert said in broken(store)
    write(store, "second")
    assert (store.open(FP) / "model" / "weights.txt").read_text() == "second"
    assert store.check() == [FP]
    assert leftovers(store) == []


def test_no_flipped_or_lost_byte_goes_unseen(store: Store) -> None:
    """Every byte of every file; a failure record has no digest, and is one or a sentence."""
    entry = write(store)
    for path in (entry / "stage.json", entry / "model" / "weights.txt"):
        raw = path.read_bytes()
        flipped = (raw[:i] + bytes([raw[i] ^ 1 << i % 8]) + raw[i + 1 :] for i in range(len(raw)))
        for damaged in (*flipped, *(raw[:length] for length in range(0, len(raw), 5))):
            path.write_bytes(damaged)
            for ask in (Store.check, ASKED["open"]):
                with pytest.raises(StoreError, match=FP[:12]) as caught:
                    ask(Store(store.root))
                assert "\n" not in str(caught.value)
        path.write_bytes(raw)
    assert store.check() == [FP]
    other = Stage("pair", 1, {}, {}, "pairs")
    store.record_failure(other, "ValueError: no", "Traceback")
    path = store.root / "failures" / f"{other.fingerprint}.json"
    raw = path.read_bytes()
    for i in range(len(raw)):
        for damaged in (raw[:i] + bytes([raw[i] ^ 1 << i % 8]) + raw[i + 1 :], raw[:i]):
            path.write_bytes(damaged)
            with suppress(StoreError):
                store.failure(other.fingerprint)


def emptied(path: Path) -> Path:
    """Remove a file or a folder; return where it was."""
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    return path


def linked(path: Path) -> None:
    """Move something out of the store and put a link to it in its place."""
    store = next(parent for parent in path.parents if parent.name == "store")
    path.symlink_to(path.rename(store.parent / "moved"))


def test_a_file_is_verified_without_the_others(store: Store) -> None:
    """A damaged file stops those who read it, not those who read another one."""
    with store.writing(STAGE) as output:
        (output / "weights.txt").write_text("weights")
        (output / "summary.json").write_text("{}")
    entry = store.path(FP)
    (entry / "weights.txt").write_text("wEights")
    assert store.file(FP, "summary.json").read_text() == "{}"
    with pytest.raises(StoreError, match=r"weights\.txt has other content .* delete"):
        store.file(FP, "weights.txt")
    assert not store.file(FP, "scores.parquet").exists()
    (entry / "scores.parquet").write_text("made up")
    with pytest.raises(StoreError, match=r"scores\.parquet was not written there"):
        store.file(FP, "scores.parquet")


def test_a_manifest_of_another_stage_is_found_out(store: Store) -> None:
    another = write(store, stage=Stage("train", 1, {"seed": 1}, {}))
    shutil.copy(another / "stage.json", write(store))
    assert "describes another stage" in broken(store)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda entry: (entry / WEIGHTS).unlink(), f"{WEIGHTS} is missing"),
        (lambda entry: (entry / WEIGHTS).write_text("weight"), "has 6 bytes instead of 7"),
        (lambda entry: (entry / WEIGHTS).write_text("wEights"), "digest differs"),
        (lambda entry: (entry / "more.txt").write_text("x"), "more.txt was not written there"),
        (lambda entry: (entry / "model" / ".x").write_text("x"), "model/.x was not written there"),
        (lambda entry: (entry / "link").symlink_to("/etc"), "link was not written there"),
        (lambda entry: os.mkfifo(entry / "pipe"), "pipe was not written there"),
        (lambda entry: linked(entry / WEIGHTS), "is not a regular file"),
        (lambda entry: linked(entry / "model"), "weights.txt is missing"),
    ],
)
def test_what_is_not_as_it_was_written_is_named_with_its_stage_and_what_to_do(
    store: Store, damage: Callable[[Path], object], said: str
) -> None:
    """A link to the same bytes is refused too: what it leads to can change unseen."""
    entry = write(store)
    store.open(FP)
    damage(entry)
    for verify in (store.open, lambda _: store.check()):
        with pytest.raises(StoreError, match=said) as caught:
            verify(FP)
        for word in ("dpo-1 · train 1", str(entry), "delete"):
            assert word in str(caught.value)


def test_a_check_names_all_that_is_broken_and_all_that_is_not_of_the_store(store: Store) -> None:
    others = [Stage("train", 1, {"seed": seed}, {}, f"seed {seed}") for seed in (1, 2, 3)]
    for stage in others:
        write(store, stage=stage)
    write(store)
    assert store.check() == sorted([FP, *(stage.fingerprint for stage in others)])
    (store.path(others[0].fingerprint) / "stage.json").write_text("{")
    (store.path(others[1].fingerprint) / "model" / "weights.txt").write_text("weighty")
    (store.root / "failures").mkdir()
    (store.root / "failures" / f"{FP}.json").write_bytes(b"\xff")
    with pytest.raises(StoreError, match=r"^3 things in the store are broken:") as caught:
        store.check()
    for name in (others[0].fingerprint[:12], "'seed 2'", f"{FP}.json"):
        assert name in str(caught.value)
    assert "seed 3" not in str(caught.value)


@pytest.mark.parametrize("name", ["stages/ab/x", "stages/x", "stages/ab/" + "c" * 64])
def test_what_is_no_stage_among_the_stages_is_named(store: Store, name: str) -> None:
    """An entry whose folder was renamed would otherwise be gone without a word."""
    write(store)
    path = store.root / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("x")
    with pytest.raises(StoreError, match="is not a stage folder: move it away"):
        store.check()


@pytest.mark.parametrize("text", ["", "[]", '{"reason": 1}', "[" * 100_000, "\ud800"])
def test_a_broken_failure_record_is_one_sentence(store: Store, text: str) -> None:
    store.record_failure(STAGE, "ValueError: x", "")
    path = store.root / "failures" / f"{FP}.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(StoreError, match=f"{path} is broken, it .*: delete it$"):
        store.failure(FP)


def test_a_failure_with_text_that_cannot_be_written_is_kept_without_it(store: Store) -> None:
    store.record_failure(STAGE, "no file \udcff.txt", "")
    failure = store.failure(FP)
    assert failure is not None
    assert failure["reason"] == "no file ?.txt"


def test_a_file_is_digested_once_until_it_changes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = write(store)
    store.open(FP)
    read: list[str] = []
    real = files.sha256_of

    def reading(path: Any) -> Any:
        read.append(os.path.basename(path))
        return real(path)

    monkeypatch.setattr(files, "sha256_of", reading)
    store.open(FP)
    assert read == []
    os.utime(entry / "model" / "weights.txt", ns=(1, 1))
    store.open(FP)
    assert read == ["weights.txt"]


def test_a_sweep_removes_what_dead_processes_left(store: Store) -> None:
    """A child writes half an output and is gone without a word; its lock goes with it."""
    child = os.fork()
    if child == 0:
        with store.writing(STAGE) as output:
            (output / "half.txt").write_text("half")
            os._exit(0)
    os.waitpid(child, 0)
    assert len(leftovers(store)) == 1
    assert store.sweep() == 1
    assert leftovers(store) == []
    assert store.status(FP) == "missing"


@pytest.mark.parametrize("step", ["seal_files", "write_manifest", "flush_folder"])
def test_a_full_disk_is_one_sentence_and_nothing_half_written_is_seen(
    store: Store, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "somewhere")

    monkeypatch.setattr(store_module, step, full)
    with pytest.raises(StoreError, match=r"^the disk is full while storing 'seed 0"):
        write(store)
    assert store.status(FP) == "missing"
    assert leftovers(store) == []


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (OSError(errno.EDQUOT, "Quota"), "the disk quota is used up"),
        (RuntimeError("I/O error: No space left on device (os error 28)"), "the disk is full"),
        (PermissionError(errno.EACCES, "", "/there/x"), "permission denied: /there/x, while"),
        (OSError(errno.EROFS, "", "/there/x"), "read-only file system: /there/x, while"),
    ],
)
def test_storage_faults_of_the_writing_code_are_sentences_too(
    store: Store, fault: Exception, said: str
) -> None:
    with pytest.raises(StoreError, match=said), store.writing(STAGE):
        raise fault
    assert leftovers(store) == []


def test_a_failure_is_kept_until_cleared_or_until_the_stage_succeeds(store: Store) -> None:
    store.record_failure(STAGE, "ValueError: x", "Traceback ...")
    assert store.status(FP) == "failed"
    failure = store.failure(FP)
    assert failure is not None
    assert (failure["reason"], failure["traceback"]) == ("ValueError: x", "Traceback ...")
    store.clear_failure(FP)
    assert (store.status(FP), store.failure(FP)) == ("missing", None)
    store.record_failure(STAGE, "again", "")
    write(store)
    assert (store.status(FP), store.failure(FP)) == ("done", None)
    assert leftovers(store) == []


def write_curveless(store: Store) -> str:
    stage = Stage("pair", 1, {}, {})
    write(store, stage=stage)
    return stage.fingerprint


def test_curves_are_read_as_they_were_reported(store: Store) -> None:
    with store.writing(STAGE) as output:
        context = StageContext({}, {}, output, 0, partial(append_point, output / PROGRESS))
        context.report(1, {"loss": 0.1, "accuracy": 1})
        context.report(2, {"loss": math.nan})
    assert store.progress(write_curveless(store)) == []
    first, second = store.progress(FP)
    assert (first.step, first.metrics) == (1, {"loss": 0.1, "accuracy": 1.0})
    assert math.isnan(second.metrics["loss"])


def test_a_link_or_a_manifest_in_an_output_is_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not a regular file"), store.writing(STAGE) as output:
        (output / "link").symlink_to(tmp_path)
    with pytest.raises(StoreError, match="the store's own file"), store.writing(STAGE) as output:
        (output / "stage.json").write_text("{}")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout with one commit: code, a declaration, published results, a page."""
    root = tmp_path / "checkout"
    for name in ("harness/code.py", "experiments/table1.yaml", "results/report.md", "README.md"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("as committed\n", encoding="utf-8")
    for arguments in (
        ("init", "-q"),
        ("add", "."),
        ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "all"),
    ):
        subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True)
    return root


@pytest.mark.parametrize(
    ("file", "dirty"),
    [
        ("report.html", False),
        ("harness/report.html", False),
        ("results/report.md", False),
        ("results/micro/new/report.md", False),
        ("README.md", False),
        ("harness/code.py", True),
        ("harness/new/code.py", True),
        ("experiments/table1.yaml", True),
        ("ablations/table 4.yaml", True),
    ],
)
def test_only_what_decides_numbers_makes_a_checkout_changed(
    checkout: Path, file: str, dirty: bool
) -> None:
    """A report written into the checkout, or published, is no change of what computed it."""
    assert git_state(checkout.parent) == (None, None), "it is no checkout"
    commit, before = git_state(checkout)
    assert (len(commit or ""), before) == (40, False)
    (checkout / file).parent.mkdir(parents=True, exist_ok=True)
    (checkout / file).write_text("written since\n", encoding="utf-8")
    assert git_state(checkout) == (commit, dirty)


def test_a_file_that_was_rewritten_and_dated_back_is_read_again(tmp_path: Path) -> None:
    """Size and time of the content are as before; the time of the change cannot be set back."""
    path = tmp_path / "scores"
    path.write_bytes(b"12345")
    entry: files.FileEntry = {"bytes": 5, "sha256": files.sha256_of(path)}
    cache = files.DigestCache()
    assert cache.file_fault(str(path), "scores", entry) is None
    before = path.stat()
    while path.stat().st_ctime_ns == before.st_ctime_ns:  # clocks of files are coarse
        path.write_bytes(b"12346")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    now = path.stat()
    assert (now.st_size, now.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert "other content" in (cache.file_fault(str(path), "scores", entry) or "")


def test_of_two_that_need_a_folder_one_makes_it(tmp_path: Path) -> None:
    """The second asks for it while the first is making it."""
    with ThreadPoolExecutor() as pool:
        others: list[Future[Path]] = []

        def make(draft: Path) -> None:
            draft.mkdir()
            others.append(pool.submit(files.make_once, tmp_path / "out", make))

        assert files.make_once(tmp_path / "out", make) == tmp_path / "out"
    assert [other.result() for other in others] == [tmp_path / "out"]


@pytest.mark.parametrize("is_killed", [True, False])
def test_what_was_half_made_of_a_folder_is_not_left_behind(tmp_path: Path, is_killed: bool) -> None:
    """By Ctrl-C at once, by a kill as soon as the folder is asked for again."""

    def stop(draft: Path) -> None:
        draft.mkdir()
        (draft / "half").write_text("half")
        if is_killed:
            os.kill(os.getpid(), signal.SIGKILL)
        raise KeyboardInterrupt

    out = tmp_path / "made" / "out"
    if not is_killed:
        with pytest.raises(KeyboardInterrupt):
            files.make_once(out, stop)
        assert [path.name for path in out.parent.iterdir()] == [".locks"]
    elif (child := os.fork()) == 0:
        files.make_once(out, stop)
    else:
        os.waitpid(child, 0)
    files.make_once(out, Path.mkdir)
    assert [*out.iterdir()] == []
    assert {path.name for path in out.parent.iterdir()} == {".locks", "out"}


def test_every_file_of_an_entry_is_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the folders that name them, so that a power cut leaves whole entries or none."""
    flushed: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda it: flushed.append(Path(os.readlink(f"/proc/self/fd/{it}")).name)
    )
    stage = Stage("train", 1, {}, {})
    with Store(tmp_path).writing(stage) as output:
        (output / "model").mkdir()
        (output / "model" / "weights.txt").write_text("weights")
    name = stage.fingerprint
    assert sorted(flushed) == sorted(["weights.txt", "model", "stage.json", name, name[:2]])
