"""Every declaration file, found recursively, against its schema and against the paper."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.project import figures_dir, profiles_dir
from harness.registry.declared import table_files
from harness.registry.documents import read_document, sources, yaml_files
from harness.registry.figures import Figure
from harness.registry.profile import Profile, table_unsupported, unsupported
from harness.registry.recipe import Recipe
from harness.registry.schema import Table

TABLE_FILES = table_files()
PROFILE_FILES = yaml_files(profiles_dir())
FIGURE_FILES = yaml_files(figures_dir())
PAPER_TABLES = {f"table{n}" for n in (1, 2, *range(4, 17))}
OUR_TABLES = {"choosing", "components", "controls", "reward-models", "selectors"}


def _paper(tables: dict[str, Table]) -> dict[str, Table]:
    return {name: table for name, table in tables.items() if name in PAPER_TABLES}


def test_no_declaration_is_missing(tables: dict[str, Table], figures: dict[str, Figure]) -> None:
    """The paper numbers tables 1 to 16; table 3 holds definitions and no measured value.

    Its figures 1, 2, 8 and 11 are drawings of the method.
    """
    assert len(PAPER_TABLES) == 15
    assert sorted(path.stem for path in TABLE_FILES) == sorted(PAPER_TABLES | OUR_TABLES)
    assert {name for name, table in tables.items() if table.is_ours} == OUR_TABLES
    assert [name for name in tables if name in OUR_TABLES] == list(tables)[-len(OUR_TABLES) :]
    assert list(figures) == [f"figure{n}" for n in (3, 4, 5, 6, 7, 9, 10, 12)]
    assert len(FIGURE_FILES) == len(figures)
    assert sorted(path.stem for path in PROFILE_FILES) == [
        "consumer-gpu", "laptop", "micro", "paper", "single-gpu"
    ]  # fmt: skip


def test_the_paper_has_362_values_and_64_runs(tables: dict[str, Table]) -> None:
    paper = _paper(tables)
    assert sum(table.paper_values for table in paper.values()) == 362
    runs = {r.run_id(c) for t in paper.values() for r in t.rows for c in t.columns}
    assert len(runs) == 64


def test_a_table_is_called_by_its_number_or_by_its_title(tables: dict[str, Table]) -> None:
    assert tables["table4"].heading == "Table 4: Informativeness metric"
    assert tables["table4"].place == "arXiv 2411.00062, section 4.2.1, table 4"
    assert tables["controls"].heading == "Controls"
    assert tables["controls"].place == "ours, beyond the paper's tables"


@pytest.fixture(scope="module")
def printed(shared_dir: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((shared_dir / "paper/tables.yaml").read_text("utf-8"))
    return found


def test_values_runs_and_labels_are_those_of_the_paper(
    tables: dict[str, Table], printed: dict[str, Any]
) -> None:
    for name, table in _paper(tables).items():
        theirs = printed["tables"][name]
        assert [column.id for column in table.columns] == theirs["columns"]
        assert [row.id for row in table.rows] == [row["id"] for row in theirs["rows"]]
        for row, their_row in zip(table.rows, theirs["rows"], strict=True):
            values = {column: value.printed for column, value in row.values.items()}
            assert values == their_row["values"], (name, row.id)
            assert row.label == their_row["label"]
            assert row.reading == their_row.get("label_reading")
            assert row.printed_notes == their_row.get("printed_notes", {})
            assert row.run == their_row.get("run")
            assert row.run_by_column == their_row.get("run_by_column")


def test_columns_have_the_paper_s_unit_and_direction(
    tables: dict[str, Table], printed: dict[str, Any]
) -> None:
    for table in _paper(tables).values():
        for column in table.columns:
            theirs = printed["columns"][column.id]
            for name in ("benchmark", "metric", "unit", "direction"):
                assert getattr(column, name) == theirs[name]


def test_baseline_rows(tables: dict[str, Table]) -> None:
    baselines = {
        name: {row.id for row in table.rows if row.baseline is None}
        for name, table in _paper(tables).items()
    }
    special = {
        "table1": {"rloo-1x", "oaif-1x"},
        "table2": {"dpo-1", "sppo-1", "simpo-1", "orpo-1"},
        "table7": {"seed"},
        "table8": {"rloo-1x"},
        "table9": {"base"},
        "table11": {"sppo-1"},
    }
    assert baselines == {name: special.get(name, {"dpo-1"}) for name in baselines}
    for name in ("table1", "table2"):
        for row in tables[name].rows:
            if row.baseline is not None and row.id != "base":
                assert row.baseline.split("-")[0] == row.id.split("-")[0]


def test_paper_gain_is_taken_at_the_printed_precision(tables: dict[str, Table]) -> None:
    """Table 4 prints (+8.5) beside 60.1 and (+0.43) beside 8.75; floats give 8.75 - 8.32 < 0.43."""
    table = tables["table4"]
    row = table.row("eva-a_min")
    assert table.paper_gain(row, table.column("ah_wr")) == 8.5
    assert table.paper_gain(row, table.column("mt_t2")) == 0.43
    assert table.paper_gain(table.row("dpo-1"), table.column("ah_wr")) is None


@pytest.mark.parametrize("path", PROFILE_FILES, ids=lambda path: path.stem)
def test_every_hyperparameter_has_its_source_beside_it(path: Path) -> None:
    described = {"name", "scale", "description"}
    data = read_document(path).data
    data.pop("columns", None)  # what is shown, not how it is measured
    found = sources(data)
    bare = [key for key, _, source in found if not source and key not in described]
    assert not bare


def test_a_value_whose_source_is_null_has_none() -> None:
    assert sources({"x": {"value": 2, "source": None}}) == [("x", 2, "")]


def test_micro_runs_table4_and_the_paper_profile_offers_everything(
    tables: dict[str, Table], micro: Profile, paper: Profile
) -> None:
    for name in ("table4", "table7"):
        assert table_unsupported(tables[name], micro) == []
    table9 = tables["table9"]
    rows = [table9.row(name) for name in ("base", "dpo-1", "dpo-eva")]
    assert table_unsupported(table9, micro, rows) == []
    for table in _paper(tables).values():
        assert table_unsupported(table, paper) == []


def test_what_a_profile_lacks_is_named(micro: Profile) -> None:
    bare = micro.model_copy(
        update={
            "algorithms": ("dpo",),
            "reward_models": {"pointwise": "world"},
            "trained_reward_models": {},
            "rewriter": False,
            "train_modes": ("incremental",),
            "prompts": micro.prompts.model_copy(update={"available": 1}),
            "creator": micro.creator.model_copy(update={"methods": ("evol_instruct",)}),
        }
    )
    asked = {
        "algorithm": "simpo",
        "chain": ["human", "human", "eva"],
        "reward_model": "pointwise_large",
        "creator": {"method": "evol_quality"},
    }
    for name, value, lacks in (
        ("train", "scratch", "training mode `scratch`"),
        ("rewriter", True, "rewriter"),
    ):
        assert unsupported(Recipe.model_validate(asked | {name: value}), [], bare) == [
            "`micro` has no algorithm `simpo`",
            "`micro` has no reward model `pointwise_large`",
            "`micro` has no evolving method `evol_quality`",
            f"`micro` has no {lacks}",
            "`micro` has 1x human prompts and 2x are needed",
        ]
    assert unsupported(Recipe(), [], bare) == []


def test_an_even_draw_of_parents_needs_the_reward_model_it_is_planned_with(paper: Profile) -> None:
    pairwise = paper.model_copy(
        update={"reward_models": {"pairwise": paper.reward_models["pairwise"]}}
    )
    recipe = Recipe.model_validate(
        {
            "algorithm": "sppo",
            "chain": ["human", "eva"],
            "reward_model": "pairwise",
            "creator": {"metric": "uniform"},
        }
    )
    assert unsupported(recipe, [], pairwise) == ["`paper` has no reward model `pointwise`"]


@pytest.mark.parametrize(
    ("recipe", "lacks"),
    [
        ({"chain": ["off_target"], "size": 2}, "prompts that are off target"),
        (
            {"chain": ["human"], "pool": 2, "creator": {"metric": "uniform", "oracle": "best"}},
            "oracle to choose prompts",
        ),
        (
            {"chain": ["human", "eva"], "creator": {"reach": "even"}},
            "creator whose reach can be set",
        ),
        ({"algorithm": "rloo", "online": {"oracle": "worst"}}, "oracle to choose prompts online"),
    ],
)
def test_what_only_the_embedded_world_has_is_named(
    recipe: dict[str, Any], lacks: str, micro: Profile, paper: Profile
) -> None:
    asked = Recipe.model_validate({"algorithm": "dpo"} | recipe)
    assert unsupported(asked, [], paper) == [f"`paper` has no {lacks}"]
    assert unsupported(asked, [], micro) == []


def test_a_pool_of_parents_needs_as_many_human_prompts(micro: Profile) -> None:
    recipe = Recipe.model_validate(
        {"algorithm": "dpo", "chain": ["human", "eva"], "creator": {"parents": 7}}
    )
    assert unsupported(recipe, [], micro) == ["`micro` has 6x human prompts and 7x are needed"]
