"""`evaluate`: the paper's benchmarks as they are really run, or scored from published files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from harness.cli.evaluate_options import (
    DEFAULT_CONCURRENCY,
    JUDGE_KEY,
    MODEL_KEY,
    MOST_CONCURRENCY,
    AnnotationsOption,
    AnnotatorOption,
    AnswersOption,
    BattlesOption,
    BudgetOption,
    ConcurrencyOption,
    DataOption,
    DryRunOption,
    JudgeKeyOption,
    JudgeOption,
    JudgeUrlOption,
    JudgmentsOption,
    LengthDataOption,
    LengthDigestOption,
    ModelKeyOption,
    ModelOption,
    ModelPriceOption,
    ModelUrlOption,
    PriceOption,
    TimeoutOption,
)
from harness.cli.evaluate_printing import (
    plan_line,
    progress,
    show,
    show_plan,
    spending_line,
)
from harness.cli.options import JsonOption

if TYPE_CHECKING:
    from harness.evaluation.benchmark_answers import Answerer
    from harness.evaluation.benchmark_files import Answers
    from harness.evaluation.benchmark_result import Evaluation
    from harness.evaluation.benchmark_run import Benchmark, Judge, LengthControl
    from harness.evaluation.judging.ledger import Ledger

app = typer.Typer(
    help="The paper's benchmarks with a judge, or scored from published files.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@dataclass(frozen=True)
class Asked:
    """The options that all benchmarks share."""

    data: Path | None
    answers: Path | None
    model: str | None
    model_base_url: str | None
    model_key_env: str
    model_price: str | None
    judge: str | None
    judge_base_url: str | None
    judge_key_env: str
    price: str | None
    budget_usd: float | None
    concurrency: int
    timeout: float
    dry_run: bool
    as_json: bool


@app.callback()
def _group() -> None:
    """Group the benchmarks."""


@app.command(
    "mt-bench",
    epilog="Example: harness evaluate mt-bench --data mt_bench --answers answers.jsonl --dry-run",
)
def mt_bench(
    data: DataOption = None,
    answers: AnswersOption = None,
    model: ModelOption = None,
    model_base_url: ModelUrlOption = None,
    model_key_env: ModelKeyOption = MODEL_KEY,
    model_price: ModelPriceOption = None,
    judge: JudgeOption = None,
    judge_base_url: JudgeUrlOption = None,
    judge_key_env: JudgeKeyOption = JUDGE_KEY,
    price: PriceOption = None,
    budget_usd: BudgetOption = None,
    concurrency: ConcurrencyOption = DEFAULT_CONCURRENCY,
    timeout: TimeoutOption = 180.0,
    judgments: JudgmentsOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Rate two turns of answers to 80 questions, or score a file of ratings."""
    from harness.evaluation import benchmark_mt_bench, published
    from harness.evaluation.benchmark_result import evaluate_ratings
    from harness.evaluation.benchmark_run import MtBench

    asked = Asked(
        data, answers, model, model_base_url, model_key_env, model_price, judge, judge_base_url,
        judge_key_env, price, budget_usd, concurrency, timeout, dry_run, as_json,
    )  # fmt: skip
    if judgments is not None:
        _check_published(asked, "--judgments")
        categories = None
        if data is not None:
            questions = benchmark_mt_bench.questions_in(data)
            categories = {question.prompt_id: question.category for question in questions}
        prompts = None if categories is None else list(categories)
        show(evaluate_ratings(published.read_records(judgments), prompts, categories), asked)
        return
    _live(MtBench(_data_of(asked)), asked, judge or benchmark_mt_bench.OWN_JUDGE)


