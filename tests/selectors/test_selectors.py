"""Each selector against steps of its formula that were worked out by hand, and the buffer."""

import ast
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike

from harness import selectors
from harness.errors import HarnessError
from harness.eva.evolving import Prompt, Rewrite, evolve
from harness.extensions import SELECTORS
from harness.selectors.eva import Eva, Parents, StreamSettings, choose
from harness.selectors.remembering import (
    ACCEL,
    PCL,
    PLR,
    SEC,
    AdaRFT,
    CurES,
    MoPPS,
    apportioned,
    category,
)
from harness.selectors.screening import DAPO, GRESO, LILO, SFL, SPEED, Band, Ranked, Uniform
from harness.selectors.selector import (
    Buffer,
    BufferEntry,
    Context,
    Group,
    Pool,
    Selector,
    Shuffled,
    View,
)
from harness.selectors.stream import PromptStream


def prompts(count: int) -> list[Prompt]:
    return [Prompt(f"h{i}", f"human {i}") for i in range(count)]


def group(rewards: ArrayLike, number: int = 0) -> Group:
    return Group(prompts(number + 1)[number], np.asarray(rewards, dtype=float))


def groups(rows: Sequence[ArrayLike]) -> list[Group]:
    return [group(row, number) for number, row in enumerate(rows)]


def rates(wanted: Sequence[float], n: int = 4) -> list[Group]:
    """Groups of n rewards of 0 and 1, with some shares of 1."""
    rights = [round(rate * n) for rate in wanted]
    return groups([[1.0] * right + [0.0] * (n - right) for right in rights])


def asked(seed: int = 0, *, step: int = 1, k: int = 2, n: int = 4, **more: Any) -> Context:
    def nobody(*_: Any) -> Any:
        raise AssertionError("nothing was to be rolled out or read")

    view = View("raw")
    base = Context(step, "pool", np.random.default_rng(seed), k, n, 0, view, nobody, nobody)
    return replace(base, **more)


Log = list[tuple[int, int, str]]


def paid(rewards: Mapping[str, Sequence[float]], log: Log) -> Any:
    """Roll prompts out to known rewards, and note how many, how often and what for."""

    def roll_out(some: Sequence[Prompt], n: int, phase: Any) -> list[Group]:
        log.append((len(some), n, phase))
        return [Group(p, np.array(rewards[p.prompt_id][:n])) for p in some]

    return roll_out


def names(found: Sequence[Prompt]) -> list[str]:
    return [prompt.prompt_id for prompt in found]


def test_a_rank_is_the_share_below_and_half_of_the_equal_ones() -> None:
    """Of 1, 2, 2, 3: below 2 lies one, two are equal: (1 + 3) / 8; above all is 1."""
    view = View("rank")
    view.take([1, 2, 2, 3])
    assert view([2.0, 0.0, 9.0]).tolist() == [0.5, 0.0, 1.0]


def test_to_beat_is_to_lie_above_the_median_of_what_was_seen() -> None:
    view = View("beat")
    view.take([[1, 2], [3, 10]])
    assert view([[2.0, 2.5], [2.6, 10.0]]).tolist() == [[0, 0], [1, 1]]
    assert View().recent.maxlen == 2048
    assert View("raw")([3.0]).tolist() == [3.0]


def test_the_largest_reward_beats_a_median_that_equals_it_unless_all_are_equal() -> None:
    mostly_right, all_right = View("beat"), View("beat")
    mostly_right.take([1, 0, 1, 0.5, 1])
    assert mostly_right([1.0, 0.5, 0.0]).tolist() == [1, 0, 0]
    all_right.take([1, 1, 1])
    assert all_right([1.0]).tolist() == [0]


def test_uniform_draws_evenly_and_another_stream_draws_otherwise() -> None:
    pool, drawn = Pool(prompts(10), 0), Uniform().propose
    said = drawn(pool, 4, asked(1))
    assert len(set(said.prompts)) == 4
    assert drawn(pool, 4, asked(1)) == said
    assert Uniform(stream=1).propose(pool, 4, asked(1)).prompts != said.prompts
    counts = Counter(
        name for seed in range(500) for name in names(drawn(pool, 2, asked(seed)).prompts)
    )
    # 100 expected; the standard error is sqrt(500 * 0.2 * 0.8) = 9.
    assert len(counts) == 10
    assert all(64 < count < 136 for count in counts.values())


