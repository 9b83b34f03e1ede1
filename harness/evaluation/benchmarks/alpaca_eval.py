"""AlpacaEval 2: 805 answers compared with a reference model's, scored as a win rate.

The annotator is the paper's, `alpaca_eval_gpt4_turbo_fn`; where another model than its own answers
for it, scores are filed under both. A preference is a number from 1 (the baseline is better for
certain) to 2 (the model is); a draw, 1.5 or in older files 0, is half a win. The score is the mean
of preference - 1, in percent; what is absent or out of range is counted and left out. The
length-controlled win rate is the package's own (`alpaca_package`), which joins all 805 instructions
by position; `score_preferences` can also give this project's regression
(`harness.evaluation.statistics`), which is another number.

Source: alpaca_eval 0.6.6, `annotators/`, `metrics/helpers.py`, `metrics/glm_winrate.py`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from harness.errors import HarnessError, UserError
from harness.evaluation import files
from harness.evaluation.benchmark import (
    NOT_INSTALLED,
    Benchmark,
    Better,
    Item,
    Judge,
    Judged,
    Replied,
    RewardJudge,
)
from harness.evaluation.benchmarks import alpaca_package
from harness.evaluation.calibration import PUBLISHED
from harness.evaluation.scores import (
    BenchmarkScore,
    Evaluation,
    intervals_of,
    prompt_order,
    ratio_values,
)
from harness.evaluation.statistics import control_length
from harness.extensions import benchmark_place
from harness.project import benchmarks_dir
from harness.runtime.files import sha256_of
from harness.runtime.stage import Json

BENCHMARK = "alpaca_eval"
OWN_ANNOTATOR = "alpaca_eval_gpt4_turbo_fn"
OWN_JUDGE = "gpt-4-1106-preview"
REFERENCES = "reference_gpt4_1106_preview_outputs.json"
ANSWER_TOKENS = 2048
ANSWER_TEMPERATURE = 0.7
ANSWER_TOP_P = 0.9
LENGTH_CONTROLLED = "length_controlled_win_rate"

DIGITS = 16
"""Digits of a digest in a stage's settings."""

_DRAW = 1.5
_ALPACA = (
    "https://huggingface.co/datasets/tatsu-lab/alpaca_eval/resolve/"
    "2edc6fad8be6b14ea7230aabfd08188da6b8b814"
)


@dataclass(frozen=True)
class Inputs:
    """The benchmark's 805 instructions in their order, with the reference model's outputs."""

    questions: tuple[files.Question, ...]
    references: tuple[files.Record, ...]

    @property
    def reference(self) -> str:
        """Name of the reference model."""
        return str(self.references[0].get("generator", "reference"))


@dataclass(frozen=True)
class Preference:
    """A judge's preference: 1 for the baseline's answer, 2 for the model's, 0 or 1.5 for a draw.

    None is no preference. The length difference is the model's answer less the baseline's, in
    characters.
    """

    prompt_id: str
    preference: float | None
    length_difference: float = 0.0


