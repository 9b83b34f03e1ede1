"""Laws of single stages' costs, each derived by hand from the data of the model.

With gemma-2-9b: 42 layers, hidden 3584, intermediate 14336, 16 heads and 8 of keys and values, each
256 wide, vocabulary 256,000. A layer's matrices hold 3584 x 256 x (2 x 16 + 2 x 8) + 3 x 3584 x
14336 = 44,040,192 + 154,140,672 = 198,180,864 numbers, all layers 8,323,596,288, and the head
917,504,000; together M = 9,241,100,288. A token of a sequence of length s costs 2 M + 2 x 42 x 16 x
256 x s = 18,482,200,576 + 344,064 s operations. An H100 does 989e12 in a second.
"""

from __future__ import annotations

import pytest

from harness.cost.assumptions import Hardware, assumptions, known_shapes, shape_of
from harness.cost.costing import Costing, GpuTime
from harness.cost.stages import BY_KIND, stage_cost
from harness.registry.profile import Profile
from harness.registry.recipe import Recipe
from harness.registry.training import Hardware as Trained
from harness.runtime import Plan
from harness.runtime.stage import Stage
from harness.trainer.factory import KINDS
from harness.trainer.plan import Planner, Run
from harness.worlds.real.scoring import topic_settings

MATRICES = 9_241_100_288
START = 180  # seconds, of the one GPU of a stage in which a model answers or scores
TRAINING_START = 180 * 8  # of all eight


def chain(planner: Planner, *arms: str, seed: int = 0, **recipe: object) -> Run:
    given = Recipe.model_validate({"algorithm": "dpo", "chain": arms, **recipe})
    return planner.run("-".join(arms), given, seed)


def only(run: Run, kind: str, position: int = 0) -> Stage:
    """Return a stage of a kind, in the plan's order."""
    return [stage for stage in Plan(run.targets) if stage.kind == kind][position]


def flops(length: float) -> float:
    return 2.0 * MATRICES + 2 * 42 * 16 * 256 * length


@pytest.mark.parametrize("name", list(known_shapes()))
def test_a_shapes_parameters_are_those_published(name: str) -> None:
    """Matrices, the table of embeddings where it is not the head, norms, biases and small heads.

    Gemma-2 has four norms a layer and one at the end, Llama two and one. ArmoRM adds 19 x 4096 of
    the regression, 19 x 19, one scale and the gate's 4096 x 1024 + 2 x 1024 x 1024 + 19 x 1024 with
    biases; Skywork 4608. DeBERTa's layers have a bias on each of six maps, two norms with biases,
    and its head two maps; 512 x 1024 relative positions and two norms beside.
    """
    shape = known_shapes()[name]
    h, layers = shape.hidden, shape.layers
    table = shape.vocabulary * h
    norms = (4 if "gemma" in name.lower() else 2) * layers * h + h
    total = layers * shape.layer_matrices + table + norms
    if name.startswith("RLHFlow/ArmoRM"):
        total += 19 * h + 19 * 19 + 1
        total += h * 1024 + 1024 + 2 * (1024 * 1024 + 1024) + 19 * 1024 + 19
    elif name.startswith("RLHFlow/pair"):
        total += table  # the head is a table of its own
    elif name.startswith("Skywork"):
        total += h
    elif name.startswith("llm-blender"):
        biases = 4 * h + shape.intermediate + h
        total = layers * (shape.layer_matrices + biases + 2 * 2 * h) + table
        total += 2 * h + 512 * h + 2 * h  # the embeddings' norm, relative positions, their norm
        total += h * 2 * h + h + h + 1
    assert total == shape.parameters


def test_a_token_costs_its_matrices_and_half_of_what_came_before() -> None:
    shape = shape_of("google/gemma-2-9b-it@0123")
    assert shape is not None
    assert shape.matrices == MATRICES
    assert shape.forward_flops(1000) == 2 * MATRICES + 344_064_000
    assert shape.cache_bytes() == 344_064  # 2 x 42 layers x 8 heads x 256 x 2 bytes
    armo = shape_of("RLHFlow/ArmoRM-Llama3-8B-v0.1")
    assert armo is not None
    assert armo.matrices == 32 * (4096 * 128 * (2 * 32 + 2 * 8) + 3 * 4096 * 14336)
    assert shape_of("somebody/else") is None


