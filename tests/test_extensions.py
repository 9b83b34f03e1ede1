"""Plug-ins: a file of the user's own adds a metric or a loss, and everything else follows.

What is added stays for a process's life, and `here` forgets it. What computes in workers, or must
load little, runs in a process of its own.
"""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judge_stand_in import StandIn, completion
from typer.testing import CliRunner

import harness
from harness import extensions
from harness.cli.main import app
from harness.eva.informativeness import informativeness
from harness.extensions import METRICS
from harness.worlds.lookup import runtime_of

ROOT = Path(__file__).resolve().parents[1]

METRIC = """
import harness

@harness.metric("top_gap", version="{version}", inverse=False)
def top_gap(rewards):
    return rewards.max(axis=1) - rewards.mean(axis=1) + 1.0
"""

LOSS = """
import harness

@harness.loss("ipo", version="1", like="dpo")
def ipo():
    from harness.training.offline_losses import DPO

    class IPO(DPO):
        name = "IPO"

    return IPO
"""

BENCHMARK = """
import harness
from harness.evaluation.benchmark import RatedBenchmark

@harness.benchmark("brevity", version="1")
class Brevity(RatedBenchmark):
    own_judge = "gpt-6-sol"
    columns = {{"rating": "brevity"}}

    def prompt(self, question, answer):
        return f"{{question.turns[0]}}|{{answer[0]}}"

    def read(self, reply):
        return float(reply) if reply.isdigit() else None

@harness.judge("letters", version="{version}")
def letters(messages):
    answer = messages[-1]["content"].split("|")[1]
    return {reply}
"""


CREATOR = """
import harness

@harness.creator("other_item", version="{version}")
def other_item(prompt, rng):
    words = prompt.split()
    items = [place for place, word in enumerate(words) if word.isdigit()]
    if not items:
        return None
    words[rng.choice(items)] = str(rng.integers(10))
    return " ".join(words)

@harness.creator("harder", version="1", asks=True, chained=False)
def harder(prompt, rng, write):
    return write("Make it harder: " + prompt)
"""


