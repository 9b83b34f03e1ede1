"""Laws of a store in a bucket, tried on moto's server: each machine has a cache of its own."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from toy_stages import overlapping

from harness.errors import UserError
from harness.project import store_dir
from harness.runtime import Plan, Stage, Store, StoreError
from harness.runtime.processes import HOST, free_port
from harness.runtime.remote import Remote

HERE = Path(__file__).resolve().parent
STAGE = Stage("train", 1, {"seed": 0}, {}, "train")
FP = STAGE.fingerprint
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE")

needs_moto = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("moto", "s3fs", "flask"))),
    reason="the extra s3-test is not installed: pip install -e '.[s3-test]' -c constraints.txt",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start moto's server with a bucket; return its address."""
    port = free_port()
    log = tmp_path_factory.mktemp("moto") / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(port)],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    import boto3
    from botocore.exceptions import EndpointConnectionError

    client = boto3.client(
        "s3",
        endpoint_url=f"http://{HOST}:{port}",
        aws_access_key_id="a",
        aws_secret_access_key="b",
        region_name="us-east-1",
    )
    end = time.monotonic() + 120
    while True:
        try:
            client.create_bucket(Bucket="bucket")
            break
        except EndpointConnectionError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
    yield f"http://{HOST}:{port}"
    process.kill()
    process.wait()


