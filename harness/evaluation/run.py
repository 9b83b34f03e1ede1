"""Running a benchmark with a judge: the price first, then answers, judgments and scores.

Everything that costs money goes through the client, whose replies are kept; so the same run goes on
where it was interrupted, and done again it costs nothing and writes the same. A checkpoint's own
answers are kept under the digest of all that decides them. Each benchmark has its own sampling, and
a second turn is asked with the first and its answer before it.

Source: FastChat `gen_model_answer.py`; Arena-Hard-Auto `gen_answer.py`; the paper's appendix A.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from harness.endpoint.budget import Ledger, Spending
from harness.endpoint.client import Client, Estimate, ReplyCache, Server, estimate, work_through
from harness.endpoint.connection import OPENAI_URL, Endpoint, FunctionEndpoint
from harness.endpoint.prices import Price, Retirement, parse_price, read_prices
from harness.endpoint.request import PLAIN, ChatParameters, ChatRequest, Message, chat_parameters_of
from harness.errors import HarnessError, UserError
from harness.evaluation import scores
from harness.evaluation.benchmark import Benchmark, Judge, benchmark_class
from harness.evaluation.files import (
    Answer,
    Answers,
    Question,
    conversation,
    write_whole,
    writing,
)
from harness.evaluation.options import MODEL_KEY, EvaluateOptions, JudgeOptions
from harness.extensions import JUDGES, benchmark_place
from harness.foreign import READ_BY_LOADERS
from harness.project import evaluations_dir, work_dir
from harness.registry.profile import REWARD_JUDGE
from harness.runtime.files import sha256_of
from harness.runtime.locks import hold
from harness.strict import Output
from harness.words import counted

SEED = 0
BATCH_SIZE = 16

Progress = Callable[[str, int, int], None]
"""Told what is done (`answers`, `judgments`), how many are there, and how many there will be."""


@dataclass(frozen=True)
class ServedModel:
    """A model behind an endpoint."""

    client: Client
    model: str

    def requests(self, benchmark: Benchmark, tokens: int) -> list[ChatRequest]:
        """Return what it will be asked, with stand-ins of so many tokens for its own answers."""
        said = ["word" * tokens]
        return [
            self._request(benchmark, question, said * turn)
            for question in benchmark.questions
            for turn in range(len(question.turns))
        ]

    def answer(self, benchmark: Benchmark, concurrency: int, progress: Progress) -> Answers:
        """Answer all questions, so many at once."""
        questions = benchmark.questions
        outcomes = work_through(
            questions,
            partial(self._answer, benchmark),
            self.client,
            concurrency,
            partial(progress, "answers"),
        )
        refused = [o.failure for o in outcomes if o.result is None]
        if refused:
            raise HarnessError(
                f"{len(refused)} of {len(questions)} questions were refused (first: {refused[0]}); "
                "give the model a longer context, or its answers with --answers"
            )
        answers = {q.prompt_id: o.result for q, o in zip(questions, outcomes, strict=True)}
        return Answers(self.model, {p: a for p, a in answers.items() if a is not None})

    def _answer(self, benchmark: Benchmark, question: Question) -> Answer:
        """Answer all turns of a question, one after the other."""
        said: list[str] = []
        for _ in question.turns:
            said.append(self.client.ask(self._request(benchmark, question, said)).text)
        return Answer(tuple(said))

    def _request(
        self, benchmark: Benchmark, question: Question, said: Sequence[str]
    ) -> ChatRequest:
        """Return the request for the next turn, after the answers to the turns before it."""
        return ChatRequest(
            label=f"question {question.prompt_id}, turn {len(said) + 1}",
            model=self.model,
            messages=tuple(Message(**m) for m in conversation(question, said)),
            settings=benchmark.sampling(question),
        )


@dataclass(frozen=True)
class LocalModel:
    """A checkpoint on this machine, with its tokenizer, and the device it runs on."""

    folder: Path
    device: str

    @property
    def model(self) -> str:
        """Its name in scores."""
        return self.folder.resolve().name

    def answer(self, benchmark: Benchmark, concurrency: int, progress: Progress) -> Answers:
        """Return its answers, from disk or sampled now; the memory says how many at once."""
        sampled_from = {
            "weights": _digest(self.folder),
            "benchmark": benchmark.digest,
            "sampling": [benchmark.sampling(question) for question in benchmark.questions],
            "seed": SEED,
            "batch_size": BATCH_SIZE,
        }
        key = hashlib.sha256(json.dumps(sampled_from, sort_keys=True).encode()).hexdigest()
        path = (
            work_dir()
            / "answers"
            / benchmark_place(benchmark.name)
            / f"{self.model}-{key[:16]}.jsonl"
        )
        seal = path.with_suffix(".sha256")
        if not seal.is_file() or not path.is_file() or seal.read_text() != sha256_of(path):
            said = self._sample(benchmark, progress)
            answers = Answers(self.model, {p: Answer(tuple(turns)) for p, turns in said.items()})
            scores.write_lines(path, benchmark.answer_records(answers))
            write_whole(seal, sha256_of(path))
        return benchmark.read_answers(path, self.model)

    def _sample(self, benchmark: Benchmark, progress: Progress) -> dict[str, list[str]]:
        """Sample all turns of all questions, those with the same settings together."""
        from harness.models.policy import generate, load_policy

        policy = load_policy(self.folder, self.device)
        said: dict[str, list[str]] = {question.prompt_id: [] for question in benchmark.questions}
        total = sum(len(question.turns) for question in benchmark.questions)
        done = 0
        for turn in range(max(len(question.turns) for question in benchmark.questions)):
            for settings, questions in _by_settings(benchmark, turn):
                completions = generate(
                    policy,
                    [conversation(question, said[question.prompt_id]) for question in questions],
                    n=1,
                    temperature=float(settings["temperature"]),
                    top_p=float(settings.get("top_p", 1.0)),
                    max_new_tokens=int(settings["max_tokens"]),
                    batch_size=BATCH_SIZE,
                    seed=SEED,
                )
                for question, (completion,) in zip(questions, completions, strict=True):
                    said[question.prompt_id].append(completion.text)
                done += len(questions)
                progress("answers", done, total)
        return said


Source = Answers | ServedModel | LocalModel
"""What gives a model's answers: a file that has them, or the model."""


