"""The runs behind a figure, and what is known of prompts and reward models at a profile."""

import pytest

from harness.pipeline.runs import plan_figure
from harness.registry.figures import Figure, figure_unsupported
from harness.registry.profile import Profile, load_profiles
from harness.registry.schema import Table
from harness.runtime import Plan
from harness.worlds import NO_TOPIC
from harness.worlds.embedded.language import CATEGORIES
from harness.worlds.embedded.world import category_of_first_operation
from harness.worlds.lookup import world_of

SEEDS = (0, 1)


def test_rows_of_several_tables_share_their_runs(
    figures: dict[str, Figure], tables: dict[str, Table], micro: Profile
) -> None:
    """The first row of tables 4 and 13 is one run, and its stages are one."""
    runs = plan_figure(figures["figure5"], tables, micro, (0,))
    first, other = (runs.parts[name].runs["dpo-h1", 0] for name in ("table4", "table13"))
    assert first.targets == other.targets
    assert set(runs.parts) == {"table4", "table13", "table14", "table15", "components"}


def test_a_row_that_the_profile_cannot_run_is_left_out_with_its_reason(
    figures: dict[str, Figure], tables: dict[str, Table], micro: Profile
) -> None:
    bare = micro.model_copy(update={"algorithms": ("dpo",)})
    lacking = figure_unsupported(figures["figure3"], tables, bare)
    assert set(figures["figure3"].rows) - set(lacking) == {"table2/dpo-eva"}
    assert "`micro` has no algorithm `rloo`" in lacking["table1/rloo-eva-1x"]
    runs = plan_figure(figures["figure3"], tables, bare, SEEDS)
    assert set(runs.parts) == {"table2"}
    assert [row.id for row in runs.parts["table2"].rows] == ["dpo-1", "dpo-eva"]


def test_a_figure_of_scores_that_the_profile_does_not_measure_runs_nothing(
    figures: dict[str, Figure], tables: dict[str, Table]
) -> None:
    laptop = load_profiles()["laptop"]
    for name, score in (("figure5", "ah_wr"), ("figure7", "mt_avg")):
        lacking = figure_unsupported(figures[name], tables, laptop)
        assert lacking.keys() == {*figures[name].rows}
        assert all(f"`laptop` has no score `{score}`" in why for why in lacking.values())
        assert not plan_figure(figures[name], tables, laptop, (0,)).runs
    assert figure_unsupported(figures["figure12"], tables, laptop) == {}


def test_the_topic_of_a_prompt_is_the_category_of_its_first_operation(micro: Profile) -> None:
    sorting = world_of(micro).prompts.topics()
    assert sorting is not None
    assert sorting.names == CATEGORIES
    topic_of = category_of_first_operation
    assert topic_of("reverse-3 , then sort_up-8 : 3 1 2") == "coding"
    assert topic_of("sort_up-8 , then reverse-3 : 3 1 2") == "reasoning"
    assert topic_of("write a poem") == NO_TOPIC


@pytest.mark.parametrize(("name", "stages"), [("figure6", 4), ("figure12", 1)])
def test_elsewhere_a_stage_tells_the_topics_that_a_figure_shows(
    figures: dict[str, Figure], tables: dict[str, Table], name: str, stages: int
) -> None:
    """Figure 6 shows the prompts of four iterations, figure 12 those that one starts from."""
    paper = load_profiles()["paper"]
    plan = Plan(plan_figure(figures[name], tables, paper, (0,)).targets)
    topics = [stage for stage in plan if stage.kind == "topics"]
    assert len(topics) == stages
    assert {stage.settings["judge"] for stage in topics} == {"gemini-1.5-flash"}
    bare = paper.model_copy(update={"creator": paper.creator.model_copy(update={"scorer": None})})
    assert world_of(bare).prompts.topics() is None
    plan = Plan(plan_figure(figures[name], tables, bare, (0,)).targets)
    assert not any(stage.kind == "topics" for stage in plan)