@app.command(
    "arena-hard",
    epilog="Example: harness evaluate arena-hard --battles battles.jsonl",
)
def arena_hard(
    data: DataOption = None,
    answers: AnswersOption = None,
    model: ModelOption = None,
    model_base_url: ModelUrlOption = None,
    model_key_env: ModelKeyOption = MODEL_KEY,
    model_price: ModelPriceOption = None,
    judge: JudgeOption = None,
    judge_base_url: JudgeUrlOption = None,
    judge_key_env: JudgeKeyOption = JUDGE_KEY,
    price: PriceOption = None,
    budget_usd: BudgetOption = None,
    concurrency: ConcurrencyOption = DEFAULT_CONCURRENCY,
    timeout: TimeoutOption = 180.0,
    judgments: JudgmentsOption = None,
    battles: BattlesOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Judge answers to 500 questions against gpt-4-0314, or score a file of verdicts."""
    from harness.errors import UserError
    from harness.evaluation import benchmark_arena_hard, published
    from harness.evaluation.benchmark_result import evaluate_battles, evaluate_judgments
    from harness.evaluation.benchmark_run import ArenaHard

    asked = Asked(
        data, answers, model, model_base_url, model_key_env, model_price, judge, judge_base_url,
        judge_key_env, price, budget_usd, concurrency, timeout, dry_run, as_json,
    )  # fmt: skip
    file = battles or judgments
    if file is None:
        _live(ArenaHard(_data_of(asked)), asked, judge or benchmark_arena_hard.OWN_JUDGE)
        return
    if battles is not None and judgments is not None:
        raise UserError("`--battles` and `--judgments` are two sources of one score; give one")
    _check_published(asked, "--battles" if battles is not None else "--judgments")
    prompts = None
    if data is not None:
        prompts = [q.prompt_id for q in benchmark_arena_hard.questions_in(data)]
    baseline = benchmark_arena_hard.BASELINE
    records = published.read_records(file)
    if judgments is not None:
        show(evaluate_judgments(records, baseline, prompts), asked)
        return
    fought = published.battles_from_battles(records)
    show(evaluate_battles(fought, baseline, judge, prompts), asked)


@app.command(
    "alpaca-eval",
    epilog="Example: harness evaluate alpaca-eval --annotations annotations.json",
)
def alpaca_eval(
    data: DataOption = None,
    answers: AnswersOption = None,
    model: ModelOption = None,
    model_base_url: ModelUrlOption = None,
    model_key_env: ModelKeyOption = MODEL_KEY,
    model_price: ModelPriceOption = None,
    judge: JudgeOption = None,
    judge_base_url: JudgeUrlOption = None,
    judge_key_env: JudgeKeyOption = JUDGE_KEY,
    price: PriceOption = None,
    budget_usd: BudgetOption = None,
    concurrency: ConcurrencyOption = DEFAULT_CONCURRENCY,
    timeout: TimeoutOption = 180.0,
    annotations: AnnotationsOption = None,
    annotator: AnnotatorOption = None,
    length_control_data: LengthDataOption = None,
    length_control_sha256: LengthDigestOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare 805 answers with a reference model's, or score a file of annotations."""
    from harness.errors import UserError
    from harness.evaluation import benchmark_alpaca_eval, published
    from harness.evaluation.benchmark_run import AlpacaEval

    asked = Asked(
        data, answers, model, model_base_url, model_key_env, model_price, judge, judge_base_url,
        judge_key_env, price, budget_usd, concurrency, timeout, dry_run, as_json,
    )  # fmt: skip
    if annotator not in (None, *benchmark_alpaca_eval.ANNOTATORS):
        raise UserError(
            f"There is no annotator `{annotator}`; choose one of "
            f"{', '.join(benchmark_alpaca_eval.ANNOTATORS)}"
        )
    control = _length_control(data, length_control_data, length_control_sha256)
    if annotations is not None:
        _check_published(asked, "--annotations")
        show(_from_annotations(published.read_records(annotations), control, data), asked)
        return
    _live(
        AlpacaEval(_data_of(asked), control),
        asked,
        judge or benchmark_alpaca_eval.OWN_JUDGE,
        annotator or benchmark_alpaca_eval.OWN_ANNOTATOR,
    )


def _length_control(data: Path | None, file: Path | None, sha256: str | None) -> LengthControl:
    from harness.evaluation.benchmark_length_control import FILE_NAME, PUBLISHED_SHA256
    from harness.evaluation.benchmark_run import LengthControl

    if file is None and data is not None:
        beside = (data / FILE_NAME, data / "alpaca_eval" / FILE_NAME)
        file = next((path for path in beside if path.is_file()), None)
    return LengthControl(file, sha256 or PUBLISHED_SHA256)


def _from_annotations(
    records: Sequence[Mapping[str, Any]], control: LengthControl, data: Path | None
) -> list[Evaluation]:
    from harness.evaluation import benchmark_alpaca_eval
    from harness.evaluation.benchmark_result import evaluate_annotations

    instructions = None
    if data is not None:
        inputs = benchmark_alpaca_eval.read_inputs(data)
        instructions = [question.turns[0] for question in inputs.questions]
    by_model: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        by_model.setdefault(str(record.get("generator_2")), []).append(dict(record))
    rates = {model: control.rate(rows, instructions) for model, rows in by_model.items()}
    return evaluate_annotations(records, rates)


def _data_of(asked: Asked) -> Path:
    from harness.errors import UserError

    if asked.data is None:
        raise UserError(
            "A judge needs the benchmark's questions and prompts; name their folder with --data"
        )
    if not asked.data.is_dir():
        raise UserError(f"`--data {asked.data}` is no folder; name that of the benchmark's files")
    return asked.data


def _check_published(asked: Asked, option: str) -> None:
    from harness.errors import UserError

    given = {
        "--answers": asked.answers,
        "--model-base-url": asked.model_base_url,
        "--judge-base-url": asked.judge_base_url,
        "--budget-usd": asked.budget_usd,
        "--dry-run": asked.dry_run or None,
    }
    for name, value in given.items():
        if value is not None:
            raise UserError(f"`{name}` has no use beside `{option}`, which sends nothing")


def _live(benchmark: Benchmark, asked: Asked, judge_model: str, annotator: str = "") -> None:
    """Run a benchmark with a judge, or show what that would ask and cost."""
    from harness.cli.output import note
    from harness.evaluation import benchmark_run
    from harness.evaluation.judging.ledger import Ledger
    from harness.project import work_dir

    ledger = Ledger(asked.budget_usd)
    _check_numbers(asked)
    judge = _judge(asked, judge_model, annotator, ledger)
    answerer = _answerer(asked, benchmark, ledger)
    answers: Answers | None = None
    if asked.answers is not None:
        answers = benchmark.read_answers(asked.answers, asked.model)
    planned = benchmark_run.estimates(benchmark, answers, answerer, judge)
    if asked.dry_run:
        show_plan(benchmark.name, planned, asked.as_json)
        return
    for client in (judge.client, *((answerer.client,) if answerer else ())):
        client.endpoint.check_key()
    for line in planned:
        note(plan_line(line))
    output = work_dir() / "evaluations"
    try:
        found = benchmark_run.run(
            benchmark, answers, answerer, judge, asked.concurrency, output, progress()
        )
    finally:
        note(spending_line(ledger.spending))
    show([found], asked)
    model, filed = found.score.model, judge.name(benchmark.name)
    note(f"judgments in {benchmark_run.folder_of(output, benchmark.name, model, filed)}")


def _check_numbers(asked: Asked) -> None:
    from harness.errors import UserError

    if not 1 <= asked.concurrency <= MOST_CONCURRENCY:
        raise UserError(
            f"--concurrency is {asked.concurrency}; give a number from 1 to {MOST_CONCURRENCY}"
        )
    if not 0.0 < asked.timeout < float("inf"):
        raise UserError(f"--timeout is {asked.timeout:g}; give seconds above 0")
    if asked.budget_usd is not None and not 0.0 <= asked.budget_usd < float("inf"):
        raise UserError(f"--budget-usd is {asked.budget_usd:g}; give dollars, 0 or more")


def _judge(asked: Asked, model: str, annotator: str, ledger: Ledger) -> Judge:
    from harness.errors import UserError
    from harness.evaluation.benchmark_run import Judge
    from harness.evaluation.judging.cache import ReplyCache
    from harness.evaluation.judging.client import Client
    from harness.evaluation.judging.endpoint import OPENAI_URL, Endpoint
    from harness.evaluation.judging.prices import PRICES, parse_price
    from harness.project import work_dir

    price = PRICES.get(model) if asked.price is None else parse_price("--price", asked.price)
    if price is None and asked.budget_usd is not None:
        raise UserError(
            f"--budget-usd needs the price of {model}, which is not known; give it with --price"
        )
    endpoint = Endpoint(asked.judge_base_url or OPENAI_URL, asked.judge_key_env, asked.timeout)
    client = Client(endpoint, ReplyCache(work_dir() / "replies"), ledger, price)
    return Judge(client, model, annotator)


def _answerer(asked: Asked, benchmark: Benchmark, ledger: Ledger) -> Answerer | None:
    from harness.errors import UserError
    from harness.evaluation.benchmark_answers import Answerer
    from harness.evaluation.judging.cache import ReplyCache
    from harness.evaluation.judging.client import Client
    from harness.evaluation.judging.endpoint import Endpoint
    from harness.evaluation.judging.prices import Price, parse_price
    from harness.project import work_dir

    if (asked.answers is None) == (asked.model_base_url is None):
        raise UserError(
            "Give either the model's answers with --answers or an endpoint that has it answer "
            "with --model-base-url"
        )
    if asked.model_base_url is None:
        return None
    if asked.model is None:
        raise UserError("--model-base-url needs the model's name there; give it with --model")
    price = Price(0.0, 0.0)
    if asked.model_price is not None:
        price = parse_price("--model-price", asked.model_price)
    endpoint = Endpoint(asked.model_base_url, asked.model_key_env, asked.timeout)
    client = Client(endpoint, ReplyCache(work_dir() / "replies"), ledger, price)
    return Answerer(client, asked.model, benchmark.sampling)
