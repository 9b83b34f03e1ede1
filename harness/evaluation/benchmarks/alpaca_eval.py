"""AlpacaEval 2: 805 answers compared with a reference model's, scored as a win rate.

The annotator is the paper's, `alpaca_eval_gpt4_turbo_fn`; if it runs on a model other than its own,
scores are filed under both names. A preference ranges from 1 (the baseline is certainly better) to
2 (the model is); a tie, 1.5 or in older files 0, is half a win. The score is the mean of
preference - 1, in percent; absent or out-of-range preferences count as missing. The
length-controlled win rate is the package's (`alpaca_package`), which joins all 805 instructions by
position; with a reward model as judge it is this project's own (`length_control`).

Source: alpaca_eval 0.6.6, `annotators/`, `metrics/helpers.py`, `metrics/glm_winrate.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from harness.errors import HarnessError, UserError
from harness.evaluation import files
from harness.evaluation.benchmark import (
    NOT_INSTALLED,
    Benchmark,
    Better,
    JudgeRequest,
    Questions,
    Records,
    Replied,
    Rows,
)
from harness.evaluation.benchmarks import alpaca_package
from harness.evaluation.benchmarks.alpaca_package import OWN_ANNOTATOR
from harness.evaluation.benchmarks.length_control import control_length
from harness.evaluation.calibration import PUBLISHED, Annotation
from harness.evaluation.scores import Evaluation, Judgment, ratio_values, tally
from harness.extensions import benchmark_place
from harness.project import benchmarks_dir
from harness.registry.profile import BASE, REWARD_JUDGE
from harness.runtime.files import sha256_of
from harness.runtime.stage import Json

if TYPE_CHECKING:
    from harness.endpoint.client import ServedModel

OWN_JUDGE = "gpt-4-1106-preview"
REFERENCES = "reference_gpt4_1106_preview_outputs.json"
LENGTH_CONTROLLED = "length_controlled_win_rate"

DIGITS = 16
"""Digits kept of a digest in a stage's settings and in a prompt id."""

_DRAW = 1.5
_ALPACA = (
    "https://huggingface.co/datasets/tatsu-lab/alpaca_eval/resolve/"
    "2edc6fad8be6b14ea7230aabfd08188da6b8b814"
)


@dataclass(frozen=True)
class AlpacaEvalFiles:
    """The benchmark's 805 instructions, in order, with the reference model's outputs."""

    questions: tuple[files.Question, ...]
    references: tuple[files.Record, ...]


class _Output(files.Published):
    instruction: str
    output: str


