"""A mistake is one sentence on stderr and exit code 2; nothing is printed or written otherwise."""

import errno
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judge_stand_in import write_answered_mt_bench

from harness.errors import UserError
from harness.selection.names import parse_names, parse_seeds
from harness.words import seeds_text

JUDGED = "evaluate mt_bench --data DATA --answers ANSWERS"
MISTAKES = {
    "plan all-online": "there is no table `all-online`",
    "show tabel4": "there is no table `tabel4`; did you mean `table4`?",
    "plan table4 --profile mirco": "there is no profile `mirco`; did you mean `micro`?",
    "plan table4 --rows eva-amin": "`table4` has no row `eva-amin`; did you mean `eva-a_min`?",
    "plan table4 --rows a,,b": "empty name",
    "plan table4 --rows dpo-1,dpo-1": "names `dpo-1` twice",
    "plan table4 --seeds x": "`x` is not a list of seeds",
    "plan table4 --seeds 4-0": "runs backwards; write `0-4`",
    "plan table4 --seeds 0,0-2": "names seed 0 twice",
    "plan table4 --seeds 0-99999999999": "goes beyond the largest seed",
    "plan table4 --seeds 0-5000": "more than 1000 seeds",
    "plan table4 --jobs 0": "jobs is 0",
    "plan table4 --set profile.training.dpo.beat=1": "did you mean `profile.training.dpo.beta`?",
    "plan table4 --set profile.training.dpo.beta=x": "`training.dpo.beta` must be a number",
    "plan table8 --profile single-gpu": "`rloo`; on `laptop`, `micro`, `paper` it can",
    "report table4 --json --format markdown": "contradict each other",
    "report all-offline --publish --json": "leave out the other options",
    "report --all table4": "name one table, or ask for every one with `--all`",
    "report figure5 --format html": "`figure5` is a figure",
    "report figure9 --published --format html": "choose terminal, markdown or json",
    "report table4 --published --rows eva-var": "what is published has the rows and seeds it has",
    "report table4 --published --publish --add": "`--add` goes with `--publish` and `--seeds`",
    "report all-offline --published --publish": "what is published has the rows and seeds it has",
    "report table4 --rows dpo-1 --format html": "a page has all rows",
    "report table4 --output out.pdf": "`out.pdf` has no ending of a report",
    "report table4 --allow-fewer": "`--allow-fewer` goes with `--publish`",
    "report table4 --add --publish": "`--add` goes with `--publish` and `--seeds`",
    "report figure5 --add --publish --seeds 0": "can be added to a single table only",
    "claims --published --seeds 0": "published scores have the seeds they have",
    "claims tabel4": "there is no table or figure `tabel4`; did you mean `table4`?",
    "run all --rows a": "rows are those of one table",
    "plan figure5 --rows a": "`figure5` names its own rows",
    "evaluate fetch none": "There is no benchmark `none`",
    "store path table4 eva-amin": "did you mean `eva-a_min`?",
    "report table4 --published --format html --seeds 0": "has the rows and seeds it has",
    "report table4 --format html --publish": "a page has all rows",
    "plan figure11": "there is no figure `figure11`; did you mean `figure1",
    "run table4 --budget-usd -1": "--budget-usd is -1",
    "doctor table99": "there is no table `table99`",
    "doctor table11 --profile laptop": "`table11` cannot run on the profile `laptop`",
    "evaluate alpaca_eval --calibrate --judge j": "type `harness evaluate fetch alpaca_eval`",
    "evaluate alpaca_eval --calibrate": "name it with --judge",
    "evaluate alpaca_eval --calibrate --judge j --model m": "no --answers, --model or --data",
    "evaluate mt_bench --calibrate --judge j": "type `harness evaluate alpaca_eval --calibrate`",
    "evaluate alpaca_eval --calibrate --judge j --budget-usd -1": "--budget-usd is -1",
    "sweep run offline-evolv": "there is no sweep `offline-evolv`; did you mean `offline-evolve`?",
    "sweep run offline-evolve --profile mirco": "did you mean `micro`?",
    "sweep run offline-evolve --jobs 0": "jobs is 0",
    "sweep run tune-sppo --profile laptop": "`tune-sppo` cannot run on the profile `laptop`: ",
    "sweep show tune-sppo --profile laptop": "`tune-sppo` cannot run on the profile `laptop`: ",
    "sweep run ./nothing.yaml": "there is no file `./nothing.yaml`",
    "store path table4 dpo-1": "not trained yet; type `harness run table4 --rows dpo-1 --seeds 0`",
    "store path table1 base": "trains no policy",
    "store --verify --json path table4 dpo-1": "options before `path` have no use; write its own",
    "store path all dpo-1": "there is no table `all`",
    "evaluate mt_bench --answers x": "name their folder with --data",
    "evaluate mt_bench --data /absent --answers x": "is not a folder",
    "evaluate mt_bench --data DATA": "There is nothing to evaluate",
    f"{JUDGED} --judge unheard": "in HARNESS_JUDGE_URL",
    f"{JUDGED} --judge gpt-6 --budget-usd 1": "HARNESS_JUDGE_PRICE",
    f"{JUDGED} --judge reward:odd": "is not a model of the hub",
    f"{JUDGED} --budget-usd -1": "--budget-usd is -1",
    "evaluate mt_bench --judgments /absent": "Cannot read /absent: No such file or directory;",
    "evaluate mt_bench --judgments x --budget-usd 1": "`--budget-usd` has no use beside",
    "evaluate arena_hard --judgments x --answers y": "`--answers` has no use beside `--judgments`",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Write what commands name: nothing is wrong with any of it."""
    data = write_answered_mt_bench(tmp_path_factory.mktemp("files") / "data", 1)
    return {"DATA": str(data), "ANSWERS": str(data / "answers.jsonl")}


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    call: Any, folders: Path, files: dict[str, str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(folders.parent)
    words = command
    for name, path in files.items():
        words = words.replace(name, path)
    result = call(*words.split(), code=2)
    assert result.stdout == ""
    assert result.stderr.startswith("harness: ")
    assert MISTAKES[command] in result.stderr
    assert result.stderr.count("\n") == 1
    assert list(folders.parent.iterdir()) == []


@pytest.mark.parametrize("command", ["show own", "plan table4 --profile own"])
def test_a_file_named_without_its_ending_is_suggested(
    call: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    (tmp_path / "own.yaml").touch()
    monkeypatch.chdir(tmp_path)
    said = call(*command.split(), code=2).stderr
    assert "`own`; did you mean the file `own.yaml`?" in said


@pytest.mark.parametrize(
    "command",
    ["nothing", "list --jsn", "plan", "plan table4 --seeds", "report table4 --format pdf",
     "ui --port 0", "store path table4 dpo-1 --seed -1", "sweep nothing",
     "report table4 --output caf\udce9"],
)  # fmt: skip
def test_a_wrong_usage_is_exit_code_2(call: Any, command: str) -> None:
    assert "Traceback" not in call(*command.split(), code=2).stderr


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("0", (0,)), ("0,2", (0, 2)), ("0-4", (0, 1, 2, 3, 4)), ("7,0-1", (0, 1, 7)), ("3-3", (3,))],
)
def test_seeds_are_ids_and_ranges(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@given(st.sets(st.integers(0, 2**31 - 1), min_size=1, max_size=20))
def test_seeds_survive_being_written_and_read(seeds: set[int]) -> None:
    assert parse_seeds(seeds_text(sorted(seeds))) == tuple(sorted(seeds))


@given(st.text(max_size=12))
def test_any_text_is_seeds_or_a_mistake(text: str) -> None:
    """Whatever is typed, the answer is seeds in ascending order or a sentence."""
    try:
        seeds = parse_seeds(text)
    except UserError:
        return
    assert list(seeds) == sorted(set(seeds))


def test_names_are_separated_by_commas() -> None:
    assert parse_names(None) is None
    assert parse_names("a, b") == ("a", "b")


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        (OSError(errno.ENAMETOOLONG, "", "/x" * 99), 2, "name another path"),
        (PermissionError(errno.EACCES, "denied", "/own"), 2, "`/own`: denied; name another path"),
        (KeyboardInterrupt(), 130, "harness: stopped"),
    ],
)
def test_what_the_system_has_against_a_command_is_one_sentence(
    call: Any, monkeypatch: Any, fault: BaseException, code: int, words: str
) -> None:
    def fail() -> None:
        raise fault

    monkeypatch.setattr("harness.overview.list_declared", fail)
    assert words in call("list", code=code).stderr
