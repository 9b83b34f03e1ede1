"""Has a judge judge answers, scores published judgments, and calibrates judges, outside of runs.

Calibration has a judge compare answers that others judged, each pair in both orders, with one
wording of our own for all benchmarks: the result characterizes the judge, not a benchmark.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from harness.endpoint.access import model_of
from harness.endpoint.budget import Ledger, Spending, check_budget
from harness.endpoint.client import Done, ServedModel, cost_of, estimate, work_through
from harness.endpoint.prices import price_list
from harness.endpoint.request import ChatRequest, Message
from harness.errors import UserError
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
from harness.evaluation.files import Answers, fill, read_records
from harness.extensions import JUDGES, benchmark_place
from harness.project import benchmarks_dir, calibrations_dir, evaluations_dir, replies_dir, work_dir
from harness.registry.profile import REWARD_JUDGE
from harness.registry.serving import variable
from harness.runtime.files import explained, hold
from harness.words import Say, counted, ignore
from harness.worlds.real import rewards

CALIBRATED_ON = "alpaca_eval"
"""The benchmark whose published judgments judges are calibrated on."""


def judge_of(
    name: str, dtype: str = "float32", ledger: Ledger | None = None
) -> ServedModel | RewardJudge:
    """Return a judge by name: a reward model, a plug-in's function, or a model at an endpoint."""
    if name.startswith(REWARD_JUDGE):
        reward = rewards.load(name.removeprefix(REWARD_JUDGE), "one answer", dtype)
        return RewardJudge(reward, name)
    return model_of("judge", name, ledger=ledger)


def evaluate(
    name: str,
    *,
    answers: Path | None = None,
    model: str | None = None,
    judge: str | None = None,
    judgments: Path | None = None,
    data: Path | None = None,
    budget_usd: float | None = None,
    say: Say = ignore,
    progress: Done = ignore,
) -> scores.Evaluated:
    """Have a judge judge answers to a benchmark, or score published judgments."""
    check_budget(budget_usd)
    kind = benchmark_class(name)
    if judgments is not None:
        for option, given in (("answers", answers), ("budget-usd", budget_usd)):
            if given is not None:
                raise UserError(
                    f"`--{option}` has no use beside `--judgments`, which sends nothing"
                )
        questions = None if data is None else kind.read_questions(data)
        found = kind.evaluations(read_records(judgments), questions, data)
        # Some published files do not say who answered, or who judged.
        named = [
            replace(e, model=e.model or model or judgments.stem, judge=e.judge or judge)
            for e in found
        ]
        wanted = [e for e in named if model in (None, e.model)]
        if not wanted:
            models = ", ".join(sorted({e.model for e in named})[:5])
            raise UserError(f"{judgments} has no judgments of {model}; it has those of {models}")
        return scores.Evaluated(wanted, judgments)
    if answers is None:
        raise UserError(
            "There is nothing to evaluate; give a model's answers with --answers, or published "
            "judgments with --judgments"
        )
    benchmark = kind.load(_data_folder(name, data))
    judging = _judge(judge or benchmark.own_judge, budget_usd)
    said, root = benchmark.read_answers(answers, model), evaluations_dir()
    with _exclusively(benchmark, said, judging, say):
        if isinstance(judging, ServedModel):
            _announce(benchmark, said, judging, say)
        try:
            found = [judge_answers(benchmark, said, judging, root, progress)]
        finally:
            for client in judging.clients:
                say(spending_line(client.ledger.spending))
    return scores.Evaluated(found, _folder(root, benchmark, said, judging))


def _data_folder(benchmark: str, data: Path | None) -> Path:
    """Return the folder of a benchmark's files: the given one, or else the fetched one."""
    folder = data or benchmarks_dir() / benchmark_place(benchmark)
    if folder.is_dir():
        return folder
    if data is not None:
        raise UserError(f"`--data {data}` is not a folder; name that of the benchmark's files")
    raise UserError(
        "A judge needs the benchmark's questions and prompts; name their folder with --data, or "
        f"fetch them with `harness evaluate fetch {benchmark}`"
    )


def judge_answers(
    benchmark: Benchmark,
    answers: Answers,
    judge: ServedModel | RewardJudge,
    root: Path,
    progress: Done = ignore,
) -> scores.Evaluation:
    """Judge answers, score the judgments, and keep both in the evaluation's folder."""
    found, records = benchmark.judge(answers, judge, progress)
    folder = _folder(root, benchmark, answers, judge)
    scores.write_lines(folder / scores.JUDGMENTS, records)
    said = {prompt_id: answer.turns for prompt_id, answer in answers.by_prompt.items()}
    sha256 = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
    data = {"kind": "judged", "data": benchmark.digest, "answers": sha256}
    scores.keep(folder, found, data, cost_of(judge.clients))
    return found