def test_dapo_keeps_what_spreads_more_than_the_flattest_quarter_of_the_first() -> None:
    """Standard deviations 0, 1, 2, 3: their quantile of a quarter is 0.75; later 0.5 is flat."""
    selector = DAPO()
    assert len(selector.propose(Pool(prompts(9), 0), 1, asked(k=2)).prompts) == 6
    first = groups([[0, 0], [0, 2], [0, 4], [0, 6]])
    assert selector.judge(first, 2, asked()) == [False, True, True, True]
    assert selector.epsilon == 0.75
    assert selector.judge(groups([[0, 1], [0, 2]]), 2, asked()) == [False, True]
    ties = DAPO(flat=0.0)
    assert ties.judge(groups([[0, 0], [0, 1e-9]]), 2, asked()) == [False, True]


def test_a_band_keeps_success_rates_strictly_between_its_ends() -> None:
    """0, 0.2, 0.4, 0.8 and 1 of five rewards: only 0.4 lies between 0.2 and 0.8."""
    found = Band().judge(rates([0, 0.2, 0.4, 0.8, 1], n=5), 2, asked())
    assert found == [False, False, True, False, False]


def test_speed_screens_with_few_rollouts() -> None:
    assert SPEED().propose(Pool(prompts(9), 0), 2, asked(n=6)).rollouts == 4
    assert SPEED().propose(Pool(prompts(9), 0), 2, asked(n=2)).rollouts == 2


@pytest.mark.parametrize(
    ("by", "kept"), [("learnable", 2), ("hardest", 0), ("easiest", 3), ("dead", 1)]
)
def test_lilo_keeps_the_most_learnable_and_its_controls_others(by: str, kept: int) -> None:
    """Success rates 0.25, 0, 0.5, 0.75 but for rewards that make 0 the second lowest mean."""
    found = groups([[-1, -1, -1, 0], [0, 0, 0, 0], [0, 0, 1, 1], [0, 1, 1, 1]])
    assert LILO(by=by).judge(found, 1, asked()) == [i == kept for i in range(4)]
    assert len(LILO().propose(Pool(prompts(20), 0), 2, asked()).prompts) == 8


def test_sfl_takes_half_from_the_most_learnable_of_a_paid_sample() -> None:
    """Four prompts, all rolled out; the best half of them is h2 and h3."""
    rewards = {"h0": [0, 0], "h1": [0, 1], "h2": [0, 5], "h3": [0, 9]}
    log: Log = []
    selector = SFL(share=1.0, top=0.5)
    ctx = asked(k=2, n=2, roll_out=paid(rewards, log))
    said = selector.propose(Pool(prompts(4), 0), 2, ctx)
    assert log == [(4, 2, "screen")]
    assert set(selector.learnable) == {"h2", "h3"}
    assert said.prompts[0].prompt_id in {"h2", "h3"}
    assert len(set(said.prompts)) == 2
    selector.propose(Pool(prompts(4), 0), 2, replace(ctx, step=2))
    assert len(log) == 1
    selector.propose(Pool(prompts(4), 0), 2, replace(ctx, step=51))
    assert len(log) == 2


def test_mopps_counts_successes_and_forgets_by_its_decay() -> None:
    """From (1, 1), 3 of 4 make (4, 2), at a decay of a half as well; then 0 of 4 (2.5, 5.5)."""
    selector = MoPPS(decay=0.5)
    selector.observe(rates([0.75]), asked())
    assert selector.beliefs == {"h0": [4.0, 2.0]}
    assert selector.observe(rates([0.0]), asked()) == [-((2.5 / 8 - 0.5) ** 2)]
    assert selector.beliefs == {"h0": [2.5, 5.5]}
    whole = MoPPS()
    whole.observe(rates([0.75]), asked())
    whole.observe(rates([0.0]), asked())
    assert whole.beliefs == {"h0": [4.0, 6.0]}