def started(folder: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, which has a work folder and no plug-ins but these."""
    own = {"PYTHONPATH": str(ROOT), "HARNESS_WORK": str(folder / "work"), "HARNESS_PLUGINS": ""}
    environment = os.environ | own | variables
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # as a user has it
    return subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, check=False
    )


def python(code: str, folder: Path, plugin: Path) -> str:
    """Run code in a process with a plug-in, and return what it prints."""
    done = started(folder, "-c", code, HARNESS_PLUGINS=str(plugin))
    assert done.returncode == 0, done.stderr
    return done.stdout


def plugin(folder: Path, text: str, name: str = "mine") -> Path:
    """Write a plug-in; all are of one second, so that no bytecode may be kept by their times."""
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    os.utime(path, (1_700_000_000, 1_700_000_000))
    return path


def table(folder: Path, name: str, recipe: str) -> Path:
    """Write a table of our own with one row, and return its file."""
    path = folder / f"{name}.yaml"
    text = f"""
        id: {name}
        kind: ablation
        title: Mine
        question: Does it help?
        source: ours
        columns:
          - {{id: mt_avg, benchmark: MT-Bench, metric: mean rating over both turns,
             printed: avg., unit: 1-10, direction: higher}}
        recipe: {{algorithm: dpo, chain: [human, eva], reward_model: pointwise}}
        rows:
          - id: row
            label: mine
            run: {name}-run
            baseline: null
            recipe: {{{recipe}}}
        notes: []
        claims: []
    """
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def wider(folder: Path, *changes: tuple[str, str]) -> Path:
    """Write the embedded profile under another name and with texts replaced; return its file."""
    text = (ROOT / "harness" / "profiles" / "micro.yaml").read_text(encoding="utf-8")
    for old, new in (("name: micro\n", "name: wider\n"), *changes):
        assert old in text
        text = text.replace(old, new, 1)
    path = folder / "wider.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def here(registries: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """Return a function that runs the command line in this process, each time without plug-ins."""
    monkeypatch.setenv("HARNESS_WORK", str(tmp_path / "work"))
    monkeypatch.setattr(extensions, "_loaded", set())

    def run(*arguments: str) -> Any:
        monkeypatch.setenv("HARNESS_PLUGINS", "")
        extensions._loaded.clear()
        for registry in extensions.REGISTRIES:
            for name in registry.keys() - set(registry.shipped):
                del registry[name]
        return CliRunner().invoke(app, list(arguments))

    return run


def test_a_metric_of_ones_own_is_planned_with_its_version(
    here: Callable[..., Any], tmp_path: Path
) -> None:
    """Its plug-in and version are in the identity of the stages that select by it alone."""
    own = table(tmp_path, "mine_table", "creator: {metric: top_gap}")

    def planned(version: str) -> dict[str, Any]:
        mine = plugin(tmp_path, METRIC.format(version=version))
        assert here("validate", "--plugin", str(mine)).exit_code == 0
        stages = harness.load(str(own), seeds=[0]).plan().stages
        return {stage.kind: (stage.settings.get("plugin"), stage.fingerprint) for stage in stages}

    first, again, newer = map(planned, "112")
    assert first == again
    assert first["select"][0] == {"name": "mine", "version": "1"}
    assert newer["select"][0] == {"name": "mine", "version": "2"}
    assert newer["select"][1] != first["select"][1]
    assert {kind for kind, (named, _) in newer.items() if named is not None} == {"select"}


def test_a_loss_of_ones_own_trains_with_those_of_the_one_it_is_like(tmp_path: Path) -> None:
    """Its hyperparameters are those of DPO; planning it needs no torch."""
    profile = wider(tmp_path, ("algorithms: {value: [dpo", "algorithms: {value: [ipo, dpo"))
    own = table(tmp_path, "ipo_table", "algorithm: ipo")
    code = (
        "import sys, harness\n"
        f"plan = harness.load({str(own)!r}, {str(profile)!r}, seeds=[0]).plan()\n"
        "settings = next(str(s.settings) for s in plan.stages if s.kind == 'train')\n"
        "print(settings)\n"
        "assert 'torch' not in sys.modules\n"
        "from harness.training.offline import algorithm_of\n"
        "found = algorithm_of('ipo', eval(settings))\n"
        "print(type(found).__name__, found.beta)"
    )
    lines = python(code, tmp_path, plugin(tmp_path, LOSS)).splitlines()
    assert "'plugin': {'name': 'mine', 'version': '1'}" in lines[0]
    assert lines[1].startswith("IPO ")


def judged(run: Callable[..., Any], folder: Path, reply: str, version: str = "1") -> Any:
    """Judge three answers by a benchmark and a judge of one's own, in a folder."""
    mine = plugin(folder, BENCHMARK.format(version=version, reply=reply))
    (folder / "data").mkdir(exist_ok=True)
    questions = [{"question_id": i, "turns": [f"question {i}"]} for i in range(3)]
    texts = ["ab", "abcd", "none"]
    answers = [
        {"question_id": i, "model_id": "me", "choices": [{"turns": [text]}]}
        for i, text in enumerate(texts)
    ]
    for name, records in (("question", questions), ("answers", answers)):
        lines = "\n".join(json.dumps(record) for record in records)
        (folder / "data" / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    data = str(folder / "data")
    return run(
        "--plugin", str(mine), "evaluate", "brevity", "--data", data, "--answers",
        f"{data}/answers.jsonl", "--judge", "letters", "--no-track", "--json",
    )  # fmt: skip


def test_a_benchmark_and_a_judge_of_ones_own_score_and_are_asked_once(
    here: Callable[..., Any], tmp_path: Path
) -> None:
    """Derivation: 2 and 4 letters have the mean 3, and the third answer gets no rating."""
    reply = "'?' if answer == 'none' else str(len(answer))"
    first, again, newer = (judged(here, tmp_path, reply, version) for version in "112")
    (found,) = json.loads(first.stdout)["items"]
    assert (found["benchmark"], found["model"], found["judge"]) == ("brevity", "me", "letters")
    assert (found["scores"], found["n"], found["n_missing"]) == ({"rating": 3.0}, 2, 1)
    assert "3 requests answered, 0 from the cache" in first.stderr
    assert again.stdout == first.stdout
    assert "0 requests answered, 3 from the cache" in again.stderr
    assert "3 requests answered" in newer.stderr
    kept = tmp_path / "work" / "evaluations" / "brevity" / "me" / "letters"
    assert {p.name for p in kept.iterdir()} == {"evaluation.json", "judgments.jsonl"}
    data, answers = tmp_path / "data", tmp_path / "data" / "answers.jsonl"
    (scored,) = harness.evaluate(
        "brevity", answers=answers, judge="letters", data=data, track=False
    )
    (read,) = harness.evaluate("brevity", judgments=kept / "judgments.jsonl", track=False)
    for one in (scored, read):
        assert (one.scores, one.columns) == ({"rating": 3.0}, {"rating": "rating@letters"})


def test_a_judge_of_ones_own_that_fails_is_one_sentence(
    here: Callable[..., Any], tmp_path: Path
) -> None:
    for reply, words in (
        ("1 / 0", "plugin:mine/letters@1 failed on question 0: ZeroDivisionError"),
        ("len(answer)", "returned no text on question 0; return a str"),
    ):
        done = judged(here, tmp_path, reply)
        assert done.exit_code == 1
        assert words in done.stderr.replace("question 1", "question 0").replace(
            "question 2", "question 0"
        )
        assert "Traceback" not in done.stderr


def test_an_unknown_metric_gets_the_nearest_right_name(
    here: Callable[..., Any], tmp_path: Path
) -> None:
    own = table(tmp_path, "typo_table", "creator: {metric: top_gpa}")
    mine = plugin(tmp_path, METRIC.format(version="1"))
    done = here("--plugin", str(mine), "plan", str(own))
    assert done.exit_code == 2
    assert "`top_gpa` is not known; did you mean `top_gap`?" in done.stderr
    without = here("plan", str(own))
    assert without.exit_code == 2
    assert "`top_gpa` is not known; it can be `a_min`" in without.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be loaded: FileNotFoundError"),
        ("1 / 0", "cannot be loaded: ZeroDivisionError"),
        ("import sys; sys.exit(0)", "cannot be loaded: SystemExit: 0"),
        ("def", "cannot be loaded: SyntaxError: invalid syntax"),
        ("raise ValueError('\\x1b[31mred\\x07')", "ValueError: \\x1b[31mred\\x07"),
        ("import nothing_at_all", "cannot be loaded: ModuleNotFoundError: No module named"),
        (
            METRIC.replace('"top_gap"', '"top-gap"').format(version="1"),
            "metric `top-gap` of the plug-in mine: a name has letters, digits and `_` only",
        ),
        (METRIC.format(version="1").replace("top_gap", "a_min"), "exists already"),
        (
            LOSS.replace('like="dpo"', 'like="rloo"'),
            "the loss `ipo` cannot be like `rloo`; `like` is one of dpo, sppo, simpo, orpo",
        ),
        (LOSS.replace('"ipo"', '"rloo"'), "`rloo` has the name of an online algorithm; choose"),
    ],
)
def test_a_plugin_that_is_wrong_is_one_sentence(
    here: Callable[..., Any], tmp_path: Path, text: str | None, words: str
) -> None:
    mine = tmp_path / "none.py" if text is None else plugin(tmp_path, text)
    done = here("validate", "--plugin", str(mine))
    assert done.exit_code == 2, done.stderr
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert done.stderr[:-1].isprintable()


