"""An evaluation with a judge on loopback, and every way in which a judge can fail."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from judge_stand_in import Body, StandIn, digest
from scene import KEY, Scene

CONCURRENCY = 4

Handler = Any
Answers = Callable[[Handler, Body], None]


class Asked:
    """An MT-Bench of made-up questions, and a judge that is asked to rate the answers.

    Args:
        scene: Where the command runs.
        questions: How many there are; each has two turns, and each turn is one request.
        fails: Returns what answers a request in place of the judge, or None, given the request and
            how often it has come.
        options: More options of the command.
    """

    def __init__(
        self,
        scene: Scene,
        questions: int = 6,
        fails: Callable[[Body, int], Answers | None] | None = None,
        options: tuple[str, ...] = (),
    ) -> None:
        self.scene = scene
        self.requests = 2 * questions
        self._questions = questions
        self._options = options
        self.server = StandIn(latency_s=0.01, key=KEY, instead=fails)

    def __enter__(self) -> Asked:
        self.server.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.server.__exit__(*error)

    @property
    def command(self) -> tuple[str, ...]:
        """The command that evaluates."""
        data = self.scene.folder / "data"
        if not data.exists():
            _write_data(data, self._questions)
        return (
            "evaluate", "mt-bench", "--data", str(data), "--answers", str(data / "answers.jsonl"),
            "--judge-base-url", self.server.url, "--concurrency", str(CONCURRENCY), "--no-track",
            "--json", *self._options,
        )  # fmt: skip

    def calm(self) -> Any:
        """Return what the command prints where nothing disturbs it."""
        name, number = f"evaluated {self._questions}", self._questions
        return self.scene.once(name, lambda scene: _calmly(scene, number))

    def kept(self) -> dict[int, str]:
        """Return the replies that are kept, by the digest of their request."""
        found = {}
        for path in (self.scene.work / "replies").glob("*.jsonl"):
            for line in path.read_bytes().split(b"\n"):
                if line.startswith(b'{"address"') and line.endswith(b"}"):
                    entry = json.loads(line)
                    found[digest(entry["request"])] = json.dumps(entry["reply"])
        return found

    def check_kept(self, kept: Mapping[int, str], seen: Mapping[int, int]) -> None:
        """Fail where a reply that was kept is gone, or was asked for again.

        Args:
            kept: What was kept before.
            seen: How often each request had come by then.
        """
        now, tally = self.kept(), self.scene.tally
        tally.never("replies lost", [n for n, reply in kept.items() if now.get(n) != reply])
        tally.never("replies doubled", [n for n in kept if self.server.seen[n] != seen[n]])


def _calmly(scene: Scene, questions: int) -> Any:
    with Asked(scene, questions) as asked:
        done = scene.call(*asked.command)
    assert done.code == 0, done.errors
    return done.json


def _write_data(folder: Path, questions: int) -> None:
    """Write questions, answers to them, and the judge's prompts."""
    folder.mkdir()

    def lines(name: str, records: list[dict[str, Any]]) -> None:
        text = "".join(json.dumps(record) + "\n" for record in records)
        (folder / name).write_text(text, encoding="utf-8")

    def answers(model: str) -> list[dict[str, Any]]:
        turns = [[f"{model} says {i}", f"{model} adds {i}"] for i in range(questions)]
        return [
            {"question_id": i, "model_id": model, "choices": [{"turns": said}]}
            for i, said in enumerate(turns)
        ]

    asked = [
        {"question_id": i, "category": "writing", "turns": [f"{i}?", f"and {i}?"]}
        for i in range(questions)
    ]
    lines("question.jsonl", asked)
    lines("answers.jsonl", answers("made-up-model"))
    lines("reference_answer_gpt-4.jsonl", answers("gpt-4"))
    single, multi = "{question} {answer}", "{question_1} {answer_1} {question_2} {answer_2}"
    references = {"single": "{ref_answer_1}", "multi": "{ref_answer_1} {ref_answer_2}"}
    templates = {
        "single-v1": single,
        "single-math-v1": f"{references['single']} {single}",
        "single-v1-multi-turn": multi,
        "single-math-v1-multi-turn": f"{references['multi']} {multi}",
    }
    lines(
        "judge_prompts.jsonl",
        [
            {"name": name, "system_prompt": "Judge.", "prompt_template": f"[[rating]] {template}"}
            for name, template in templates.items()
        ],
    )