def test_mopps_prefers_what_it_believes_to_be_half_right() -> None:
    selector = MoPPS()
    selector.beliefs = {"h0": [900, 100], "h1": [500, 500], "h2": [100, 900], "h3": [510, 490]}
    said = selector.propose(Pool(prompts(4), 0), 2, asked())
    assert set(names(said.prompts)) == {"h1", "h3"}


def test_greso_skips_by_the_streak_and_moves_its_chances_after_a_pass() -> None:
    """Right three times in a row: 1 - 0.5^3. A chance of 0.05 gives 0.01 at the least.

    After the first pass: all right in 1 of 2 is above 8.3%, so down; none wrong, so up.
    """
    selector = GRESO()
    selector.propose(Pool(prompts(4), 0), 2, asked())
    for _ in range(2):
        selector.observe(rates([1.0, 0.5]), asked())
    assert selector.chances == {"easy": 0.5, "hard": 0.5}
    selector.observe(rates([1.0, 0.5]), asked())
    assert selector.chances == pytest.approx({"easy": 0.49, "hard": 0.51})
    assert selector.streaks == {"h0": [3, 0], "h1": [0, 0]}
    assert selector.skipped("h0") == pytest.approx(1 - 0.49**3)
    assert selector.skipped("h1") == 0.0
    selector.chances["easy"] = 0.05
    assert selector.skipped("h0") == 0.99
    selector.observe(rates([0.0, 0.5]), asked())
    assert selector.streaks["h0"] == [0, 1]
    assert selector.judge(rates([0.0, 0.5]), 2, asked()) == [False, True]


def test_plr_scores_by_the_positive_value_loss() -> None:
    """Of 0, 0, 4 the mean is 4/3, what lies above it 8/3, over three 8/9."""
    assert PLR().observe([group([0, 0, 4])], asked()) == pytest.approx([8 / 9])


def test_plr_replays_by_rank_and_staleness_once_all_were_seen() -> None:
    """Scores 1 and 2, beta 1: ranks 2 and 1, so 1/3 and 2/3; ages 3 and 1: 3/4 and 1/4.

    With rho 0.5: (1/3 + 3/4) / 2 = 13/24.
    """
    selector = PLR(beta=1.0, rho=0.5)
    selector.scores, selector.last = {"h0": 1.0, "h1": 2.0}, {"h0": 7, "h1": 9}
    assert selector.chances(prompts(2), 10) == pytest.approx([13 / 24, 11 / 24])
    said = selector.propose(Pool(prompts(4), 0), 2, asked(step=10))
    assert set(names(said.prompts)) == {"h2", "h3"}


def test_accel_scores_its_edits_and_displaces_the_lowest() -> None:
    children = [Prompt("c0", "a", "evolved", "h0"), Prompt("c1", "b", "evolved", "h0")]
    selector = ACCEL()
    log: Log = []
    rewards = {"c0": [0.0, 0.0], "c1": [0.0, 1.0]}
    ctx = asked(n=2, roll_out=paid(rewards, log))
    assert selector.enter(children, np.zeros(2), ctx) == [0.0, 0.25]
    assert log == [(2, 2, "insertion")]
    pool = Pool(prompts(2), 1)
    pool.buffer.entries = [BufferEntry(child, 0.0, 1) for child in children]
    assert selector.evict(pool, [], ctx) == (1, 0)
    assert [entry.prompt.prompt_id for entry in pool.buffer.entries] == ["c1"]


