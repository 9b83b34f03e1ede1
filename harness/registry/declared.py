"""Every declaration, read once and validated, both alone and against the others."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness.errors import UserError
from harness.project import PACKAGE, declaration_dirs, profiles_dir, project_root
from harness.registry import claims, paper
from harness.registry.claims import (
    Claim,
    FigureClaims,
    Qualitative,
    claim_problems,
    name_problems,
)
from harness.registry.documents import (
    Document,
    Found,
    Loc,
    Named,
    Problem,
    RegistryError,
    at_least_one,
    find,
    problems_of,
    read_declared,
    read_files,
    repeated,
    yaml_files,
)
from harness.registry.figures import Figure, load_figures
from harness.registry.paper import Paper
from harness.registry.profile import Profile, load_profiles, table_at
from harness.registry.recipe import Recipe, defaults, flattened, leaves
from harness.registry.schema import Column, Row, Table
from harness.strict import Strict

_FOLDERS = {"experiments": "experiment", "ablations": "ablation"}

CONTROLS = "controls"
"""The one table that declares controls, which must pass for verdicts about prompts to count."""

_OTHERS = {Path("deviations.yaml"), Path("paper.yaml"), Path("claims", "figures.yaml")}
"""Files in a declaration folder that declare no table; nor do those under its `figures`."""

Declared = tuple[Document, Table]


def load_tables(dirs: Sequence[Path] | None = None, more: Path | None = None) -> dict[str, Table]:
    """Read and check the tables under `dirs` and in `more`: the paper's in order, then ours."""
    files = table_files(dirs)
    files += [] if more is None or more in files else [more]
    problems: list[Problem] = []
    declared: list[Declared] = []
    for document, table in read_files(files, Table, problems, "a table"):
        twins = [
            *repeated(_ids(document, "columns", table.columns)),
            *repeated(_ids(document, "rows", table.rows)),
        ]
        # Any further problems would only be consequences of a duplicate name.
        problems += twins or _references(document, table)
        if not twins:
            declared.append((document, table))
    cells = [cell for pair in declared for cell in _cells(*pair, problems)]
    problems += repeated(n for pair in declared for n in _ids(pair[0], "claims", pair[1].claims))
    studied = _studied(table for _, table in declared)
    for document, table in declared:
        for i, claim in enumerate(table.claims):
            problems += _named_by(document, ("claims", i), claim, studied)
    problems += _changed_columns(declared)
    problems += _runs_and_recipes(cells)
    if problems:
        raise RegistryError(problems)
    tables = [table for _, table in declared]
    return {t.id: t for t in sorted(tables, key=lambda t: (t.is_ours, natural(t.id)))}


def table_files(dirs: Sequence[Path] | None = None) -> list[Path]:
    """Return the files that declare tables: all but those read elsewhere."""
    folders = declaration_dirs() if dirs is None else dirs
    files = [(path, path.relative_to(folder)) for folder in folders for path in yaml_files(folder)]
    found = [path for path, name in files if name not in _OTHERS and name.parts[0] != "figures"]
    return at_least_one(found, folders, "table")


def natural(name: str) -> list[tuple[int, str]]:
    """Return a natural sort key: `figure3` comes before `figure10`."""
    parts = re.findall(r"\d+|\D+", name)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def _ids(document: Document, name: str, items: Sequence[Any]) -> Iterator[Named]:
    for i, item in enumerate(items):
        yield item.id, document, (name, i, "id")


