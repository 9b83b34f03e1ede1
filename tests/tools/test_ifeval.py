"""The tool that scores policies on IFEval, with a stand-in for lm-eval."""

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tiny_gemma import build_tiny_gemma

PROMPTS = ("a b", "c d e", "f")

FOLLOWED = {"one": ([True, True], [False, True], [True]), "two": ([True, True], [True], [True])}
"""Which instructions of each prompt the policies follow."""


class FakeLM:
    """As `lm_eval.api.model.LM`, of which nothing is used."""


def simple_evaluate(policy: Any, *, tasks: list[str], **_: Any) -> dict[str, Any]:
    """Ask a policy for its answers, and return samples in another order, as lm-eval may."""
    answers = policy.generate_until([SimpleNamespace(args=(text, {})) for text in PROMPTS])
    assert len(answers) == len(PROMPTS)
    followed = FOLLOWED[policy.folder.name]
    samples = [{"doc_id": i, "inst_level_strict_acc": own} for i, own in enumerate(followed)]
    return {"samples": {tasks[0]: samples[::-1]}}


@pytest.fixture
def ifeval(monkeypatch: pytest.MonkeyPatch) -> Any:
    names: dict[str, dict[str, Any]] = {
        "lm_eval": {"simple_evaluate": simple_evaluate},
        "lm_eval.api": {},
        "lm_eval.api.model": {"LM": FakeLM},
        "lm_eval.tasks": {"TaskManager": SimpleNamespace},
    }
    for name, content in names.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "ifeval", raising=False)
    return importlib.import_module("ifeval")


def test_rows_are_scored_and_compared_and_no_policy_is_asked_twice(
    ifeval: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (build_tiny_gemma(tmp_path / name) for name in FOLLOWED)
    file = tmp_path / "answers.jsonl"
    asked = [str(file), f"first={one},{one}", f"second={two},{two}", f"third={two}", "--tokens=4"]
    ifeval.main(asked)
    printed = capsys.readouterr().out
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["policy"] for line in lines] == [str(one), str(two)]
    assert all(len(line["answers"]) == len(line["tokens"]) == 3 for line in lines)
    # Of three prompts two are followed and then three; of five and four instructions, four.
    first, second, third = printed.splitlines()
    assert first.startswith("first: seeds 2, prompts 66.7, instructions 80.0, tokens ")
    assert second.startswith("second: seeds 2, prompts 100.0, instructions 100.0, tokens ")
    assert "; prompts +33.3 (" in second
    assert third.startswith("third: seeds 1, prompts 100.0")
    assert "; prompts" not in third
    with monkeypatch.context() as patch:
        patch.setattr(ifeval, "answer", None)
        ifeval.main(asked)
    assert capsys.readouterr().out == printed
    # Of a longer answer nothing is known yet.
    ifeval.main([*asked[:-1], "--tokens=5"])
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["limit"] for line in lines] == [4, 4, 5, 5]


def test_answers_are_greedy_and_end_at_the_limit(ifeval: Any, tmp_path: Path) -> None:
    policy = ifeval.Policy(build_tiny_gemma(tmp_path / "one"), 4)
    requests = [SimpleNamespace(args=(text, {})) for text in PROMPTS]
    answers = policy.generate_until(requests)
    assert answers == policy.generate_until(requests)
    assert answers == [one.text for one in policy.completions]
    assert max(one.n_tokens for one in policy.completions) <= 4