def _by_settings(
    benchmark: Benchmark, turn: int
) -> Iterable[tuple[dict[str, Any], list[Question]]]:
    """Return the questions that have a turn, by the settings they are sampled with."""
    groups: dict[str, tuple[dict[str, Any], list[Question]]] = {}
    for question in benchmark.questions:
        if turn < len(question.turns):
            settings = benchmark.sampling(question)
            key = json.dumps(settings, sort_keys=True)
            groups.setdefault(key, (settings, []))[1].append(question)
    return groups.values()


def _digest(checkpoint: Path) -> str:
    """Return the sha256 of a checkpoint's files that decide what it answers, by name."""
    names = sorted(p for p in checkpoint.iterdir() if p.suffix in READ_BY_LOADERS)
    if not any(path.suffix == ".safetensors" for path in names):
        raise UserError(f"{checkpoint} holds no safetensors; give the folder of a checkpoint")
    found = hashlib.sha256()
    for path in names:
        found.update(path.name.encode() + b"\0")
        with path.open("rb") as file:
            hashlib.file_digest(file, lambda: found)
    return found.hexdigest()


EXPECTED_ANSWER_TOKENS = 400
"""Tokens of an answer on average, for an estimate before there are answers."""


def _ignore(*_: object) -> None:
    """Ignore progress messages."""


@dataclass(frozen=True)
class Voice:
    """Who is told what while a benchmark runs; nobody, by default."""

    note: Callable[[str], None] = _ignore
    warn: Callable[[str], None] = _ignore
    progress: Progress = _ignore
    plan: Callable[[EvaluationPlan], None] = _ignore


Summaries = list[scores.Summary]
"""What `harness evaluate` prints: one model's scores under one judge, or several."""


class EvaluationPlan(Output):
    """What a benchmark would ask."""

    benchmark: str
    prices: str
    """When and from where the judge's price is."""
    retirements: tuple[Retirement, ...]
    """Which of the models are retired by their sellers."""
    requests: tuple[Estimate, ...]
    """What is asked of each model, and its price."""


def evaluate(
    name: str, options: EvaluateOptions, voice: Voice | None = None
) -> scores.Evaluated | None:
    """Run a benchmark with a judge, or score a published file of judgments, sending nothing.

    It is None where only the price was asked for.
    """
    kind, file = benchmark_class(name), options.published
    if file is not None:
        found = kind.score_file(file, options.data)
        # Some published files do not say who judged.
        named = [e if e.judge else replace(e, judge=options.judge) for e in found]
        return scores.Evaluated(named, file)
    benchmark = kind.load(options.data_folder(name))
    options.check()
    ledger = Ledger(options.budget_usd)
    judge = judge_of(options, benchmark, options.judge or benchmark.own_judge, ledger)
    source = source_of(options, benchmark, ledger)
    root = evaluations_dir()
    evaluation = judged(benchmark, options, judge, source, root, voice or Voice())
    if evaluation is None:
        return None
    filed = benchmark.filed_judge(judge.model)
    return scores.Evaluated(
        [evaluation], scores.folder_of(root, name, evaluation.score.model, filed)
    )


