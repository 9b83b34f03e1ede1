"""Online eva's mini-batches: phases, shares, bounds, and a state that survives."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import HarnessError, UserError
from harness.eva.evolving import Prompt, Rewrite, evolve
from harness.selectors.eva import Eva, StreamSettings, Value
from harness.selectors.selector import Group, Phase, Pool, RollOut
from harness.selectors.stream import MiniBatch, PromptStream, StepResult


class Writer:
    """A creator whose rewrites are all different; every `fails`-th is unusable."""

    def __init__(self, fails: int = 0) -> None:
        self.calls = 0
        self.fails = fails

    def rewrite(self, prompt: str, rng: np.random.Generator) -> Rewrite:
        self.calls += 1
        if self.fails and self.calls % self.fails == 0:
            return Rewrite(None, "deepening", "unreadable")
        return Rewrite(f"{prompt} {rng.integers(10**9)}", "deepening")


def rewards_of(prompts: Sequence[Prompt]) -> np.ndarray[Any, Any]:
    """Two rewards a prompt, derived from its text: a gap between 0 and 1."""
    gaps = [np.random.default_rng(sum(p.prompt.encode())).random() for p in prompts]
    return np.array([[0.0, gap] for gap in gaps])


def rolled(prompts: Sequence[Prompt], n: int, phase: str) -> list[Group]:
    return list(map(Group, prompts, rewards_of(prompts)))


def sizes(capacity: int = 64, **changes: Any) -> StreamSettings:
    return StreamSettings(**changes, x=64, buffer=capacity / 64)


def stream(
    count: int = 200,
    seed: int = 0,
    fails: int = 0,
    *,
    creates: bool = True,
    retries: int = 0,
    value: Value | None = None,
    **changes: Any,
) -> PromptStream:
    s = sizes(**changes)
    human = [Prompt(f"h{i}", f"human {i}") for i in range(count)]
    bound = partial(evolve, creator=Writer(fails), retries=retries, chained=False)
    return PromptStream(
        Eva(s, creates=creates, value=value),
        Pool(human, s.capacity),
        seed,
        minibatch=s.minibatch,
        evolve=bound if creates else None,
        n_new=s.n_new,
    )


def step(of: PromptStream, roll_out: RollOut = rolled) -> tuple[MiniBatch, StepResult]:
    batch = of.draw()
    return batch, of.finish_step(rewards_of(batch.prompts), roll_out)


def noting(asked: list[Prompt]) -> RollOut:
    def roll_out(prompts: Sequence[Prompt], n: int, phase: Phase) -> list[Group]:
        asked.extend(prompts)
        return rolled(prompts, n, phase)

    return roll_out


def from_buffer(batch: MiniBatch) -> int:
    return sum(prompt.generation > 0 for prompt in batch.prompts)


def test_the_papers_arithmetic_holds() -> None:
    """D of 200 and a buffer of 64 are the paper's 10,000 and 3,200 divided by 50.

    Warm-up adds 4 parents x 4 children = 16 prompts a step and is over when 64 are there: 4 steps,
    32 of D. Mix-up takes 4 of D a step: (200 - 32) / 4 = 42 steps. D ends with step 46. In mix-up
    a step removes 4 and adds 16, so 12 are evicted; in bootstrap it removes 8 and adds 4 x 2 = 8.
    """
    run = stream()
    seen = [step(run) for _ in range(60)]
    assert [batch.phase for batch, _ in seen] == (
        ["warm-up"] * 4 + ["mix-up"] * 42 + ["bootstrap"] * 14
    )
    assert [len(done.evolved.prompts) for _, done in seen] == [16] * 46 + [8] * 14
    assert [done.evicted for _, done in seen] == [0] * 4 + [12] * 42 + [0] * 14
    assert [from_buffer(batch) for batch, _ in seen] == [0] * 4 + [4] * 42 + [8] * 14
    assert run.pool.used == 200
    assert len(run.pool.buffer) == 64


@pytest.mark.parametrize(
    ("metric", "evolved", "share"),
    [
        ("a_avg", "h1 h4 h3 h7", 0.5),  # of two rewards the best is half the gap above the mean
        ("a_min", "h1 h4 h3 h7", 1.0),
        ("a_min_inv", "h0 h5 h6 h2", 1.0),
    ],
)
def test_the_informative_half_is_evolved_and_ties_go_by_position(
    metric: str, evolved: str, share: float
) -> None:
    """The largest gaps are those of 1, 4, 3 and 7; an inverse metric takes the least."""
    run = stream(metric=metric)
    run.draw()
    gaps = [0, 3, 1, 2, 3, 0, 0, 2]
    done = run.finish_step([[0.0, gap] for gap in gaps], rolled)
    assert list(dict.fromkeys(c.parent_id for c in done.evolved.prompts)) == evolved.split()
    assert done.informativeness.tolist() == [share * gap for gap in gaps]


def test_a_child_enters_with_what_its_own_rollouts_say() -> None:
    run, asked = stream(), list[Prompt]()
    _, done = step(run, noting(asked))
    assert len(asked) == 16
    expected = {c.prompt_id: rewards_of([c])[0, 1] / 2 for c in done.evolved.prompts}
    held = {e.prompt.prompt_id: e.informativeness for e in run.pool.buffer.entries}
    assert held == pytest.approx(expected)


def test_a_child_can_inherit_its_parents_informativeness() -> None:
    run = stream(child_score="parent")
    asked: list[Prompt] = []
    batch, done = step(run, noting(asked))
    assert asked == []
    parents = {p.prompt_id: done.informativeness[i] for i, p in enumerate(batch.prompts)}
    for held in run.pool.buffer.entries:
        assert held.informativeness == parents[str(held.prompt.parent_id)]


def test_a_value_takes_the_metrics_place_for_who_is_evolved() -> None:
    """By the numbers of h0 to h7, halved if odd: 6, 4, 3.5 and 2.5 are the most; not by rewards."""

    def value(texts: Sequence[str]) -> np.ndarray[Any, Any]:
        numbers = [int(text.split()[1]) for text in texts]
        return np.array([n / 2 if n % 2 else n for n in numbers], dtype=float)

    run = stream(64, value=value)
    run.draw()
    done = run.finish_step([[0.0, 8.0 - at] for at in range(8)], rolled)
    assert list(dict.fromkeys(c.parent_id for c in done.evolved.prompts)) == [
        "h6",
        "h4",
        "h7",
        "h5",
    ]
    assert done.informativeness.tolist() == [0, 0.5, 2, 1.5, 4, 2.5, 6, 3.5]


def test_a_value_is_asked_anew_of_all_that_wait_before_each_draw() -> None:
    """And of children and parents when their step ends; no rollout is spent on it."""
    said: list[int] = []
    now = [1.0]

    def value(texts: Sequence[str]) -> np.ndarray[Any, Any]:
        said.append(len(texts))
        return now[0] * np.arange(len(texts), dtype=float)

    def no_rollouts(prompts: Sequence[Prompt], n: int, phase: str) -> list[Group]:
        raise AssertionError("the children's values are asked for, not their rewards")

    run = stream(64, value=value)
    run.finish_step(rewards_of(run.draw().prompts), no_rollouts)
    assert said == [8, 16]
    now[0] = 2.0
    run.draw()
    assert said == [8, 16, 16]
    assert [e.informativeness for e in run.pool.buffer.entries] == [2.0 * at for at in range(16)]


def test_warm_up_can_end_after_a_number_of_steps() -> None:
    run = stream(warm_up=7 * 8 / 64)
    assert [step(run)[0].phase for _ in range(9)] == ["warm-up"] * 7 + ["mix-up"] * 2


def test_human_prompts_alone_come_in_order_and_run_out() -> None:
    run = stream(16, creates=False)
    prompts = [p.prompt_id for _ in range(2) for p in step(run)[0].prompts]
    assert prompts == [f"h{i}" for i in range(16)]
    assert run.phase == "human"
    with pytest.raises(HarnessError, match="needs 8 human prompts and 0 are left"):
        run.draw()


def test_the_last_human_prompts_are_filled_up_from_the_buffer() -> None:
    """After 4 steps of warm-up 32 of 34 prompts are used; the next takes 2 and 6 of the buffer."""
    run = stream(count=34)
    for _ in range(4):
        step(run)
    batch, _ = step(run)
    assert (batch.phase, from_buffer(batch)) == ("mix-up", 6)
    assert step(run)[0].phase == "bootstrap"


def test_a_buffer_that_unusable_rewrites_have_emptied_is_filled_by_evolving_all() -> None:
    """A third of the rewrites is unusable, so half the mini-batch replaces some 5 of its 8 prompts.

    All 8 with two rewrites each give 16 less a third, at least 10: enough for the next mini-batch.
    """
    run = stream(count=64, fails=3)
    bootstrap = [
        done for batch, done in (step(run) for _ in range(80)) if batch.phase == "bootstrap"
    ]
    parents = [len({child.parent_id for child in done.evolved.prompts}) for done in bootstrap]
    short = next(i for i, count in enumerate(parents) if count > 4)
    assert max(parents[:short]) <= 4
    assert all(len(done.evolved.prompts) >= 10 for done in bootstrap if done.evolved.attempts == 16)
    assert {done.evolved.attempts for done in bootstrap} == {8, 16}
    assert not any(done.repeated for done in bootstrap)
    ids = [child.prompt_id for done in bootstrap for child in done.evolved.prompts]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("fails", [1, 2])
def test_a_creator_that_mostly_fails_stops_no_run(fails: int) -> None:
    """Prompts of a mini-batch go back where too few rewrites came in, the best first."""
    run = stream(count=40, fails=fails, warm_up=3 * 8 / 64, n_new_bootstrap=1)
    for _ in range(30):
        batch, done = step(run)
        if not done.repeated:
            continue
        kept = [e for e in run.pool.buffer.entries if e.prompt in batch.prompts]
        assert len(kept) == done.repeated
        assert len({e.prompt for e in run.pool.buffer.entries}) == len(run.pool.buffer)
        best = sorted((round(float(v), 9) for v in done.informativeness), reverse=True)
        assert round(kept[0].informativeness, 9) == best[0]
    assert done.repeated == {1: 8, 2: 4}[fails]
    assert (len(batch.prompts), batch.phase) == (8, "bootstrap")


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    ratio=st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]),
    n_new=st.integers(1, 5),
    fails=st.sampled_from([0, 5]),
    steps=st.integers(1, 40),
)
def test_whatever_the_settings_the_invariants_hold(
    seed: int, ratio: float, n_new: int, fails: int, steps: int
) -> None:
    """Bound, no prompt twice, phases in order, the share asked for."""
    run = stream(count=120, seed=seed, fails=fails, ratio_evol=ratio, n_new=n_new, retries=1)
    trained: list[str] = []
    phases: list[str] = []
    for _ in range(steps):
        batch, _ = step(run)
        trained += [p.prompt_id for p in batch.prompts]
        phases.append(batch.phase)
        assert len(run.pool.buffer) <= 64
        assert not {e.prompt.prompt_id for e in run.pool.buffer.entries} & set(trained)
        if batch.phase == "mix-up" and run.pool.used < 120:
            assert from_buffer(batch) == 8 * ratio
    assert len(trained) == len(set(trained))
    order = ["warm-up", "mix-up", "bootstrap"]
    assert [order.index(p) for p in phases] == sorted(order.index(p) for p in phases)


@settings(max_examples=8, deadline=None)
@given(cut=st.integers(0, 23), seed=st.integers(0, 1000))
def test_a_run_cut_anywhere_goes_on_as_if_it_had_not_been(cut: int, seed: int) -> None:
    """With 72 human prompts: 4 steps of warm-up, (72 - 32) / 4 = 10 of mix-up, 10 of bootstrap."""
    whole = stream(72, seed)
    expected = [step(whole)[0] for _ in range(24)]
    assert [expected[at].phase for at in (3, 13, 14)] == ["warm-up", "mix-up", "bootstrap"]
    first = stream(72, seed)
    found = [step(first)[0] for _ in range(cut)]
    second = stream(72, seed)
    second.draw()  # what was begun is forgotten
    second.restore(json.loads(json.dumps(first.state())))
    found += [step(second)[0] for _ in range(24 - cut)]
    assert found == expected
    assert second.state() == whole.state()


def restored(held: int, used: int) -> PromptStream:
    """Return a stream in mix-up whose rewrites all fail; of 64 human prompts some are used."""
    run = stream(64, fails=1)
    entries = [
        {"prompt_id": f"e{i}", "prompt": f"evolved {i}", "informativeness": i, "entered": 1}
        for i in range(held)
    ]
    run.restore({"step": 50, "used": used, "phase": "mix-up", "buffer": entries})
    return run


def test_nothing_is_repeated_where_the_next_mini_batch_has_human_prompts_to_fill_it() -> None:
    """In mix-up half comes from D: the four that are left in the buffer are enough."""
    run = restored(8, used=8)
    _, done = step(run)
    assert (len(run.pool.buffer), done.repeated, len(done.evolved.prompts)) == (4, 0, 0)


def test_a_mini_batch_without_any_rewrite_is_put_back_the_best_first() -> None:
    """All rewrites fail, and D ends: the next mini-batch needs all eight."""
    run = restored(4, used=60)
    batch = run.draw()
    done = run.finish_step([[0.0, 1.0 + at] for at in range(8)], rolled)
    assert done.repeated == 8
    waiting = [entry.prompt for entry in run.pool.buffer.entries]
    assert waiting == list(reversed(batch.prompts))


def test_unusable_rewrites_are_counted() -> None:
    """Four prompts, four rewrites each, every second unusable and not tried again."""
    _, done = step(stream(fails=2))
    assert (done.evolved.attempts, len(done.evolved.prompts), done.evolved.dropped) == (16, 8, 8)
    assert done.evolved.unusable == {"unreadable": 8}


def test_a_buffer_may_hold_one_mini_batch_and_settings_are_read_back() -> None:
    settings = sizes(capacity=8)
    assert settings.capacity == settings.minibatch == 8
    assert StreamSettings.model_validate(settings.model_dump()) == settings


def test_without_a_creator_there_is_no_phase_but_the_human_one() -> None:
    """A warm-up of one step would otherwise be over, and half of each mini-batch be missing."""
    run = stream(24, creates=False, warm_up=8 / 64)
    assert [step(run)[0].phase for _ in range(3)] == ["human"] * 3


def test_a_step_must_be_fed_before_the_next_and_before_saving() -> None:
    run = stream()
    run.draw()
    with pytest.raises(HarnessError, match="never finished"):
        run.draw()
    with pytest.raises(HarnessError, match="cannot be saved"):
        run.state()


def test_rewards_of_other_prompts_are_refused() -> None:
    run = stream()
    run.draw()
    with pytest.raises(HarnessError, match="rewards of 3 prompts"):
        run.finish_step([[0.0, 1.0]] * 3, rolled)


def test_a_buffer_that_cannot_fill_a_mini_batch_is_refused() -> None:
    with pytest.raises(UserError, match="enlarge the buffer"):
        sizes(capacity=7)