class AlpacaEval(Benchmark):
    """AlpacaEval 2, with the data of its length control where they are."""

    name = BENCHMARK
    own_judge = OWN_JUDGE
    against = "gpt-4-1106-preview"
    columns: ClassVar[Mapping[str, str]] = {"win_rate": "ae_wr", LENGTH_CONTROLLED: "ae_lc"}
    package = "alpaca-eval"
    package_judges = True
    reply_tokens = 40  # a ranking of two, as JSON
    homes = (
        files.HomeFile(
            REFERENCES,
            f"{_ALPACA}/alpaca_eval_gpt4_baseline.json",
            "83db546b872ddebee8965fd05fa48461ee3c32bc695c62fb57f2d214ff741ec4",
        ),
        files.HomeFile(
            # Two others report this digest; no test has read the file.
            "df_gamed.csv",
            f"{_ALPACA}/df_gamed.csv",
            "97aeec3f1c7de6dee6fd31fe66f1702623f4614c3efe1c6fc5f4927cd5fd674d",
        ),
        PUBLISHED,
    )
    inputs: Inputs
    length_control = alpaca_package.LengthControl()

    @classmethod
    def load(cls, data: Path) -> Self:
        """Read the benchmark's files from a folder."""
        found = super().load(data)
        found.length_control = alpaca_package.LengthControl.in_folder(data)
        return found

    @classmethod
    def read_files(cls, data: Path) -> Inputs:
        """Read the reference outputs."""
        return read_inputs(data)

    @classmethod
    def scored_with(cls, data: Path) -> dict[str, Json]:
        """Return the package's version, and the digest of the length control's data if any."""
        file = alpaca_package.LengthControl.in_folder(data).data_file
        digest = None if file is None else sha256_of(file)[:DIGITS]
        return {**super().scored_with(data), "length_control": digest}

    @classmethod
    def gaps(cls, scored_with: Mapping[str, Json]) -> Iterator[str]:
        """Yield that the package is absent, or the data of its length control."""
        if scored_with.get("package") == NOT_INSTALLED:
            yield "AlpacaEval will not be available: install the extra `alpaca`"
        elif scored_with.get("length_control", "") is None:
            yield (
                "AlpacaEval's length-controlled win rate will not be available: its data "
                f"{alpaca_package.FILE_NAME} are not beside the benchmark's files; type `harness "
                "evaluate fetch alpaca_eval`"
            )

    @classmethod
    def why_unscored(cls, scored_with: Mapping[str, Json]) -> str | None:
        """Return that the package has the judge's prompts."""
        if scored_with.get("package") != NOT_INSTALLED:
            return None
        return "the package alpaca-eval (extra `alpaca`), which has the judge's prompts, was absent"

    @classmethod
    def filed_judge(cls, judge: str) -> str:
        """Return the annotator's name, with the model's where that is not the annotator's own."""
        return OWN_ANNOTATOR if judge == OWN_JUDGE else f"{OWN_ANNOTATOR}/{judge}"

    @property
    def references(self) -> dict[str, str]:
        """The reference model's outputs."""
        records = zip(self.questions, self.inputs.references, strict=True)
        return {question.prompt_id: str(record["output"]) for question, record in records}

    def sampling(self, question: files.Question) -> dict[str, Json]:
        """Return the paper's sampling."""
        return {
            "temperature": ANSWER_TEMPERATURE,
            "top_p": ANSWER_TOP_P,
            "max_tokens": ANSWER_TOKENS,
        }

    def read_answers(self, path: Path, model: str | None) -> files.Answers:
        """Read a model's outputs, in the benchmark's order."""
        return read_outputs(path, self.inputs, model)

    def answer_records(self, answers: files.Answers) -> list[dict[str, Any]]:
        """Return answers in AlpacaEval's form."""
        return [
            {
                "instruction": question.turns[0],
                "output": answer.turns[0],
                "generator": answers.model,
            }
            for question, answer in zip(self.questions, answers.to(self.questions), strict=True)
        ]

    def requests(self, answers: files.Answers, judge: Judge) -> list[Item]:
        """Return one request for each instruction, but where the two outputs are equal."""
        asked = alpaca_package.prompts_of(self._rows(answers), judge.model, OWN_ANNOTATOR)
        return [Item("", 1, request, shown=prompt) for prompt, request in asked.items()]

    def records(
        self, answers: files.Answers, judge: Judge, replied: Replied
    ) -> list[dict[str, Any]]:
        """Return annotations in the benchmark's own form and order; null where unread."""
        replies = {
            item.shown: None if outcome.result is None else outcome.result[0]
            for item, outcome in replied
        }
        rows = self._rows(answers)
        found = alpaca_package.preferences_of(rows, OWN_ANNOTATOR, replies)
        filed = self.filed_judge(judge.model)
        return [
            {**row, "annotator": filed, "preference": found.get(row["instruction"])} for row in rows
        ]

    def compare_with(self, anchor: files.Answers) -> None:
        """Put other outputs in the reference model's place."""
        outputs = anchor.to(self.questions)
        records = (
            {**record, "output": answer.turns[0], "generator": anchor.model}
            for record, answer in zip(self.inputs.references, outputs, strict=True)
        )
        self.inputs = replace(self.inputs, references=tuple(records))

    @property
    def anchor(self) -> files.Answers:  # type: ignore[override]
        """The reference model's outputs, or those in their place."""
        said = {prompt: files.Answer((text,)) for prompt, text in self.references.items()}
        return files.Answers(self.inputs.reference, said)

    def comparison_records(
        self, answers: files.Answers, judge: str, better: Better
    ) -> list[dict[str, Any]]:
        """Return annotations of which the preference is 1, 1.5 or 2."""
        return [
            {**row, "annotator": judge, "preference": None if share is None else 1.0 + share}
            for row, share in zip(self._rows(answers), better.values(), strict=True)
        ]

    def compared(self, answers: files.Answers, judge: RewardJudge) -> Judged:
        """Score comparisons; at equal lengths by this project's own regression.

        AlpacaEval's has the difficulty of each instruction for its own judge and reference.
        """
        judged = super().compared(answers, judge)
        preferences = preferences_from_annotations(judged.records)[answers.model]
        score = score_preferences(preferences, answers.model, length_control=True)
        found = replace(judged.evaluation, score=score, intervals=intervals_of(score))
        return Judged(found, judged.records)

    def judgments(self, records: Sequence[files.Record]) -> list[tuple[str, int, str, object]]:
        """Return the preferences; there is no reply to keep, because the judge calls a function."""
        ids = {question.turns[0]: question.prompt_id for question in self.questions}
        return [
            (ids[r["instruction"]], 1, f"preference {r['preference']}", r["preference"])
            for r in records
        ]

    def score(self, records: Sequence[files.Record], answers: files.Answers) -> Evaluation:
        """Score preferences on a model's answers."""
        instructions = [question.turns[0] for question in self.questions]
        (evaluation,) = evaluate_annotations(records, self.length_control, instructions)
        return evaluation

    @classmethod
    def score_file(cls, file: Path, data: Path | None) -> list[Evaluation]:
        """Score a file of annotations; with the instructions, in the benchmark's order.

        Without `data`, those of the length control are looked for where files are fetched to.
        """
        instructions = None
        if data is not None:
            instructions = [question.turns[0] for question in read_inputs(data).questions]
        folder = data or benchmarks_dir() / benchmark_place(BENCHMARK)
        control = alpaca_package.LengthControl.in_folder(folder)
        return evaluate_annotations(files.read_records(file), control, instructions)

    def _rows(self, answers: files.Answers) -> list[dict[str, str]]:
        """Return both outputs of each instruction, as the package takes them."""
        own = answers.to(self.questions)
        return [
            {
                "instruction": question.turns[0],
                "dataset": str(reference.get("dataset", "")),
                "output_1": str(reference["output"]),
                "generator_1": self.inputs.reference,
                "output_2": answer.turns[0],
                "generator_2": answers.model,
            }
            for question, reference, answer in zip(
                self.questions, self.inputs.references, own, strict=True
            )
        ]