def judged(
    benchmark: Benchmark,
    options: JudgeOptions,
    judge: Judge,
    source: Source,
    output: Path,
    voice: Voice,
) -> scores.Evaluation | None:
    """Say what will be asked and its price, ask it, and say what was paid.

    Returns:
        The evaluation, kept below the folder `output`; None where only the price was asked for.
    """
    served = [source] if isinstance(source, ServedModel) else []
    asked = benchmark.asked_model(judge.model)
    origin = read_prices().origin
    if options.price is not None:
        origin = "price of the judge: as given with --price"
    known = read_prices().retirements
    ending = [known[m] for m in (asked, *(one.model for one in served)) if m in known]
    if options.dry_run:
        planned = estimates(benchmark, source, judge)
        voice.plan(
            EvaluationPlan(
                benchmark=benchmark.name,
                prices=origin,
                retirements=tuple(ending),
                requests=tuple(planned),
            )
        )
        return None
    for retirement in ending:
        voice.warn(retirement.sentence)
    for client in (judge.client, *(model.client for model in served)):
        client.endpoint.check_key()
    # What is kept is first looked at when nobody else asks for the same any more.
    filed = benchmark.filed_judge(judge.model)
    with alone(benchmark.name, source.model, filed, voice):
        planned = estimates(benchmark, source, judge)
        for line in planned:
            voice.note(plan_line(line))
        voice.note(origin)
        _refuse_retired(options, asked, ending, planned)
        try:
            return run(benchmark, source, judge, options.concurrency, output, voice.progress)
        finally:
            voice.note(spending_line(judge.client.ledger.spending))


def estimates(benchmark: Benchmark, source: Source, judge: Judge) -> list[Estimate]:
    """Return what a run will ask for and what that costs; nothing is sent."""
    tokens, found = EXPECTED_ANSWER_TOKENS, []
    if isinstance(source, ServedModel):
        asked = source.requests(benchmark, tokens)
        found.append(estimate("answers", source.model, asked, source.client, tokens))
    if isinstance(source, Answers):
        shown = source
    else:
        of_each = {
            q.prompt_id: Answer(("word" * tokens,) * len(q.turns)) for q in benchmark.questions
        }
        shown = Answers(source.model, of_each)
    items = [item.request for item in benchmark.requests(shown, judge)]
    found.append(estimate("judgments", judge.model, items, judge.client, benchmark.reply_tokens))
    return found


def run(
    benchmark: Benchmark,
    source: Source,
    judge: Judge,
    concurrency: int,
    output: Path,
    progress: Progress = _ignore,
) -> scores.Evaluation:
    """Answer where needed, judge, score, and keep all of it in the evaluation's folder."""
    answers = source
    if not isinstance(answers, Answers):
        answers = answers.answer(benchmark, concurrency, progress)
    found = benchmark.judge(answers, judge, concurrency, partial(progress, "judgments"))
    filed = benchmark.filed_judge(judge.model)
    folder = scores.folder_of(output, benchmark.name, answers.model, filed)
    written = benchmark.answer_records(answers)
    scores.write_lines(folder / scores.ANSWERS, written)
    scores.write_lines(folder / scores.JUDGMENTS, found.records)
    asked = [judge.client, *([source.client] if isinstance(source, ServedModel) else [])]
    write_whole(folder / scores.REPLIES, _addresses(asked))
    sha256 = hashlib.sha256(json.dumps(written, sort_keys=True).encode()).hexdigest()
    data = {"kind": "judged", "data": benchmark.digest, "answers": sha256}
    scores.keep(folder, found.evaluation, data, scores.cost_of(asked))
    return found.evaluation


@contextmanager
def alone(benchmark: str, model: str, judge: str, voice: Voice) -> Iterator[None]:
    """Evaluate a model on a benchmark with a judge while no other command of this machine does.

    Two commands at once would pay for everything twice. The second one says so and waits for the
    first to end, however that ends, and then finds its replies.
    """
    path = Path(f"{scores.folder_of(work_dir() / 'locks', benchmark, model, judge)}.lock")
    with ExitStack() as stack:
        with writing(path):
            if not stack.enter_context(hold(path, wait=False)):
                voice.note(
                    f"another command evaluates {model} on {benchmark} with {judge}: waiting for "
                    "it to end, so that nothing is paid twice"
                )
                stack.enter_context(hold(path))
        yield


