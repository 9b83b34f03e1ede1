"""What a sweep has found: winner and front, on trials written by hand."""

from collections.abc import Sequence

import optuna
from hypothesis import given
from hypothesis import strategies as st
from optuna.trial import FrozenTrial, TrialState, create_trial
from toy_sweep import toy

from harness.sweep.study import pareto_front, winner_of

TWO = toy(
    objectives=[
        {"name": "win_rate", "measure": "val_wr", "direction": "maximize"},
        {"name": "tokens", "measure": "val_len", "direction": "minimize"},
    ]
)


def trials(values: Sequence[tuple[float, ...]]) -> list[FrozenTrial]:
    found = [create_trial(values=list(several), params={}, distributions={}) for several in values]
    for number, trial in enumerate(found):
        trial.number = number
    return found


def study_with(values: Sequence[tuple[float, float]]) -> optuna.Study:
    study = optuna.create_study(directions=["maximize", "minimize"])
    study.add_trials(trials(values))
    return study


def test_the_first_objective_decides_and_the_second_breaks_ties() -> None:
    best = winner_of(TWO, trials([(1, 5), (3, 9), (3, 7), (3, 7)]))
    assert best is not None
    assert best.number == 2
    assert winner_of(TWO, []) is None


def test_a_pruned_trial_never_wins() -> None:
    pruned = create_trial(state=TrialState.PRUNED, params={}, distributions={})
    assert winner_of(toy(), [pruned]) is None


def test_the_front_by_hand() -> None:
    """Maximise the first, minimise the second: (1, 1) is cheapest, (3, 2) best.

    (2, 2) is worse than (3, 2), and the second (3, 2) is the first one again.
    """
    assert pareto_front(TWO, study_with([(1, 1), (2, 2), (3, 2), (3, 2)])) == (2, 0)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12))
def test_every_trial_is_on_the_front_or_worse_than_one_on_it(values: list[tuple[int, int]]) -> None:
    front = pareto_front(TWO, study_with([(float(a), float(b)) for a, b in values]))
    winner = winner_of(TWO, trials([(float(a), float(b)) for a, b in values]))
    assert winner is not None
    assert winner.number == front[0]
    best = [values[number] for number in front]
    assert len(set(best)) == len(best)
    for a, b in values:
        better = [(c, d) for c, d in best if c >= a and d <= b]
        assert better
        if (a, b) in best:
            assert better == [(a, b)]