def test_pcl_moves_its_head_towards_the_mean_and_takes_the_nearest() -> None:
    """Phi = (1, 1), y = 0.6 from w = 0: w = 0.5 * 0.6 / 3 = 0.1 each."""
    selector = PCL(rate=0.5)
    read = {"h0": [1.0, 1.0], "h1": [4.0, 1.0], "h2": [0.0, 0.0], "h3": [9.0, 9.0]}

    def embed(some: Sequence[Prompt]) -> Any:
        return np.array([read[prompt.prompt_id] for prompt in some])

    selector.observe([group([0.2, 1.0])], asked(embed=embed))
    assert selector.weights == pytest.approx([0.1, 0.1])
    # Predictions 0.2, 0.5, 0 and 1.8: the nearest to a half are h1 and h0.
    said = selector.propose(Pool(prompts(4), 0), 2, asked(embed=embed))
    assert names(said.prompts) == ["h1", "h0"]
    assert said.predicted == pytest.approx((0.0, -0.3))


def test_cures_shares_rollouts_out_in_proportion() -> None:
    """Six over weights 3 and 1: one each, and four more as 3 and 1."""
    assert apportioned(6, np.array([3.0, 1.0])) == [4, 2]
    assert apportioned(4, np.array([1.0, 1.0, 1.0])) == [2, 1, 1]


def test_cures_probes_every_period_and_draws_by_the_exponential() -> None:
    """Probes of 4: all right (5, 1), half (3, 3): sigma sqrt(5/36) and 1/2."""
    rewards = {"h0": [1.0] * 4, "h1": [0.0, 0.0, 1.0, 1.0]}
    log: Log = []
    selector = CurES(period=2, tau=0.01, distinct=0.5)
    said = selector.propose(Pool(prompts(2), 0), 2, asked(k=2, roll_out=paid(rewards, log)))
    assert log == [(2, 4, "screen")]
    assert selector.beliefs == {"h0": [5.0, 1.0], "h1": [3.0, 3.0]}
    # exp((0.5 - 0.373) / 0.01) is e^12.7: h1 it is, with both groups.
    assert names(said.prompts) == ["h1", "h1"]
    selector.observe([group([1.0, 0.0, 0.0, 0.0], 1)], asked())
    assert selector.beliefs["h1"] == [4.0, 6.0]
    selector.propose(Pool(prompts(2), 0), 2, asked(step=2))
    assert len(log) == 1


def test_adarft_labels_once_and_follows_the_mean_reward() -> None:
    """Means 1, 2, 3, 4: percentiles 1/8, 3/8, 5/8, 7/8 and difficulties 87.5 to 12.5.

    T is 0, so the easiest come first. A mean of 0.8: T = 50 tanh(0.6) = 26.9.
    """
    rewards = {f"h{i}": [float(i + 1)] for i in range(4)}
    log: Log = []
    selector = AdaRFT()
    said = selector.propose(Pool(prompts(4), 0), 2, asked(n=1, roll_out=paid(rewards, log)))
    assert log == [(4, 1, "screen")]
    assert selector.difficulty == {"h0": 87.5, "h1": 62.5, "h2": 37.5, "h3": 12.5}
    assert names(said.prompts) == ["h3", "h2"]
    trained = [group([0.8], 3), group([0.8], 2)]
    selector.observe(trained, asked())
    assert selector.target == pytest.approx(50 * np.tanh(0.6))
    assert names(selector.propose(Pool(prompts(4), 0), 2, asked()).prompts) == ["h1", "h0"]


def test_sec_pays_categories_by_the_size_of_their_advantages() -> None:
    """0 and 2: leave-one-out advantages -2 and 2, so 2; half of it from 0 is 1, then 1.5."""
    selector = SEC(tau=0.01)
    short = group([0, 2])
    arm = category(short.prompt)
    assert arm == "2"  # two words
    selector.observe([short], asked())
    assert selector.worth == {"2": 1.0}
    selector.observe([short], asked())
    assert selector.worth == {"2": 1.5}
    long = Prompt("h9", "one two three four")
    pool = Pool([*prompts(2), long], 0)
    assert "h9" not in names(selector.propose(pool, 2, asked()).prompts)
    selector.observe([Group(long, np.array([1.0, 1.0]))], asked())
    assert selector.worth == {"2": 1.5, "3": 0.0}