def test_rewards_of_sixty_thousand_answers(planner: Planner, costing: Costing) -> None:
    """10,000 prompts x 6 answers of 195 + 450 tokens through ArmoRM at 0.4 of 989 TFLOP/s.

    A token costs 2 x 6,979,321,856 + 2 x 32 x 4096 x 645 = 14,127,726,592 operations; 38.7 million
    tokens 5.4674e17, which take 1382.1 s of a GPU.
    """
    stage = only(chain(planner, "human"), "annotate")
    found = stage_cost(costing, stage)
    per_token = 2 * 6_979_321_856 + 2 * 32 * 4096 * 645
    by_hand = 60_000 * 645 * per_token / (989e12 * 0.4)
    assert by_hand == pytest.approx(1382.1, abs=0.1)
    assert found.gpu_s == pytest.approx(by_hand + START)
    assert found.calls == ()


def test_a_dpo_iteration(planner: Planner, costing: Costing) -> None:
    """10,000 pairs, 20,000 sequences of 195 + 450 tokens, two epochs.

    A step costs four forward passes (one of them computed again), the reference one in all: 9 of
    12.9 million tokens, at 0.35 of 989 TFLOP/s. Kept is the policy in bf16, 18.5 GB.
    """
    found = stage_cost(costing, only(chain(planner, "human"), "train"))
    by_hand = 20_000 * 645 * flops(645) * 9 / (989e12 * 0.35)
    assert by_hand == pytest.approx(6273.6, rel=1e-3)
    assert found.gpu_s == pytest.approx(by_hand + TRAINING_START)
    assert found.kept == 2 * 9_241_705_984
    assert found.passing == 12 * 9_241_705_984


def test_sppo_has_six_epochs_of_shorter_pairs_and_orpo_no_reference(
    planner: Planner, costing: Costing
) -> None:
    sppo = only(chain(planner, "human", algorithm="sppo", reward_model="pairwise"), "train")
    orpo = only(chain(planner, "human", algorithm="orpo"), "train")
    unit = 20_000 * 645 * flops(645) / (989e12 * 0.35)
    assert stage_cost(costing, sppo).gpu_s == pytest.approx(25 * unit + TRAINING_START)
    assert stage_cost(costing, orpo).gpu_s == pytest.approx(4 * unit + TRAINING_START)


def test_adapters_and_kept_activations_save_a_pass_each(
    planner: Planner, paper: Profile, h100s: Hardware
) -> None:
    """Two epochs of 4 passes and the reference are 9; of adapters 7, with kept activations 5."""
    whole = only(chain(planner, "human"), "train")
    unit = 20_000 * 645 * flops(645) / (989e12 * 0.35)
    lora = {"rank": 16, "alpha": 32.0, "targets": "all-linear"}
    adapters = Stage(
        whole.kind, whole.version, {**whole.settings, "numerics": {"lora": lora}}, whole.inputs
    )
    kept = Trained(
        accelerate="one-gpu.yaml", devices=1, micro_batch=1, gradient_checkpointing=False,
        checkpoint_every=50, attention="eager",
    )  # fmt: skip
    for hardware, stage, forwards, start in (
        (None, adapters, 7, TRAINING_START),
        (kept, whole, 7, START),
        (kept, adapters, 5, START),
    ):
        profile = paper.model_copy(update={"hardware": hardware})
        found = stage_cost(Costing(profile, h100s, assumptions()), stage)
        assert found.gpu_s == pytest.approx(forwards * unit + start)


def test_answers_are_bound_by_memory_or_by_computing(costing: Costing, h100s: Hardware) -> None:
    """A batch of one reads 18.5 GB for a token; of 150, that fit, keys and values besides.

    0.9 x 80 GB less the weights leaves 53.5 GB; a sequence of 195 + 450 tokens holds 221.9 MB, so
    241 fit. At a mean length of 420, a step reads 18.48 + 241 x 0.1445 = 53.3 GB, 26.5 ms at 0.6 of
    3.35 TB/s; and computes 241 x 18.77e9 = 4.52e12, 11.4 ms. Memory decides: 9,085 tokens a second.
    """
    shape = shape_of("google/gemma-2-9b-it")
    assert shape is not None
    gpu = GpuTime(h100s, costing.assumed.gpu)
    reading = gpu.scoring(shape, 8, 195)
    one = gpu.generating(shape, 8, 195, 450, at_once=8) - reading
    weights = (18_483_411_968 + 344_064 * 420) / (3.35e12 * 0.6)
    assert one == pytest.approx(8 * 450 * weights)
    many = gpu.generating(shape, 60_000, 195, 450, at_once=60_000)
    many -= gpu.scoring(shape, 60_000, 195)
    step = (18_483_411_968 + 241 * 344_064 * 420) / (3.35e12 * 0.6)
    assert many == pytest.approx(60_000 * 450 / 241 * step)
    assert 60_000 * 450 / many == pytest.approx(9085, abs=10)


