"""Selectors with memory. A learned reward counts as a success if it is above the median (ours)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from harness.eva.evolving import Prompt
from harness.eva.informativeness import Floats
from harness.selectors.selector import Context, Group, Pool, Proposal, Selector, rates


class _Believing(Selector):
    """Holds a Beta posterior over each prompt's success rate, with prior Beta(1, 1)."""

    view = "beat"
    remembers: ClassVar[tuple[str, ...]] = ("beliefs",)

    def __init__(self, decay: float = 1.0) -> None:
        self.beliefs: dict[str, list[float]] = {}
        self._decay = decay

    def believed(self, prompts: Sequence[Prompt]) -> Floats:
        """Return alpha and beta of each prompt's posterior, P x 2."""
        return np.array([self.beliefs.get(prompt.prompt_id, [1.0, 1.0]) for prompt in prompts])

    def learn(self, groups: Sequence[Group], ctx: Context) -> Floats:
        """Update the posteriors with the groups' successes; return their mean success rates."""
        for group in groups:
            seen, keep = ctx.view(group.rewards), self._decay
            [(alpha, beta)] = self.believed([group.prompt])
            alpha = keep * alpha + (1 - keep) + float(seen.sum())
            beta = keep * beta + (1 - keep) + float(len(seen) - seen.sum())
            self.beliefs[group.prompt.prompt_id] = [float(alpha), float(beta)]
        return self.rates([group.prompt for group in groups])

    def rates(self, prompts: Sequence[Prompt]) -> Floats:
        beliefs = self.believed(prompts)
        return np.asarray(beliefs[:, 0] / beliefs.sum(axis=1))


class MoPPS(_Believing):
    """Model-predictive prompt selection, with a Beta posterior over each prompt's success rate.

    From a set of candidates, selects those whose sampled success rate is closest to `target`.
    Afterwards, for the prompts trained on only, with c successes out of N,

        alpha <- decay alpha + (1 - decay) + c,      beta <- decay beta + (1 - decay) + N - c

    Selection costs no rollouts.

    Source: Qu et al. 2025, arXiv 2507.04632; its released code for 16 candidates per prompt and a
    decay of 1.
    """

    def __init__(self, candidates: int = 16, decay: float = 1.0, target: float = 0.5) -> None:
        super().__init__(decay)
        self._candidates, self._target = candidates, target

    def propose(self, pool: Pool, k: int, ctx: Context) -> Proposal:
        some = pool.some(self._candidates * k, ctx.rng)
        drawn = np.asarray(ctx.rng.beta(*self.believed(some).T))
        near = -((drawn - self._target) ** 2)
        return Proposal.of_best(some, near, k)

    def observe(self, groups: Sequence[Group], ctx: Context) -> ArrayLike:
        return -((self.learn(groups, ctx) - self._target) ** 2)


class CurES(_Believing):
    """Draws prompts and allocates rollouts according to estimated success rates.

    Every `period` steps, a few rollouts of each of a new subset of prompts estimate its success
    rate p, and training updates that posterior. Prompts are drawn with

        rho(x) ~ exp(sqrt(p (1 - p)) / tau)

    and the rollouts of a step are allocated in proportion to sqrt(p (1 - p)), which is proportional
    to the released code's sigma if all gradients have one norm. Here an allocation is a whole
    number of groups of N rollouts, at least one (ours: a step trains on groups of one size). So
    that some prompts get more than one, only `distinct` times as many are drawn as there are groups
    (ours).

    Source: Zeng et al. 2025, arXiv 2510.01037 (4 rollouts, 10 steps); tau is ours, as we did not
    find the paper's.
    """

    remembers = ("beliefs", "subset")

    def __init__(
        self, probes: int = 4, period: int = 10, tau: float = 0.1, distinct: float = 0.5
    ) -> None:
        super().__init__()
        self.subset: list[str] = []
        self._probes, self._period, self._tau, self._distinct = probes, period, tau, distinct

    def propose(self, pool: Pool, k: int, ctx: Context) -> Proposal:
        if (ctx.step - 1) % self._period == 0:
            some = pool.some(self._period * k, ctx.rng)
            self.beliefs = {}
            self.observe(ctx.roll_out(some, self._probes, "screen"), ctx)
            self.subset = [prompt.prompt_id for prompt in some]
        held = set(self.subset)
        waiting = [prompt for prompt in pool if prompt.prompt_id in held]
        sigma = _sigma(self.rates(waiting))
        rho = np.exp(sigma / self._tau)
        size = min(max(1, round(self._distinct * k)), len(waiting))
        drawn = ctx.rng.choice(len(waiting), size=size, replace=False, p=rho / rho.sum())
        quotas = apportioned(k, sigma[drawn])
        prompts = [waiting[i] for i, times in zip(drawn, quotas, strict=True) for _ in range(times)]
        return Proposal(tuple(prompts))

    def observe(self, groups: Sequence[Group], ctx: Context) -> ArrayLike:
        return _sigma(self.learn(groups, ctx))