def judge_of(options: JudgeOptions, benchmark: Benchmark, name: str, ledger: Ledger) -> Judge:
    """Return the judge of a name: a plug-in's function, or a model where the options say."""
    if name.startswith(REWARD_JUDGE):
        raise UserError(
            f"the reward model {name} judges in a profile (`judge: {name}`), and is "
            f"measured by `harness calibrate {name}`; name a judge here that writes"
        )
    if name in JUDGES:
        return Judge(_client(FunctionEndpoint(name), ledger, Price(0.0, 0.0), PLAIN), name)
    model = benchmark.asked_model(name)
    price = read_prices().of(model)
    if options.price is not None:
        price = parse_price("--price", options.price)
    if price is None and options.budget_usd is not None:
        raise UserError(
            f"--budget-usd needs the price of {model}, which is not known; give it with --price"
        )
    endpoint = Endpoint(
        options.judge_base_url or OPENAI_URL, options.judge_key_env, options.timeout
    )
    parameters = chat_parameters_of(model, "--judge-parameters", options.judge_parameters)
    return Judge(_client(endpoint, ledger, price, parameters), name)


def source_of(options: EvaluateOptions, benchmark: Benchmark, ledger: Ledger) -> Source:
    """Return what gives the answers that options name."""
    folder = Path(options.model) if options.model is not None else None
    nowhere = options.answers is None and options.model_base_url is None
    if nowhere and folder is not None and not folder.is_dir():
        raise UserError(
            f"There is no folder {options.model}; give the folder of a local model with --model, "
            "an endpoint that has it with --model-base-url, or its answers with --answers"
        )
    is_local = options.answers is None and folder is not None and folder.is_dir()
    if (options.answers is None) == (options.model_base_url is None and not is_local):
        raise UserError(
            "Give either the model's answers with --answers, an endpoint that has it answer with "
            "--model-base-url, or the folder of a local model with --model"
        )
    if options.answers is not None:
        return benchmark.read_answers(options.answers, options.model)
    if options.model_base_url is None:
        return LocalModel(Path(options.model or ""), options.device)
    if options.model is None:
        raise UserError("--model-base-url needs the model's name there; give it with --model")
    price = read_prices().of(options.model) or Price(0.0, 0.0)
    endpoint = Endpoint(options.model_base_url, MODEL_KEY, options.timeout)
    parameters = chat_parameters_of(options.model, "--model")
    return ServedModel(_client(endpoint, ledger, price, parameters), options.model)


def _client(
    endpoint: Server, ledger: Ledger, price: Price | None, parameters: ChatParameters
) -> Client:
    cache = ReplyCache(work_dir() / "replies")
    return Client(endpoint, cache, ledger, price, parameters=parameters)


def _refuse_retired(
    options: JudgeOptions, judge: str, ending: Sequence[Retirement], planned: Sequence[Estimate]
) -> None:
    """Refuse to ask a retired judge at its seller's, before answers to it are paid for."""
    gone = next((one for one in ending if one.model == judge), None)
    all_kept = all(line.requests == line.from_cache for line in planned)
    if gone is None or all_kept or options.judge_base_url is not None:
        return
    raise UserError(
        f"{judge} was retired on {gone.retired} and answers nobody at its seller's; name another "
        f"with `--judge {gone.successor or 'MODEL'}`, whose scores stand in columns of their "
        "own, or with --judge-base-url an endpoint that still serves it"
    )


def plan_line(line: Estimate) -> str:
    """Return in a line what is to be asked of one model, and its price."""
    new = line.requests - line.from_cache
    return (
        f"{new} of {line.requests} {line.what} to ask {line.model} for, about "
        f"{dollars(line.usd)} (at most {dollars(line.usd_at_most)})"
    )


def spending_line(spending: Spending) -> str:
    """Return in a line what was asked and paid."""
    text = (
        f"{counted(spending.requests, 'request')} answered, {spending.from_cache} from the cache, "
        f"{spending.prompt_tokens} + {spending.completion_tokens} tokens, {dollars(spending.usd)}"
    )
    if spending.usd_unconfirmed:
        text += f", and at most {dollars(spending.usd_unconfirmed)} for replies that never came"
    if spending.overstated:
        text += (
            f"; of these the endpoint claimed more tokens than a request allows for "
            f"{spending.overstated}, which are counted at what it allows"
        )
    return text


def dollars(usd: float | None) -> str:
    """Return dollars as text, with cents or finer."""
    return "price not known" if usd is None else f"${usd:.2f}" if usd >= 1 else f"${usd:.4f}"


def _addresses(clients: Sequence[Client]) -> str:
    """Return where the replies behind an evaluation are kept, as JSON."""
    found = [
        {
            "endpoint": client.endpoint.address,
            "cache": str(client.cache.root),
            "addresses": list(client.receipt.addresses),
        }
        for client in clients
    ]
    return json.dumps(found, indent=1) + "\n"
