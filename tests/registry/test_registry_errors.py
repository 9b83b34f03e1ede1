"""Mistakes in declarations: each is found, all at once, with file, line and the nearest name."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from harness.project import figures_dir, profiles_dir, project_root
from harness.registry import claims, paper
from harness.registry.claims import figure_claims
from harness.registry.declared import check_references, load_tables
from harness.registry.documents import Problem, RegistryError
from harness.registry.figures import load_figures
from harness.registry.profile import load_profiles
from harness.registry.schema import Table
from harness.sweep.declaration import FOLDER, load_sweeps

TABLE = """\
id: demo
kind: ablation
title: Demo
question: "Does it?"
source: {section: "4", table: 4, caption: "A demo."}
columns:
  - {id: ah_wr, benchmark: Arena-Hard v0.1, metric: win rate, printed: WR, unit: "%",
     direction: higher}
recipe:
  algorithm: dpo
  chain: [human, eva]
rows:
  - id: first
    label: "First"
    run: dpo-h1
    recipe: {chain: [human]}
    values: {ah_wr: "51.6"}
  - id: second
    label: "Second"
    run: dpo-eva
    baseline: first
    values: {ah_wr: "60.10"}
"""


def _problems(folder: Path, **texts: str) -> list[Problem]:
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(RegistryError) as caught:
        load_tables([folder])
    assert caught.value.exit_code == 2
    return caught.value.problems


def _changed(old: str, new: str) -> str:
    assert TABLE.count(old) == 1
    return TABLE.replace(old, new)


def test_an_id_that_stands_twice_is_one_problem(tmp_path: Path) -> None:
    """What else could be said of runs, baselines and settings follows from it."""
    twice = _changed("  - id: second", "  - id: first")
    (problem,) = _problems(tmp_path, demo=twice)
    assert problem.message == f"rows[1].id: `first` is already in {tmp_path}/demo.yaml:13"


def test_the_demo_is_valid(tmp_path: Path) -> None:
    (tmp_path / "demo.yaml").write_text(TABLE, encoding="utf-8")
    assert load_tables([tmp_path])["demo"].rows[1].values["ah_wr"].printed == "60.10"


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("title: Demo", "titel: Demo", 3, "titel: unknown key; did you mean `title`?"),
        ("question:", "aim:", 1, "question: this key is missing; add it"),
        ("kind: ablation", "kind: ablaton", 2, "`ablaton` is not known; did you mean `ablation`?"),
        ("    baseline: first", "    baselin: first", 21, "did you mean `baseline`?"),
        ("baseline: first", "baseline: firts", 21, "no row `firts`; did you mean `first`?"),
        ("baseline: first", "baseline: second", 21, "`second` has a baseline of its own"),
        ("algorithm: dpo", "algorithm: dop", 10, "`dop` is not known; did you mean `dpo`?"),
        ("[human, eva]", "[human, eve]", 11, "`eve` is not known; did you mean `eva`?"),
        ("recipe: {chain: [human]}", "recipe: {chain: []}", 16, "needs a `chain`"),
        ("[human, eva]", "human, eva", 11, "chain: must be a list, not `human, eva`"),
        (
            'source: {section: "4", table: 4, caption: "A demo."}',
            "source: mine",
            5,
            "source: must be settings by name, not `mine`",
        ),
        ("table: 4,", "table: four,", 5, "source.table: must be a whole number, "),
        (
            "recipe: {chain: [human]}",
            "recipe: {chain: [human],\n      creator: {metric: var}}",
            17,
            "`creator.metric` changes nothing",
        ),
        ('{ah_wr: "51.6"}', '{ah_rw: "51.6"}', 17, "no column `ah_rw`; did you mean `ah_wr`?"),
        ('{ah_wr: "51.6"}', "{ah_wr: 51.6}", 17, "write `51.6` as a quoted number"),
        ("{id: ah_wr,", "{id: ah_wrr,", 7, "`ah_wrr` is not known; did you mean `ah_wr`?"),
        ("    run: dpo-eva\n", "", 18, "name the run with either `run` or `run_by_column`"),
        ("run: dpo-eva", "run: dpo-h1", 20, "run `dpo-h1` is another recipe in `first` of `demo`"),
        ("title: Demo", "title: [Demo", 4, "is not valid YAML"),
        ("id: demo", "id: other", 1, "`other` differs from the name of the file; write `demo`, "),
        (
            "run: dpo-h1",
            "run: dpo-h1\n    kind: prompts",
            16,
            "`first` is `prompts` and column `ah_wr` scores answers of a policy",
        ),
        ("{id: ah_wr,", "{id: ah_wr, score: quality,", 13, "column `ah_wr` scores prompts"),
        (
            "title: Demo",
            "title: Demo\nreward_model_study: ah_wrr",
            4,
            "no column `ah_wrr`; did you mean `ah_wr`?",
        ),
    ],
)
def test_a_mistake_is_named_with_its_line(
    tmp_path: Path, old: str, new: str, line: int, message: str
) -> None:
    problems = _problems(tmp_path, demo=_changed(old, new))
    assert any(p.line == line and message in p.message for p in problems), problems
    assert all(p.file.endswith("demo.yaml") for p in problems)


def test_a_row_of_prompts_needs_a_chain_that_has_some(tmp_path: Path) -> None:
    text = TABLE.replace("{id: ah_wr,", "{id: ah_wr, score: quality,")
    text = text.replace("    label:", "    kind: prompts\n    label:")
    (tmp_path / "demo.yaml").write_text(text, encoding="utf-8")
    assert load_tables([tmp_path])["demo"].rows[0].kind == "prompts"
    base = text.replace("recipe: {chain: [human]}", "recipe: {algorithm: null}")
    (problem,) = _problems(tmp_path, demo=base)
    assert "a row of prompts needs an offline `chain`" in problem.message


CLAIM = """
  - id: a
    primary: true
    statement: Two beats one.
    source: here
    test: {kind: compare, left: second, op: ">", right: first, column: ah_wr}