def test_a_plugin_that_failed_leaves_nothing_behind(
    here: Callable[..., Any], tmp_path: Path
) -> None:
    """The next one may add the same, and is named by a text of its own."""
    here("list", "--json")
    wrong = plugin(tmp_path, METRIC.format(version="1") + "\n1 / 0", "wrong")
    with pytest.raises(harness.UserError, match="ZeroDivisionError"):
        harness.load("table4", plugins=[str(wrong)])
    harness.load("table4", plugins=str(plugin(tmp_path, METRIC.format(version="2"))))
    assert METRICS.identity("top_gap") == {"plugin": {"name": "mine", "version": "2"}}


def test_a_plugin_may_be_a_module(here: Callable[..., Any]) -> None:
    done = here("validate", "--plugin=nothing_at_all")
    assert done.exit_code == 2
    assert "No module named 'nothing_at_all'" in done.stderr
    assert here("validate", "--plugin=json").exit_code == 0
    assert "requires an argument" in here("validate", "--plugin").stderr


def test_a_stage_planned_with_another_version_is_not_computed(
    here: Callable[..., Any], tmp_path: Path
) -> None:
    mine = plugin(tmp_path, METRIC.format(version="2"))
    assert here("validate", "--plugin", str(mine)).exit_code == 0
    metrics = METRICS
    planned = metrics.identity("top_gap")["plugin"]
    metrics.check("top_gap", planned)
    # (1, 3) has max 3, mean 2 and so 3 - 2 + 1 = 2; (2, 2) has 1.
    assert informativeness([[1, 3], [2, 2]], "top_gap").tolist() == [2.0, 1.0]
    with pytest.raises(harness.HarnessError, match="plan the run again"):
        metrics.check("top_gap", {**planned, "version": "1"})
    with pytest.raises(harness.UserError, match="unknown informativeness metric `none`"):
        metrics.load("none")


