"""`harness download` against a hub on loopback, and where no hub can be reached."""

import hashlib
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import create_autospec

import pytest
from running import bare, ran

from harness.evaluation.benchmarks.mt_bench import MtBench
from harness.evaluation.files import fetch
from harness.selection.experiment import select
from harness.worlds.needs import Demand
from harness.worlds.needs import download as download_all
from harness.worlds.real.prompts import read_pool

ROOT = Path(__file__).resolve().parents[2]
COMMIT = "1" * 40
FILES = {
    "config.json": b'{"architectures": ["LlamaForCausalLM"]}',
    "model.safetensors": b"weights",
    "pytorch_model.bin": b"what could run code",
    "tokenizer.json": b"{}",
}


FOLDER = "/api/models/owner/policy"
LISTED = {"id": "owner/policy", "sha": COMMIT, "siblings": [{"rfilename": n} for n in FILES]}
TREE = [
    {"type": "file", "path": name, "size": len(content), "oid": "0" * 40}
    for name, content in FILES.items()
]
PAGES = {
    f"{FOLDER}/revision/{COMMIT}": json.dumps(LISTED).encode(),
    f"{FOLDER}/tree/{COMMIT}": json.dumps(TREE).encode(),
    **{f"/owner/policy/resolve/{COMMIT}/{name}": content for name, content in FILES.items()},
}


class Hub(BaseHTTPRequestHandler):
    """Hands out one model at one commit; the license of one named `gated` is not accepted."""

    protocol_version = "HTTP/1.1"
    asked: list[str]

    def do_GET(self, body: bool = True) -> None:
        type(self).asked.append(self.path)
        content = PAGES.get(self.path.partition("?")[0])
        self.reply(content or b"{}", body, 404 if content is None else 200)

    def do_HEAD(self) -> None:
        self.do_GET(body=False)

    def reply(self, content: bytes, body: bool, status: int) -> None:
        gated = "/gated" in self.path
        self.send_response(403 if gated else status)
        if status == 404:
            self.send_header("X-Error-Code", "GatedRepo" if gated else "RepoNotFound")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Type", "application/json")
        self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[str]:
    Hub.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def download(
    tmp_path: Path, hub: str, model: str = f"owner/policy@{COMMIT}", exit_code: int = 1
) -> subprocess.CompletedProcess[str]:
    """Run the verb in a process of its own, as the hub's library reads variables once."""
    code = (
        "import os, time; os.environ['HF_HUB_OFFLINE'] = '0'\n"
        "time.sleep = lambda seconds: None  # between two attempts to reach the hub\n"
        "from types import SimpleNamespace\n"
        "from harness.errors import HarnessError\n"
        "from harness.worlds.needs import download\n"
        "one = SimpleNamespace(pools=(), benchmarks=())\n"
        f"one.models = [{model!r}]\n"
        "try:\n    download(one, print)\nexcept HarnessError as error:\n    exit(str(error))\n"
        "from harness.worlds.real.models import place_of\n"
        f"print(*sorted(p.name for p in place_of({model!r}).iterdir()))\n"
    )
    own = {"HF_HOME": str(tmp_path), "HF_ENDPOINT": hub, "HARNESS_WORK": str(tmp_path / "work")}
    own |= {"PYTHONPATH": str(ROOT), "NO_PROXY": "127.0.0.1", "HF_HUB_DISABLE_XET": "1"}
    return ran("-c", code, code=exit_code, env=bare("HF_", "HARNESS_") | own)


def test_a_pinned_model_is_fetched_without_what_could_run_code(tmp_path: Path, hub: str) -> None:
    done = download(tmp_path, hub, exit_code=0)
    assert done.stdout.splitlines() == [
        f"owner/policy at {COMMIT} ...",
        "config.json model.safetensors tokenizer.json",
    ]
    assert not any("pytorch_model.bin" in path for path in Hub.asked)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (
            "owner/gated",
            "the license of owner/gated is not accepted by this account: accept it at ",
        ),
        (f"owner/other@{COMMIT}", f"the hub has no owner/other@{COMMIT}; correct the profile"),
    ],
)
def test_what_the_hub_refuses_is_one_sentence(
    tmp_path: Path, hub: str, model: str, said: str
) -> None:
    done = download(tmp_path, hub, model)
    assert done.stderr.strip().splitlines()[-1].startswith(said)


def test_prompts_and_benchmarks_that_are_missing_are_downloaded_and_others_are_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HARNESS_BENCHMARKS", str(tmp_path))
    monkeypatch.setattr(
        MtBench, "load", lambda data: SimpleNamespace(questions=[0] * 80, digest="")
    )
    (tmp_path / "mt-bench").mkdir()
    pool = create_autospec(read_pool, return_value=["a", "b"])
    monkeypatch.setattr("harness.worlds.real.prompts.read_pool", pool)
    fetching = create_autospec(fetch)
    monkeypatch.setattr("harness.worlds.needs.fetch", fetching)
    planned = select("table4", "paper", seeds=0).plan()
    demand = Demand(planned.profile, planned.stages)
    demand.models.clear()
    said: list[str] = []
    source, *benchmarks = download_all(demand, said.append)
    assert benchmarks == ["arena-hard", "alpaca-eval"]
    folders = dict.fromkeys(call.args[1] for call in fetching.mock_calls)
    assert list(folders) == [tmp_path / it for it in benchmarks]
    assert said[:2] == [f"{source}: 2 prompts", "question.jsonl"]
    assert source.startswith("snorkelai/Snorkel-Mistral-PairRM-DPO-Dataset@")


def test_without_a_network_one_sentence_says_so(tmp_path: Path) -> None:
    done = download(tmp_path, "http://127.0.0.1:9")
    said = done.stderr.strip().splitlines()[-1]
    assert said.startswith("owner/policy cannot be downloaded (")
    assert said.endswith(
        "run the same command again, or bring the hub's cache of a machine that has it"
    )


def test_a_download_may_use_the_network_which_nothing_else_does(
    says: Any, monkeypatch: Any
) -> None:
    seen: list[tuple[str, str]] = []

    def fetch(demand: Any, say: Any) -> list[str]:
        seen.append((demand.profile.name, os.environ["HF_HUB_OFFLINE"]))
        return ["owner/policy"]

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # as `silence` leaves it
    monkeypatch.setattr("harness.cli.machine.fetch", fetch)
    assert says("download", "table4", "--profile", "laptop")["fetched"] == ["owner/policy"]
    assert seen == [("laptop", "0")]