def test_what_is_valued_most_is_taken() -> None:
    def value(texts: Sequence[str]) -> Any:
        return np.array([float(text.split()[1]) for text in texts])

    assert names(Ranked(value).propose(Pool(prompts(9), 0), 2, asked()).prompts) == ["h8", "h7"]


def test_shuffled_a_choice_says_nothing_and_costs_the_same() -> None:
    """Of 4 prompts LILO keeps the 1 most learnable; shuffled each is kept as often."""
    found = groups([[0, 0], [0, 1], [0, 2], [0, 9]])
    kept = [Shuffled(LILO()).judge(found, 1, asked(seed)) for seed in range(400)]
    assert all(sum(one) == 1 for one in kept)
    # The standard error of a quarter of 400 is 8.7.
    assert all(65 < sum(one[i] for one in kept) < 135 for i in range(4))


def test_shuffled_a_selector_sees_rewards_as_it_does_otherwise() -> None:
    """Raw rewards below zero would be less than no successes, which no belief can hold."""
    of = streamed("mopps", shuffled=True)
    for _ in range(2):
        prompts_of_step = of.draw(rolled).prompts
        of.finish_step([one.rewards - 5 for one in rolled(prompts_of_step, 6, "train")], rolled)
    beliefs = of.selector.state_dict()["beliefs"].values()
    assert all(alpha >= 1 and beta >= 1 and alpha + beta in (8, 14) for alpha, beta in beliefs)


class Writer:
    def rewrite(self, prompt: str, rng: np.random.Generator) -> Rewrite:
        return Rewrite(f"{prompt} {rng.integers(10**9)}", "deepening")


def streamed(name: str, seed: int = 0, *, n_new: int = 0, shuffled: bool = False) -> PromptStream:
    pool = Pool(prompts(24), 24)
    chosen: Selector = SELECTORS.load(name).made({}, 4, 24, n_new)
    chosen = Shuffled(chosen) if shuffled else chosen
    bound = partial(evolve, creator=Writer(), retries=0, chained=False) if n_new else None

    def embed(some: Sequence[Prompt]) -> Any:
        return np.array([[1.0, len(p.prompt) / 10] for p in some])

    return PromptStream(
        chosen, pool, seed, minibatch=4, rollouts=6, evolve=bound, n_new=n_new, embed=embed
    )


def rolled(some: Sequence[Prompt], n: int, phase: str) -> list[Group]:
    """Rewards of 0 and 1 by a rate that the prompt's text fixes, and their answers."""
    made = []
    for prompt in some:
        rng = np.random.default_rng(sum(prompt.prompt.encode()))
        rewards = (rng.random(n) < rng.random()).astype(float)
        made.append(Group(prompt, rewards, answers=tuple(range(n))))
    return made


def steps(of: PromptStream, count: int) -> list[tuple[Any, ...]]:
    seen = []
    for _ in range(count):
        batch = of.draw(rolled)
        rewards = [one.rewards for one in rolled(batch.prompts, 6, "train")]
        if batch.kept:
            rewards = [own.rewards for own in batch.kept]
        result = of.finish_step(rewards, rolled)
        seen.append(
            (names(batch.prompts), result.informativeness.tolist(), names(result.evolved.prompts))
        )
    return seen


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("n_new", [0, 2])
@pytest.mark.parametrize("name", list(SELECTORS.shipped))
def test_saved_and_loaded_anywhere_a_run_goes_on_as_if_it_had_not_been(
    name: str, n_new: int, shuffled: bool
) -> None:
    """Same state and seed, same steps; a mini-batch each; the pool bounded; children entered."""
    whole = streamed(name, n_new=n_new, shuffled=shuffled)
    expected = steps(whole, 12)
    assert all(len(batch) == 4 for batch, _, _ in expected)
    assert len(whole.pool.buffer) <= 24
    assert any(children for _, _, children in expected) == bool(n_new)
    first = streamed(name, n_new=n_new, shuffled=shuffled)
    found = steps(first, 5)
    second = streamed(name, n_new=n_new, shuffled=shuffled)
    second.restore(json.loads(json.dumps(first.state())))
    assert found + steps(second, 7) == expected
    assert second.state() == whole.state()


