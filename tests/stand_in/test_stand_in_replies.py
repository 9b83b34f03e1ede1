"""What the stand-in endpoint says is read by those who ask, and is drawn from the request alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from harness.endpoint.budget import Ledger
from harness.endpoint.client import Client, ReplyCache
from harness.endpoint.connection import Endpoint
from harness.endpoint.request import ChatRequest, Message, Reply
from harness.evaluation.benchmark import Benchmark, Judge
from harness.evaluation.benchmarks.arena_hard import ArenaHard, parse_verdict
from harness.evaluation.benchmarks.mt_bench import MtBench
from harness.evaluation.files import Answer, Answers
from harness.worlds.real.creator import METHODS, EndpointGenerator, ModelCreator, load_scheme
from harness.worlds.real.scoring import SCORES, TOPIC, TOPICS, Scorer, ask_about_all
from stand_in import build
from stand_in.annotator import Ranked, preference
from stand_in.server import VERDICTS, MockEndpoint, answer, completion, prompts


def client(server: MockEndpoint, folder: Path) -> Client:
    return Client(Endpoint(server.url, "NO_KEY"), ReplyCache(folder), Ledger())


def asked(text: str, **settings: object) -> dict[str, object]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **settings}


def said(body: dict[str, object]) -> str:
    return Reply(answer(body)).text


def test_a_reply_depends_on_the_request_and_on_nothing_else() -> None:
    assert answer(asked("[[rating]] a")) == answer(asked("[[rating]] a"))
    assert len({said(asked(f"[[rating]] {i}")) for i in range(60)}) == 10


def test_every_verdict_is_one_of_arena_hards_and_all_occur() -> None:
    found = Counter(parse_verdict(said(asked(f"[[A>>B]] {i}"))).label for i in range(200))
    assert set(found) == set(VERDICTS)


@pytest.mark.parametrize("scheme", METHODS)
def test_most_rewrites_can_be_used_and_some_cannot(scheme: str, tmp_path: Path) -> None:
    """One in seven is refused or handed back; of 144, three standard errors around 20.6 are 8."""
    with MockEndpoint() as server:
        generator = EndpointGenerator(client(server, tmp_path), "stand-in/creator", {})
        creator = ModelCreator(generator, load_scheme(scheme))
        rng = np.random.default_rng(0)
        rewrites = [creator.rewrite(prompt, rng) for prompt in prompts()]
    reasons = Counter(rewrite.reason for rewrite in rewrites)
    assert set(reasons) == {None, "unmarked", "unchanged"}
    assert 8 <= reasons["unmarked"] + reasons["unchanged"] <= 33
    for prompt, rewrite in zip(prompts(), rewrites, strict=True):
        assert rewrite.prompt is None or rewrite.prompt.startswith(prompt)


def test_prompts_get_scores_and_topics(tmp_path: Path) -> None:
    with MockEndpoint() as server:
        judge = Scorer(client(server, tmp_path), "stand-in/scorer", 8)
        for question in SCORES.values():
            values = ask_about_all(judge, question, prompts())
            assert values.broken == values.refused == 0
            assert set(values.values) == {1, 2, 3, 4, 5}
        topics = ask_about_all(judge, TOPIC, prompts())
        assert topics.missing == 0
        assert set(topics.values) <= set(TOPICS)


def test_all_three_benchmarks_are_judged_without_a_gap(work: Path, tmp_path: Path) -> None:
    """Verdicts of both games, a rating of both turns, a preference and its length control."""
    folder = build.folders()
    kinds: list[Benchmark] = [
        ArenaHard.load(folder["arena-hard"]),
        MtBench.load(folder["mt-bench"]),
        Ranked.load(folder["ranked"]),
    ]
    with MockEndpoint() as server:
        for benchmark in kinds:
            answers = Answers(
                "policy",
                {
                    q.prompt_id: Answer(("word " * (i % 7 + 1),) * len(q.turns), 7)
                    for i, q in enumerate(benchmark.questions)
                },
            )
            judge = Judge(client(server, tmp_path), "stand-in/judge")
            judged = benchmark.judge(answers, judge)
            score = judged.evaluation.score
            assert score.n_missing == 0
            assert None not in score.scores.values()
            for name, values in score.values.items():
                assert values.mean() == pytest.approx(score.scores[name])


def test_a_ranking_counts_for_whoever_was_shown_as_the_better_name() -> None:
    """The first shown is m; where the two are swapped the first shown is the model's."""
    tool = {"type": "function", "function": {"name": "rank"}}
    better = {}
    for number in range(20):
        reply = Reply(answer(asked(f"{number}", tools=[tool])))
        first = '"model": "m", "rank": 1' in (reply.tool_arguments or "")
        better[first] = (preference(reply, False), preference(reply, True))
    assert better == {True: (1.0, 2.0), False: (2.0, 1.0)}


@pytest.mark.parametrize(
    "arguments", ["", "{}", '{"ordered_models": [{"model": "m", "rank": 1}]}', '{"ordered_models"']
)
def test_a_ranking_that_cannot_be_read_is_no_preference(arguments: str) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "rank", "arguments": arguments}}
    assert preference(Reply(completion(None, tool_calls=[call])), False) is None


def test_a_request_for_nothing_in_particular_is_answered(tmp_path: Path) -> None:
    request = ChatRequest("a question", "m", (Message("user", "Tell me about rain."),))
    with MockEndpoint() as server:
        assert client(server, tmp_path).ask(request).text
