"""The benchmarks of real models as stages: what they are by their files, and judging the answers.

Arena-Hard, AlpacaEval and MT-Bench, and those of plug-ins, are answered and judged through the same
code and from the same files as with `harness evaluate`. A benchmark's identity is the digest of
what it asks and tells its judge: questions, references or the baseline's answers, and the judge's
prompts. Where they are not there yet, it ends in `not-downloaded`. A benchmark's files lie in its
own folder (`arena-hard`; folders have hyphens where names have not), or where the profile says
(`files`), which then ends in that folder: `made-up/arena-hard`. The judge is a plug-in's function,
or a model at the endpoint that the environment names for `JUDGE`; its replies are kept, so that a
stage that broke off goes on where it was and nothing is paid twice.

What is written is what the embedded world's judge writes: judgments, per-prompt values whose mean
is the score, and a summary. A score that cannot be had is not there, and the summary says why. It
is never replaced by another number under its name. Once what lacks is there, the stages are others.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import UserError
from harness.evaluation.benchmark import Benchmark, benchmark_class
from harness.evaluation.scores import cost_of
from harness.extensions import BENCHMARKS, JUDGES, benchmark_name, benchmark_place
from harness.project import benchmarks_dir
from harness.registry.profile import Benchmark as Declared
from harness.registry.profile import benchmark_named
from harness.runtime.stage import Json, StageContext
from harness.worlds.protocol import Item
from harness.worlds.real import tasks
from harness.worlds.real.asking import access_to
from harness.worlds.real.models import DIGITS, NOT_DOWNLOADED
from harness.worlds.real.tasks import JUDGMENT_SCHEMA, write_nothing
from harness.worlds.stage_io import (
    SCORE_SCHEMA,
    Rows,
    progress_callback,
    read_rows,
    write_json,
    write_rows,
)

if TYPE_CHECKING:
    from harness.evaluation.files import Answers
    from harness.evaluation.scores import Evaluation

MODEL = "policy"
"""What the judged model is called in requests and judgments; no judge is told."""


def benchmark_identity(name: str, declared: Declared) -> str:
    """Return the identity of a benchmark, by its name in a profile and what that says of it.

    Raises:
        UserError: There is no such benchmark, its files cannot be read, or they are not what the
            profile says of them.
    """
    if name == tasks.DOWNSTREAM:
        return tasks.identity()
    known = benchmark_named(name)
    if known is None:
        names = [*BENCHMARKS, tasks.DOWNSTREAM]
        raise UserError(
            f"no benchmark of real models is called `{name}`; call it one of {', '.join(names)}"
        )
    kind, own = benchmark_class(known), benchmark_place(known)
    place = declared.files or own
    setting = f"benchmarks.{name}"
    if _name_in(place) != known:
        raise UserError(
            f"`{setting}.files` is `{place}`; let it end in `{own}`, which says how its files "
            "are read"
        )
    foreign = [score for score in declared.columns if score not in kind.columns.values()]
    if foreign:
        raise UserError(
            f"{known} yields no score `{foreign[0]}`; let `{setting}.columns` be among "
            f"{', '.join(kind.columns.values()) or 'none: it has no `columns`'}"
        )
    if not folder_of(place).is_dir():
        return f"{place}@{NOT_DOWNLOADED}"
    benchmark, digest = _read_at(place)
    there, said = len(benchmark.questions), declared.items
    if there != said:
        raise UserError(
            f"{folder_of(place)} has {there} questions and the profile says {said}; give the "
            f"whole benchmark, or correct `{setting}.items`"
        )
    if declared.files is None and declared.against != kind.against:
        raise UserError(
            f"{known} compares with {kind.against or 'nobody'} and the profile says "
            f"{declared.against or 'nobody'}; correct `{setting}.against`"
        )
    return f"{place}@{digest}"


def is_benchmark(identity: str) -> bool:
    """Return whether an identity is that of a benchmark whose answers a judge rates."""
    return _name_in(identity) in BENCHMARKS


def class_of(identity: str) -> type[Benchmark]:
    """Return the class of a benchmark, by its identity or place.

    Where AlpacaEval's form has an annotator of its own in the folder, no package is needed. In
    AlpacaEval's own place that counts for nothing: its scores are its own annotator's.
    """
    from harness.evaluation.benchmarks import own_annotator

    place, name = identity.partition("@")[0], _name_in(identity)
    own = folder_of(place) / own_annotator.FILE_NAME
    if name == "alpaca_eval" and place != benchmark_place(name) and own.is_file():
        return own_annotator.OwnAnnotator
    return benchmark_class(name)


def benchmark_of_identity(identity: str) -> Benchmark:
    """Return a benchmark, after checking that its files are those the identity means.

    Raises:
        UserError: They are not there, cannot be read, or are others.
    """
    place, _, digest = identity.partition("@")
    if digest == NOT_DOWNLOADED or not folder_of(identity).is_dir():
        raise UserError(
            f"the files of {place} are not on this machine; type {fetch_line(place)}, and plan the "
            "run again"
        )
    benchmark, found = _read_at(place)
    if found != digest:
        raise UserError(
            f"the files in {folder_of(place)} are not those that this run was planned with; put "
            "them back, or plan the run again"
        )
    return benchmark


def questions_of(identity: str) -> list[Item]:
    """Return a benchmark's questions in its order, with the answers it compares with.

    Raises:
        UserError: Its files are not those the identity means.
    """
    benchmark = benchmark_of_identity(identity)
    references = benchmark.references
    return [
        Item(
            q.prompt_id,
            q.category,
            q.turns[0],
            q.turns[1] if len(q.turns) > 1 else None,
            references.get(q.prompt_id),
        )
        for q in benchmark.questions
    ]


def folder_of(identity: str) -> Path:
    """Return the folder of a benchmark's files, by its identity or place."""
    return benchmarks_dir() / identity.partition("@")[0]