def test_a_mini_batch_that_nothing_passes_is_filled_with_what_was_dropped() -> None:
    """No prompt spreads: ten proposals of twelve, of which four are trained on and all observed."""
    log: list[int] = []

    def flat(some: Sequence[Prompt], n: int, phase: str) -> list[Group]:
        log.append(len(some))
        return [Group(prompt, np.zeros(n), answers=tuple(range(n))) for prompt in some]

    run = streamed("dapo")
    batch = run.draw(flat)
    assert log == [12] * 10
    assert (len(batch.kept), len(batch.dropped)) == (4, 116)


def test_who_was_screened_with_few_rollouts_gets_the_rest_if_kept() -> None:
    """SPEED: 4 of 6 rollouts of 12 prompts at a time, then 2 more of each of the 4 kept."""
    log: list[tuple[int, int]] = []

    def noted(some: Sequence[Prompt], n: int, phase: str) -> list[Group]:
        log.append((len(some), n))
        return rolled(some, n, phase)

    batch = streamed("speed").draw(noted)
    assert log[-1] == (4, 2)
    assert set(log[:-1]) == {(12, 4)}
    assert [(len(own.rewards), len(own.answers)) for own in batch.kept] == [(6, 6)] * 4
    assert {len(own.rewards) for own in batch.dropped} == {4}


def test_a_selector_that_gives_too_few_prompts_is_named() -> None:
    run = PromptStream(Selector(), Pool(prompts(2), 0), 0, minibatch=4)
    with pytest.raises(HarnessError, match="needs 4 prompts and the selector gives 2"):
        run.draw()


SET = prompts(4)
REWARDS = [[0.0, 1.0], [0.0, 4.0], [2.0, 2.0], [1.0, 4.0]]  # A*_min of 1, 4, 0 and 3


def test_the_greedy_creator_takes_the_largest_gaps_in_their_order() -> None:
    creator = Parents("a_min", 3, sampling="greedy")
    groups, chosen = choose(creator, SET, REWARDS, np.random.default_rng(0))
    assert [group.value for group in groups] == [1.0, 4.0, 0.0, 3.0]
    assert names(chosen) == ["h1", "h3", "h0"]
    # Min-max: 1/4, 1, 0, 3/4, with sum 2.
    np.testing.assert_allclose(creator.chances(groups), [0.125, 0.5, 0.0, 0.375])


def test_weighted_draws_leave_out_what_has_no_weight_and_follow_the_weights() -> None:
    creator, first = Parents("a_min", 1), []
    for seed in range(2000):
        _, (drawn,) = choose(creator, SET, REWARDS, np.random.default_rng(seed))
        first.append(drawn.prompt_id)
    shares = [first.count(name) / len(first) for name in ("h0", "h1", "h2", "h3")]
    assert shares[2] == 0
    np.testing.assert_allclose(shares, [0.125, 0.5, 0.0, 0.375], atol=0.04)  # 3.5 standard errors


def test_a_shuffled_creator_keeps_the_values_and_loses_whose_they_are() -> None:
    creator = Parents("a_min", 1, sampling="greedy", shuffled=True)
    best = []
    for seed in range(400):
        groups, (chosen,) = choose(creator, SET, REWARDS, np.random.default_rng(seed))
        assert sorted(group.value for group in groups) == [0.0, 1.0, 3.0, 4.0]
        best.append(chosen.prompt_id)
    counts = [best.count(name) for name in ("h0", "h1", "h2", "h3")]
    assert min(counts) > 65  # 100 each expected, with a standard deviation of 9


def test_a_selector_that_wants_rollouts_cannot_be_asked_about_finished_ones() -> None:
    class Wants(Parents):
        def observe(self, groups: Any, ctx: Context) -> Any:
            return ctx.roll_out(SET, 2, "screen")

    with pytest.raises(HarnessError, match="no policy is at hand"):
        choose(Wants("a_min", 1), SET, REWARDS, np.random.default_rng(0))