"""


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        (CLAIM.replace("right: first", "right: firts"), "no row `firts`; did you mean `first`?"),
        (CLAIM.replace("ah_wr", "ah_w"), "no column `ah_w`; did you mean `ah_wr`?"),
        (CLAIM.replace("    primary: true\n", ""), "not none"),
        (CLAIM + CLAIM.replace("id: a", "id: b"), "not `a`, `b`"),
        (CLAIM + CLAIM.replace("    primary: true\n", ""), "`a` is already in"),
        (CLAIM.replace("kind: compare", "kind: compares"), "compares"),
        (
            CLAIM + '    paper_margin: "+2.6 points"\n',
            "write `+2.6 points` as `+2.6` or `+0.4 against +0.1`",
        ),
        (CLAIM.replace("source: here", "sauce: here"), "did you mean `source`?"),
        (
            CLAIM + "    marks: [{word: trivial, because: it is, at: [mirco]}]\n",
            "claims[0].marks[0].at: there is no profile `mirco`; did you mean `micro`?",
        ),
    ],
)
def test_a_wrong_claim_is_named(tmp_path: Path, claims: str, message: str) -> None:
    problems = _problems(tmp_path, demo=f"{TABLE}claims:{claims}")
    assert any(message in problem.message for problem in problems)


def test_a_claim_needs_a_reward_model_that_is_studied(tmp_path: Path) -> None:
    needs = CLAIM + "    needs: {better: second, than: firts}\n"
    text = TABLE.replace("title: Demo", "title: Demo\nreward_model_study: ah_wr")
    (problem,) = _problems(tmp_path, demo=f"{text}claims:{needs}")
    assert problem.message == "claims[0].needs.than: there is no row `firts`; did you mean `first`?"


def test_figures_compare_the_rows_of_a_table_that_they_name(tmp_path: Path) -> None:
    path = tmp_path / "figures.yaml"
    figure = "figures:\n  - id: figure90\n    claims:" + CLAIM.replace("\n  ", "\n      ")
    path.write_text("noise: {}\n" + figure, encoding="utf-8")
    with pytest.raises(RegistryError, match="name the `table` that has them"):
        figure_claims(path)


def test_a_league_ranks_rows_of_its_table(tmp_path: Path) -> None:
    league = (
        "leagues: [{id: all, title: All, start: base, uniform: firts, twin: second, above: [], "
        "below: [seconds], margin: 1.0}]"
    )
    problems = _problems(tmp_path, demo=TABLE.replace("recipe:\n", f"{league}\nrecipe:\n", 1))
    assert [problem.message for problem in problems] == [
        "leagues[0].below: there is no row `seconds`; did you mean `second`?",
        "leagues[0].start: there is no row `base`; it can be `first`, `second`",
        "leagues[0].uniform: there is no row `firts`; did you mean `first`?",
    ]


@pytest.mark.parametrize(
    ("target", "old", "new", "message"),
    [
        (paper, "right: table2/dpo-human-2}", "right: table2/dpo-humans-2}",
         "answers.micro.lines[0].comparisons[0].right: there is no row `table2/dpo-humans-2`; did"),
        (paper, "left: [choosing/parents-oracle]", "left: [choosing/parents-oracel]",
         "left: there is no row `choosing/parents-oracel`; did"),
        (claims, "table: components", "table: component",
         "figures[1].table: there is no table `component`; did you mean `components`?"),
        (claims, "measured_by: [t10-rm-lc,", "measured_by: [t10-rm-lcc,",
         "figures[0].claims[0].test.measured_by: there is no claim `t10-rm-lcc`; did you mean"),
        (claims, "among: [eva-a_min, same,", "among: [eva-a_min, sam,",
         "figures[1].claims[0].test: there is no row `sam`; did you mean `same`?"),
        (claims, "id: f5-fixed", "id: t10-rm-lc",
         "figures[1].claims[0].id: `t10-rm-lc` is already a claim of `table10`"),
        (paper, "column: ah_wr", "column: ah_w",
         "answers.micro.column: there is no column `ah_w`; did you mean `ah_wr`?"),
        (paper, "  micro:", "  mirco:", "answers.mirco: there is no profile `mirco`; did you mean"),
    ],
)  # fmt: skip
def test_what_the_answer_and_the_figures_name_is_declared(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tables: dict[str, Table],
    target: ModuleType,
    old: str,
    new: str,
    message: str,
) -> None:
    text = (project_root() / target.FILE).read_text(encoding="utf-8")
    (tmp_path / "wrong.yaml").write_text(text.replace(old, new, 1), encoding="utf-8")
    check_references(tables)
    monkeypatch.setattr(target, "FILE", tmp_path / "wrong.yaml")
    with pytest.raises(RegistryError) as caught:
        check_references(tables)
    line = text[: text.index(old)].count("\n") + 1
    (problem,) = caught.value.problems
    assert (problem.line, message in problem.message) == (line, True), problem


def test_a_table_of_ours_has_no_printed_values_notes_or_claims(tmp_path: Path) -> None:
    ours = _changed('source: {section: "4", table: 4, caption: "A demo."}', "source: ours")
    notes = ours.replace("values:", "printed_notes:")
    claimed = "".join(line for line in ours.splitlines(True) if "values:" not in line)
    for text, message in (
        (ours, "the paper prints no value of `first`, a row of ours"),
        (notes, "the paper prints no value of `first`, a row of ours"),
        (f"{claimed}claims:{CLAIM}", "claims nothing of a table of ours"),
    ):
        (problem,) = _problems(tmp_path, demo=text)
        assert message in problem.message


def test_a_mistake_in_shared_settings_is_reported_once(tmp_path: Path) -> None:
    problems = _problems(tmp_path, demo=_changed("algorithm: dpo", "algoritm: dpo"))
    (unknown,) = [p for p in problems if "unknown key" in p.message]
    assert (unknown.line, "did you mean `algorithm`?" in unknown.message) == (10, True)


def test_all_mistakes_in_all_files_come_at_once(tmp_path: Path) -> None:
    first = TABLE.replace("title: Demo", "titel: Demo").replace('"60.10"', "60.10")
    second = _changed("baseline: first", "baseline: firts").replace("id: demo", "id: more")
    problems = _problems(tmp_path, demo=first, more=second)
    assert [(Path(p.file).stem, p.line) for p in problems] == [
        ("demo", 1),
        ("demo", 3),
        ("demo", 22),
        ("more", 21),
    ]


def test_run_ids_and_recipes_match_across_tables(tmp_path: Path) -> None:
    renamed = _changed("run: dpo-eva", "run: dpo-evolved").replace("id: demo", "id: more")
    (problem,) = _problems(tmp_path, demo=TABLE, more=renamed)
    assert problem.line == 20
    assert "this recipe is run `dpo-eva` in `second` of `demo`" in problem.message


def test_a_column_means_the_same_in_every_table(tmp_path: Path) -> None:
    changed = _changed("direction: higher", "direction: lower").replace("id: demo", "id: more")
    (problem,) = _problems(tmp_path, demo=TABLE, more=changed)
    assert (problem.line, "has `higher` in" in problem.message) == (8, True)


@pytest.mark.parametrize(
    ("file", "load"),
    [
        (figures_dir() / "figure3.yaml", partial(load_figures, None)),
        (profiles_dir() / "micro.yaml", load_profiles),
        (FOLDER / "tune-dpo.yaml", load_sweeps),
        (project_root() / "ablations" / "table4.yaml", lambda folder: load_tables([folder])),
    ],
    ids=lambda value: getattr(value, "stem", ""),
)
def test_everything_is_declared_once(
    tmp_path: Path, file: Path, load: Callable[[Path], object]
) -> None:
    (tmp_path / "deeper").mkdir()
    for folder in (tmp_path, tmp_path / "deeper"):
        shutil.copy(file, folder)
    with pytest.raises(RegistryError) as caught:
        load(tmp_path)
    assert any(f"`{file.stem}` is already in" in p.message for p in caught.value.problems)


def test_only_the_project_s_own_folders_say_of_what_kind_a_table_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "experiments"
    folder.mkdir()
    (folder / "demo.yaml").write_text(TABLE, encoding="utf-8")
    assert load_tables([folder])
    monkeypatch.setattr("harness.registry.declared.declaration_dirs", lambda: [folder])
    with pytest.raises(RegistryError, match="an ablation does not belong in experiments/"):
        load_tables()


def test_hidden_files_and_folders_declare_nothing(tmp_path: Path) -> None:
    folder = tmp_path / ".here" / "ablations"
    (folder / ".ipynb_checkpoints").mkdir(parents=True)
    for name in ("demo.yaml", ".demo.yaml", ".ipynb_checkpoints/demo-checkpoint.yaml"):
        (folder / name).write_text(TABLE, encoding="utf-8")
    assert [*load_tables([folder])] == ["demo"]


def test_an_empty_file_is_a_mistake(tmp_path: Path) -> None:
    (problem,) = _problems(tmp_path, demo="# nothing\n")
    assert "the file is empty" in problem.message


def test_mistakes_in_a_profile_have_lines_and_names(tmp_path: Path) -> None:
    text = (profiles_dir() / "micro.yaml").read_text(encoding="utf-8")
    lines = text.splitlines()
    line = next(i for i, item in enumerate(lines, start=1) if "learning_rate:" in item)
    broken = text.replace("learning_rate:", "learning_rat:").replace("scale: toy", "scale: tiny")
    (tmp_path / "micro.yaml").write_text(broken, encoding="utf-8")
    with pytest.raises(RegistryError) as caught:
        load_profiles(tmp_path)
    found = {(p.line, p.message) for p in caught.value.problems}
    text = "training.dpo.learning_rat: unknown key; did you mean `learning_rate`?"
    assert (line, text) in found
    assert any("`tiny` is not known" in message for _, message in found)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[complexity, quality]", "[complexity, ah_wr]", "mixes scores"),
        ("[ae_lc, ae_wr]", "[complexity]", "from two benchmarks"),
        (
            "    temperature: {value: 0.0",
            "    temperature: {value: null",
            "answers need `temperature`",
        ),
        ("      wmdp: {value: 200", "      mt_avg: {value: 200", "must name each of the `columns`"),
        (
            '      gsm8k: {value: "stand-in G',
            '      ah_wr: {value: "stand-in G',
            "must name each of the",
        ),
        (
            '{value: world, source: "ours: seed',
            '{value: instructions, source: "ours: seed',
            "`trained_reward_models` are the embedded world's only",
        ),
        ("  n: {value: 6", "  n: {value: 1", "generation.n: must be greater than or equal to 2"),
    ],
)
def test_a_profile_that_contradicts_itself_is_a_mistake(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    text = (profiles_dir() / "micro.yaml").read_text(encoding="utf-8")
    assert text.count(old) == 1
    (tmp_path / "micro.yaml").write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(RegistryError) as caught:
        load_profiles(tmp_path)
    assert any(message in problem.message for problem in caught.value.problems)
