"""Evaluates models on benchmarks and calibrates judges, outside of runs.

*Evaluation* prints the price first, then computes answers and scores. Everything that costs money
goes through a client that caches replies, so an interrupted evaluation resumes, and repeating one
is free and gives the same output. A checkpoint's answers are cached too. Each benchmark has its own
sampling, and a second turn is asked with the first turn and its answer as context.

*Calibration* has a judge compare answers that others judged. A reward model scores answers one by
one, so order cannot matter. Other judges see each pair in both orders, with one wording of our own
for all benchmarks: the result characterizes the judge, not a benchmark.

Source: FastChat `gen_model_answer.py`; Arena-Hard-Auto `gen_answer.py`; the paper's appendix A.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from harness.endpoint.access import model_of
from harness.endpoint.budget import Ledger, Spending
from harness.endpoint.client import (
    Client,
    Estimate,
    ServedModel,
    cost_of,
    estimate,
    work_through,
)
from harness.endpoint.prices import TokenPrice, read_prices
from harness.endpoint.request import ChatRequest, Message
from harness.errors import HarnessError, UserError
from harness.evaluation import scores
from harness.evaluation.benchmark import Benchmark, RewardJudge, benchmark_class
from harness.evaluation.calibration import (
    Annotation,
    Calibration,
    measure,
    published_file,
    read_comparisons,
    record_path,
)
from harness.evaluation.files import Answer, Answers, Question, conversation, fill
from harness.evaluation.options import EvaluateOptions
from harness.extensions import JUDGES, benchmark_place
from harness.project import calibrations_dir, evaluations_dir, replies_dir, work_dir
from harness.registry.profile import REWARD_JUDGE
from harness.registry.serving import ServedRole, variable
from harness.runtime.files import explained, hold, sha256_of
from harness.serving.engines import identity as engine_identity
from harness.strict import Output
from harness.words import counted
from harness.worlds.real import rewards
from harness.worlds.real.models import DIGITS, digest_of_folder

SEED = 0
BATCH_SIZE = 16
EXPECTED_ANSWER_TOKENS = 400
"""Average tokens per answer, for estimates before there are answers."""

Say = Callable[[str], None]

Progress = Callable[[str, int, int], None]
"""Called with the kind (`answers` or `judgments`), the number done and the total."""


def _ignore(*_: object) -> None: ...


def judge_of(
    name: str, dtype: str = "float32", ledger: Ledger | None = None
) -> ServedModel | RewardJudge:
    """Return a judge by name: a reward model, a plug-in's function, or a model at an endpoint.

    A reward model is named by its identity (`reward:owner/name@<commit>`). With a ledger, no key is
    required yet.

    Raises:
        UserError: It is not on this machine, or no endpoint is configured for it.
    """
    if name.startswith(REWARD_JUDGE):
        reward = rewards.load(name.removeprefix(REWARD_JUDGE), "one answer", dtype)
        return RewardJudge(reward, name)
    return model_of("judge", name, ledger=ledger, keyless=ledger is not None)


def answers_of(served: ServedModel, benchmark: Benchmark, progress: Progress) -> Answers:
    """Return a model's answers, asking each turn with the previous ones as context.

    Raises:
        HarnessError: The endpoint refused a question.
    """

    def answer(question: Question) -> Answer:
        said: list[str] = []
        for _ in question.turns:
            said.append(served.client.ask(_request(served, benchmark, question, said)).text)
        return Answer(tuple(said))

    questions = benchmark.questions
    outcomes = work_through(questions, answer, served, partial(progress, "answers"))
    refused = [o.failure for o in outcomes if o.result is None]
    if refused:
        raise HarnessError(
            f"{len(refused)} of {len(questions)} questions were refused (first: {refused[0]}); "
            "give the model a longer context, or its answers with --answers"
        )
    answers = {q.prompt_id: o.result for q, o in zip(questions, outcomes, strict=True)}
    return Answers(served.model, {p: a for p, a in answers.items() if a is not None})


def _request(
    served: ServedModel, benchmark: Benchmark, question: Question, said: Sequence[str]
) -> ChatRequest:
    return ChatRequest(
        label=f"question {question.prompt_id}, turn {len(said) + 1}",
        model=served.model,
        messages=tuple(Message(**m) for m in conversation(question, said)),
        settings=benchmark.sampling(question),
    )


_STAND_IN = "word" * EXPECTED_ANSWER_TOKENS
"""Placeholder for an answer in an estimate."""


@dataclass(frozen=True)
class LocalModel:
    """A checkpoint on this machine, with its tokenizer."""

    folder: Path

    @property
    def model(self) -> str:
        return self.folder.resolve().name

    def answer(self, benchmark: Benchmark, progress: Progress) -> Answers:
        """Answer all questions, batched by sampling settings; answers are cached."""
        from harness.inference.solver import Solver, started
        from harness.models.loading import fastest_device, weight_files

        weight_files(self.folder)
        dtype = "float32" if fastest_device() == "cpu" else "bfloat16"
        own = f"{self.model}-{digest_of_folder(self.folder)[:DIGITS]}-{dtype}"
        keep = work_dir() / "answers" / benchmark_place(benchmark.name) / own
        with explained("keeping answers", keep):
            keep.mkdir(parents=True, exist_ok=True)
        start = partial(
            started,
            identity=engine_identity("transformers"),
            folder=self.folder,
            dtype=dtype,
            batch_size=BATCH_SIZE,
            log=keep / "engine.log",
        )
        said: dict[str, list[str]] = {question.prompt_id: [] for question in benchmark.questions}
        total, done = sum(len(question.turns) for question in benchmark.questions), 0
        with Solver(self.folder, start, keep) as solver:
            for turn in range(max(len(question.turns) for question in benchmark.questions)):
                for number, (settings, questions) in enumerate(_by_settings(benchmark, turn)):
                    found = solver.answer(
                        [conversation(q, said[q.prompt_id]) for q in questions],
                        n=1,
                        seed=SEED + turn,
                        temperature=float(settings["temperature"]),
                        top_p=float(settings.get("top_p", 1.0)),
                        max_new_tokens=int(settings["max_tokens"]),
                        part=f"turn-{turn + 1}-{number + 1}",
                    )
                    for question, several in zip(questions, found, strict=True):
                        # A question that is too long gets an empty answer, which is judged.
                        said[question.prompt_id].append(several[0].text if several else "")
                    done += len(questions)
                    progress("answers", done, total)
        return Answers(self.model, {p: Answer(tuple(turns)) for p, turns in said.items()})


Source = Answers | ServedModel | LocalModel
"""Source of a model's answers: a file, or the model itself."""