class AlpacaEval(Benchmark):
    """AlpacaEval 2: compare 805 answers with a reference model's, or score annotations."""

    name = "alpaca_eval"
    own_judge = OWN_JUDGE
    against = "gpt-4-1106-preview"
    columns: ClassVar[Mapping[str, str]] = {"win_rate": "ae_wr", LENGTH_CONTROLLED: "ae_lc"}
    judge_field = "annotator"
    model_field = "generator_2"
    package = "alpaca-eval"
    reply_tokens = 40  # a ranking of two, as JSON
    instructions: ClassVar[int | None] = alpaca_package.INSTRUCTIONS
    homes = (
        files.HomeFile(
            REFERENCES,
            f"{_ALPACA}/alpaca_eval_gpt4_baseline.json",
            "83db546b872ddebee8965fd05fa48461ee3c32bc695c62fb57f2d214ff741ec4",
        ),
        files.HomeFile(
            alpaca_package.FILE_NAME,
            f"{_ALPACA}/{alpaca_package.FILE_NAME}",
            alpaca_package.PUBLISHED_SHA256,
        ),
        PUBLISHED,
    )
    inputs: AlpacaEvalFiles

    @classmethod
    def read_files(cls, data: Path) -> AlpacaEvalFiles:
        path = files.locate(data, REFERENCES, "AlpacaEval's reference outputs")
        records = files.read_records(path)
        texts = [output.instruction for output in files.read_as(_Output, records)]
        wanted = cls.instructions or len(texts)
        if len(set(texts)) != wanted or len(texts) != wanted:
            raise UserError(
                f"{path} has {len(set(texts))} different instructions; AlpacaEval has {wanted}"
            )
        questions = (files.Question(str(i), "", (text,)) for i, text in enumerate(texts))
        return AlpacaEvalFiles(tuple(questions), tuple(records))

    @classmethod
    def read_questions(cls, data: Path) -> tuple[files.Question, ...]:
        return cls.read_files(data).questions

    @classmethod
    def scored_with(cls, data: Path, judge: str) -> dict[str, Json]:
        """Return the package's version and the length control's digest; {} for a reward model."""
        if judge.startswith(REWARD_JUDGE):
            return {}
        file = data / alpaca_package.FILE_NAME
        digest = sha256_of(file)[:DIGITS] if file.is_file() else None
        return {**super().scored_with(data, judge), "length_control": digest}

    @classmethod
    def missing(cls, scored_with: Mapping[str, Json]) -> dict[str, str]:
        if scored_with.get("package") == NOT_INSTALLED:
            why = "install the extra `alpaca`: its package alpaca-eval has the judge's prompts"
            return dict.fromkeys(cls.columns, why)
        if scored_with.get("length_control", "") is not None:
            return {}
        why = f"its {alpaca_package.FILE_NAME} comes with `harness evaluate fetch alpaca_eval`"
        return {LENGTH_CONTROLLED: why}

    @classmethod
    def filed_judge(cls, judge: str) -> str:
        """Return the annotator's name, plus the model's if it is not the annotator's own."""
        return OWN_ANNOTATOR if judge == OWN_JUDGE else f"{OWN_ANNOTATOR}/{judge}"

    def own_anchor(self) -> files.Answers:
        outputs = zip(self.questions, self.inputs.references, strict=True)
        said = {q.prompt_id: files.Answer((str(record["output"]),)) for q, record in outputs}
        return files.Answers(str(self.inputs.references[0].get("generator", "reference")), said)

    def read_answers(self, path: Path, model: str | None) -> files.Answers:
        """Read one model's outputs, in any order, and put them in the benchmark's."""
        records = files.read_records(path)
        name = model or str(records[0].get("generator", path.stem))
        rows = in_order(records, name, [question.turns[0] for question in self.questions])
        outputs = [files.Answer((it.output,)) for it in files.read_as(_Output, rows)]
        ids = [question.prompt_id for question in self.questions]
        return files.Answers(name, dict(zip(ids, outputs, strict=True)))

    def requests(self, answers: files.Answers, judge: ServedModel) -> list[JudgeRequest]:
        """Return one request per instruction, except where the two outputs are equal."""
        asked = alpaca_package.prompts_of(self._rows(answers), judge.model)
        return [JudgeRequest("", 1, request, shown=prompt) for prompt, request in asked.items()]

    def records(self, answers: files.Answers, judge: ServedModel, replied: Replied) -> Rows:
        replies = {
            item.shown: None if outcome.result is None else outcome.result[0]
            for item, outcome in replied
        }
        rows = self._rows(answers)
        found = alpaca_package.preferences_of(rows, replies)
        filed = self.filed_judge(judge.model)
        return [
            {**row, "annotator": filed, "preference": found.get(row["instruction"])} for row in rows
        ]

    def comparison_records(self, answers: files.Answers, judge: str, better: Better) -> Rows:
        return [
            {**row, "annotator": judge, "preference": None if share is None else 1.0 + share}
            for row, share in zip(self._rows(answers), better.values(), strict=True)
        ]

    def judgments(self, records: Records) -> list[tuple[str, int, str, object]]:
        """Return the preferences; the judge calls a function, so there is no reply text to keep."""
        ids = {question.turns[0]: question.prompt_id for question in self.questions}
        return [
            (ids[r["instruction"]], 1, f"preference {r['preference']}", r["preference"])
            for r in records
        ]

    @classmethod
    def scored(
        cls, records: Records, model: str, questions: Questions, data: Path | None
    ) -> Evaluation:
        """Score annotations; a reward model's with this project's own length control."""
        instructions = None if questions is None else [q.turns[0] for q in questions]
        ordered = in_order(records, model, instructions)
        preferences, lengths = preferences_from_annotations(ordered)
        if str(ordered[0].get(cls.judge_field)).startswith(REWARD_JUDGE):
            return score_preferences(preferences, model, lengths=lengths)
        score = score_preferences(preferences, model)
        if ordered[0].get("generator_1") == BASE:
            return score.with_unavailable(LENGTH_CONTROLLED, f"its data compare with {cls.against}")
        # For a published file, use the fetched data.
        folder = data or benchmarks_dir() / benchmark_place(cls.name)
        controlled = alpaca_package.length_controlled(ordered, folder / alpaca_package.FILE_NAME)
        if isinstance(controlled, str):
            return score.with_unavailable(LENGTH_CONTROLLED, controlled)
        return score.with_column(LENGTH_CONTROLLED, controlled)

    def _rows(self, answers: files.Answers) -> list[dict[str, str]]:
        """Return both outputs of each instruction, as the package expects them."""
        assert self.anchor is not None
        own, theirs = answers.to(self.questions), self.anchor.to(self.questions)
        return [
            {
                "instruction": question.turns[0],
                "dataset": str(reference.get("dataset", "")),
                "output_1": other.turns[0],
                "generator_1": self.anchor.model,
                "output_2": answer.turns[0],
                "generator_2": answers.model,
            }
            for question, reference, other, answer in zip(
                self.questions, self.inputs.references, theirs, own, strict=True
            )
        ]


