"""`evaluate`: the paper's benchmarks as they are really run, or scored from published files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from harness.benchmarking.options import EvaluateOptions
from harness.cli import evaluate_lm_eval
from harness.cli.evaluate_options import (
    AnnotationsOption,
    AnnotatorOption,
    BattlesOption,
    BenchmarksArgument,
    JudgmentsOption,
    LengthControlOption,
    LengthDigestOption,
    takes,
)
from harness.cli.evaluate_printing import show_kept, show_published, voice
from harness.cli.options import JsonOption
from harness.cli.output import console
from harness.errors import UserError
from harness.project import benchmarks_dir

if TYPE_CHECKING:
    from harness.evaluation.benchmark_homes import HomeFile
    from harness.evaluation.benchmark_kinds import Benchmark

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
@takes(EvaluateOptions)
def mt_bench(
    options: EvaluateOptions, judgments: JudgmentsOption = None, as_json: JsonOption = False
) -> None:
    """Rate two turns of answers to 80 questions, or score a file of ratings."""
    from harness.benchmarking.benchmarks import open_benchmark, score_file

    if judgments is not None:
        found = score_file("mt-bench", judgments, options)
        show_published(found, judgments, track=options.track, as_json=as_json)
        return
    _judge(*open_benchmark("mt-bench", options), options, as_json=as_json)


@group.command(
    "arena-hard",
    epilog="Example: harness evaluate arena-hard --battles battles.jsonl",
)
@takes(EvaluateOptions)
def arena_hard(
    options: EvaluateOptions,
    judgments: JudgmentsOption = None,
    battles: BattlesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge answers to 500 questions against gpt-4-0314, or score a file of verdicts."""
    from harness.benchmarking import benchmarks

    file = battles or judgments
    if file is not None:
        options.check_published("--battles" if battles is not None else "--judgments")
        found = benchmarks.arena_hard(battles, judgments, options.judge, options.data)
        show_published(found, file, track=options.track, as_json=as_json)
        return
    _judge(*benchmarks.open_benchmark("arena-hard", options), options, as_json=as_json)


@group.command(
    "alpaca-eval",
    epilog="Example: harness evaluate alpaca-eval --annotations annotations.json",
)
@takes(EvaluateOptions)
def alpaca_eval(
    options: EvaluateOptions,
    annotations: AnnotationsOption = None,
    annotator: AnnotatorOption = None,
    file: LengthControlOption = None,
    sha256: LengthDigestOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare 805 answers with a reference model's, or score a file of annotations."""
    from harness.benchmarking.benchmarks import (
        check_annotator,
        length_control,
        open_benchmark,
        score_file,
    )

    chosen = check_annotator(annotator)
    control = length_control(options.data, file, sha256)
    if annotations is not None:
        found = score_file("alpaca-eval", annotations, options, control)
        show_published(found, annotations, track=options.track, as_json=as_json)
        return
    _judge(*open_benchmark("alpaca-eval", options, control), options, chosen, as_json=as_json)


def _judge(
    benchmark: Benchmark,
    own_judge: str,
    options: EvaluateOptions,
    annotator: str = "",
    *,
    as_json: bool,
) -> None:
    """Run a benchmark with a judge, or show what that would ask and cost."""
    from harness.benchmarking import live

    judge = options.judge or own_judge
    found = live.evaluate(benchmark, options, judge, annotator, voice(as_json=as_json))
    if found is not None:
        show_kept(*found, track=options.track, as_json=as_json)


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


evaluate_lm_eval.register(group)
