"""What commands print: JSON with a version, text in 80 columns, help and completion."""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.cells import cell_len
from running import ran

from harness import extensions
from harness.cli import common
from harness.cli.common import complete_profile, complete_table, print_json, text_table
from harness.cli.main import app


def test_every_verb_has_an_example_and_json_unless_it_serves_pages() -> None:
    verbs: dict[str, set[str]] = {}

    def look(command: Any, words: tuple[str, ...]) -> None:
        is_group = hasattr(command, "list_commands")
        if not is_group:
            assert " ".join(("harness", *words)) in command.epilog.partition("Example: ")[2]
            assert "install_completion" not in {param.name for param in command.params}
        if not is_group or (command.invoke_without_command and words):
            verbs[" ".join(words)] = {name for param in command.params for name in param.opts}
        for name in command.list_commands(None) if is_group else ():
            look(command.get_command(None, name), (*words, name))

    look(typer.main.get_command(app), ())
    assert {verb for verb, options in verbs.items() if "--json" not in options} == {"ui"}
    assert {"sync", "store path", "evaluate fetch", "run"} <= set(verbs)


@pytest.mark.parametrize(
    ("printed", "found"),
    [
        ([1, 2], {"schema_version": 1, "items": [1, 2]}),
        ({"table": "t"}, {"schema_version": 1, "table": "t"}),
        ({"a": 1, "schema_version": 2}, {"schema_version": 2, "a": 1}),
    ],
)
def test_all_json_begins_with_the_version_of_its_schema(
    printed: Any, found: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    print_json(printed)
    said = json.loads(capsys.readouterr().out)
    assert said == found
    assert next(iter(said)) == "schema_version"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"FORCE_COLOR": "1"}, "\x1b[1;32msupported\x1b[0m"),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, "\x1b[1msupported\x1b[0m"),
        ({}, "\nsupported"),
    ],
)
def test_verdicts_have_colours_on_a_terminal_unless_none_are_wanted(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    expected: str,
) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm-256color", **variables}.items():
        monkeypatch.setenv(name, value)
    common.console().print(text_table(("verdict",), [("supported",)]))
    assert expected in capsys.readouterr().out


@pytest.mark.parametrize(("kind", "draws"), [("xterm-256color", True), ("dumb", False)])
def test_a_terminal_that_cannot_redraw_gets_lines(
    monkeypatch: pytest.MonkeyPatch, kind: str, draws: bool
) -> None:
    """As rich says, nothing is drawn there, and a line every few seconds has to do."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", kind)
    assert common.console(stderr=True).is_terminal is draws


def test_numbers_are_aligned_to_the_right_in_late_columns_too() -> None:
    columns = text_table([str(at) for at in range(13)], [], right=range(1, 12)).columns
    assert [at for at, column in enumerate(columns) if column.justify == "right"] == [*range(1, 12)]


@pytest.mark.parametrize(
    "command",
    ["list", "show table4", "show table9", "show figure3", "plan table4", "plan all-offline",
     "doctor", "sweep list", "sweep show tune-dpo", "validate",
     "plan table4 --profile paper", "plan all --profile paper", "store", "report table4",
     "claims table4 --published --full", "claims --published"],
)  # fmt: skip
def test_80_columns_are_enough(
    call: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    """Nothing is wider but commands and paths; rows and columns are named in whole words."""
    monkeypatch.setenv("COLUMNS", "80")
    lines = call(*command.split()).stdout.splitlines()
    assert lines
    tables = [line for line in lines if "  " in line.strip() or "──" in line]
    assert max((cell_len(line.rstrip()) for line in tables), default=0) <= 80
    copied = ("harness ", str(tmp_path))
    wide = [line for line in lines if cell_len(line.rstrip()) > 80]
    assert [line for line in wide if not any(text in line for text in copied)] == []
    if command == "claims --published":
        assert " construction " in " ".join(lines[:3])
    if command == "show table4":
        assert sum(line.startswith("eva-a_min_inv ") for line in lines) == 2


@pytest.mark.parametrize("width", ["40", None])
def test_a_command_to_copy_is_not_wrapped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: str | None
) -> None:
    monkeypatch.setenv("COLUMNS", width) if width else monkeypatch.delenv("COLUMNS", raising=False)
    line = f"harness run {' '.join(['--set profile.x=1'] * 20)}"
    common.print_all([common.unbroken(line), "words " * 40])
    said = capsys.readouterr().out.splitlines()
    assert said[0] == line
    assert len(said) > 2


@pytest.mark.parametrize("group", ["store", "sweep", "evaluate"])
def test_the_help_of_a_group_says_all_of_what_its_commands_do(
    call: Any, monkeypatch: pytest.MonkeyPatch, group: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    commands = call(group, "--help").stdout.partition("Commands:\n")[2]
    assert commands
    assert "..." not in commands


def test_a_shell_completes_verbs_tables_and_profiles(process: Any) -> None:
    def completed(words: str, position: int) -> list[str]:
        asked = {"_HARNESS_COMPLETE": "complete_bash", "COMP_WORDS": words}
        return list(process(**asked, COMP_CWORD=str(position)).stdout.split())

    assert completed("harness cla", 1) == ["claims"]
    assert completed("harness show table1", 2)[:2] == ["table1", "table10"]
    assert completed("harness run all", 2) == ["all-offline", "all"]
    assert completed("harness plan table4 --profile si", 4) == ["single-gpu"]
    assert completed("harness evaluate mt", 2) == ["mt_bench"]


def test_completion_loads_plugins_first_and_offers_nothing_where_something_is_wrong(
    registries: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("import harness\n\nharness.metric('odd', version='1')(len)\n")
    monkeypatch.setattr(extensions, "_loaded", set())
    monkeypatch.setenv("HARNESS_PLUGINS", str(mine))
    assert complete_profile("mic") == ["micro"]
    assert "odd" in extensions.METRICS
    monkeypatch.setenv("HARNESS_PLUGINS", "absent.py")
    assert complete_profile("mic") == complete_table("table1") == []


def test_bash_reads_the_completion_script(process: Any) -> None:
    script = process("--show-completion", "bash").stdout
    done = subprocess.run(
        ["bash", "-c", f"{script}\ncomplete -p harness"], capture_output=True, text=True, check=True
    )
    assert "_harness_completion" in done.stdout


def test_the_version_is_that_of_the_package_by_either_name() -> None:
    assert ran("-m", "harness", "--version").stdout == f"harness {version('eva-harness')}\n"
