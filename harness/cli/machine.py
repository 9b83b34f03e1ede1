"""`doctor`, `engine`, `prompts` and `micro`: what this machine can run, and what it makes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import common
from harness.cli.common import Grid, console, note, print_json
from harness.errors import HarnessError, UserError
from harness.project import work_dir
from harness.selection.names import DEFAULT_PROFILE, parse_names, publishing, workers_of
from harness.strict import Output
from harness.words import counted

if TYPE_CHECKING:
    from rich.console import Console

    from harness.preflight import Doctor, ProfileState, PromptPool, Readiness
    from harness.runtime import Event, Stage
    from harness.worlds.embedded.files import Card

TableArgument = Annotated[
    str | None, common.argument("TABLE", "Only what is left of this table, or group, needs.")
]
OneProfileOption = Annotated[
    str | None,
    common.option("--profile", "NAME", "Everything that one profile needs, a line each."),
]
PolicyOption = Annotated[
    Path | None, common.option("--policy", "FOLDER", "Another policy than the profile's base one.")
]
ToleranceOption = Annotated[
    float | None,
    common.option(
        "--tolerance",
        "NATS",
        "Largest mean difference of log-probabilities.",
        default="0.001 in float32, 0.05 in bfloat16",
        min=0.0,
    ),
]
SourceOption = Annotated[
    Path | None, common.option("--source", "PATH", "A file or data set in place of the profile's.")
]
SplitsOption = Annotated[
    str | None, common.option("--splits", "A,B", "Splits of a data set's folder.")
]
AgainstOption = Annotated[
    list[str] | None,
    common.option("--against", "NAME=FILE", "Questions of a benchmark; may be repeated."),
]

OutputOption = Annotated[
    Path | None,
    common.option("--output", "DIR", "Where to write.", default="`world` in the work folder"),
]

app = typer.Typer(rich_markup_mode=None)
group = typer.Typer(name="engine", help="What gives the policy's answers.", no_args_is_help=True)
app.add_typer(group, name="engine")
micro = typer.Typer(
    name="micro",
    help="The embedded world that the profile `micro` runs in.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(micro)


@app.command("doctor", epilog="Example: harness doctor table4 --profile paper")
def doctor(
    table: TableArgument = None,
    profile: OneProfileOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Say what this machine can run, and what is missing for each profile.

    With a table, what `harness run` would look for before it starts. Fails if no profile can run
    here, or what is named cannot. Nobody is asked over the network. Keys are only looked for; their
    values are never shown.
    """
    from harness import preflight

    if table is not None or profile is not None:
        one = _readiness(table, profile or DEFAULT_PROFILE)
        print_json(one) if as_json else _print_readiness(one)
        can_run = one.ready
    else:
        every = preflight.doctor()
        print_json(every) if as_json else _print_doctor(every)
        can_run = every.healthy
    if not can_run:
        raise typer.Exit(1)


def _readiness(table: str | None, profile: str) -> Readiness:
    from harness import preflight
    from harness.registry.declared import named_profile

    asked = named_profile(profile)
    if table is None:
        return preflight.readiness(asked)
    try:
        left = _left(table, profile)
    except UserError:
        # What keeps it from being planned may be on the list of all that the profile needs.
        every = preflight.readiness(asked, table=table)
        if every.ready:
            raise
        return every
    return preflight.readiness(asked, left, table)


def _left(table: str, profile: str) -> Sequence[Stage]:
    """Return the stages of a table, or group, that are to be computed."""
    from harness.selection.selection import select

    planned = select(table, profile).plan()
    return planned.stages.pending(planned.store)


class Downloaded(Output):
    fetched: list[str]


@app.command("download", epilog="Example: harness download table4 --profile consumer-gpu")
def download(
    table: TableArgument = None,
    profile: common.ProfileOption = DEFAULT_PROFILE,
    as_json: common.JsonOption = False,
) -> None:
    """Fetch the models, prompts and benchmarks that a profile needs and this machine lacks.

    Models are those that the profile pins, at their commits; what is here is not fetched again.
    Runs themselves download nothing.
    """
    # Before the hub's library is imported, which reads it once.
    os.environ["HF_HUB_OFFLINE"] = "0"
    from harness.preflight import demand_of
    from harness.registry.declared import named_profile
    from harness.worlds.downloading import download as fetch

    left = None if table is None else _left(table, profile)
    say = common.saying(console(stderr=as_json))
    found = fetch(demand_of(named_profile(profile), left), say)
    if as_json:
        print_json(Downloaded(fetched=found))


