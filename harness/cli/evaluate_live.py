"""Asking a judge: the price first, then answers and judgments, and where they are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli import evaluate_tracking
from harness.cli.evaluate_asked import Asked, JudgeAsked
from harness.cli.evaluate_printing import plan_line, progress, show, show_plan, spending_line
from harness.cli.output import note, warn
from harness.errors import HarnessError, UserError
from harness.project import evaluations_dir, work_dir

if TYPE_CHECKING:
    from harness.evaluation.benchmark_answers import Answerer
    from harness.evaluation.benchmark_files import Answers
    from harness.evaluation.benchmark_kinds import Benchmark, Judge
    from harness.evaluation.benchmark_result import Evaluation
    from harness.evaluation.judging.client import Client
    from harness.evaluation.judging.dialect import Dialect
    from harness.evaluation.judging.endpoint import Endpoint
    from harness.evaluation.judging.estimate import Estimate
    from harness.evaluation.judging.ledger import Ledger
    from harness.evaluation.judging.prices import Price, Retirement


def evaluate(benchmark: Benchmark, asked: Asked, judge_model: str, annotator: str = "") -> None:
    """Run a benchmark with a judge, or show what that would ask and cost.

    Raises:
        UserError: An option is wrong or missing.
        HarnessError: An endpoint failed or the budget is used up.
    """
    from harness.evaluation.benchmark_archive import FILE, folder_of
    from harness.evaluation.judging.ledger import Ledger

    asked.check()
    ledger = Ledger(asked.budget_usd)
    judge = judge_of(asked, judge_model, annotator, ledger)
    answerer = answerer_of(asked, benchmark, ledger)
    answers: Answers | None = None
    if asked.answers is not None:
        answers = benchmark.read_answers(asked.answers, asked.model)
    local = None
    if answers is None and answerer is None:
        local = partial(_answer_locally, benchmark, asked)
    found = judged(
        benchmark, asked, judge, answers, answerer, local=local, output=evaluations_dir()
    )
    if found is None:
        return
    show([found], asked.as_json)
    named = judge.name(benchmark.name)
    folder = folder_of(evaluations_dir(), benchmark.name, found.score.model, named)
    note(f"judgments in {folder}")
    if asked.track:
        evaluate_tracking.track([folder / FILE])


def judged(
    benchmark: Benchmark,
    asked: JudgeAsked,
    judge: Judge,
    answers: Answers | None,
    answerer: Answerer | None = None,
    *,
    local: Callable[[], Answers] | None = None,
    output: Path,
) -> Evaluation | None:
    """Say what will be asked and its price, ask it, and say what was paid.

    Args:
        benchmark: The benchmark.
        asked: The options.
        judge: The judge.
        answers: The model's answers; None where `answerer` or `local` gives them.
        answerer: The model behind an endpoint.
        local: Has a local model answer.
        output: The folder of the evaluations among which this one is kept.

    Returns:
        The evaluation; None where only the price was asked for.
    """
    from harness.evaluation import benchmark_run

    origin = _origin_of_prices(asked)
    ending = _retirements(asked, judge.model, *((answerer.model,) if answerer else ()))
    if asked.dry_run:
        planned = benchmark_run.estimates(benchmark, answers, answerer, judge)
        show_plan(benchmark.name, planned, origin, ending, asked.as_json)
        return None
    for retirement in ending:
        warn(retirement.sentence)
    for client in (judge.client, *((answerer.client,) if answerer else ())):
        client.endpoint.check_key()
    given = answers or answerer
    model = Path(asked.model or "").resolve().name if given is None else given.model
    # What is kept is first looked at when nobody else asks for the same any more.
    with alone(benchmark.name, model, judge.name(benchmark.name)):
        planned = benchmark_run.estimates(benchmark, answers, answerer, judge)
        for line in planned:
            note(plan_line(line))
        note(origin)
        _refuse_retired(asked, judge.model, ending, planned)
        if local is not None:
            answers = local()
        try:
            return benchmark_run.run(
                benchmark,
                answers,
                answerer,
                judge,
                asked.concurrency,
                output,
                progress(),
            )
        finally:
            note(spending_line(judge.client.ledger.spending))


@contextmanager
def alone(benchmark: str, model: str, judge: str) -> Iterator[None]:
    """Evaluate a model on a benchmark with a judge while no other command of this machine does.

    Two commands at once would pay for everything twice. The second one says so and waits for the
    first to end, however that ends, and then finds its replies.

    Raises:
        HarnessError: The work folder cannot be written, or is on a file system without locks.
    """
    from harness.evaluation.benchmark_archive import folder_of
    from harness.store.locks import hold

    path = Path(f"{folder_of(work_dir() / 'locks', benchmark, model, judge)}.lock")
    with ExitStack() as stack:
        try:
            if not stack.enter_context(hold(path, wait=False)):
                note(
                    f"another command evaluates {model} on {benchmark} with {judge}: waiting for "
                    "it to end, so that nothing is paid twice"
                )
                stack.enter_context(hold(path))
        except OSError as error:
            raise HarnessError(
                f"Cannot write {path}: {error.strerror or error}; make room or set HARNESS_WORK"
            ) from error
        yield


def judge_of(asked: JudgeAsked, model: str, annotator: str, ledger: Ledger) -> Judge:
    """Return the judge that the options name.

    Raises:
        UserError: Its endpoint, price or dialect is not one, or a budget lacks its price.
    """
    from harness.evaluation.benchmark_kinds import Judge
    from harness.evaluation.judging.dialect import dialect_of
    from harness.evaluation.judging.endpoint import OPENAI_URL, Endpoint
    from harness.evaluation.judging.prices import SHIPPED, parse_price, read_prices

    price = read_prices(asked.prices or SHIPPED).of(model)
    if asked.price is not None:
        price = parse_price("--price", asked.price)
    if price is None and asked.budget_usd is not None:
        raise UserError(
            f"--budget-usd needs the price of {model}, which is not known; give it with --price"
        )
    endpoint = Endpoint(asked.judge_base_url or OPENAI_URL, asked.judge_key_env, asked.timeout)
    dialect = dialect_of(model, "--judge-dialect", asked.judge_dialect)
    return Judge(_client(endpoint, ledger, price, dialect), model, annotator)


def _answer_locally(benchmark: Benchmark, asked: Asked) -> Answers:
    """Have a local model answer, or return what it answered before."""
    from harness.cli.evaluate_local import answer

    folder = Path(asked.model or "")
    return answer(benchmark, folder, asked.device, work_dir() / "answers", progress())


def answerer_of(asked: Asked, benchmark: Benchmark, ledger: Ledger) -> Answerer | None:
    """Return the endpoint that answers, or None where answers or a local model are given.

    Raises:
        UserError: There are two of them or none, or an option of the model is wrong.
    """
    from harness.evaluation.benchmark_answers import Answerer
    from harness.evaluation.judging.dialect import dialect_of
    from harness.evaluation.judging.endpoint import Endpoint
    from harness.evaluation.judging.prices import Price, parse_price

    nowhere = asked.answers is None and asked.model_base_url is None
    if nowhere and asked.model is not None and not Path(asked.model).is_dir():
        raise UserError(
            f"There is no folder {asked.model}; give the folder of a local model with --model, "
            "an endpoint that has it with --model-base-url, or its answers with --answers"
        )
    is_local = asked.answers is None and asked.model is not None and Path(asked.model).is_dir()
    if (asked.answers is None) == (asked.model_base_url is None and not is_local):
        raise UserError(
            "Give either the model's answers with --answers, an endpoint that has it answer with "
            "--model-base-url, or the folder of a local model with --model"
        )
    if asked.model_base_url is None:
        return None
    if asked.model is None:
        raise UserError("--model-base-url needs the model's name there; give it with --model")
    price = Price(0.0, 0.0)
    if asked.model_price is not None:
        price = parse_price("--model-price", asked.model_price)
    endpoint = Endpoint(asked.model_base_url, asked.model_key_env, asked.timeout)
    dialect = dialect_of(asked.model, "--model-dialect", asked.model_dialect)
    client = _client(endpoint, ledger, price, dialect)
    return Answerer(client, asked.model, benchmark.sampling)


def _client(endpoint: Endpoint, ledger: Ledger, price: Price | None, dialect: Dialect) -> Client:
    from harness.evaluation.judging.cache import ReplyCache
    from harness.evaluation.judging.client import Client

    cache = ReplyCache(work_dir() / "replies")
    return Client(endpoint, cache, ledger, price, dialect=dialect)


def _retirements(asked: JudgeAsked, *models: str) -> list[Retirement]:
    """Return which of the models are retired by their sellers, or will be."""
    from harness.evaluation.judging.prices import SHIPPED, read_prices

    # A list of one's own says what one pays, and need not know when models end.
    known = {**read_prices().retirements, **read_prices(asked.prices or SHIPPED).retirements}
    return [known[model] for model in dict.fromkeys(models) if model in known]


def _refuse_retired(
    asked: JudgeAsked, judge: str, ending: Sequence[Retirement], planned: Sequence[Estimate]
) -> None:
    """Refuse to ask a retired judge at its seller's, before answers to it are paid for.

    Raises:
        UserError: It is retired, no endpoint is named, and not all of its judgments are kept.
    """
    retired = next((r for r in ending if r.model == judge and r.is_past), None)
    all_kept = all(line.requests == line.from_cache for line in planned)
    if retired is None or all_kept or asked.judge_base_url is not None:
        return
    raise UserError(
        f"{judge} was retired on {retired.on} and answers nobody at its seller's; name another "
        f"with `--judge {retired.successor or 'MODEL'}`, whose scores stand in columns of their "
        "own, or with --judge-base-url an endpoint that still serves it"
    )


def _origin_of_prices(asked: JudgeAsked) -> str:
    """Return when and from where the judge's price is."""
    from harness.evaluation.judging.prices import SHIPPED, read_prices

    if asked.price is not None:
        return "price of the judge: as given with --price"
    return read_prices(asked.prices or SHIPPED).origin
