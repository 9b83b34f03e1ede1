"""Laws of the controls: what each changes, and nothing else."""

import pytest
from build_micro import best_known_topics
from computing import evolve_of, of

from harness.errors import UserError
from harness.pipeline.algorithm import Run
from harness.pipeline.runs import TableRuns, plan_table
from harness.registry.profile import Profile, table_unsupported
from harness.registry.schema import Table
from harness.runtime import Plan, Stage
from harness.worlds.embedded.choosing import names_of
from harness.worlds.embedded.texts import TOPIC_OF
from harness.worlds.lookup import runtime_of

WHO = ("uniform", "oracle", "worst", "shuffled")

pytestmark = pytest.mark.usefixtures("shipped_world")


@pytest.fixture(scope="module")
def table(tables: dict[str, Table]) -> Table:
    return tables["controls"]


@pytest.fixture(scope="module")
def whole(micro: Profile, table: Table) -> TableRuns:
    return plan_table(table, micro, (0,))


def prompts_of(run: Run) -> Stage:
    """The stage that draws the first iteration's prompts of a run."""
    (found,) = [s for s in Plan([run.iterations[0].prompts]) if s.kind == "prompts"]
    return found


def test_no_row_is_eva_and_every_row_stands_in_a_control(table: Table) -> None:
    """What evolves has parents drawn evenly or chosen by the oracle, and asks no metric."""
    for row in table.rows:
        for recipe in table.recipes(row).values():
            online = recipe.online
            evolves = "eva" in recipe.chain or (online is not None and online.prompts == "eva")
            chooses = online or recipe.creator
            assert not evolves or chooses.oracle or chooses.metric == "uniform"
    assert {row for control in table.controls for row in control.rows} == {r.id for r in table.rows}


def test_rows_of_choosing_differ_in_who_chooses_alone(whole: TableRuns) -> None:
    """From x and from 6x; all evolve the same policy's choice and train as the even row does."""
    for start in ("dpo-eva", "dpo-eva-6x"):
        runs = [of(whole, f"{start}-{who}") for who in WHO]
        choices = [evolve_of(run).inputs["selected"] for run in runs]
        assert len(set(choices)) == 4
        assert len({choice.inputs["prompts"] for choice in choices}) == 1
        assert {run.iterations[0] for run in runs} == {of(whole, "dpo-1x").iterations[0]}
        assert len({str(run.training[-1].settings) for run in runs}) == 1
        assert len({run.iterations[1].pairs.inputs["base"] for run in runs}) == 1
    pools = [of(whole, f"dpo-pool-{who}") for who in ("oracle", "worst", "shuffled")]
    choices = [run.iterations[0].prompts for run in pools]
    assert {choice.kind for choice in choices} == {"choose"}
    assert {choice.inputs["prompts"] for choice in choices} == {prompts_of(of(whole, "dpo-6x"))}


def test_a_profile_runs_the_controls_that_it_can(micro: Profile, table: Table) -> None:
    prompts = micro.prompts.model_copy(update={"matched": None})
    offline = micro.model_copy(update={"prompts": prompts, "algorithms": ("dpo",)})
    assert not table_unsupported(table, offline)
    runs = plan_table(table, offline, (0,))
    assert [row.id for row in runs.rows] == [
        row.id for row in table.rows if "rloo" not in row.id and row.id != "dpo-matched"
    ]
    reasons = table_unsupported(table, offline, [table.row("dpo-matched")])
    assert reasons == ["`micro` has no prompts matched to the hard benchmark"]
    with pytest.raises(UserError, match="matched to the hard benchmark"):
        plan_table(table, offline, (0,), ["dpo-matched"])


def test_off_target_prompts_begin_as_the_human_row_does_and_go_on_with_three_topics(
    micro: Profile, whole: TableRuns
) -> None:
    """Of 3x the first x; the other 2x are of another pool, each once and of the seed's own."""

    def drawn(row: str, **changes: int) -> list[str]:
        settings = {**prompts_of(of(whole, row)).settings, **changes}
        found = runtime_of(str(settings["source"])).human_prompts(settings)
        return list(found.values())

    found = drawn("dpo-off-target")
    assert found[: micro.x] == drawn("dpo-1x")
    others = found[micro.x :]
    assert len(set(found)) == 3 * micro.x
    assert {TOPIC_OF[name] for text in others for name in names_of(text)} == set(
        best_known_topics(3)
    )
    assert set(drawn("dpo-off-target", seed=1)[micro.x :]) != set(others)