def _print_readiness(found: Readiness) -> None:
    """Print a line for each need, those that are missing last."""
    from harness.preflight import to_download

    out = console()
    for state in ("met", "advised", "missing"):
        for need in found.needs:
            if need.state == state:
                out.print(f"{state:8} {need.line}", soft_wrap=True)
    missing = sum(need.state == "missing" for need in found.needs)
    of = found.profile if found.table is None else f"{found.table} on {found.profile}"
    more = to_download(found.needs, found.asked_as, found.table)
    out.print(
        f"\n{of} cannot run here: {counted(missing, 'thing')} missing.{more}"
        if missing
        else f"\n{of} can run here.",
        soft_wrap=True,
    )


def _print_doctor(found: Doctor) -> None:
    out, machine = console(), found.machine
    engines = (f"{name} {version or 'not installed'}" for name, version in machine.engines.items())
    keys = (f"{name} {'set' if there else 'not set'}" for name, there in machine.keys.items())
    lines = [
        ("python", machine.python),
        ("cores", str(machine.cores)),
        ("memory", f"{machine.memory_gb} GB, {machine.memory_free_gb} GB free"),
        ("disk", f"{machine.disk_free_gb} GB free for {machine.work_dir}"),
        ("GPU", ", ".join(f"{gpu.name} ({gpu.memory_gb} GB)" for gpu in machine.gpus) or "none"),
        ("engines", ", ".join(engines)),
        ("keys", ", ".join(keys)),
        ("hub offline", "yes" if machine.hub_offline else "no"),
        ("embedded world",
         f"{machine.world.version}: {machine.world.problem or 'all digests are right'}"),
        ("MLflow", machine.mlflow_uri),
    ]  # fmt: skip
    out.print(Grid(("this machine", ""), lines))
    out.print()
    rows = [
        (p.profile, p.scale, str(p.threads), "ready" if p.ready else "not ready", _able(p))
        for p in found.profiles
    ]
    headings = ("profile", "scale", "torch threads", "state", "tables, or what is missing")
    out.print(Grid(headings, rows, right="2"))


def _able(profile: ProfileState) -> str:
    """Return the tables that a profile can run, or how much is missing and who tells."""
    if profile.ready:
        return ", ".join(profile.tables)
    missing = counted(len(profile.missing), "thing")
    return f"{missing}: harness doctor --profile {profile.profile}"


@group.callback()
def engine() -> None:
    """What gives the policy's answers."""