def fetch_line(place: str) -> str:
    """Return what to type for a benchmark whose files are not there."""
    name = _name_in(place)
    if name not in BENCHMARKS.shipped or place != benchmark_place(name):
        return f"nothing for {place}: put its files at {folder_of(place)}"
    return (
        f"`harness evaluate fetch {name}` (or put its files at {folder_of(place)}; "
        "HARNESS_BENCHMARKS names the folder of all benchmarks)"
    )


def _name_in(identity: str) -> str:
    """Return the name of a benchmark in its identity or place."""
    return benchmark_name(identity.partition("@")[0].rpartition("/")[2])


def _read_at(place: str) -> tuple[Benchmark, str]:
    """Return the benchmark at a place and its digest; read again only if a file has changed."""
    folder = folder_of(place)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    stamp = tuple((str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files)
    return _read(place, folder, stamp)


@lru_cache(maxsize=8)
def _read(
    place: str, folder: Path, stamp: tuple[tuple[str, int, int], ...]
) -> tuple[Benchmark, str]:
    del stamp  # part of the key only
    found = class_of(place).load(folder)
    return found, found.digest[:DIGITS]


def judging_settings(identity: str, judge: str) -> dict[str, Json]:
    """Return the settings of the stage in which a judge rates the answers to a benchmark."""
    more = class_of(identity).scored_with(folder_of(identity)) if is_benchmark(identity) else {}
    return {"benchmark": identity, "judge": judge, **JUDGES.identity(judge), **more}


def judge_answers(ctx: StageContext) -> None:
    """Judge a policy's answers; writes `judgments.parquet`, `scores.parquet`, `summary.json`.

    Raises:
        UserError: Nothing says where the judge is served, or the benchmark's files are others.
        HarnessError: The judge does not answer, the budget is used up, or a plug-in is not here.
    """
    from harness.evaluation.benchmark import Judge

    identity, model = str(ctx.settings["benchmark"]), str(ctx.settings["judge"])
    benchmark = benchmark_of_identity(identity)
    columns = benchmark.columns
    said: dict[str, Any] = {"benchmark": identity, "judge": model}
    if (reason := benchmark.why_unscored(ctx.settings)) is not None:
        write_nothing(ctx.output, said, dict.fromkeys(columns.values(), reason))
        return
    JUDGES.check(model, ctx.settings.get("plugin"))
    access = access_to("JUDGE", model)
    client = access.client()
    judged = benchmark.judge(
        _answers(ctx, benchmark),
        Judge(client, model),
        access.concurrency,
        progress_callback(ctx, "judged"),
    )
    categories = {q.prompt_id: q.category for q in benchmark.questions}
    judgments: Rows = [
        {
            "prompt_id": prompt,
            "category": categories[prompt],
            "number": number,
            "reply": reply,
            "verdict": None if verdict is None else str(verdict),
        }
        for prompt, number, reply, verdict in benchmark.judgments(judged.records)
    ]
    write_rows(ctx.output / "judgments.parquet", judgments, JUDGMENT_SCHEMA)
    scores = _scores(benchmark, judged.evaluation)
    write_rows(ctx.output / "scores.parquet", scores, SCORE_SCHEMA)
    said |= _summary(judged.evaluation, columns)
    write_json(ctx.output / "summary.json", {**said, "cost": cost_of([client])})


def _answers(ctx: StageContext, benchmark: Benchmark) -> Answers:
    """Return the answers of the stage before, turns in order."""
    from harness.evaluation.files import Answer, Answers

    turns: dict[str, dict[int, str]] = {}
    for row in read_rows(ctx.inputs["answers"] / "answers.parquet"):
        turns.setdefault(row["prompt_id"], {})[row["turn"]] = row["completion"]
    # The stage's `n_tokens` count the policy's tokens; a benchmark has a tokenizer of its own.
    said = {p: Answer(tuple(texts[turn] for turn in sorted(texts))) for p, texts in turns.items()}
    answers = Answers(MODEL, said)
    answers.to(benchmark.questions)
    return answers


def _scores(benchmark: Benchmark, found: Evaluation) -> Rows:
    """Return per-prompt values under the registry's columns and the questions' own ids."""
    # AlpacaEval's annotations number nothing; they are in the order of the questions.
    ids = dict(zip(found.score.prompts, (q.prompt_id for q in benchmark.questions), strict=True))
    return [
        {"prompt_id": ids[prompt], "column": benchmark.columns[score], "value": float(value)}
        for prompt, score, value in found.score.rows()
    ]


def _summary(found: Evaluation, columns: Mapping[str, str]) -> dict[str, Any]:
    from harness.evaluation.scores import NOT_AVAILABLE

    said = found.score.under(columns)
    lacking = {c: note for c, note in said["notes"].items() if note.startswith(NOT_AVAILABLE)}
    return {
        "filed_under": found.judge,
        **said,
        "not_available": {c: n.removeprefix(f"{NOT_AVAILABLE}: ") for c, n in lacking.items()},
    }