def _references(document: Document, table: Table) -> Iterator[Problem]:
    """Yield problems with a table's kind, its ids and the references to them."""
    folder = document.path.parent
    if folder in declaration_dirs() and table.kind != _FOLDERS[folder.name]:
        yield document.wrong(("kind",), f"an {table.kind} does not belong in {folder.name}/")
    columns, rows = [c.id for c in table.columns], {row.id: row for row in table.rows}
    named: list[tuple[Loc, str, str]] = []
    for i, row in enumerate(table.rows):
        for name in ("values", "printed_notes", "run_by_column"):
            given = (getattr(row, name) or {}).keys() - set(columns)
            named += [(("rows", i, name, column), "column", column) for column in given]
        missing = set(columns) - set(row.run_by_column or columns)
        if missing:
            text = f"no run for {', '.join(sorted(missing))}"
            yield document.wrong(("rows", i, "run_by_column"), text)
        if row.baseline is not None:
            place: Loc = ("rows", i, "baseline")
            named.append((place, "row", row.baseline))
            if row.baseline in rows and rows[row.baseline].baseline is not None:
                yield document.wrong(place, f"`{row.baseline}` has a baseline of its own")
        for column in table.columns:
            if column.of_prompts != (row.kind == "prompts"):
                scored = "prompts" if column.of_prompts else "answers of a policy"
                text = f"`{row.id}` is `{row.kind}` and column `{column.id}` scores {scored}"
                yield document.wrong(("rows", i, "kind"), f"{text}; change one of them")
    if table.controls and table.id != CONTROLS:
        yield document.wrong(("controls",), f"only the table `{CONTROLS}` declares them")
    if table.reward_model_study is not None:
        named.append((("reward_model_study",), "column", table.reward_model_study))
    for i, control in enumerate(table.controls):
        named.append((("controls", i, "column"), "column", control.column))
        named += [(("controls", i, "rows"), "row", name) for name in control.rows]
        named += [(("controls", i, "edge"), "row", name) for name in control.edge or ()]
    for i, league in enumerate(table.leagues):
        for field in ("uniform", "start", "twin", "above", "below", "controls"):
            value = getattr(league, field)
            names = (value,) if isinstance(value, str) else value
            named += [(("leagues", i, field), "row", name) for name in names]
    for place, what, name in named:
        yield from document.unknown(place, what, name, columns if what == "column" else rows)
    yield from repeated(_ids(document, "controls", table.controls))
    yield from claim_problems(document, table.claims, list(rows), columns)


def _studied(tables: Iterable[Table]) -> list[str]:
    """Return the rows of the tables that study reward models."""
    return [row.id for table in tables if table.reward_model_study for row in table.rows]


def _shipped_profiles() -> list[str]:
    return [path.stem for path in yaml_files(profiles_dir())]


def _named_by(
    document: Document, place: Loc, claim: Claim, studied: Sequence[str]
) -> Iterator[Problem]:
    """Yield problems with the profiles and the reward models that a claim names."""
    for i, mark in enumerate(claim.marks):
        for name in mark.at:
            where = (*place, "marks", i, "at")
            yield from document.unknown(where, "profile", name, _shipped_profiles())
    for side in ("better", "than") if claim.needs and studied else ():
        name = getattr(claim.needs, side)
        yield from document.unknown((*place, "needs", side), "row", name, studied)


def check_references(tables: Mapping[str, Table]) -> None:
    """Check the names that the paper's answer and the claims on figures use."""
    root = project_root()
    problems = [*_answer_problems(*read_declared(root / paper.FILE, Paper, "a paper"), tables)]
    if os.path.lexists(root / claims.FILE):
        declared = read_declared(root / claims.FILE, FigureClaims, "claims")
        problems += _figure_problems(*declared, tables)
    if problems:
        raise RegistryError(problems)


def _answer_problems(
    document: Document, declared: Paper, tables: Mapping[str, Table]
) -> Iterator[Problem]:
    known = [f"{table.id}/{row.id}" for table in tables.values() for row in table.rows]
    for profile, answer in declared.answers.items():
        yield from document.unknown(("answers", profile), "profile", profile, _shipped_profiles())
        known_at = all_profiles().get(profile)
        if known_at is not None:
            for name in tables.keys() & answer.tables:
                columns = [column.id for column in table_at(tables[name], known_at).columns]
                where = ("answers", profile, "column")
                yield from document.unknown(where, "column", answer.column, columns)
        for i, line in enumerate(answer.lines):
            for j, comparison in enumerate(line.comparisons):
                place: Loc = ("answers", profile, "lines", i, "comparisons", j)
                for ref in (*comparison.left, comparison.right):
                    side = "right" if ref == comparison.right else "left"
                    yield from document.unknown((*place, side), "row", ref, known)


def _figure_problems(
    document: Document, declared: FigureClaims, tables: Mapping[str, Table]
) -> Iterator[Problem]:
    known = {claim.id: table.id for table in tables.values() for claim in table.claims}
    studied = _studied(tables.values())
    ids = [
        (claim.id, document, ("figures", i, "claims", j, "id"))
        for i, figure in enumerate(declared.figures)
        for j, claim in enumerate(figure.claims)
    ]
    yield from repeated(ids)
    for name, _, place in ids:
        if name in known:
            yield document.wrong(place, f"`{name}` is already a claim of `{known[name]}`")
    for i, figure in enumerate(declared.figures):
        if figure.table is not None:
            yield from document.unknown(("figures", i, "table"), "table", figure.table, tables)
        table = tables.get(figure.table or "")
        for j, claim in enumerate(figure.claims):
            yield from _named_by(document, ("figures", i, "claims", j), claim, studied)
            test, place = claim.test, ("figures", i, "claims", j, "test")
            if isinstance(test, Qualitative):
                for name in test.measured_by or ():
                    yield from document.unknown((*place, "measured_by"), "claim", name, known)
            elif table is not None:
                rows, columns = ([it.id for it in own] for own in (table.rows, table.columns))
                yield from name_problems(document, place, test, rows, columns)


