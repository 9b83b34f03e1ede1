"""Measurements that belong to no table, each published on a page of its own.

*How often a verdict is reached where there is nothing to find*, through the code that judges the
paper's claims; a verdict counts when it is `supported` or `contradicted`, and at most 5% should be:

* Simulated nulls: every row of every declared table has the same true mean. What rows, prompts,
  seeds and answers differ in by chance is drawn, and all claims are judged as they are declared.
* One recipe under two names (A/A), from the published scores of every table with enough seeds. Of
  the seeds of a run that was computed two names are dealt two each, then three each, none in
  common, and a table is judged that claims of every score, one of them primary, that one name is
  above the other.

*Over-optimisation*: a learned reward pushed beyond what it knows. It shows why the reward model and
the judge are two things.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field

from harness import foreign
from harness.errors import HarnessError
from harness.registry.claims import Compare
from harness.registry.schema import PROMPT_SCORES, SHIPPED_SCORES, Table
from harness.report.model import TESTED, Cell, Verdict
from harness.report.plots import Picture, Target, canvas, plain_frame
from harness.report.publication import REPORT, SCORES, Extent, Kind
from harness.report.publish import published_folders, read_published
from harness.report.render import template
from harness.report.scores import ALPHA, Measured
from harness.report.verdicts import Evidence, ends_of, judge
from harness.runtime import collect_provenance
from harness.runtime.files import sha256_of
from harness.strict import Strict

if TYPE_CHECKING:
    import numpy as np

RATES_FOLDER, PUSHED_FOLDER = "error-rates", "over-optimisation"

SEEDS = (3, 5)
"""Seeds of the simulated runs."""

PROMPTS = 40
"""Prompts of the simulated benchmarks."""

ROOT = 0
"""Seed of the simulations and of the dealing."""

DEALT = (2, 3)
"""Seeds that each of two names of one recipe is dealt."""

DECIDED = ("supported", "contradicted")

EFFECTS: Mapping[str, float] = {"prompt": 1.0, "seed": 0.1, "row prompt": 0.1, "row seed": 0.1}
"""Standard deviations of what differs by chance, as multiples of that of a single answer.

