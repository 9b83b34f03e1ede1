"""Laws of the component ablation: what rows share with eva, what they change, real small runs."""

from __future__ import annotations

from collections import Counter

import computing
import pytest
from computing import of, rows, trained

from harness.eva.informativeness import informativeness
from harness.pipeline.runs import TableRuns, plan_table
from harness.registry.profile import Profile
from harness.registry.schema import Table
from harness.runtime import Plan, Store
from harness.worlds.stage_io import read_rewards

X = 16

pytestmark = pytest.mark.usefixtures("shipped_world")


@pytest.fixture(scope="module")
def small(tables: dict[str, Table], micro: Profile) -> TableRuns:
    """The same with 16 prompts an iteration and two answers each, but for further evolving.

    Rewrites of four deep prompts can be too few for four fifths of 16.
    """
    profile = computing.small(micro, X, benchmarks=micro.benchmarks)
    names = [row.id for row in tables["components"].rows]
    rows = [name for name in names if name not in ("eva-uniform-2", "eva-uniform-3")]
    return plan_table(tables["components"], profile, (0,), rows)


@pytest.fixture(scope="module")
def store(small: TableRuns, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The small runs' policies, trained."""
    return trained(small, tmp_path_factory.mktemp("work"))


def test_a_small_run_shuffles_the_values_of_the_row_it_controls(
    small: TableRuns, store: Store
) -> None:
    """Each value drawn is one of the gaps, and as often at most as it stands among them.

    But hardly one is the gap of the prompt that is drawn by it.
    """
    [select] = [s for s in Plan(of(small, "eva-shuffled").training) if s.kind == "select"]
    ids, rewards = read_rewards(store.open(select.inputs["rewards"].fingerprint))
    gaps = dict(zip(ids, informativeness(rewards, "a_min"), strict=True))
    drawn = rows(store, select, "selected")
    assert len(drawn) == X // 4
    assert Counter(row["informativeness"] for row in drawn) <= Counter(gaps.values())
    assert sum(row["informativeness"] == gaps[row["prompt_id"]] for row in drawn) <= 1
