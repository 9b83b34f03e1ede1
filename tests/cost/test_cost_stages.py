"""Laws of single stages' costs, each derived by hand from the lengths that are assumed.

A human prompt has 185 tokens and 10 of the chat template, an answer 450, a rewrite 235.
"""

from __future__ import annotations

import pytest

from harness.cost.assumptions import assumed, speeds
from harness.cost.work import BY_KIND, Costing, PromptCount
from harness.pipeline.algorithm import Planner, Run
from harness.pipeline.factory import KINDS
from harness.registry.recipe import Recipe
from harness.runtime import Plan
from harness.runtime.stage import Stage
from harness.worlds.real.scoring import topic_settings

POLICY = "google/gemma-2-9b-it@not-downloaded"


def chain(planner: Planner, *arms: str, seed: int = 0, **recipe: object) -> Run:
    given = Recipe.model_validate({"algorithm": "dpo", "chain": arms, **recipe})
    return planner.run("-".join(arms), given, seed)


def only(run: Run, kind: str, position: int = 0) -> Stage:
    """Return a stage of a kind, in the plan's order."""
    return [stage for stage in Plan(run.targets) if stage.kind == kind][position]


def tokens(costing: Costing, stage: Stage) -> dict[tuple[str, str], float]:
    """Return the tokens of a stage by what is done to them, and by which model."""
    found: dict[tuple[str, str], float] = {}
    for load in costing.cost(stage).loads:
        key = load.verb, load.model.partition("@")[0].partition("/")[2]
        found[key] = found.get(key, 0.0) + load.tokens
    return found


def test_every_model_of_the_profiles_has_a_size_and_every_speed_a_source(costing: Costing) -> None:
    named = {costing.profile.policy, *costing.profile.reward_models.values()}
    assert named <= set(speeds().models)
    assert all(gpu.source for gpu in speeds().gpus.values())


def test_what_is_drawn_has_the_shares_of_the_mixture() -> None:
    """A quarter of 300 and 100 is evolved; of 10 it is 2.5, which is rounded to the even 2."""
    mixed = PromptCount(300, 100)
    assert [mixed.drawn(n) for n in (40, 0, 10)] == [
        PromptCount(30, 10),
        PromptCount(0),
        PromptCount(8, 2),
    ]
    assert PromptCount(0).drawn(5) == PromptCount(5, 0)


def test_six_answers_to_ten_thousand_prompts(planner: Planner, costing: Costing) -> None:
    assert tokens(costing, only(chain(planner, "human"), "generate")) == {
        ("reading", "gemma-2-9b-it"): 60_000 * 195,
        ("generating", "gemma-2-9b-it"): 60_000 * 450,
    }


def test_rewards_of_sixty_thousand_answers(planner: Planner, costing: Costing) -> None:
    stage = only(chain(planner, "human"), "annotate")
    model = "ArmoRM-Llama3-8B-v0.1"
    assert tokens(costing, stage) == {("reading", model): 60_000 * (195 + 450)}


def test_pairwise_rewards_compare_every_two_answers_in_both_orders(
    planner: Planner, costing: Costing
) -> None:
    """6 answers make 30 ordered pairs a prompt, each of a prompt and two answers."""
    run = chain(planner, "human", reward_model="pairwise_large")
    read = tokens(costing, only(run, "annotate"))
    assert list(read.values()) == [10_000 * 30 * (195 + 2 * 450)]


@pytest.mark.parametrize(
    ("algorithm", "reward_model", "epochs", "reference"),
    [("dpo", "pointwise", 2, 1), ("sppo", "pairwise", 6, 1), ("orpo", "pointwise", 1, 0)],
)
def test_an_iteration_of_training(
    planner: Planner, costing: Costing, algorithm: str, reward_model: str, epochs: int,
    reference: int,
) -> None:  # fmt: skip
    """20,000 sequences of 195 + 450 tokens in so many epochs; the policy is kept in bf16."""
    run = chain(planner, "human", algorithm=algorithm, reward_model=reward_model)
    stage = only(run, "train")
    found = tokens(costing, stage)
    assert found["training", "gemma-2-9b-it"] == epochs * 20_000 * 645
    assert found.get(("reading", "gemma-2-9b-it"), 0.0) == reference * 20_000 * 645
    assert costing.cost(stage).kept == 2 * 9_241_705_984
    assert costing.cost(stage).passing == 12 * 9_241_705_984