Table 4 as published at the profile `micro` shows 0.75 to 1.4 for prompts, 0.03 to 0.05 for seeds,
0.05 to 0.12 for the prompts of a row and 0.02 to 0.03 for its seeds. Seeds are taken to differ
more here, because fewer prompts are simulated than are judged there.
"""

HEAD = ("what", "seeds", "verdicts", "decided", "share", "primary claims", "decided", "share")
"""Headings of what was measured."""


class Counts(Strict):
    """How many verdicts were reached among those that could have been."""

    judged: int
    """Verdicts that are decided or inconclusive; those without numbers are left out."""
    decided: int
    """Verdicts that are `supported` or `contradicted`."""
    primary_judged: int
    """As `judged`, of primary claims alone."""
    primary_decided: int
    """As `decided`, of primary claims alone."""

    @classmethod
    def of(cls, verdicts: Iterable[Verdict], **setting: Any) -> Self:
        """Count verdicts, which were reached under a setting."""
        known = [verdict for verdict in verdicts if verdict.verdict in TESTED]
        decided = [verdict for verdict in known if verdict.verdict in DECIDED]
        primary, decided_primary = (sum(v.primary for v in found) for found in (known, decided))
        return cls(
            judged=len(known), decided=len(decided), primary_judged=primary,
            primary_decided=decided_primary, **setting,
        )  # fmt: skip

    @property
    def shares(self) -> tuple[str, ...]:
        """Verdicts, decided ones and their share, of all claims and of primary ones, as text."""
        texts: list[str] = []
        for judged, decided in (
            (self.judged, self.decided),
            (self.primary_judged, self.primary_decided),
        ):
            share = f"{100 * decided / judged:.1f}%" if judged else "–"
            texts += [f"{judged:,}", f"{decided:,}", share]
        return tuple(texts)


class Simulated(Counts):
    """What simulated tables without any difference came to, and what repeats it."""

    tables: tuple[str, ...]
    """The tables."""
    seeds: int
    """Seeds of each run."""
    prompts: int
    """Prompts of each benchmark."""
    repetitions: int
    """How often each table was simulated."""
    root: int
    """Seed of the simulation."""


class Dealt(Counts):
    """What one recipe under two names came to, and what repeats it."""

    table: str
    """The published table."""
    seeds: tuple[int, ...]
    """Its seeds."""
    each: int
    """Seeds that each name is dealt."""
    deals: int
    """How often they were dealt."""
    scores: str
    """The sha256 of its published scores."""
    root: int
    """Seed of the dealing."""


class ErrorRates(Strict):
    """What was measured."""

    level: float
    """The share of verdicts that may be decided."""
    commit: str
    """Commit of the code that judged."""
    simulated: tuple[Simulated, ...]
    """Simulated tables, by the number of seeds."""
    one_recipe_twice: tuple[Dealt, ...]
    """One recipe under two names, by the table."""

    @property
    def lines(self) -> list[tuple[str, ...]]:
        """What was measured, as rows of text under `HEAD`."""
        twice = self.one_recipe_twice
        rows: list[tuple[str, object, Counts]] = [
            (f"simulated, {len(it.tables)} tables", it.seeds, it) for it in self.simulated
        ]
        name = "one recipe under two names"
        for each in dict.fromkeys(found.each for found in twice):
            own = [found for found in twice if found.each == each]
            if len(own) > 1:
                counted = {n: sum(getattr(f, n) for f in own) for n in Counts.model_fields}
                rows.append((f"{name}, all tables", each, Counts(**counted)))
        rows += [(f"{name}, {found.table}", found.each, found) for found in twice]
        return [(what, str(seeds), *found.shares) for what, seeds, found in rows]

    @property
    def markdown(self) -> str:
        """What was measured, for people."""
        deals = max((found.deals for found in self.one_recipe_twice), default=0)
        return template("error_rates.md.j2").render(rates=self, head=HEAD, deals=deals)

    @property
    def extent(self) -> Extent:
        """How much was measured; its rows are tables, simulated or dealt."""
        twice = self.one_recipe_twice
        rows = [f"{t} simulated with {it.seeds} seeds" for it in self.simulated for t in it.tables]
        rows += [f"{found.table} dealt {found.each} seeds a name" for found in twice]
        counts = {
            "repetitions": min((found.repetitions for found in self.simulated), default=0),
            "deals": min((found.deals for found in twice), default=0),
        }
        lacking = () if twice else (f"a published table with {2 * min(DEALT)} seeds to deal",)
        return Extent(tuple(rows), (), counts, lacking)


def measure(
    tables: Mapping[str, Table],
    profile_results: Path,
    *,
    repetitions: int,
    deals: int,
    said: Callable[[str], None] = lambda _: None,
) -> ErrorRates:
    """Measure the error rates; `said` takes sentences on what is being measured.

    Raises:
        HarnessError: A published table is not what was published.
    """
    simulated = []
    for seeds in SEEDS:
        said(f"simulating {len(tables)} tables {repetitions} times with {seeds} seeds")
        found = simulated_nulls(
            tables.values(), repetitions, seeds=seeds, prompts=PROMPTS, root=ROOT
        )
        simulated.append(
            Simulated.of(
                found, tables=tuple(tables), seeds=seeds, prompts=PROMPTS,
                repetitions=repetitions, root=ROOT,
            )
        )  # fmt: skip
    twice = []
    for folder in published_folders(profile_results.parent):
        if folder.parent != profile_results:
            continue
        published = read_published(folder)
        own: Sequence[int] = published.report.seeds
        for each in DEALT:
            if len(own) < 2 * each:
                continue
            said(f"dealing {each} of {len(own)} seeds of {folder.name} to each name {deals} times")
            found = one_recipe_twice(published.measured, own, each, deals, ROOT)
            twice.append(
                Dealt.of(
                    found, table=folder.name, seeds=tuple(own), each=each, deals=deals,
                    scores=sha256_of(folder / SCORES), root=ROOT,
                )
            )  # fmt: skip
    return ErrorRates(
        level=ALPHA, commit=_commit(), simulated=tuple(simulated), one_recipe_twice=tuple(twice)
    )


def _commit() -> str:
    provenance = collect_provenance()
    if provenance["commit"] is None:
        return "none"
    return provenance["commit"][:12] + (" (changed)" if provenance["dirty"] else "")


def read_rates(profile_results: Path) -> ErrorRates | None:
    """Return what was measured last, None where nothing was.

    Raises:
        HarnessError: The file is broken.
    """
    path = profile_results / RATES_FOLDER / REPORT
    try:
        return ErrorRates.model_validate(foreign.read_json(path.read_bytes()))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise HarnessError(
            f"{path} is broken; measure again with `harness error-rates --publish`"
        ) from error


def simulated_nulls(
    tables: Iterable[Table], repetitions: int, *, seeds: int = 3, prompts: int = 40, root: int = 0
) -> list[Verdict]:
    """Return the verdicts on the claims of tables whose rows do not differ.

    Claims that rows are alike within some points are left out: where nothing differs they are
    true, and to find them supported is no error. A margin that is a share of a gain is zero here.
    """
    import numpy as np

    rng = np.random.default_rng(root)
    return [
        verdict
        for table in tables
        for _ in range(repetitions)
        for verdict in judge(_evidence(table, null_scores(table, seeds, prompts, rng), seeds))
        if not _is_true_of_equals(table, verdict.id)
    ]


def one_recipe_twice(
    measured: Measured, seeds: Sequence[int], each: int, deals: int = 20, root: int = 0
) -> list[Verdict]:
    """Return the verdicts on one recipe under two names of so many seeds each, none in common.

    A run that lacks a score is left out.
    """
    import numpy as np

    rng = np.random.default_rng(root)
    # A study's measures of reward models are no scores, and no claim is about them.
    scores = sorted({score for _, _, score in measured} & {*SHIPPED_SCORES})
    table = _two_names(scores)
    verdicts = []
    for run in sorted({run for run, _, _ in measured}):
        if any((run, seed, score) not in measured for seed in seeds for score in scores):
            continue
        for _ in range(deals):
            dealt = rng.permutation(np.asarray(seeds))
            named: Measured = {}
            for name, own in (("a", dealt[:each]), ("b", dealt[each : 2 * each])):
                for (position, seed), score in itertools.product(enumerate(own), scores):
                    named[name, position, score] = measured[run, int(seed), score]
            verdicts += judge(_evidence(table, named, each))
    return verdicts


def _is_true_of_equals(table: Table, name: str) -> bool:
    test = next(claim.test for claim in table.claims if claim.id == name)
    margin = test.margin if isinstance(test, Compare) else None
    return margin is not None and margin.points is not None


def null_scores(table: Table, seeds: int, prompts: int, rng: np.random.Generator) -> Measured:
    """Draw the scores of every run of a table, all with the same true mean."""
    measured: Measured = {}
    for score, unit in {column.reads: column.unit for column in table.columns}.items():
        # In the middle, because at an end of its scale no claim is tested.
        level = sum(ends_of(unit) or (0.0, 0.0)) / 2.0
        shape = (seeds, prompts)
        # Where prompts themselves are scored, every seed and row has its own.
        own = score in PROMPT_SCORES
        shared = (0.0 if own else EFFECTS["prompt"]) * rng.normal(size=(1, prompts))
        shared = shared + EFFECTS["seed"] * rng.normal(size=(seeds, 1))
        columns = [column for column in table.columns if column.reads == score]
        for run in dict.fromkeys(row.run_id(column) for row in table.rows for column in columns):
            values = level + shared + rng.normal(size=shape)
            of_row = rng.normal(size=(seeds if own else 1, prompts))
            values = values + EFFECTS["row prompt"] * of_row
            values = values + EFFECTS["row seed"] * rng.normal(size=(seeds, 1))
            for seed in range(seeds):
                row = values[seed].tolist()
                measured[run, seed, score] = {f"p{i:04}": v for i, v in enumerate(row)}
    return measured


def _evidence(table: Table, measured: Measured, seeds: int) -> Evidence:
    # Of a cell only the state matters: its scores are there.
    cells = [
        Cell(
            table=table.id, row=row.id, column=column.id, profile="none", scale="toy",
            seeds=tuple(range(seeds)), state="ok",
        )
        for row in table.rows
        for column in table.columns
    ]  # fmt: skip
    return Evidence.of(table, cells, measured)


def _two_names(scores: Sequence[str]) -> Table:
    """Return a table of two rows, with a claim on each score; the first is primary."""
    texts = ("benchmark", "metric", "printed", "unit")
    columns = [{"id": s, **dict.fromkeys(texts, "-"), "direction": "none"} for s in scores]
    claims = [
        {
            "id": score,
            "primary": score == scores[0],
            "statement": "One name of a recipe is above the other.",
            "source": "none",
            "test": {"kind": "compare", "left": "a", "op": ">", "right": "b", "column": score},
        }
        for score in scores
    ]
    return Table.model_validate({
        "id": "aa", "kind": "ablation", "title": "One recipe under two names",
        "question": "Is there a difference where there is none?",
        "source": {"section": "-", "table": 1, "caption": "-"},
        "columns": columns,
        "rows": [{"id": name, "label": name, "run": name} for name in ("a", "b")],
        "claims": claims,
    })  # fmt: skip


ERROR_RATES = Kind(
    "error rates",
    "simulated",
    ErrorRates,
    lambda found: found.extent,
    page=lambda found: found.markdown,
)
"""How often a verdict is reached where there is nothing to find; its place is
`<profile>/error-rates`, and a command measures it again."""


# --- Over-optimisation ---

TITLE = "What happens when the learned reward is pushed"

ALT = "Mean reward and mean oracle score of the same answers, by prompts trained on"


class PushedPoint(Strict):
    """What the policy answers after some prompts."""

    size: int
    """Prompts trained on, in multiples of x."""
    reward: float
    """Mean learned reward of its answers."""
    oracle: float
    """Mean oracle score of the same answers."""


class PushedSetting(Strict):
    """What was measured, and what it comes from."""

    learning_rate: float
    beta: float
    seed: int
    prompts: int
    """Validation prompts."""
    n: int
    """Answers to each."""
    reward_model: str
    commit: str
    stages: dict[str, str]
    """Fingerprint of the rewards after each size."""


class Pushed(Strict):
    """One run pushed without a KL penalty."""

    points: Annotated[tuple[PushedPoint, ...], Field(min_length=1)]
    """What was measured, in order of size."""
    setting: PushedSetting
    """What it was measured with."""

    @property
    def finding(self) -> str:
        """Whether the reward went on rising where the oracle score fell, in a sentence."""
        last, top = self.points[-1], max(self.points, key=lambda point: point.oracle)
        if top is last:
            return (
                "The oracle score is highest at the end: this run was not pushed far enough to be "
                "over-optimised."
            )
        reward, oracle = last.reward - top.reward, last.oracle - top.oracle
        where = f"{top.size}x" if top.size else "the start"
        rose = "rose" if reward > 0 else "fell as well"
        return (
            f"The oracle score is highest at {where} ({top.oracle:.3f}). From there to "
            f"{last.size}x it fell by {-oracle:.3f}, and the learned reward {rose} "
            f"({reward:+.3f})."
        )

    @property
    def markdown(self) -> str:
        """The page."""
        return template("over_optimisation.md.j2").render(
            picture=self.picture, points=self.points, setting=self.setting, finding=self.finding
        )

    @property
    def extent(self) -> Extent:
        """How much there is; its rows are the sizes after which was measured."""
        return Extent(
            rows=tuple(f"{point.size}x" for point in self.points),
            seeds=(self.setting.seed,),
            counts={"prompts": self.setting.prompts, "answers to each": self.setting.n},
        )

    @property
    def picture(self) -> Picture:
        """Reward and oracle score by prompts trained on."""
        return Picture(TITLE, "figure.svg", ALT, self._draw)

    def _draw(self, target: Target) -> None:
        sizes = [point.size for point in self.points]
        with canvas(target, "harness", (6.5, 3.6)) as (sheet, panels):
            left = panels[0][0]
            right = left.twinx()
            rewards, scores = zip(*((p.reward, p.oracle) for p in self.points), strict=True)
            left.plot(sizes, rewards, "C0o-", label="learned reward (left)")
            right.plot(sizes, scores, "C1s--", label="oracle score (right)")
            left.set_xlabel("prompts trained on (multiples of x)")
            left.set_ylabel("mean reward")
            right.set_ylabel("mean oracle score")
            plain_frame(left, grid="both")
            right.spines["top"].set_visible(False)
            sheet.legend(loc="outside upper center", ncols=2)


OVER_OPTIMISATION = Kind(
    PUSHED_FOLDER,
    "setting",
    Pushed,
    lambda found: found.extent,
    page=lambda found: found.markdown,
    pictures=lambda found: [found.picture],
)
"""One run pushed without a KL penalty; its place is `<profile>/over-optimisation`."""