def test_the_online_creator_names_what_the_offline_one_names() -> None:
    """Half of a mini-batch of four, by rank; the two differ in the buffer alone."""
    settings = StreamSettings(metric="a_min", minibatch=4, evolve_share=0.5, buffer=1.0, x=4)
    rng = np.random.default_rng(0)
    online = choose(Eva(settings), SET, REWARDS, rng)
    offline = choose(Parents("a_min", 2, sampling="greedy", floor=0.01), SET, REWARDS, rng)
    assert names(online[1]) == names(offline[1]) == ["h1", "h3"]
    assert [g.value for g in online[0]] == [g.value for g in offline[0]]


def entry(number: int, informativeness: float = 1.0) -> BufferEntry:
    return BufferEntry(Prompt(f"p{number}", f"prompt {number}"), informativeness, number)


def ids(buffer: Buffer) -> list[str]:
    return [e.prompt.prompt_id for e in buffer.entries]


def test_without_a_floor_the_buffer_never_gives_its_least_while_others_last() -> None:
    for seed in range(20):
        buffer = Buffer(3, [entry(0, 0.0), entry(1, 1.0), entry(2, 2.0)])
        drawn = buffer.take(2, np.random.default_rng(seed), "a_avg", 0.0)
        assert {p.prompt_id for p in drawn} == {"p1", "p2"}


def test_draws_from_the_buffer_follow_the_weights() -> None:
    """Two prompts of weights 0.25 and 1: the second is drawn first 4 times in 5."""
    first = [
        Buffer(2, [entry(0, 0.0), entry(1, 1.0)])
        .take(1, np.random.default_rng(seed), "a_avg", 0.25)[0]
        .prompt_id
        for seed in range(2000)
    ]
    # The standard error of the share is sqrt(0.8 * 0.2 / 2000) = 0.009.
    assert first.count("p1") / 2000 == pytest.approx(0.8, abs=0.04)


def test_what_is_drawn_from_the_buffer_is_gone() -> None:
    buffer = Buffer(4, [entry(i, i) for i in range(4)])
    drawn = buffer.take(3, np.random.default_rng(0), "a_avg", 0.01)
    assert len({p.prompt_id for p in drawn}) == 3
    assert set(ids(buffer)) == {"p0", "p1", "p2", "p3"} - {p.prompt_id for p in drawn}


@pytest.mark.parametrize(
    ("by", "left"), [("oldest", ["p1", "p2", "p3"]), ("least_informative", ["p0", "p2", "p3"])]
)
def test_beyond_the_capacity_the_oldest_leave_or_the_least_informative(
    by: Any, left: list[str]
) -> None:
    """Of two that are the least informative the older one leaves."""
    buffer = Buffer(3, [entry(0, 2.0), entry(1, 1.0), entry(2, 1.0)])
    assert buffer.put([entry(3, 5.0)], by) == 1
    assert ids(buffer) == left


def test_rescoring_changes_informativeness_alone() -> None:
    buffer = Buffer(2, [entry(0, 1.0), entry(1, 2.0)])
    buffer.rescore(np.array([7.0, 8.0]))
    assert buffer.entries == [entry(0, 7.0), entry(1, 8.0)]


def test_a_buffer_that_cannot_fill_a_draw_says_what_to_change() -> None:
    with pytest.raises(HarnessError, match="3 prompts are to be drawn from a buffer that holds 1"):
        Buffer(5, [entry(0)]).take(3, np.random.default_rng(0), "a_avg", 0.01)


def test_nothing_that_a_selector_is_given_or_imports_leads_to_the_oracle() -> None:
    """The fields of a context, and what the selectors import of the project."""
    assert not [name for name in Context.__dataclass_fields__ if "oracle" in name]
    parts = set()
    for path in Path(str(selectors.__file__)).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [it.name for it in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{it.name}" for it in node.names]
            parts |= {name.split(".")[1] for name in names if name.startswith("harness.")}
    assert "eva" in parts
    assert not parts & {
        "api", "cli", "evaluation", "pipeline", "report", "runtime", "selection", "sweep", "worlds",
    }  # fmt: skip
