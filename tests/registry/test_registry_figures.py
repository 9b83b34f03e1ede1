"""Every figure's declaration, against its schema, the tables it names, and mistakes in it."""

from pathlib import Path

import pytest

from harness.registry.documents import RegistryError
from harness.registry.figures import MODELS, Figure, load_figures
from harness.registry.schema import Table

HEAD = """
id: figure90
title: A toy
question: Does it show?
source: {section: "4", figure: 90, caption: A toy.}
alt: "A toy: {numbers}."
"""


def problems(tmp_path: Path, tables: dict[str, Table], text: str) -> list[str]:
    """Return what is wrong with a figure's file, as `line: message`."""
    (tmp_path / "figure90.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(RegistryError) as caught:
        load_figures(tables, tmp_path)
    return [f"{problem.line}: {problem.message}" for problem in caught.value.problems]


def test_every_kind_is_used_and_known(figures: dict[str, Figure]) -> None:
    assert {figure.kind for figure in figures.values()} == set(MODELS)
    assert len(MODELS) == 7


def test_gains_cover_every_eva_row_of_tables_1_and_2(
    figures: dict[str, Figure], tables: dict[str, Table]
) -> None:
    eva = {
        f"{name}/{row.id}" for name in ("table1", "table2") for row in tables[name].rows
        if "-eva" in row.id
    }  # fmt: skip
    assert set(figures["figure3"].rows) == eva


def test_iterations_cover_every_row_of_tables_13_to_15(
    figures: dict[str, Figure], tables: dict[str, Table]
) -> None:
    for name in ("table13", "table14", "table15"):
        shown = {row for row in figures["figure5"].rows if row.startswith(f"{name}/")}
        assert shown == {f"{name}/{row.id}" for row in tables[name].rows}


GAINS = HEAD + "kind: gains\ncolumns: [ah_wr]\ngroups:\n  all:\n"
REWARDS = HEAD + "kind: correlation\nx: a_min\ny: var\n"
LINES = HEAD + "kind: iterations\ncolumn: ah_wr\npanels:\n  all:\n    eva: {1: table13/dpo-1}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            GAINS + "    A: table4/eva-amin\n",
            "11: there is no row `table4/eva-amin`; did you mean `table4/eva-a_min`?",
        ),
        (GAINS + "    A: table4/dpo-1\n", "11: `table4/dpo-1` is a baseline row and has no gain"),
        (
            GAINS.replace("ah_wr", "ah_w") + "    A: table4/eva-a_min\n",
            "11: `table4` has no column `ah_w`; did you mean `ah_wr`?",
        ),
        (
            REWARDS + "row: table4/eva-a_min\niteration: 3\n",
            "`table4/eva-a_min` has 2 offline iterations and 3 are needed",
        ),
        (
            REWARDS + "row: choosing/parents-oracle\niteration: 2\n",
            "`choosing/parents-oracle` has no rewards to show: the oracle chooses its prompts",
        ),
        (
            REWARDS + "row: table1/rloo-eva-1x\niteration: 1\n",
            "`table1/rloo-eva-1x` has 0 offline iterations and 1 are needed",
        ),
        (
            REWARDS + "row: table8/rloo-eva-1x\niteration: 1\n",
            "`table8/rloo-eva-1x` has another run in each column",
        ),
        (REWARDS + "row: table4\niteration: 1\n", "row: string should match pattern"),
        (REWARDS + "row: table4/dpo-1\niteration: 0\n", "iteration: must be greater"),
        (REWARDS + "row: table4/dpo-1\niteratoin: 1\n", "did you mean `iteration`?"),
        (HEAD + "kind: gain\n", "kind: `gain` is not known; did you mean `gains`?"),
        (HEAD, "kind: this key is missing; add it"),
        ("", "the file is empty; declare a figure"),
        ("- gains", "the file holds no figure; declare one"),
        (LINES.replace("figure90", "figure91"), "id: `figure91` differs from the name of the"),
        (LINES.replace("{numbers}", "{number}"), "`alt` names `{number}`; did you mean `numbers`?"),
        (LINES.replace("{numbers}", "{}"), "`alt` names `{}`"),
        (LINES.replace("{numbers}", "{seeds.x}"), "`alt` names `{seeds.x}`"),
        (LINES.replace("{numbers}", "{seeds!z}"), "Unknown conversion specifier"),
        (LINES.replace("{numbers}", "{seeds:{numbre}}"), "`alt` cannot be filled in: 'numbre'"),
        (LINES + "    eva: {2: table13/eva-1}\n", "`eva` is given twice"),
    ],
)
def test_a_wrong_figure_is_named(
    tmp_path: Path, tables: dict[str, Table], text: str, message: str
) -> None:
    assert any(message in problem for problem in problems(tmp_path, tables, text))


def test_without_tables_only_the_file_itself_is_checked(tmp_path: Path) -> None:
    text = GAINS + "    A: table4/eva-amin\n"
    (tmp_path / "figure90.yaml").write_text(text, encoding="utf-8")
    assert list(load_figures(None, tmp_path)) == ["figure90"]