Cell = tuple[Document, Table, int, Row, Column, Recipe]


def _cells(document: Document, table: Table, problems: list[Problem]) -> list[Cell]:
    """Resolve every cell's recipe, appending any problems with recipes."""
    cells: list[Cell] = []
    used: set[Loc] = set()
    whole = True
    for i, row in enumerate(table.rows):
        for j, column in enumerate(table.columns):
            places: list[Loc] = [("rows", i, "recipe"), ("columns", j, "recipe"), ("recipe",)]
            try:
                recipe = table.recipe_of(row, column)
            except ValidationError as error:
                problems += problems_of(error, Recipe, document, places)
                whole = False
                continue
            if row.kind == "prompts" and (recipe.is_base or recipe.is_online):
                message = "a row of prompts needs an offline `chain`, whose last iteration has them"
                problems.append(document.wrong(("rows", i, "recipe"), message))
            cells.append((document, table, i, row, column, recipe))
            matters = set(leaves(recipe.canonical()))
            used |= {(*place, *leaf) for place in places[: 1 if recipe.is_base else 3]
                     for leaf in matters}  # fmt: skip
    if whole:
        problems += _unused(document, table, used)
    return cells


def _unused(document: Document, table: Table, used: set[Loc]) -> Iterator[Problem]:
    """Yield the settings that change no recipe; null is exempt, since it unsets a setting."""
    blocks: list[tuple[Loc, Mapping[str, Any]]] = [(("recipe",), table.recipe)]
    blocks += [(("columns", j, "recipe"), c.recipe) for j, c in enumerate(table.columns)]
    blocks += [(("rows", i, "recipe"), row.recipe) for i, row in enumerate(table.rows)]
    for place, settings in blocks:
        for leaf, value in leaves(settings).items():
            if (*place, *leaf) not in used and value is not None:
                name = ".".join(leaf)
                yield document.problem(
                    (*place, *leaf), f"`{name}` changes nothing in the recipes it is set for"
                )


def _changed_columns(declared: Iterable[Declared]) -> Iterator[Problem]:
    first: dict[str, tuple[str, dict[str, Any]]] = {}
    for document, table in declared:
        for j, column in enumerate(table.columns):
            meaning = column.model_dump(include={"benchmark", "metric", "unit", "direction"})
            meaning["score"] = column.reads
            file, known = first.setdefault(column.id, (document.name, meaning))
            for key, value in meaning.items():
                if known[key] != value:
                    text = (
                        f"column `{column.id}` has `{known[key]}` in {file}, and means the same "
                        "everywhere; write that, or choose another id and name the `score` it reads"
                    )
                    yield document.wrong(("columns", j, key), text)


def _runs_and_recipes(cells: Iterable[Cell]) -> Iterator[Problem]:
    by_run: dict[str, tuple[str, str]] = {}
    by_recipe: dict[str, tuple[str, str]] = {}
    for document, table, i, row, column, recipe in cells:
        if row.run is None and column.id not in (row.run_by_column or {}):
            continue
        run, content = row.run_id(column), f"{row.kind} {recipe.canonical()}"
        where = f"`{row.id}` of `{table.id}`"
        key: Loc = ("rows", i, "run") if row.run else ("rows", i, "run_by_column", column.id)
        known, place = by_run.setdefault(run, (content, where))
        if known != content:
            text = f"run `{run}` is another recipe in {place}; change the id or the recipe"
            yield document.problem(key, text)
        known, place = by_recipe.setdefault(content, (run, where))
        if known != run:
            text = f"this recipe is run `{known}` in {place}; use that id instead of `{run}`"
            yield document.problem(key, text)


DEVIATIONS = Path("experiments") / "deviations.yaml"
"""The file of deviations, relative to the project root."""


class Deviation(Strict):
    """A choice this project made, and where it is implemented."""

    topic: str
    choice: str
    settings: tuple[str, ...] = ()
    """The settings that implement the choice, as `profile.NAME` or `recipe.NAME`."""
    modules: tuple[str, ...] = ()
    """The files that implement it, relative to the project root."""


class Discrepancy(Deviation):
    """A disagreement between the paper and the authors' code."""

    paper: str
    code: str
    """What the authors' code does, or what was found by other means."""