def _sigma(rates: Floats) -> Floats:
    return np.asarray(np.sqrt(rates * (1 - rates)))


def apportioned(count: int, weights: Floats) -> list[int]:
    """Apportion a count by weights, at least one each, by the largest-remainder method."""
    shares = (count - len(weights)) * weights / weights.sum()
    whole = np.floor(shares).astype(int)
    left = count - len(weights) - int(whole.sum())
    whole[np.argsort(-(shares - whole), kind="stable")[:left]] += 1
    return [1 + int(times) for times in whole]


class PCL(Selector):
    """Prompt curriculum learning: a value model predicts a prompt's difficulty without rollouts.

    From `factor` times as many candidates, selects those whose predicted value is closest to tau.
    The prediction is linear, w phi, in the policy's embedding phi of the prompt. After the step, it
    is moved toward the group's mean reward y (normalized least mean squares):

        w <- w + rate (y - w phi) phi / (1 + |phi|^2)

    so it lags one step behind the policy.

    Source: Gao et al. 2025, arXiv 2510.01135 (factor 4, tau 0.5). Its value model is a full
    network; the linear head and the rank view of rewards are ours.
    """

    view = "rank"
    remembers = ("weights",)

    def __init__(self, factor: int = 4, tau: float = 0.5, rate: float = 0.5) -> None:
        self.weights: list[float] = []
        self._factor, self._tau, self._rate = factor, tau, rate

    def propose(self, pool: Pool, k: int, ctx: Context) -> Proposal:
        some = pool.some(self._factor * k, ctx.rng)
        read = ctx.embed(some)
        return Proposal.of_best(some, -np.abs(read @ self._head(read) - self._tau), k)

    def observe(self, groups: Sequence[Group], ctx: Context) -> ArrayLike:
        read = ctx.embed([group.prompt for group in groups])
        weights, targets = self._head(read), rates(groups, ctx)
        for phi, target in zip(read, targets, strict=True):
            weights = weights + self._rate * (target - weights @ phi) * phi / (1 + phi @ phi)
        self.weights = weights.tolist()
        return -np.abs(targets - self._tau)

    def _head(self, read: Floats) -> Floats:
        return np.array(self.weights or np.zeros(read.shape[1]))