def in_order(
    records: Records, model: str, instructions: Sequence[str] | None = None
) -> list[files.Record]:
    """Return a model's outputs or annotations in the benchmark's order, if given."""
    by_text: dict[str, files.Record] = {}
    whose = model or "the file"
    for index, record in enumerate(records):
        text = record.get("instruction")
        if not isinstance(text, str) or text in by_text:
            raise UserError(
                f"Record {index + 1} of {whose} has no instruction, or one that came before; give "
                "one for each instruction"
            )
        by_text[text] = record
    order = list(by_text) if instructions is None else list(instructions)
    known = by_text.keys() & set(order)
    if len(known) < len(by_text) or len(by_text) != alpaca_package.INSTRUCTIONS:
        raise UserError(
            f"{whose} has {len(known)} of AlpacaEval's {alpaca_package.INSTRUCTIONS} instructions "
            f"and {len(by_text) - len(known)} others; give just all of them"
        )
    return [by_text[text] for text in order]


def preferences_from_annotations(records: Records) -> tuple[list[Judgment], dict[str, float]]:
    """Return shares of a win and length differences in characters from annotations."""
    preferences, lengths = [], {}
    for it in files.read_as(Annotation, records):
        # The files have no ids, so a prompt's id is a digest of its instruction.
        key = hashlib.sha256(it.instruction.encode()).hexdigest()[:DIGITS]
        preferences.append(preference(key, it.preference))
        lengths[key] = float(len(it.output_2) - len(it.output_1))
    return preferences, lengths


def preference(prompt_id: str, value: float | None) -> Judgment:
    """Convert a preference from 1 to 2 to a share of a win from 0 to 1."""
    value = _DRAW if value == 0 else value
    return Judgment(prompt_id, value - 1.0 if value is not None and 1.0 <= value <= 2.0 else None)


def score_preferences(
    preferences: Iterable[Judgment], model: str, lengths: Mapping[str, float] | None = None
) -> Evaluation:
    """Score one model's preferences, in percent; with `lengths`, also at equal ones."""
    found = tally(preferences)
    valid = found.weight > 0
    if not valid.any():
        raise HarnessError(
            f"None of the {len(valid)} preferences on {model} is valid; look at the judge's "
            "replies."
        )
    wins = found.total[valid]
    score = Evaluation(
        benchmark=AlpacaEval.name,
        model=model,
        scores={"win_rate": float(100.0 * wins.mean())},
        n=found.n,
        n_missing=found.missing,
        prompts=found.prompts,
        values={"win_rate": 100.0 * ratio_values(found.total, found.weight)},
    )
    if lengths is None:
        return score
    judged = [prompt for prompt, ok in zip(found.prompts, valid, strict=True) if ok]
    result = control_length(wins, np.array([lengths[prompt] for prompt in judged]))
    notes = {} if result.state == "fitted" else {LENGTH_CONTROLLED: result.state}
    if result.rate is None or result.values is None:
        return replace(score, scores={**score.scores, LENGTH_CONTROLLED: None}, notes=notes)
    column = np.full(len(valid), 100.0 * result.rate)
    # A prompt without a preference has no influence; the others carry its weight.
    influence = 100.0 * (result.values - result.rate)
    column[valid] += influence * (len(valid) / len(influence))
    return replace(
        score,
        scores={**score.scores, LENGTH_CONTROLLED: 100.0 * result.rate},
        values={**score.values, LENGTH_CONTROLLED: column},
        notes=notes,
    )