@group.command("check", epilog="Example: harness engine check --profile single-gpu")
def check(
    profile: common.ProfileOption = DEFAULT_PROFILE,
    policy: PolicyOption = None,
    tolerance: ToleranceOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Compare the engine's log-probabilities with the training's, token by token.

    Starts the profile's engine on its base policy, has it answer a few prompts, and has the model
    as it is trained read the same answers. Fails if they are further apart than the tolerance.
    """
    from harness import preflight
    from harness.registry.declared import named_profile

    found = preflight.check_engine(named_profile(profile), policy, tolerance)
    if as_json:
        print_json(found)
    else:
        lines = [
            ("engine", found.engine),
            ("number format", found.dtype),
            ("compared", f"{found.tokens} tokens of {found.answers} answers"),
            ("mean difference", f"{found.mean_difference:.2g} nats"),
            ("largest difference", f"{found.max_difference:.2g} nats"),
            ("KL per token", f"{found.kl:.2g} nats"),
        ]
        console().print(Grid(("log-probabilities", ""), lines))
    if not found.agrees:
        raise HarnessError(
            f"the engine {found.engine} and the training differ by {found.mean_difference:.2g} "
            f"nats a token, more than {found.tolerance:g}: see that both read the same checkpoint "
            "in the same number format"
        )


@app.command(
    "prompts",
    epilog="Example: harness prompts --source prompts.jsonl --against mt_bench=question.jsonl",
)
def prompts(
    profile: common.ProfileOption = "paper",
    source: SourceOption = None,
    splits: SplitsOption = None,
    against: AgainstOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Count human prompts, those that repeat another, and those that overlap a benchmark.

    Two prompts repeat each other where their words are equal; a prompt overlaps a question with
    which it shares 13 words in a row. Nothing is removed.
    """
    from harness.preflight import check_prompts
    from harness.registry.declared import named_profile

    chosen, named = named_profile(profile), parse_names(splits) or ()
    found = check_prompts(chosen, source, named, _files(against or []))
    print_json(found) if as_json else _print_pool(found)


def _files(against: list[str]) -> list[tuple[str, Path]]:
    pairs = [text.partition("=") for text in against]
    for name, _, path in pairs:
        if not name or not path:
            raise UserError(f"`--against {name}` names no file; write NAME=FILE")
    if len({name for name, _, _ in pairs}) < len(pairs):
        raise UserError("`--against` has one name twice; give each benchmark its own")
    return [(name, Path(path)) for name, _, path in pairs]


def _print_pool(found: PromptPool) -> None:
    out = console()
    out.print(f"{found.source}: {counted(found.prompts, 'prompt')}")
    if found.pieces:
        least, most = min(found.pieces), max(found.pieces)
        of = str(least) if least == most else f"{least} to {most}"
        out.print(f"{len(found.pieces)} pieces of {of} for the profile {found.profile}")
    else:
        out.print(f"Not for the profile {found.profile}: {found.problem}")
    out.print(f"{found.same_text} have the text of an earlier one, {found.same_words} its words")
    if found.overlap:
        rows = [
            (name, str(o.questions), str(o.questions_met), str(o.whole), str(o.in_part))
            for name, o in found.overlap.items()
        ]
        headings = ("benchmark", "questions", "of them met", "prompts whole", "prompts in part")
        out.print()
        out.print(Grid(headings, rows, right="1234"))


class Built(Output):
    version: str
    folder: str
    differing: list[str] | None
    """Its files that differ from those of the world in use; null where there is none to compare."""


class Pushed(Output):
    folder: str


@micro.command("build", epilog="Example: harness micro build --output my-world")
def build(
    output: OutputOption = None, seed: common.SeedOption = 0, as_json: common.JsonOption = False
) -> None:
    """Rebuild the world's files from its seed: prompts, benchmarks, base policy, reward model.

    Takes up to 90 minutes on 2 cores. The same processor and thread count give the same digests.
    The shipped world is left alone: set HARNESS_WORLD to the folder to run in the rebuilt one.
    """
    from harness.worlds.embedded.build import build as build_world

    given = work_dir() / "world" if output is None else output
    with common.writing("--output", given) as folder:
        folder.mkdir(parents=True, exist_ok=True)
    say = common.saying(console(stderr=as_json))
    card = build_world(folder, seed, say)
    differing = _differing(card)
    say(f"The world {card.version} is in {folder}: {_compared(differing)}.")
    if as_json:
        print_json(Built(version=card.version, folder=str(folder), differing=differing))


class Frozen(Output):
    at: str
    """When, ISO 8601 in UTC."""
    parts: dict[str, str]
    """The digest of each part that decides a number."""


@micro.command("freeze", epilog="Example: harness micro freeze")
def freeze(as_json: common.JsonOption = False) -> None:
    """Write down what decides the world's numbers, before any row of eva is run in it.

    `harness verify` fails where it has changed since, or where a published row of eva is older.
    """
    from harness.registry.declared import named_profile
    from harness.worlds.embedded.freeze import freeze as freeze_world

    found = Frozen(**vars(freeze_world(named_profile(DEFAULT_PROFILE))))
    if as_json:
        print_json(found)
    else:
        console().print(f"Frozen at {found.at}: {len(found.parts)} parts.")


@micro.command("over-optimise", epilog="Example: harness micro over-optimise")
def over_optimise(
    jobs: common.JobsOption = None,
    allow_fewer: common.AllowFewerOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Push one policy beyond what its reward model knows, and publish how it looks.

    RLOO without a KL penalty at a large learning rate; takes a few minutes.
    """
    from harness.pipeline.over_optimise import push
    from harness.report.measurements import OVER_OPTIMISATION, PUSHED_FOLDER
    from harness.report.measurements import Pushed as Measured
    from harness.runtime import Store

    to = publishing(True, allow_fewer, [PUSHED_FOLDER])
    assert to is not None
    store = Store(work_dir() / "over-optimise" / "store")
    say = partial(_say, console(stderr=as_json))
    measured = Measured.model_validate(push(store, workers_of(jobs), say))
    fewer, place = bool(to.fewer), f"micro/{PUSHED_FOLDER}"
    folder = OVER_OPTIMISATION.publish(measured, place, to.results_dir, allow_fewer=fewer)
    note(f"published in {folder}")
    if as_json:
        print_json(Pushed(folder=str(folder)))


def _say(out: Console, event: Event) -> None:
    from harness.runtime import StageFinished

    if isinstance(event, StageFinished):
        out.print(f"{event.stage.label}: {event.wall_s:.1f} s", soft_wrap=True)


def _differing(card: Card) -> list[str] | None:
    """Return the files that a rebuilt world has otherwise than that in use; None without one."""
    from harness.worlds.embedded import files

    try:
        known = files.card().assets
    except HarnessError:
        return None
    return [
        name
        for name, asset in card.assets.items()
        if asset["sha256"] != known.get(name, {}).get("sha256")
    ]


def _compared(differing: list[str] | None) -> str:
    if differing is None:
        return "there is no other to compare it with"
    if not differing:
        return "every file has the digest of the world in use"
    return f"{', '.join(differing)} differ from the world in use"