def evaluate_annotations(
    records: Sequence[files.Record],
    length_control: alpaca_package.LengthControl,
    instructions: Sequence[str] | None = None,
) -> list[Evaluation]:
    """Score annotations in the benchmark's form, one evaluation for each model and annotator."""
    found = []
    for judge, rows in files.records_by(records, "annotator").items():
        for named, annotated in files.records_by(rows, "generator_2").items():
            model = str(named)
            ordered = in_order(annotated, model, instructions)
            score = score_preferences(preferences_from_annotations(ordered)[model], model)
            controlled = length_control.values(ordered, instructions)
            if isinstance(controlled, str):
                score = score.without(LENGTH_CONTROLLED, controlled)
            else:
                score = replace(
                    score,
                    scores={**score.scores, LENGTH_CONTROLLED: float(controlled.mean())},
                    values={**score.values, LENGTH_CONTROLLED: controlled},
                )
            found.append(Evaluation(score, judge, OWN_ANNOTATOR, intervals_of(score)))
    return found


def read_inputs(data: Path, count: int | None = alpaca_package.INSTRUCTIONS) -> Inputs:
    """Read the reference outputs from a folder, `count` of them; None takes any number."""
    path = files.locate(data, REFERENCES, "AlpacaEval's reference outputs")
    records = files.read_records(path)
    texts = [_text(record, "instruction", path) for record in records]
    for record in records:
        _text(record, "output", path)
    wanted = len(texts) if count is None else count
    if len(set(texts)) != wanted or len(texts) != wanted:
        raise UserError(
            f"{path} has {len(set(texts))} different instructions; AlpacaEval has {wanted}"
        )
    questions = (files.Question(str(i), "", (text,)) for i, text in enumerate(texts))
    return Inputs(tuple(questions), tuple(records))


def read_outputs(path: Path, inputs: Inputs, model: str | None = None) -> files.Answers:
    """Read one model's outputs, whatever their order, and give them the benchmark's."""
    records = files.read_records(path)
    name = model or str(records[0].get("generator", path.stem))
    outputs = [
        _text(row, "output", path)
        for row in in_order(records, name, [question.turns[0] for question in inputs.questions])
    ]
    said = zip(inputs.questions, outputs, strict=True)
    return files.Answers(name, {q.prompt_id: files.Answer((output,)) for q, output in said})