def _by_settings(benchmark: Benchmark, turn: int) -> list[tuple[dict[str, Any], list[Question]]]:
    groups: dict[str, tuple[dict[str, Any], list[Question]]] = {}
    for question in benchmark.questions:
        if turn < len(question.turns):
            settings = benchmark.sampling(question)
            key = json.dumps(settings, sort_keys=True)
            groups.setdefault(key, (settings, []))[1].append(question)
    return list(groups.values())


class EvaluationPlan(Output):
    benchmark: str
    prices: str
    """Date and source of the prices."""
    requests: tuple[Estimate, ...]
    """The requests to each model, and their price."""


@dataclass(frozen=True)
class Evaluating:
    """An evaluation: a benchmark, the source of its answers, and their judge."""

    benchmark: Benchmark
    source: Source
    judge: ServedModel | RewardJudge
    against: Path | None = None
    """A file of answers to compare with instead of the benchmark's own."""

    @classmethod
    def of(cls, name: str, options: EvaluateOptions) -> Evaluating:
        """Build an evaluation from options; models at endpoints share one budget.

        Raises:
            UserError: A file is missing, no endpoint is configured for a model, or an option is
                wrong.
        """
        benchmark = benchmark_class(name).load(options.data_folder(name))
        ledger = Ledger(replies_dir(), options.budget_usd)
        judge = options.judge or benchmark.own_judge
        if judge.startswith(REWARD_JUDGE):
            judge = f"{REWARD_JUDGE}{rewards.identity_of(judge.removeprefix(REWARD_JUDGE))}"
        found = judge_of(judge, ledger=ledger)
        if options.budget_usd is not None and None in [client.price for client in found.clients]:
            raise UserError(
                f"--budget-usd needs the price of {judge}, which is not known; give it in "
                "HARNESS_JUDGE_PRICE"
            )
        if options.against is not None:
            if isinstance(found, ServedModel):
                raise UserError(
                    "`--against` is for a reward model; what a judge that writes compares with is "
                    "the benchmark's own"
                )
            anchor = benchmark.read_answers(options.against, None)
            benchmark = benchmark.compared_with(anchor)
            # A different anchor means a different scale, and so a different column.
            found = replace(found, model=f"{judge} against {anchor.model}")
        return cls(benchmark, _source(options, benchmark, ledger), found, options.against)

    @property
    def clients(self) -> list[Client]:
        own = [self.source.client] if isinstance(self.source, ServedModel) else []
        return [*self.judge.clients, *own]

    def estimates(self) -> list[Estimate]:
        """Return the planned requests and their cost; nothing is sent."""
        source, judge, found = self.source, self.judge, list[Estimate]()
        if isinstance(source, ServedModel):
            said = [_STAND_IN]  # for answers of its own
            asked = [
                _request(source, self.benchmark, question, said * turn)
                for question in self.benchmark.questions
                for turn in range(len(question.turns))
            ]
            found.append(
                estimate("answers", source.model, asked, source.client, EXPECTED_ANSWER_TOKENS)
            )
        shown = source
        if not isinstance(shown, Answers):
            of_each = {
                q.prompt_id: Answer((_STAND_IN,) * len(q.turns)) for q in self.benchmark.questions
            }
            shown = Answers(shown.model, of_each)
        if isinstance(judge, ServedModel):
            items = [item.request for item in self.benchmark.requests(shown, judge)]
            tokens = self.benchmark.reply_tokens
            found.append(estimate("judgments", judge.model, items, judge.client, tokens))
        return found

    def run(self, output: Path, progress: Progress = _ignore) -> scores.Evaluation:
        """Answer if needed, judge, score, and save everything in the evaluation's folder."""
        answers, benchmark = self.source, self.benchmark
        if isinstance(answers, ServedModel):
            answers = answers_of(answers, benchmark, progress)
        elif isinstance(answers, LocalModel):
            answers = answers.answer(benchmark, progress)
        found, records = benchmark.judge(answers, self.judge, partial(progress, "judgments"))
        folder = self.folder(output)
        written = benchmark.answer_records(answers)
        scores.write_lines(folder / scores.ANSWERS, written)
        scores.write_lines(folder / scores.JUDGMENTS, records)
        replies = [
            {
                "endpoint": client.endpoint.address,
                "cache": str(client.cache.root),
                "addresses": sorted(client.used),
            }
            for client in self.clients
        ]
        scores.write_json(folder / scores.REPLIES, replies)
        sha256 = hashlib.sha256(json.dumps(written, sort_keys=True).encode()).hexdigest()
        data = {"kind": "judged", "data": benchmark.digest, "answers": sha256}
        data |= {} if self.against is None else {"against": sha256_of(self.against)}
        scores.keep(folder, found, data, cost_of(self.clients))
        return found

    def folder(self, root: Path) -> Path:
        filed = self.benchmark.filed_judge(self.judge.model)
        return scores.folder_of(root, self.benchmark.name, self.source.model, filed)