class AdaRFT(Selector):
    """Adapts the difficulty of prompts to the policy with a target that follows its reward.

    Every prompt has a difficulty d from 0 to 100. A step takes the prompts closest to the target T,
    which then moves with the step's mean reward r in [0, 1]:

        T <- clip(T + 50 tanh(2 (r - 0.5)), 0, 100),      initially T = 0

    Here d is 100 minus the percentile of a prompt's mean reward under the initial policy, at the
    cost of its rollouts. Rewards are seen as ranks, and rewrites inherit their parent's d. The
    prompts trained on least often come first.

    Source: Shi et al. 2025, arXiv 2504.05520; its released code for the numbers. The labels are
    ours, and so is going through the others first: the released sampler takes the closest prompts
    again and again until T moves.
    """

    view = "rank"
    remembers = ("target", "difficulty", "trained")

    def __init__(self) -> None:
        self.target = 0.0
        self.difficulty: dict[str, float] = {}
        self.trained: dict[str, int] = {}

    def propose(self, pool: Pool, k: int, ctx: Context) -> Proposal:
        if not self.difficulty:
            self._label(ctx.roll_out(list(pool), ctx.n, "screen"))
        # Shuffled first, so that ties come in random order.
        near = sorted(pool.some(len(pool), ctx.rng), key=self._distance)[:k]
        return Proposal(tuple(near), predicted=tuple(-self._distance(prompt)[1] for prompt in near))

    def observe(self, groups: Sequence[Group], ctx: Context) -> ArrayLike:
        mean = float(np.mean(rates(groups, ctx)))
        self.target = float(np.clip(self.target + 50 * np.tanh(2 * (mean - 0.5)), 0, 100))
        for group in groups:
            name = group.prompt.prompt_id
            self.trained[name] = self.trained.get(name, 0) + 1
        return [-self._distance(group.prompt)[1] for group in groups]

    def enter(self, children: Sequence[Prompt], inherited: Floats, ctx: Context) -> ArrayLike:
        for child in children:
            parent = str(child.parent_id)
            self.difficulty[child.prompt_id] = self.difficulty.get(parent, 50.0)
        return inherited

    def _label(self, groups: Sequence[Group]) -> None:
        means = np.array([group.rewards.mean() for group in groups])
        for group, mean in zip(groups, means, strict=True):
            below = (np.mean(means < mean) + np.mean(means <= mean)) / 2
            self.difficulty[group.prompt.prompt_id] = 100.0 * (1.0 - float(below))

    def _distance(self, prompt: Prompt) -> tuple[int, float]:
        name = prompt.prompt_id
        return self.trained.get(name, 0), abs(self.difficulty[name] - self.target)


def category(prompt: Prompt) -> str:
    """Return the category of a prompt: its word count, binned by powers of two (ours)."""
    return str(len(prompt.prompt.split()).bit_length())


class SEC(Selector):
    """Self-evolving curriculum: prompt categories are bandit arms.

    Their payoff is the size of RLOO's leave-one-out advantage A:

        category ~ softmax(Q / tau),      Q <- (1 - eta) Q + eta mean |A|

    Q of a category that was not drawn stays; in the released code it decays toward 0.

    Source: Chen et al. 2025, arXiv 2505.14970; a vendored copy of its code for eta and tau (the
    largest of three).
    """

    remembers = ("worth",)

    def __init__(self, eta: float = 0.5, tau: float = 1.0) -> None:
        self.worth: dict[str, float] = {}
        self._eta, self._tau = eta, tau

    def propose(self, pool: Pool, k: int, ctx: Context) -> Proposal:
        left: dict[str, list[Prompt]] = {}
        for prompt in pool.some(len(pool), ctx.rng):
            left.setdefault(category(prompt), []).append(prompt)
        drawn: list[Prompt] = []
        while len(drawn) < k:
            arms = sorted(arm for arm, prompts in left.items() if prompts)
            worth = np.array([self.worth.get(arm, 0.0) for arm in arms]) / self._tau
            chances = np.exp(worth - worth.max())
            arm = arms[int(ctx.rng.choice(len(arms), p=chances / chances.sum()))]
            drawn.append(left[arm].pop())
        return Proposal(
            tuple(drawn), predicted=tuple(self.worth.get(category(p), 0.0) for p in drawn)
        )

    def observe(self, groups: Sequence[Group], ctx: Context) -> ArrayLike:
        sizes = []
        paid: dict[str, list[float]] = {}
        for group in groups:
            seen = ctx.view(group.rewards)
            advantages = (seen - seen.mean()) * len(seen) / (len(seen) - 1)
            sizes.append(float(np.abs(advantages).mean()))
            paid.setdefault(category(group.prompt), []).append(sizes[-1])
        for arm, found in paid.items():
            gain = float(np.mean(found))
            self.worth[arm] = (1 - self._eta) * self.worth.get(arm, 0.0) + self._eta * gain
        return sizes


