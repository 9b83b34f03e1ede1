"""`evaluate`: the paper's benchmarks as they are really run, or scored from published files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from harness.cli import evaluate_lm_eval
from harness.cli.evaluate_asked import Asked, takes
from harness.cli.evaluate_options import (
    AnnotationsOption,
    AnnotatorOption,
    BattlesOption,
    BenchmarksArgument,
    JudgmentsOption,
    LengthControlOption,
    LengthDigestOption,
)
from harness.cli.output import console
from harness.errors import UserError
from harness.project import benchmarks_dir

if TYPE_CHECKING:
    from harness.evaluation.benchmark_homes import HomeFile
    from harness.evaluation.benchmark_length_control import LengthControl

group = typer.Typer(
    help="The paper's benchmarks with a judge, or scored from published files.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app = typer.Typer(rich_markup_mode=None)
app.add_typer(group, name="evaluate")


@group.command(
    "mt-bench",
    epilog="Example: harness evaluate mt-bench --data mt_bench --answers answers.jsonl --dry-run",
)
@takes(Asked)
def mt_bench(asked: Asked, judgments: JudgmentsOption = None) -> None:
    """Rate two turns of answers to 80 questions, or score a file of ratings."""
    from harness.cli import evaluate_live, evaluate_published
    from harness.evaluation.benchmark_kinds import MtBench
    from harness.evaluation.benchmark_mt_bench import OWN_JUDGE

    if judgments is not None:
        asked.check_published("--judgments")
        found = evaluate_published.mt_bench(judgments, asked.data)
        evaluate_published.report(found, judgments, track=asked.track, as_json=asked.as_json)
        return
    evaluate_live.evaluate(MtBench(asked.data_folder("mt-bench")), asked, asked.judge or OWN_JUDGE)


@group.command(
    "arena-hard",
    epilog="Example: harness evaluate arena-hard --battles battles.jsonl",
)
@takes(Asked)
def arena_hard(
    asked: Asked, judgments: JudgmentsOption = None, battles: BattlesOption = None
) -> None:
    """Judge answers to 500 questions against gpt-4-0314, or score a file of verdicts."""
    from harness.cli import evaluate_live, evaluate_published
    from harness.evaluation.benchmark_arena_hard import OWN_JUDGE
    from harness.evaluation.benchmark_kinds import ArenaHard

    file = battles or judgments
    if file is not None:
        asked.check_published("--battles" if battles is not None else "--judgments")
        found = evaluate_published.arena_hard(battles, judgments, asked.judge, asked.data)
        evaluate_published.report(found, file, track=asked.track, as_json=asked.as_json)
        return
    evaluate_live.evaluate(
        ArenaHard(asked.data_folder("arena-hard")), asked, asked.judge or OWN_JUDGE
    )


@group.command(
    "alpaca-eval",
    epilog="Example: harness evaluate alpaca-eval --annotations annotations.json",
)
@takes(Asked)
def alpaca_eval(
    asked: Asked,
    annotations: AnnotationsOption = None,
    annotator: AnnotatorOption = None,
    length_control: LengthControlOption = None,
    length_control_sha256: LengthDigestOption = None,
) -> None:
    """Compare 805 answers with a reference model's, or score a file of annotations."""
    from harness.cli import evaluate_live, evaluate_published
    from harness.evaluation.benchmark_alpaca_eval import ANNOTATORS, OWN_ANNOTATOR, OWN_JUDGE
    from harness.evaluation.benchmark_kinds import AlpacaEval

    if annotator not in (None, *ANNOTATORS):
        raise UserError(
            f"There is no annotator `{annotator}`; choose one of {', '.join(ANNOTATORS)}"
        )
    control = _length_control(asked.data, length_control, length_control_sha256)
    if annotations is not None:
        asked.check_published("--annotations")
        found = evaluate_published.alpaca_eval(annotations, control, asked.data)
        evaluate_published.report(found, annotations, track=asked.track, as_json=asked.as_json)
        return
    benchmark = AlpacaEval(asked.data_folder("alpaca-eval"), control)
    evaluate_live.evaluate(benchmark, asked, asked.judge or OWN_JUDGE, annotator or OWN_ANNOTATOR)


@group.command("fetch", epilog="Example: harness evaluate fetch mt-bench arena-hard")
def fetch(benchmarks: BenchmarksArgument = None) -> None:
    """Fetch the benchmarks' own files from their public homes, and check their digests."""
    from harness.evaluation import benchmark_homes

    known = list(dict.fromkeys(file.benchmark for file in benchmark_homes.HOMES))
    wanted = benchmarks or known
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise UserError(f"There is no benchmark `{unknown[0]}`; fetch {', '.join(known)}")
    out = console()

    def told(file: HomeFile, there: bool) -> None:
        word = "is there" if there else "fetched"
        out.print(f"{file.benchmark}/{file.name}: {word}, {file.sha256[:12]}", soft_wrap=True)

    files = [file for file in benchmark_homes.HOMES if file.benchmark in wanted]
    benchmark_homes.fetch(files, benchmarks_dir(), told)


def _length_control(data: Path | None, file: Path | None, sha256: str | None) -> LengthControl:
    """Return AlpacaEval's length control: with the file given, beside the data, or fetched."""
    from harness.evaluation.benchmark_length_control import (
        FILE_NAME,
        PUBLISHED_SHA256,
        LengthControl,
    )

    if file is None:
        folders = [] if data is None else [data, data / "alpaca_eval"]
        places = [folder / FILE_NAME for folder in (*folders, benchmarks_dir() / "alpaca-eval")]
        file = next((path for path in places if path.is_file()), None)
    return LengthControl(file, sha256 or PUBLISHED_SHA256)


evaluate_lm_eval.register(group)