def _source(options: EvaluateOptions, benchmark: Benchmark, ledger: Ledger) -> Source:
    if options.answers is not None:
        return benchmark.read_answers(options.answers, options.model)
    model = str(options.model)
    if Path(model).is_dir():
        return LocalModel(Path(model))
    served = model_of("policy", model, ledger=ledger, keyless=True)
    # The user's own server has no known price, so it counts as free.
    served.client.price = served.client.price or TokenPrice(0.0, 0.0)
    return served


def plan(name: str, options: EvaluateOptions) -> EvaluationPlan:
    """Return an evaluation's planned requests and their price; nothing is sent."""
    options.check()
    asked = Evaluating.of(name, options)
    return EvaluationPlan(
        benchmark=asked.benchmark.name,
        prices=read_prices().origin,
        requests=tuple(asked.estimates()),
    )


def evaluate(
    name: str, options: EvaluateOptions, say: Say = _ignore, progress: Progress = _ignore
) -> scores.Evaluated:
    """Run a benchmark with a judge, or score a published file of judgments without any requests.

    Raises:
        UserError: There is no such benchmark, or an option is wrong or missing.
        HarnessError: An endpoint failed, or the budget is used up.
    """
    options.check()
    kind, file = benchmark_class(name), options.judgments
    if file is not None:
        found = kind.score_file(file, options.data)
        # Some published files do not say who judged.
        named = [e if e.judge else replace(e, judge=options.judge) for e in found]
        return scores.Evaluated(named, file)
    asked = Evaluating.of(name, options)
    with ExitStack() as stack:
        # Without the lock, two commands at once would both pay; now the second finds the replies.
        lock = Path(f"{asked.folder(work_dir() / 'locks')}.lock")
        with explained("starting an evaluation", lock.parent):
            if not stack.enter_context(hold(lock, wait=False)):
                say(
                    f"another command evaluates {asked.source.model} on {name} with "
                    f"{asked.judge.model}: waiting for it to end, so that nothing is paid twice"
                )
                stack.enter_context(hold(lock))
        planned = asked.estimates()
        for line in planned:
            say(plan_line(line))
        say(read_prices().origin)
        if any(line.requests > line.from_cache for line in planned):
            for client in asked.clients:
                role: ServedRole = "judge" if client in asked.judge.clients else "policy"
                client.endpoint.check_key(variable(role, "URL"))
        try:
            root = evaluations_dir()
            return scores.Evaluated([asked.run(root, progress)], asked.folder(root))
        finally:
            for client in asked.clients[:1]:  # they share a ledger
                say(spending_line(client.ledger.spending))