class PLR(Selector):
    """Prioritized level replay: replays prompts by the rank of their score and by staleness.

        P = (1 - rho) P_S + rho P_C,    P_S ~ rank^(-1 / beta),    P_C ~ steps since last trained on

    The score is the positive value loss, the mean of max(r - b, 0) with the group's mean as b:
    half the released code's L1 value loss, with the same ranks.
    Unseen prompts come first, except that a `replay` below 1 replays with that probability.

    Source: Jiang et al. 2020, arXiv 2010.03934; the released code for the numbers.
    """

    remembers = ("scores", "last")

    def __init__(self, beta: float = 0.1, rho: float = 0.1, replay: float = 1.0) -> None:
        self.scores: dict[str, float] = {}
        self.last: dict[str, int] = {}
        self._beta, self._rho, self._replay = beta, rho, replay

    def propose(self, pool: Pool, k: int, ctx: Context) -> Proposal:
        new = [prompt for prompt in pool if prompt.prompt_id not in self.scores]
        new = [new[i] for i in ctx.rng.permutation(len(new))[:k]]
        seen = [prompt for prompt in pool if prompt.prompt_id in self.scores]
        if self._replay < 1.0 and len(seen) >= k and ctx.rng.random() < self._replay:
            new = []
        count = min(k - len(new), len(seen))
        chances = self.chances(seen, ctx.step) if count else None
        drawn = ctx.rng.choice(len(seen), size=count, replace=False, p=chances) if count else ()
        chosen = (*(seen[i] for i in drawn), *new)
        predicted = tuple(self.scores.get(prompt.prompt_id, 0.0) for prompt in chosen)
        return Proposal(chosen, predicted=predicted)

    def chances(self, seen: Sequence[Prompt], step: int) -> Floats:
        scores = np.array([self.scores[prompt.prompt_id] for prompt in seen])
        ranks = np.empty(len(seen))
        ranks[np.argsort(-scores, kind="stable")] = np.arange(1, len(seen) + 1)
        by_score = (1.0 / ranks) ** (1.0 / self._beta)
        stale = np.array([step - self.last[prompt.prompt_id] for prompt in seen], dtype=float)
        by_age = stale / stale.sum() if stale.sum() else np.full(len(seen), 1.0 / len(seen))
        # The floor allows drawing several distinct prompts although rank^-10 vanishes.
        mixed = (1 - self._rho) * by_score / by_score.sum() + self._rho * by_age
        mixed = np.maximum(mixed, 1e-12)
        return np.asarray(mixed / mixed.sum())

    def observe(self, groups: Sequence[Group], ctx: Context) -> ArrayLike:
        for group in groups:
            name, seen = group.prompt.prompt_id, ctx.view(group.rewards)
            self.scores[name] = float(np.maximum(seen - seen.mean(), 0.0).mean())
            self.last[name] = ctx.step
        return [self.scores[group.prompt.prompt_id] for group in groups]


class ACCEL(PLR):
    """Replays the highest-scoring prompts with probability `replay`, and edits them.

    Edits are scored and displace the lowest-scoring prompts. What is edited is ours: the better
    half of every mini-batch, as with other selectors. The released code edits only what it replays,
    from the easiest levels, and takes no gradient on levels without a score.

    Source: Parker-Holder et al. 2022, arXiv 2203.01302; the released code for the numbers, except
    that staleness weighs as much as in PLR (0.1; there 0.3).
    """

    def __init__(self, replay: float = 0.8, beta: float = 0.3) -> None:
        super().__init__(beta=beta, replay=replay)

    def enter(self, children: Sequence[Prompt], inherited: Floats, ctx: Context) -> ArrayLike:
        return self.observe(ctx.roll_out(children, ctx.n, "insertion"), ctx)

    def evict(self, pool: Pool, kept: Sequence[Group], ctx: Context) -> tuple[int, int]:
        entries = pool.buffer.entries
        pool.buffer.rescore(np.array([self.scores[e.prompt.prompt_id] for e in entries]))
        return pool.buffer.put((), "least_informative"), 0
