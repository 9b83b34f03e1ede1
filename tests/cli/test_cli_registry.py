"""`list`, `show` and `validate` say what is declared."""

from pathlib import Path
from typing import Any

import pytest

from harness.project import declaration_dirs, profiles_dir
from harness.registry import documents, paper
from harness.registry.declared import all_profiles, all_tables
from harness.registry.profile import table_at, unsupported
from harness.sweep.declaration import FOLDER

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.usefixtures("declared_anew")


def test_list_names_every_table_with_the_paper_s_362_values(says: Any) -> None:
    listed = says("list")["tables"]
    paper = [f"table{n}" for n in (1, 2, *range(4, 17))]
    assert [table["id"] for table in listed] == [
        *paper, "choosing", "components", "controls", "reward-models",
        "selectors",
    ]  # fmt: skip
    assert sum(table["paper_values"] for table in listed) == 362
    assert listed[2] == {
        "id": "table4",
        "title": all_tables()["table4"].title,
        "kind": "ablation",
        "rows": 9,
        "columns": 5,
        "paper_values": 45,
        "runnable": list(all_profiles()),
    }


def test_list_says_what_each_profile_takes_as_the_page_about_gpus_does(says: Any) -> None:
    listed = {profile["id"]: profile for profile in says("list")["profiles"]}
    assert list(listed) == list(all_profiles())
    assert all(it["machine"] and it["time"] and it["dollars"] for it in listed.values())
    assert (listed["micro"]["tables"], listed["micro"]["seeds"]) == (20, [10])
    assert listed["paper"]["tables"] == 0
    page = (ROOT / "docs" / "one-gpu.md").read_text(encoding="utf-8")
    for name in ("consumer-gpu", "single-gpu", "paper"):
        (line,) = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
        *_, time, dollars = [cell.strip() for cell in line.strip("|").split("|")]
        assert (listed[name]["time"], listed[name]["dollars"]) == (time, dollars)


def test_a_table_is_runnable_only_where_each_of_its_cells_is(says: Any) -> None:
    tables, profiles = all_tables(), all_profiles()
    for listed in says("list")["tables"]:
        for name, profile in profiles.items():
            table = table_at(tables[listed["id"]], profile)
            cells = [
                not unsupported(table.recipe_of(row, column), [column], profile)
                for row in table.rows
                for column in table.columns
            ]
            # Controls, and tables at a profile with columns of its own, are run as far as it can.
            runnable = any(cells) if table.controls or profile.columns else all(cells)
            runnable &= not (profile.columns and any(row.kind == "prompts" for row in table.rows))
            assert (name in listed["runnable"]) == runnable, (table.id, name)


@pytest.mark.parametrize("table", ["table1", "table4", "table16"])
def test_show_prints_every_value_as_the_paper_does(says: Any, call: Any, table: str) -> None:
    shown = says("show", table)["table"]
    text = call("show", table).stdout
    for row in shown["rows"]:
        lines = map(str.split, text.split("values:")[1].splitlines())
        line = next(words for words in lines if words[:1] == [row["id"]])
        values = [word for word in line[1:] if not word.startswith("(")]
        assert values == [row["values"][column["id"]] for column in shown["columns"]]


def test_show_of_a_table_of_ours_has_no_printed_values(says: Any, call: Any) -> None:
    shown = says("show", "controls")["table"]
    assert shown["source"] is None
    assert all(row["values"] == {} for row in shown["rows"])
    text = call("show", "controls").stdout
    assert "Source: ours, beyond the paper's tables." in text
    assert "The paper's values" not in text


def test_show_gives_gains_over_the_baseline_row(says: Any) -> None:
    """60.1 - 51.6 = 8.5 for A_min against DPO in table 4; the baseline itself has none."""
    gains = says("show", "table4")["gains"]
    assert gains["eva-a_min"]["ah_wr"] == 8.5
    assert gains["dpo-1"] == {}


def test_validate_counts_what_is_declared(says: Any) -> None:
    found = says("validate")
    assert found == {
        "schema_version": 1,
        "ok": True,
        "tables": 20,
        "figures": 8,
        "profiles": 5,
        "sweeps": 9,
        "runs": 328,
        "files": [],
        "problems": [],
    }


def test_validate_reads_every_declaration_there_is(
    says: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file is opened; a new kind of declaration has to be added to `validate`."""
    read: set[Path] = set()
    real = documents.read_text

    def reading(path: Path) -> str:
        read.add(path)
        return real(path)

    monkeypatch.setattr(documents, "read_text", reading)
    paper.the_paper.cache_clear()
    assert says("validate")["ok"]
    places = [*declaration_dirs(), profiles_dir(), FOLDER]
    assert read == {path for place in places for path in place.rglob("*.yaml")}


@pytest.mark.parametrize(
    "target", ["harness.sweep.declaration.FOLDER", "harness.registry.declared.DEVIATIONS"]
)
def test_validate_names_the_problems_of_further_declarations(
    says: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, target: str
) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("strange: 1\nstrange: 2\n", encoding="utf-8")
    monkeypatch.setattr(target, tmp_path if target.endswith("FOLDER") else wrong)
    problems = says("validate", code=2)["problems"]
    assert (str(wrong), 2) in {(p["file"], p["line"]) for p in problems}
    assert any("`strange` is given twice, first on line 1" in p["message"] for p in problems)


def test_validate_takes_tables_and_profiles_of_ones_own(call: Any, mine: Path, mini: Path) -> None:
    found = call("validate", str(mine), str(mini))
    assert f"Your own are valid too: {mine}, {mini}." in " ".join(found.stdout.split())
    mine.write_text("id: mine\nrows: []\n")
    mini.write_text("name: mini\nscale: huge\nengine: vllm\n")
    found = call("validate", str(mine), str(mini), "other.txt", code=2)
    for line in (
        "mine.yaml:1: columns: this key is missing; add it",
        "mini.yaml:2: scale: `huge` is not known",
        "`other.txt` is not a YAML file",
    ):
        assert line in found.stderr


@pytest.mark.parametrize("verb", ["list", "validate", "show table4", "plan table4", "run table4"])
def test_no_tables_at_all_are_a_mistake_everywhere(
    call: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verb: str
) -> None:
    monkeypatch.setattr("harness.registry.declared.declaration_dirs", lambda: [tmp_path])
    said = call(*verb.split(), code=2).stderr
    assert f"{tmp_path}:1: no table is declared here" in said


def test_validate_names_the_problems_of_tables_figures_and_profiles_at_once(
    says: Any, call: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "table4.yaml").write_text("id: table4\nquestoin: why\n")
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "micro.yaml").write_text("name: micro\nscale: huge\n")
    monkeypatch.setattr("harness.registry.declared.declaration_dirs", lambda: [tmp_path])
    monkeypatch.setattr("harness.registry.profile.profiles_dir", lambda: tmp_path / "profiles")
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "figure3.yaml").write_text("id: figure3\nkind: bars\n")
    monkeypatch.setattr("harness.registry.figures.figures_dir", lambda: tmp_path / "figures")
    found = says("validate", code=2)
    assert not found["ok"]
    messages = [problem["message"] for problem in found["problems"]]
    assert any("questoin" in message and "question" in message for message in messages)
    assert any("huge" in message for message in messages)
    assert any("`bars` is not known" in message for message in messages)
    said = call("validate", code=2).stderr
    assert "table4.yaml:2" in said
    assert "micro.yaml:2" in said