def test_pairwise_rewards_compare_every_two_answers_in_both_orders(
    planner: Planner, costing: Costing
) -> None:
    """6 answers make 30 ordered pairs a prompt, each of a prompt and two answers."""
    run = chain(planner, "human", reward_model="pairwise_large")
    shape = shape_of("RLHFlow/pair-preference-model-LLaMA3-8B")
    assert shape is not None
    length = 195 + 2 * 450
    by_hand = 10_000 * 30 * length * shape.forward_flops(length) / (989e12 * 0.4)
    found = stage_cost(costing, only(run, "annotate"))
    assert found.gpu_s == pytest.approx(by_hand + START)


def test_evolving_asks_the_creator_for_each_rewrite(planner: Planner, costing: Costing) -> None:
    """A quarter of 10,000, four rewrites each, a tenth asked again: 11,000 requests.

    Each is 260 + 235 tokens and has 235 in return, at $1.25 and $5 for a million:
    11,000 x (495 x 1.25 + 235 x 5) / 1e6 = $19.73.
    """
    found = stage_cost(costing, only(chain(planner, "human", "eva"), "evolve"))
    (call,) = found.calls
    assert (call.role, call.model, call.requests) == ("CREATOR", "gemini-1.5-pro", 11_000)
    assert call.usd == pytest.approx(19.73, abs=0.01)
    assert found.gpu_s == 0.0


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
    found = stage_cost(costing, chain(planner, "human").judges[benchmark])
    (call,) = found.calls
    assert call.requests == requests
    assert call.usd == pytest.approx(dollars, abs=0.01)


def test_the_price_of_published_annotations_is_met(costing: Costing) -> None:
    """Others paid $7.91 for 805 verdicts on gemma-7b-it, whose answers have 1,116 characters.

    Their annotator's reply is one token: (150 + 41 + 279 + 512) x $10 + 1 x $30 a million, times
    805, is $7.93.
    """
    lengths = costing.assumed.benchmarks.alpaca_eval
    prompt = lengths.instructions + lengths.question + 1116 / 4 + lengths.reference
    assert 805 * (prompt * 10 + 30) / 1e6 == pytest.approx(7.91, rel=0.02)


def test_tasks_of_the_harness_cost_gpu_time_and_no_dollars(
    planner: Planner, costing: Costing
) -> None:
    run = chain(planner, "human")
    judge = run.judges["downstream"]
    answer = judge.inputs["answers"]
    assert (found := stage_cost(costing, answer)).gpu_s is not None
    assert found.gpu_s > START
    assert stage_cost(costing, judge).gpu_s == 0.0
    assert stage_cost(costing, judge).calls == found.calls == ()


def test_rating_prompts_asks_two_questions_of_each(planner: Planner, costing: Costing) -> None:
    """A mix of 8,000 evolved and 2,000 human prompts: 20,000 requests to gemini-1.5-flash."""
    recipe = Recipe.model_validate({"algorithm": "dpo", "chain": ("human", "eva")})
    run = planner.run("prompts", recipe, 0, "prompts")
    (call,) = stage_cost(costing, run.judges["prompt_judge"]).calls
    assert (call.role, call.model, call.requests) == ("SCORER", "gemini-1.5-flash", 20_000)
    length = (8_000 * 235 + 2_000 * 185) / 10_000 + 10
    assert call.prompt_tokens == pytest.approx(20_000 * (190 + length))


def test_sorting_prompts_by_topic_asks_the_scorer_once_for_each(
    planner: Planner, costing: Costing
) -> None:
    prompts = only(chain(planner, "human"), "prompts")
    topics = Stage("topics", 1, topic_settings("gemini-1.5-flash"), {"prompts": prompts})
    (call,) = stage_cost(costing, topics).calls
    assert (call.role, call.model, call.requests) == ("SCORER", "gemini-1.5-flash", 10_000)


def test_every_kind_of_stage_but_the_embedded_worlds_own_has_a_cost() -> None:
    assert set(KINDS) - set(BY_KIND) == {"reward_model", "held_out", "best_of_n"}