def plan_line(line: Estimate) -> str:
    new = line.requests - line.from_cache
    return (
        f"{new} of {line.requests} {line.what} to ask {line.model} for, about "
        f"{dollars(line.usd)} (at most {dollars(line.usd_at_most)})"
    )


def spending_line(spending: Spending) -> str:
    text = (
        f"{counted(spending.requests, 'request')} answered, {spending.from_cache} from the cache, "
        f"{spending.prompt_tokens} + {spending.completion_tokens} tokens, {dollars(spending.usd)}"
    )
    if spending.usd_unconfirmed:
        text += f", and at most {dollars(spending.usd_unconfirmed)} for replies that never came"
    return text


def dollars(usd: float | None) -> str:
    return "price not known" if usd is None else f"${usd:.2f}" if usd >= 1 else f"${usd:.4f}"


Verdicts = list[tuple[float | None, float | None]]

WORDING = """Two assistants answered the same prompt. Decide which answer serves better: correct,
helpful, to the point. Neither the order of the answers nor their length counts.

<prompt>
{prompt}
</prompt>

<answer A>
{first}
</answer A>

<answer B>
{second}
</answer B>

End your reply with [[A]], [[B]], or [[C]] if neither is better."""

CALIBRATING = {"temperature": 0.0, "max_tokens": 1024}

_SHARES = {"A": 0.0, "B": 1.0, "C": 0.5}


def calibrate(
    judge: str,
    published: Path | None,
    limit: int | None = None,
    done: Callable[[int, int], None] = _ignore,
) -> Calibration:
    """Have a judge compare published answers, and save its agreement with the published judgments.

    Raises:
        UserError: There are no published judgments, or the judge is not available.
        HarnessError: The judge does not answer, or the budget is used up.
    """
    path = published_file(published)
    by_whom, comparisons = read_comparisons(path)
    comparisons = comparisons[:limit]
    identity, verdicts = (
        _by_reward(judge.removeprefix(REWARD_JUDGE), comparisons)
        if judge.startswith(REWARD_JUDGE)
        else _asked(judge, comparisons, done)
    )
    found = measure(judge, identity, comparisons, verdicts, (by_whom, path))
    scores.write_json(record_path(calibrations_dir(), judge), found.model_dump(mode="json"))
    return found


def _by_reward(named: str, comparisons: list[Annotation]) -> tuple[str, Verdicts]:
    identity = rewards.identity_of(named)
    model = rewards.load(identity, "one answer")
    found = model.score(
        [[{"role": "user", "content": one.instruction}] for one in comparisons],
        [[one.output_1, one.output_2] for one in comparisons],
    )
    gaps = found.values[:, 1] - found.values[:, 0]
    shares = [None if np.isnan(gap) else 0.5 + 0.5 * float(np.sign(gap)) for gap in gaps]
    return identity, [(share, share) for share in shares]


def _asked(
    judge: str, comparisons: list[Annotation], done: Callable[[int, int], None]
) -> tuple[str, Verdicts]:
    served = model_of("judge", judge)

    def verdict(item: tuple[Annotation, bool]) -> float | None:
        one, swapped = item
        first, second = (one.output_1, one.output_2)[:: -1 if swapped else 1]
        text = fill(WORDING, {"prompt": one.instruction, "first": first, "second": second})
        request = ChatRequest("a comparison", judge, (Message("user", text),), CALIBRATING)
        share = verdict_of(served.client.ask(request).text)
        return 1.0 - share if swapped and share is not None else share

    items = [(one, swapped) for one in comparisons for swapped in (False, True)]
    outcomes = work_through(items, verdict, served, done)
    shares = [outcome.result for outcome in outcomes]
    plugin = JUDGES.identity(judge).get("plugin")
    identity = judge if plugin is None else f"{judge}@{plugin['name']}-{plugin['version']}"
    return identity, list(zip(shares[::2], shares[1::2], strict=True))


def verdict_of(reply: str) -> float | None:
    """Return the second answer's share from a reply's last label, or None without a label."""
    found = re.findall(r"\[\[([ABC])\]\]", reply)
    return _SHARES[found[-1]] if found else None