def test_an_evolving_method_of_ones_own_rewrites(tmp_path: Path) -> None:
    """Of a tiny run in workers, planned with the plug-in's version: it differs in one digit."""
    profile = wider(tmp_path, ("x: {value: 400,", "x: {value: 16,"))
    own = table(tmp_path, "other_table", "creator: {method: other_item, fraction: 0.5}")
    code = (
        "import json, harness\n"
        "from pathlib import Path\n"
        "from harness.runtime import Engine, Plan, Store\n"
        "from harness.pipeline.steps import FUNCTIONS\n"
        "from harness.worlds.stage_io import read_rows\n"
        f"plan = harness.load({str(own)!r}, {str(profile)!r}, seeds=[0]).plan()\n"
        "(evolve,) = [stage for stage in plan.stages if stage.kind == 'evolve']\n"
        f"store = Store(Path({str(tmp_path)!r}) / 'store')\n"
        f"outcome = Engine(store, FUNCTIONS, Path({str(tmp_path)!r}), jobs=1).run("
        "Plan([evolve]))\n"
        "assert outcome.ok, outcome.failed\n"
        "folder = store.open(evolve.fingerprint)\n"
        "asked = store.open(evolve.inputs['selected'].fingerprint)\n"
        "print(json.dumps([evolve.settings['creator_plugin'],"
        " read_rows(asked / 'selected.parquet'), read_rows(folder / 'prompts.parquet'),"
        " json.loads((folder / 'summary.json').read_text())]))"
    )
    printed = python(code, tmp_path, plugin(tmp_path, CREATOR.format(version="2")))
    assert not (tmp_path / "__pycache__").exists()
    settings, selected, children, summary = json.loads(printed)
    assert settings == {"name": "mine", "version": "2"}
    texts = {row["prompt_id"]: row["prompt"] for row in [*selected, *children]}
    assert len(children) > 16
    for child in children:
        assert child["method"] == "other_item"
        before, after = texts[child["parent_id"]].split(), child["prompt"].split()
        changed = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
        assert len(changed) == 1
        assert all(word.isdigit() for pair in changed for word in pair)
    assert set(summary["unusable"]) <= {"none", "unchanged"}