def in_order(
    records: Sequence[files.Record], model: str, instructions: Sequence[str] | None = None
) -> list[files.Record]:
    """Return a model's outputs or annotations in the benchmark's order, where that is known."""
    by_text: dict[str, files.Record] = {}
    for index, record in enumerate(records):
        text = record.get("instruction")
        if not isinstance(text, str) or text in by_text:
            raise UserError(
                f"Record {index + 1} of {model} has no instruction, or one that came before; give "
                "one for each instruction"
            )
        by_text[text] = record
    order = list(by_text) if instructions is None else list(instructions)
    known = by_text.keys() & set(order)
    if len(known) < len(by_text) or len(by_text) != alpaca_package.INSTRUCTIONS:
        raise UserError(
            f"{model} has {len(known)} of AlpacaEval's {alpaca_package.INSTRUCTIONS} instructions "
            f"and {len(by_text) - len(known)} others; give just all of them"
        )
    return [by_text[text] for text in order]


def preferences_from_annotations(records: Iterable[files.Record]) -> dict[str, list[Preference]]:
    """Read the preferences in annotations, by model (`generator_2`).

    Lengths are in characters, as in the benchmark. The files number nothing: a prompt's id is a
    digest of its instruction.
    """
    preferences: dict[str, list[Preference]] = {}
    for index, record in enumerate(records):
        model, instruction, theirs, ours = (
            str(files.field_of(record, index, name))
            for name in ("generator_2", "instruction", "output_1", "output_2")
        )
        value = files.field_of(record, index, "preference")
        preferences.setdefault(model, []).append(
            Preference(
                hashlib.sha256(instruction.encode()).hexdigest()[:16],
                files.number_of(value, index, "preference"),
                float(len(ours) - len(theirs)),
            )
        )
    return preferences


def score_preferences(
    preferences: Iterable[Preference],
    model: str,
    prompts: Sequence[str] | None = None,
    length_control: bool = False,
) -> BenchmarkScore:
    """Score one model's preferences.

    There is at most one of each prompt. Of the benchmark's prompts, one that was never judged
    counts as missing; without them, those that were judged are taken.

    Returns:
        Columns `win_rate` and, where asked for, `length_controlled_win_rate`, in percent.
    """
    by_prompt: dict[str, Preference] = {}
    for item in preferences:
        if item.prompt_id in by_prompt:
            raise UserError(
                f"Prompt {item.prompt_id} has two preferences of {model}; keep one of them."
            )
        by_prompt[item.prompt_id] = item
    order = prompt_order(list(by_prompt), prompts)
    wins = np.array([_win(by_prompt[p].preference) if p in by_prompt else math.nan for p in order])
    valid = np.isfinite(wins)
    if not valid.any():
        raise HarnessError(
            f"None of the {len(order)} preferences on {model} is valid; look at the judge's "
            "replies."
        )
    values = {"win_rate": 100.0 * ratio_values(np.where(valid, wins, 0.0), valid.astype(float))}
    scores: dict[str, float | None] = {"win_rate": float(100.0 * wins[valid].mean())}
    notes: dict[str, str] = {}
    if length_control:
        judged = (by_prompt[p] for p, ok in zip(order, valid, strict=True) if ok)
        lengths = np.array([item.length_difference for item in judged])
        result = control_length(wins[valid], lengths)
        column = LENGTH_CONTROLLED
        scores[column] = None
        if result.state != "fitted":
            notes[column] = result.state
        if result.rate is not None and result.values is not None:
            scores[column] = 100.0 * result.rate
            values[column] = np.full(len(order), 100.0 * result.rate)
            # A prompt without a preference moves nothing; the others carry its weight.
            influence = 100.0 * (result.values - result.rate)
            values[column][valid] += influence * (len(order) / len(influence))
    return BenchmarkScore(
        benchmark=BENCHMARK,
        model=model,
        scores=scores,
        n=int(valid.sum()),
        n_missing=int((~valid).sum()),
        prompts=order,
        values=values,
        notes=notes,
    )


def _win(preference: float | None) -> float:
    """Return the share of a win, in [0, 1], or NaN for what is not a preference."""
    if preference is None:
        return math.nan
    value = _DRAW if preference == 0 else float(preference)
    return value - 1.0 if 1.0 <= value <= 2.0 else math.nan


def _text(record: files.Record, name: str, path: Path) -> str:
    value = record.get(name)
    if not isinstance(value, str):
        raise UserError(f"{path} has a record without {name}; give a file of AlpacaEval outputs")
    return value