def _folder(
    root: Path, benchmark: Benchmark, answers: Answers, judge: ServedModel | RewardJudge
) -> Path:
    filed = benchmark.filed_judge(judge.model)
    return scores.folder_of(root, benchmark.name, answers.model, filed)


def _judge(name: str, budget_usd: float | None) -> ServedModel | RewardJudge:
    """Return a judge within a budget, which needs a price."""
    if name.startswith(REWARD_JUDGE):
        return judge_of(f"{REWARD_JUDGE}{rewards.identity_of(name.removeprefix(REWARD_JUDGE))}")
    judge = judge_of(name, ledger=Ledger(replies_dir(), budget_usd))
    if budget_usd is not None and None in [client.price for client in judge.clients]:
        raise UserError(
            f"--budget-usd needs the price of {name}, which is not known; give it in "
            "HARNESS_JUDGE_PRICE"
        )
    return judge


@contextmanager
def _exclusively(
    benchmark: Benchmark, answers: Answers, judge: ServedModel | RewardJudge, say: Say
) -> Iterator[None]:
    """Wait until no other command does the same: both would pay; so the second finds replies."""
    lock = Path(f"{_folder(work_dir() / 'locks', benchmark, answers, judge)}.lock")
    with ExitStack() as stack:
        with explained("starting an evaluation", lock.parent):
            if not stack.enter_context(hold(lock, wait=False)):
                say(
                    f"another command evaluates {answers.model} on {benchmark.name} with "
                    f"{judge.model}: waiting for it to end, so that nothing is paid twice"
                )
                stack.enter_context(hold(lock))
        yield


def _announce(benchmark: Benchmark, answers: Answers, judge: ServedModel, say: Say) -> None:
    """Say what will be asked and what it costs; check the key if anything will."""
    requests = [item.request for item in benchmark.requests(answers, judge)]
    planned = estimate(requests, judge.client, benchmark.reply_tokens)
    new = planned.requests - planned.from_cache
    say(
        f"{new} of {planned.requests} judgments to ask {judge.model} for, about "
        f"{dollars(planned.usd)} (at most {dollars(planned.usd_at_most)})"
    )
    say("prices of {as_of}: {source}".format_map(price_list()))
    if new:
        judge.client.endpoint.check_key(variable("judge", "URL"))


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
    benchmark: str,
    judge: str,
    judgments: Path | None,
    budget_usd: float | None,
    done: Done,
) -> Calibration:
    """Have a judge compare published answers, and save its agreement with published judgments."""
    check_budget(budget_usd)
    if benchmark != CALIBRATED_ON:
        raise UserError(
            f"Judges are calibrated on published judgments in AlpacaEval's form; type `harness "
            f"evaluate {CALIBRATED_ON} --calibrate`"
        )
    path = published_file(judgments)
    by_whom, comparisons = read_comparisons(path)
    judging = _judge(judge, budget_usd)
    identity, verdicts = (
        _asked(judging, comparisons, done)
        if isinstance(judging, ServedModel)
        else _by_reward(judging, comparisons)
    )
    found = measure(judge, identity, comparisons, verdicts, (by_whom, path))
    scores.write_json(record_path(calibrations_dir(), judge), found.model_dump(mode="json"))
    return found


def _by_reward(judge: RewardJudge, comparisons: list[Annotation]) -> tuple[str, Verdicts]:
    found = judge.rewards.score(
        [[{"role": "user", "content": one.instruction}] for one in comparisons],
        [[one.output_1, one.output_2] for one in comparisons],
    )
    gaps = found.values[:, 1] - found.values[:, 0]
    shares = [None if np.isnan(gap) else 0.5 + 0.5 * float(np.sign(gap)) for gap in gaps]
    return judge.model.removeprefix(REWARD_JUDGE), [(share, share) for share in shares]


def _asked(judge: ServedModel, comparisons: list[Annotation], done: Done) -> tuple[str, Verdicts]:
    judge.client.endpoint.check_key(variable("judge", "URL"))

    def verdict(item: tuple[Annotation, bool]) -> float | None:
        one, swapped = item
        first, second = (one.output_1, one.output_2)[:: -1 if swapped else 1]
        text = fill(WORDING, {"prompt": one.instruction, "first": first, "second": second})
        request = ChatRequest("a comparison", judge.model, (Message("user", text),), CALIBRATING)
        share = verdict_of(judge.client.ask(request).text)
        return 1.0 - share if swapped and share is not None else share

    items = [(one, swapped) for one in comparisons for swapped in (False, True)]
    shares = [outcome.result for outcome in work_through(items, verdict, judge, done)]
    added = JUDGES.added(judge.model)
    own = judge.model if added is None else f"{judge.model}@{added.plugin}-{added.version}"
    return own, list(zip(shares[::2], shares[1::2], strict=True))


def verdict_of(reply: str) -> float | None:
    """Return the second answer's share from a reply's last label, or None without a label."""
    found = re.findall(r"\[\[([ABC])\]\]", reply)
    return _SHARES[found[-1]] if found else None