class Ambiguity(Deviation):
    """A place where the paper is ambiguous."""

    open: str


class Departure(Deviation):
    """A setting of a profile that is not the paper's, on purpose."""

    at: str
    """The profile."""
    paper: str


class Deviations(Strict):
    discrepancies: tuple[Discrepancy, ...] = ()
    ambiguities: tuple[Ambiguity, ...] = ()
    departures: tuple[Departure, ...] = ()


def deviations(path: Path | None = None) -> Deviations:
    file = path or project_root() / DEVIATIONS
    if not os.path.lexists(file):
        return Deviations()
    document, found = read_declared(file, Deviations, "deviations")
    problems = list(_problems(document, found))
    if problems:
        raise RegistryError(problems)
    return found


def value_in(profile: Profile, setting: str) -> tuple[str, Any]:
    """Look up a recipe or profile setting: `value`, `default` or `absent`, and what it is."""
    root, _, name = setting.partition(".")
    if root == "recipe":
        return "default", flattened(defaults())[name]
    value = flattened(profile.model_dump(by_alias=True)).get(name)
    return ("absent", None) if value is None else ("value", value)


def _problems(document: Document, found: Deviations) -> Iterator[Problem]:
    known = [f"recipe.{name}" for name in flattened(defaults())]
    for profile in all_profiles().values():
        known += [f"profile.{name}" for name in flattened(profile.model_dump(by_alias=True))]
    for i, departure in enumerate(found.departures):
        yield from document.unknown(
            ("departures", i, "at"), "profile", departure.at, all_profiles()
        )
    for group in ("discrepancies", "ambiguities", "departures"):
        entries: tuple[Deviation, ...] = getattr(found, group)
        for i, entry in enumerate(entries):
            place: Loc = (group, i)
            for setting in entry.settings:
                yield from document.unknown((*place, "settings"), "setting", setting, known)
            for module in entry.modules:
                # An installed package keeps code and declarations in two places.
                if not any((top / module).is_file() for top in (project_root(), PACKAGE.parent)):
                    yield document.wrong((*place, "modules"), f"there is no file `{module}`")


GROUPS = ("all-offline", "all")
"""Groups of tables: those that need no online training, and all."""


@functools.cache
def all_tables() -> Mapping[str, Table]:
    tables = load_tables()
    check_references(tables)
    return tables


@functools.cache
def all_figures() -> Mapping[str, Figure]:
    return load_figures(all_tables())


@functools.cache
def all_profiles() -> Mapping[str, Profile]:
    return load_profiles()


def named_profile(name: str) -> Profile:
    path = own_file(name)
    if path is None:
        return _find("profile", all_profiles(), name)
    (profile,) = load_profiles(path).values()
    shipped = all_profiles().get(profile.name)
    if shipped is not None and shipped.model_dump() != profile.model_dump():
        raise UserError(
            f"`{name}` declares another profile `{profile.name}` than the shipped one; what they "
            "compute could not be told apart, so give yours a name of its own"
        )
    return profile


def is_figure(name: str) -> bool:
    """Return whether a name is, or looks like, a figure's."""
    if name in all_tables() or own_file(name) is not None:
        return False
    return name.startswith("fig") or name in all_figures()


def named_figure(name: str) -> Figure:
    return find("figure", all_figures(), name)


def named_table(name: str) -> tuple[Table, Mapping[str, Table]]:
    path = own_file(name)
    if path is None:
        return _find("table", all_tables(), name), all_tables()
    tables = load_tables(more=path)
    return tables[path.stem], tables


def _find(what: str, declared: Mapping[str, Found], name: str) -> Found:
    """Find a declaration; for an unknown name, suggest `NAME.yaml` if this folder has it."""
    if name not in declared and os.path.isfile(f"{name}.yaml"):
        raise UserError(f"there is no {what} `{name}`; did you mean the file `{name}.yaml`?")
    return find(what, declared, name)


def own_file(name: str) -> Path | None:
    """Return the path if `name` ends in `.yaml` or `.yml`, else None."""
    if not name.endswith((".yaml", ".yml")):
        return None
    path = Path(name).expanduser()
    if not path.is_file():
        raise UserError(f"there is no file `{name}`; correct the path, or name what is declared")
    return path.resolve()


def trains_online(table: Table) -> bool:
    return any(recipe.is_online for row in table.rows for recipe in table.recipes(row).values())


def members(group: str, tables: Mapping[str, Table]) -> list[Table]:
    return [table for table in tables.values() if group == "all" or not trains_online(table)]