def test_an_evolving_method_that_asks_needs_a_model(
    here: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The project's own worlds have none; at an endpoint its rewrites are looked at."""
    own = table(tmp_path, "harder_table", "creator: {method: harder}")
    mine = plugin(tmp_path, CREATOR.format(version="1"))
    for profile in ("micro", "laptop"):
        done = here("--plugin", str(mine), "plan", str(own), "--profile", profile)
        assert done.exit_code == 2
        words = f"`{profile}` has no model for the evolving method `harder` to ask"
        assert words in " ".join(done.stderr.split())
    stages = harness.load(str(own), "paper", seeds=[0]).plan().stages
    (settings,) = (stage.settings for stage in stages if stage.kind == "evolve")
    assert settings["shape"] == "independent"
    replies = iter(["Prove that 2 and 2 are 4.", "2 and 2: what is 2?"])
    with StandIn(lambda body: completion(next(replies))) as server:
        monkeypatch.setenv("HARNESS_CREATOR_URL", server.url)
        creator = runtime_of(str(settings["creator"])).evolver(settings).creator
        rng = np.random.default_rng(0)
        made = [creator.rewrite("What is 2 and 2?", rng) for _ in range(2)]
    assert server.bodies[0]["messages"][-1]["content"] == "Make it harder: What is 2 and 2?"
    assert [(it.prompt, it.method, it.reason) for it in made] == [
        ("Prove that 2 and 2 are 4.", "harder", None),
        (None, "harder", "nothing new"),
    ]


def test_a_benchmark_and_a_judge_of_ones_own_score_a_profiles_policies(
    here: Callable[..., Any], tmp_path: Path
) -> None:
    """The report's cell is the mean of what the function says of the answers it was shown."""
    reply = "str(len(answer.split()))"
    mine = str(plugin(tmp_path, BENCHMARK.format(version="1", reply=reply)))
    block = """
  brevity:
    columns: [brevity]
    items: 2
    judge: letters
    temperature: 0.0
    top_p: 1.0
    max_new_tokens: 14
"""
    profile = wider(tmp_path)
    profile.write_text(profile.read_text() + block)
    own = table(tmp_path, "lists", "")
    text = own.read_text().replace("mt_avg", "brevity").replace("chain: [human, eva]", "chain: []")
    text = text.replace("recipe: {algorithm: dpo, chain: [], reward_model: pointwise}\n", "")
    text = text.replace("recipe: {}", "recipe: {algorithm: null}").replace("lists-run", "base")
    own.write_text(text)
    options = (str(own), "--profile", str(profile), "--seeds", "0", "--json")

    absent = here("--plugin", mine, "run", *options)
    assert absent.exit_code == 2
    folder = tmp_path / "work" / "benchmarks" / "brevity"
    assert f"nothing for brevity: put its files at {folder}" in absent.stderr

    folder.mkdir(parents=True)
    questions = ["reverse-1 : 3 a 1 b", "reverse-2 : 9 c 4"]
    lines = (json.dumps({"question_id": i, "turns": [q]}) for i, q in enumerate(questions))
    (folder / "question.jsonl").write_text("\n".join(lines))
    done = started(tmp_path, "-m", "harness", "--plugin", mine, "run", *options)
    assert done.returncode == 0, done.stderr
    (cell,) = json.loads(done.stdout)["items"]
    kept = tmp_path / "work" / "store"
    (judged,) = (path.parent for path in kept.rglob("judgments.parquet"))
    summary = json.loads((judged / "summary.json").read_text())
    assert cell["mean"] == summary["scores"]["brevity"]
    assert summary["judge"] == "letters"
    assert 0 < cell["mean"] <= 14

    for version, wanted in (("1", 0), ("2", 1)):
        newer = str(plugin(tmp_path, BENCHMARK.format(version=version, reply=reply)))
        planned = here("--plugin", newer, "plan", *options)
        assert json.loads(planned.stdout)["stages"]["missing"] == wanted, planned.stdout
    without = started(tmp_path, "-m", "harness", "plan", *options)
    assert (without.returncode, "Traceback" in without.stderr) == (2, False)
    assert "`brevity` is not known" in without.stderr


def test_an_installed_entry_point_adds_its_plugin(
    here: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package's metadata names the module; its folder is on Python's path."""
    plugin(tmp_path, METRIC.format(version="1"), "packaged")
    (tmp_path / "packaged-1.dist-info").mkdir()
    (tmp_path / "packaged-1.dist-info" / "entry_points.txt").write_text(
        "[harness.plugins]\npackaged = packaged\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert here("validate").exit_code == 0
    assert METRICS.identity("top_gap") == {"plugin": {"name": "packaged", "version": "1"}}
    sys.modules.pop("packaged")
