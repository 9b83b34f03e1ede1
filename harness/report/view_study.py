"""The blocks of a table's study: its reward models by three measures, and how these rank them."""

from __future__ import annotations

from harness.report.model import Report, Study
from harness.report.reward_study import MEASURES
from harness.report.view import (
    APPLIES_NOT,
    NO_COMPARISON,
    Block,
    plain,
    probability,
    row_names,
    signed,
    state_words,
)

CALLED = {"accuracy": "accuracy", "best_of_n": "best of {n}", "gain": "gain"}


def study_blocks(report: Report) -> list[Block]:
    """Return the blocks of a table's study; none where it has none."""
    if report.study is None:
        return []
    return [_models_block(report, report.study), _agreement_block(report.study)]


def _models_block(report: Report, study: Study) -> Block:
    names = row_names(report)
    rows = []
    for model in study.models:
        if model.measures is None:
            words = state_words(model.state, model.done, len(study.seeds))
            rows.append((names[model.row], words, words, words))
            continue
        (accuracy, of_accuracy, _), (chosen, of_chosen, _), (gain, of_gain, _) = (
            model.measures[measure] for measure in MEASURES
        )
        rows.append(
            (
                names[model.row],
                f"{accuracy:.3f} ±{accuracy - of_accuracy:.3f}",
                f"{chosen:.3f} ±{chosen - of_chosen:.3f}",
                f"{signed(gain, 2)} ±{gain - of_gain:.2f}",
            )
        )
    between = ""
    if study.mean_answer is not None and study.best_by_oracle is not None:
        between = (
            f" All answers score {study.mean_answer:.3f} on average, the oracle's own best "
            f"{study.best_by_oracle:.3f}."
        )
    column = report.table.column(study.column)
    notes = (
        "Accuracy: share of held-out pairs that the reward model orders as the oracle does. "
        f"Best of {study.n}: mean oracle score of the answer it ranks first among {study.n} of the "
        f"base policy to each validation prompt.{between} Gain: that of the policy trained on it, "
        f"in {column.benchmark}, {column.printed}.",
    )
    head = ("row", "accuracy\n± 95%", f"best of {study.n}\n± 95%", "gain\n± 95%")
    return Block("Reward models", tuple(map(plain, notes)), head, tuple(rows))


def _agreement_block(study: Study) -> Block:
    done = sum(model.measures is not None for model in study.models)
    rows = []
    for agreement in study.agreements:
        measures = (agreement.first, agreement.second)
        name = " and ".join(CALLED[measure].format(n=study.n) for measure in measures)
        found = agreement.found
        if found is None:
            words = f"{done}/{len(study.models)} reward models"
            if study.whole:
                words = NO_COMPARISON if len(study.seeds) == 1 else "undefined"
            rows.append((name, words, *[APPLIES_NOT] * 3))
            continue
        rows.append(
            (
                name,
                signed(found.rho, 2),
                f"{signed(found.low, 2)} to {signed(found.high, 2)}",
                f"{signed(found.things_low, 2)} to {signed(found.things_high, 2)}",
                probability(found.p_value),
            )
        )
    notes = (
        f"Spearman's rank correlation over the {len(study.models)} reward models. The first "
        "interval (95%) is over seeds and prompts: these reward models, measured again. The second "
        "is over reward models, drawn anew from these: crude with so few, rather too narrow, and "
        "no statement about other reward models, since some of these were graded on purpose. p: "
        "how often a random pairing of the two measures gives as large a correlation.",
    )
    head = ("measures", "ρ", "over seeds\nand prompts", "over reward\nmodels", "p")
    return Block("Does one measure predict another?", notes, head, tuple(rows))