@pytest.fixture
def bucket(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of an empty prefix of the bucket, with keys and address set."""
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return f"s3://bucket/{tmp_path.name}"


def cache(folder: Path, url: str) -> Store:
    """Return the store of a machine."""
    folder.mkdir(parents=True)
    (folder / "url").write_text(url)
    return Store(folder)


def write(store: Store, text: str = "whole") -> None:
    with store.writing(STAGE) as output:
        (output / "deep").mkdir()
        (output / "deep" / "model").write_text(text)
        (output / "scores").write_text("1")


@needs_moto
def test_what_one_machine_stores_another_reads_with_its_digests_checked(
    tmp_path: Path, bucket: str
) -> None:
    one, other = cache(tmp_path / "one", bucket), cache(tmp_path / "other", bucket)
    assert other.status(FP) == "missing"
    write(one)
    assert Store(other.root).status(FP) == "done"
    other = Store(other.root)
    assert other.manifest(FP) == one.manifest(FP)
    assert not (other.root / "stages").exists(), "a manifest is read without the files"
    assert (other.open(FP) / "deep" / "model").read_text() == "whole"
    assert [m["fingerprint"] for m in other.stages()] == [FP]
    # What is damaged in the bucket is never taken for whole.
    third = cache(tmp_path / "third", bucket)
    remote = Remote(bucket)
    (attempt,) = remote.files.glob(f"{bucket}/attempts/{FP}/*")
    remote.files.pipe_file(f"{attempt}/deep/model", b"while")
    with pytest.raises(StoreError, match=r"deep/model has other content .* delete s3://"):
        third.open(FP)
    assert remote.fault(FP) == "deep/model has other content than was written"
    remote.files.rm(f"{attempt}/deep/model")
    with pytest.raises(StoreError, match=r"is broken, a file is missing: delete s3://"):
        third.open(FP)
    assert (other.open(FP) / "deep" / "model").read_text() == "whole"
    other.discard(FP)
    assert cache(tmp_path / "fourth", bucket).status(FP) == "missing"


@needs_moto
def test_of_eight_that_store_one_stage_one_wins(tmp_path: Path, bucket: str) -> None:
    folders = []
    for number in range(8):
        store = Store(tmp_path / f"local-{number}")
        write(store, f"by {number}")
        folders.append(store.open(FP))
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda folder: Remote(bucket).store(FP, folder), folders))
    assert won.count(True) == 1
    store = cache(tmp_path / "reader", bucket)
    assert (store.open(FP) / "deep" / "model").read_text() == f"by {won.index(True)}"
    assert not Remote(bucket).leftovers(), "those that lost have taken their files away"


@needs_moto
@pytest.mark.parametrize("dies_at", ["upload", "manifest"])
def test_a_client_that_dies_before_the_manifest_leaves_nothing_that_looks_finished(
    tmp_path: Path, bucket: str, dies_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, created = cache(tmp_path / "one", bucket), Remote._create

    def create(remote: Remote, key: str, content: bytes) -> None:
        if "/stages/" in key:
            _dies()
        created(remote, key, content)

    with monkeypatch.context() as patch:
        patch.setattr(Remote, *(("store", _dies) if dies_at == "upload" else ("_create", create)))
        with pytest.raises(StoreError, match="dies"):
            write(store)
    if dies_at == "upload":
        Remote(bucket).files.pipe_file(f"{bucket}/attempts/{FP}/abc/deep/model", b"ha")
    other = cache(tmp_path / "other", bucket)
    assert other.status(FP) == "missing"
    assert not list(other.stages())
    assert list(Remote(bucket).leftovers()) == [FP]
    write(other)
    assert Store(other.root).status(FP) == "done"
    remote = Remote(bucket)
    for attempts in remote.leftovers().values():
        remote.remove_leftovers(attempts)
    assert not remote.leftovers()
    assert remote.fault(FP) is None


def _dies(*_: Any, **__: Any) -> None:
    raise StoreError("dies")


@needs_moto
def test_a_lease_in_a_bucket_has_one_holder(tmp_path: Path, bucket: str) -> None:
    one, other = cache(tmp_path / "one", bucket), cache(tmp_path / "other", bucket)
    with one.claim(FP) as mine:
        assert mine
        assert other.claimed(FP)
        with other.claim(FP) as too:
            assert not too
        from harness.runtime import leases

        (lease,) = (held for held in leases._KEEPER._held if FP in held.path.name)
        assert lease.beat()
        assert lease.content.startswith(b"00000000001")
        seen = lease.post.read()
        assert seen == lease.content
        assert not lease.post.replace(b"another", b"x"), "it is not what was seen"
        assert lease.beat()
    with other.claim(FP) as mine:
        assert mine


@needs_moto
def test_an_output_that_another_stored_first_is_seen_at_once(tmp_path: Path, bucket: str) -> None:
    """Not found a moment ago, it would else count as missing for a while, and be made again."""
    one, other = cache(tmp_path / "one", bucket), cache(tmp_path / "other", bucket)
    assert one.status(FP) == "missing"
    write(other)
    with one.claim(FP) as mine:
        assert mine
        assert one.status(FP) == "done"


@needs_moto
def test_eight_rivals_with_a_bucket_alone_in_common_compute_each_stage_once(
    tmp_path: Path, bucket: str
) -> None:
    """As on a file system: rival r has chains r to r + 5 of three counted stages."""
    log = tmp_path / "log"
    runs = []
    for rival in range(8):
        cache(tmp_path / f"work-{rival}" / "store", bucket)
        program = [sys.executable, HERE / "run_toys.py", tmp_path / f"work-{rival}", 1]
        runs.append(
            subprocess.Popen(
                list(map(str, [*program, "overlapping", rival, log])),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parents[1])])},
            )
        )
    for run in runs:
        _, errors = run.communicate(timeout=280)
        assert run.returncode == 0, errors
    computed = Counter(log.read_text().splitlines())
    assert list(computed.values()) == [1] * (3 * 13)
    store = cache(tmp_path / "reader", bucket)
    plan = Plan(stage for rival in range(8) for stage in overlapping(str(rival), str(log)))
    assert set(plan.states(store).values()) == {"done"}
    assert not Remote(bucket).leftovers()
    assert not Remote(bucket).files.find(f"{bucket}/leases")


@needs_moto
def test_a_bucket_that_cannot_be_used_is_one_sentence(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreError, match=r"s3://none/x cannot be used, there is no such bucket"):
        cache(tmp_path / "a", "s3://none/x").status(FP)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{HOST}:{free_port()}")
    with pytest.raises(StoreError, match=r"cannot be used, it does not answer"):
        cache(tmp_path / "b", bucket).status(FP)
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(StoreError, match=r"no credentials were found \(set AWS_ACCESS_KEY_ID"):
        cache(tmp_path / "c", bucket).status(FP)


def test_an_extra_that_is_not_there_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(UserError, match=r"the extra s3 is not installed: pip install"):
        cache(tmp_path / "store", "s3://bucket/x").status(FP)


@pytest.mark.parametrize("url", ["gs://bucket/x", "s3://", "s3:///", "http://example.org/"])
def test_an_address_of_another_kind_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("HARNESS_WORK", str(tmp_path))
    monkeypatch.setenv("HARNESS_STORE", url)
    with pytest.raises(UserError, match=r"HARNESS_STORE is .*: give a folder, or a bucket"):
        Store(store_dir())


def test_a_store_is_where_it_is_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    set_to: Callable[[str], None] = lambda text: monkeypatch.setenv("HARNESS_STORE", text)  # noqa: E731
    monkeypatch.setenv("HARNESS_WORK", str(tmp_path / "work"))
    monkeypatch.delenv("HARNESS_STORE", raising=False)
    assert store_dir() == tmp_path / "work" / "store"
    set_to(str(tmp_path / "shared"))
    assert store_dir() == tmp_path / "shared"
    set_to("s3://bucket/one")
    one = store_dir()
    assert one.is_relative_to(tmp_path / "work")
    set_to("s3://bucket/two")
    assert store_dir() != one