def test_evolving_asks_the_creator_for_each_rewrite(planner: Planner, costing: Costing) -> None:
    """A quarter of 10,000, four rewrites each, a tenth asked again: 11,000 requests.

    Each is 260 + 235 tokens and has 235 in return, at $1.25 and $5 for a million:
    11,000 x (495 x 1.25 + 235 x 5) / 1e6 = $19.73.
    """
    found = costing.cost(only(chain(planner, "human", "eva"), "evolve"))
    (call,) = found.calls
    assert (call.role, call.model, call.requests) == ("creator", "gemini-1.5-pro", 11_000)
    assert call.usd == pytest.approx(19.73, abs=0.01)
    assert found.loads == ()


@pytest.mark.parametrize(
    ("benchmark", "requests", "dollars"),
    [
        # 2 x 500 x ((560 + 102 + 700 + 464) x $10 + 695 x $30) / 1e6
        ("arena_hard", 1000, 39.11),
        # 805 x ((150 + 41 + 520 + 512) x $10 + 40 x $30) / 1e6
        ("alpaca_eval", 805, 10.81),
        # 2 x 80 x ((440 + 51 + 335) x $30 + 181 x $60) / 1e6
        ("mt_bench", 160, 5.70),
    ],
)
def test_a_judge_reads_every_item(
    planner: Planner, costing: Costing, benchmark: str, requests: int, dollars: float
) -> None:
    found = costing.cost(chain(planner, "human").judges[benchmark])
    (call,) = found.calls
    assert call.requests == requests
    assert call.usd == pytest.approx(dollars, abs=0.01)


def test_the_price_of_published_annotations_is_met() -> None:
    """Others paid $7.91 for 805 verdicts on gemma-7b-it, whose answers have 1,116 characters.

    Their annotator's reply is one token: (150 + 41 + 279 + 512) x $10 + 1 x $30 a million, times
    805, is $7.93.
    """
    parts = ("instructions", "question", "reference")
    prompt = 1116 / 4 + sum(assumed(f"benchmarks.alpaca_eval.{part}") for part in parts)
    assert 805 * (prompt * 10 + 30) / 1e6 == pytest.approx(7.91, rel=0.02)


def test_tasks_of_the_harness_cost_gpu_time_and_no_dollars(
    planner: Planner, costing: Costing
) -> None:
    run = chain(planner, "human")
    judge = run.judges["downstream"]
    answer = judge.inputs["answers"]
    found = tokens(costing, answer)
    # 817 questions of TruthfulQA with 100 tokens in reply, 1,319 and 2,400 of the GSMs with 250.
    assert found["generating", "gemma-2-9b-it"] == 817 * 100 + (1_319 + 2_400) * 250
    assert costing.cost(judge).loads == ()
    assert costing.cost(judge).calls == costing.cost(answer).calls == ()


def test_rating_prompts_asks_two_questions_of_each(planner: Planner, costing: Costing) -> None:
    """A mix of 8,000 evolved and 2,000 human prompts: 20,000 requests to gemini-1.5-flash."""
    recipe = Recipe.model_validate({"algorithm": "dpo", "chain": ("human", "eva")})
    run = planner.run("prompts", recipe, 0, "prompts")
    (call,) = costing.cost(run.judges["prompt_judge"]).calls
    assert (call.role, call.model, call.requests) == ("scorer", "gemini-1.5-flash", 20_000)
    length = (8_000 * 235 + 2_000 * 185) / 10_000 + 10
    assert call.prompt_tokens == pytest.approx(20_000 * (190 + length))


def test_sorting_prompts_by_topic_asks_the_scorer_once_for_each(
    planner: Planner, costing: Costing
) -> None:
    prompts = only(chain(planner, "human"), "prompts")
    topics = Stage("topics", 1, topic_settings("gemini-1.5-flash"), {"prompts": prompts})
    (call,) = costing.cost(topics).calls
    assert (call.role, call.model, call.requests) == ("scorer", "gemini-1.5-flash", 10_000)


def test_every_kind_of_stage_but_the_embedded_worlds_own_has_a_cost() -> None:
    own = {"reward_model", "held_out", "best_of_n", "probe", "choose"}
    assert set(KINDS) - set(BY_KIND) == own
