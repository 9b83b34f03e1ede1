"""`export`: a trained policy as a folder that transformers loads, here or on the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from harness.cli.options import JsonOption, ProfileOption, SeedOption
from harness.cli.output import console, note, print_json, writing
from harness.project import PACKAGE, store_dir
from harness.selection.names import DEFAULT_PROFILE
from harness.strict import Output

NameArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's id, or a row, as `table4/eva-a_min`.")
]
OutputOption = Annotated[
    Path, typer.Option("--output", metavar="DIR", help="A new or empty folder.")
]
PushOption = Annotated[
    str | None,
    typer.Option(
        "--push",
        metavar="OWNER/NAME",
        help="Also send it to a private repository of the hub; needs HF_TOKEN.",
        show_default="nothing is sent",
    ),
]

app = typer.Typer(rich_markup_mode=None)


class Exported(Output):
    """A policy that was written."""

    run: str
    profile: str
    seed: int
    output: str
    """Its folder."""
    files: dict[str, dict[str, Any]]
    """Digest and size of each file by its name."""


@app.command(
    "export",
    epilog="Example: harness export table4/eva-a_min --seed 0 --output my-policy",
)
def export(
    run: NameArgument,
    output: OutputOption,
    profile: ProfileOption = DEFAULT_PROFILE,
    seed: SeedOption = 0,
    push: PushOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a trained policy as a folder that transformers loads, with a card and its lineage.

    The folder has weights as safetensors, configuration, tokenizer, README.md (what it is and what
    it scores) and lineage.json (every stage behind it).
    """
    from harness import export as exporting
    from harness.registry.declared import all_tables, named_profile, named_table, own_file
    from harness.runtime import Store

    if push is not None:
        exporting.check_push(push)
    scale = named_profile(profile)
    table, _, row = run.rpartition("/")
    tables = all_tables()
    if own_file(table) is not None:
        own, tables = named_table(table)
        run = f"{own.id}/{row}"
    policy = exporting.find_policy(run, tables, scale, seed)
    with writing("--output", output) as target:
        files = exporting.export(policy, Store(store_dir()), target, PACKAGE.parent)
    if push is not None:
        note(f"sent to {exporting.push(target, push)}")
    if as_json:
        entries = {name: dict(entry) for name, entry in files.items()}
        run_id = policy.run.run_id
        print_json(
            Exported(run=run_id, profile=profile, seed=seed, output=str(target), files=entries)
        )
        return
    console().print(
        f"{policy.title}: {len(files) + 1} files in {target}; load it with "
        f"AutoModelForCausalLM.from_pretrained({str(target)!r})",
        soft_wrap=True,
    )
