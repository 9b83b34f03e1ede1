"""Which policy is meant: the last one that a run trained, found by the run's name or a row's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.errors import UserError
from harness.registry.documents import nearest
from harness.registry.load import find_table
from harness.registry.profile import Profile, unsupported
from harness.registry.recipe import Recipe
from harness.registry.schema import Table
from harness.runtime.stage import Stage
from harness.runtime.store import Store
from harness.trainer.plan import Planner, Run
from harness.trainer.runs import cells_served
from harness.worlds.lookup import world_of
from harness.worlds.protocol import World


@dataclass(frozen=True)
class TrainedPolicy:
    """The policy at the end of a run.

    Attributes:
        run: the run, with every benchmark of the profile wanted.
        profile: the profile.
        world: says what the profile's names stand for.
        places: the rows that the run stands behind, as `table/row`; first the one asked for.
    """

    run: Run
    profile: Profile
    world: World
    places: tuple[str, ...]

    @property
    def stage(self) -> Stage:
        """The stage that trained the policy."""
        return self.run.training[-1]

    @property
    def base(self) -> str:
        """Identity of the model that the run began with."""
        return self.world.policy()

    @property
    def title(self) -> str:
        """The run with its scale and seed, for people."""
        return f"{self.run.run_id}, {self.run.profile}, seed {self.run.seed}"


def find_policy(
    name: str, tables: Mapping[str, Table], profile: Profile, seed: int
) -> TrainedPolicy:
    """Return the policy of a run's id, or of a row as `table4/eva-a_min`, whether trained or not.

    Raises:
        UserError: there is no such run or row, the row has several runs, nothing is trained in
            it, or the profile cannot run it.
    """
    run_id, recipe = _named(name, tables)
    if recipe.is_base:
        raise UserError(
            f"`{name}` is the base model, which no run trains; take {profile.policy} itself"
        )
    reasons = unsupported(recipe, (), profile)
    if reasons:
        raise UserError(
            f"`{name}` cannot run on the profile `{profile.name}`: {'; '.join(reasons)}"
        )
    world = world_of(profile)
    run = Planner(world).run(run_id, recipe, seed)
    places = sorted(cells_served(tables)[run_id], key=lambda place: place != name)
    return TrainedPolicy(run, profile, world, tuple(places))


def check_trained(policy: TrainedPolicy, store: Store) -> None:
    """Check that a policy is in the store, to its last byte.

    Raises:
        UserError: it is not trained yet.
        StoreError: a file of it is not what was written.
    """
    run, stage = policy.run, policy.stage
    state = store.status(stage.fingerprint)
    if state == "done":
        store.verify(stage.fingerprint)
        return
    table, _, row = policy.places[0].partition("/")
    raise UserError(
        f"the run `{run.run_id}` with seed {run.seed} on `{run.profile}` is not finished (its last "
        f"training is {state}); type `harness run {table} --profile {run.profile} --rows {row} "
        f"--seeds {run.seed}` first"
    )


def _named(name: str, tables: Mapping[str, Table]) -> tuple[str, Recipe]:
    """Return run id and recipe of a row or a run.

    Raises:
        UserError: There is none, or the row has several.
    """
    table, slash, row_id = name.partition("/")
    if slash:
        row = find_table(tables, table).row(row_id)
        recipes = dict(tables[table].recipes(row))
        if row.kind == "prompts":
            raise UserError(f"`{name}` scores prompts and has no policy; name a run or another row")
        if len(recipes) > 1:
            raise UserError(
                f"`{name}` has a run for each column; name one of them: {', '.join(recipes)}"
            )
        return next(iter(recipes.items()))
    known: dict[str, Recipe] = {}
    for each in tables.values():
        for row in each.rows:
            known.update(each.recipes(row))
    if name not in known:
        raise UserError(f"there is no run `{name}`{nearest(name, known)}; rows are `table4/dpo-1`")
    return name, known[name]
