"""Boundaries of the code: dependencies point one way, heavy libraries have one home each.

Imports are read from the source, those inside functions and for types included, so that an edge
counts wherever it is written. What is loaded is then measured in a fresh interpreter, because a
light module can pull in a heavy one through a third.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "harness"

LAYERS = (
    {"errors", "foreign"},
    {"project", "quiet", "strict", "words"},
    {"extensions"},  # what plug-ins add, by name
    {"registry", "runtime", "statistics"},  # the runtime runs stages and knows no kind of them
    {"endpoint", "serving"},  # the one place that sends requests; servers of our own
    {"eva", "models"},
    {"selectors"},  # choose among prompts by what `eva` makes of their rewards
    {"evaluation", "inference"},  # have what `models` loads answer, for a judge or by any engine
    {"training", "worlds"},  # train what `models` loads; answer for what a profile names
    {"pipeline"},  # turns recipes into stages that call all of the above
    {"report"},
    {"tracking"},  # shows in MLflow what the store and the reports hold
    {"selection"},
    {"sweep"},
    {"overview"},  # what is declared, listed, shown and checked
    {"api"},
    {"cli"},
    {"__main__"},
    {"__init__"},  # the public names, each imported when it is first used
)
"""Parts of the package, bottom first; a part imports from layers below its own only."""

HOMES = {
    "trl": {"training"},
    "mlflow": {"tracking"},
    "optuna": {"sweep"},
    "vllm": set(),
    "sglang": set(),
    "ray": {"runtime"},
    "datasets": {"training", "worlds/real"},
    "torch": {"models", "inference", "training", "worlds/embedded", "worlds/instructions"},
    "transformers": {"models", "inference", "training", "worlds/embedded", "worlds/instructions"},
    "httpx2": {"endpoint"},
    "alpaca_eval": {"evaluation"},
    "lm_eval": {"evaluation"},
    "yaml": {"registry"},  # read in one place
}
"""Libraries that only some parts, or folders of parts, may import."""

HEAVY = ("torch", "transformers", "trl", "mlflow", "datasets", "optuna", "pandas")

LIGHT = (
    "harness.cli",
    "harness.endpoint",
    "harness.evaluation",
    "harness.registry",
    "harness.report",
    "harness.runtime",
    "harness.selection",
    "harness.serving",
    "harness.statistics",
    "harness.worlds.real",
)
"""Packages of which no module, once imported, has loaded a heavy library."""

LIGHT_MODULES = (
    "harness",
    "harness.api",
    "harness.extensions",
    "harness.tracking",
    "harness.pipeline.algorithm",
    "harness.pipeline.runs",
)
"""Further modules of which the same holds."""

UNSAFE_ARGUMENTS = {"trust_remote_code", "allow_pickle"}


def part_of(path: Path) -> str:
    """Return the part of the package a file belongs to: `runtime`, `errors`."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def is_in(path: Path, homes: set[str]) -> bool:
    """Return whether a file belongs to one of some parts, or of some folders of parts."""
    inside = path.relative_to(PACKAGE)
    return any(inside == Path(f"{home}.py") or inside.is_relative_to(home) for home in homes)


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imports(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield every imported module with its line; `from a import b` yields `a` and `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module), node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def dependencies() -> dict[str, set[str]]:
    """Return which files of its own package each file imports, by module."""
    files = {_module(path): path for path in sources("harness")}
    return {
        module: {
            imported
            for imported, _ in imports(tree_of(path))
            if imported in files
            and imported != module
            and part_of(files[imported]) == part_of(path)
            # What a package says of itself is no file that its files need.
            and files[imported].name != "__init__.py"
        }
        for module, path in files.items()
        if path.name != "__init__.py"
    }


def _module(path: Path) -> str:
    names = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(names).removesuffix(".__init__")


def circle_in(graph: Mapping[str, set[str]]) -> list[str]:
    """Return nodes that need each other in a circle, if any do."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def unsafe(tree: ast.Module) -> Iterator[int]:
    """Yield the lines of calls that may run code that comes in a file; ruff bans the others."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg in UNSAFE_ARGUMENTS:
            off = isinstance(node.value, ast.Constant) and node.value.value is False
            yield from () if off else (node.lineno,)


def loaders(modules: Sequence[str]) -> list[str]:
    """Import modules in a fresh interpreter; return which of them loaded which heavy library."""
    code = (
        "import importlib, sys\n"
        f"heavy = set({HEAVY!r})\n"
        f"for name in {modules!r}:\n"
        "    importlib.import_module(name)\n"
        "    for library in sorted(heavy & set(sys.modules)):\n"
        "        print(name, 'loads', library)\n"
        "    heavy -= set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_every_part_has_exactly_one_layer() -> None:
    listed = [part for layer in LAYERS for part in layer]
    parts = {part_of(path) for path in sources("harness")}
    assert len(listed) == len(set(listed))
    assert parts <= set(listed), "a new part needs a place in LAYERS"


def test_dependencies_point_one_way() -> None:
    level = {part: number for number, layer in enumerate(LAYERS) for part in layer}
    wrong = []
    for path in sources("harness"):
        here = part_of(path)
        for module, line in imports(tree_of(path)):
            names = module.split(".")
            if names[0] != "harness" or len(names) < 2 or names[1] in {here, "__version__"}:
                continue
            if names[1] not in level:  # a public name: `from harness import loss`
                names[1] = "__init__"
            if level[names[1]] >= level[here]:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports harness.{names[1]}")
    assert not wrong, "\n".join(dict.fromkeys(wrong))


def test_no_two_files_of_a_package_need_each_other() -> None:
    assert circle_in(dependencies()) == []
    assert {*circle_in({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})} == {*"abc"}


def test_only_worlds_ask_which_world_a_profile_names() -> None:
    """Everything else asks the world itself (`harness.worlds.lookup.world_of`)."""
    name = "harness.registry.profile.WORLD"
    asking = {
        part_of(path)
        for path in sources("harness")
        for module, _ in imports(tree_of(path))
        if module == name
    }
    assert asking == {"worlds"}


@pytest.mark.parametrize("library", HOMES)
def test_a_heavy_library_is_imported_in_its_home_only(library: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in sources("harness")
        if not is_in(path, HOMES[library])
        for module, line in imports(tree_of(path))
        if f"{module}.".startswith(f"{library}.")
    ]
    assert not wrong, "\n".join(wrong)


def test_light_modules_load_no_heavy_library() -> None:
    """Reading declarations, planning, reporting and the command line itself stay light."""
    folders = (package.replace(".", "/") for package in LIGHT)
    found = [_module(path) for path in sources(*folders)]
    assert set(LIGHT) <= set(found)
    assert loaders([*found, *LIGHT_MODULES]) == []


def test_a_loaded_library_is_noticed() -> None:
    """If planted modules are noticed, the law above can fail."""
    assert loaders(["json", "pandas"]) == ["pandas loads pandas"]


def test_nothing_runs_code_that_comes_in_a_file() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sources("harness", "benchmarks", "tools")
        for line in unsafe(tree_of(path))
    ]
    assert not wrong, "\n".join(wrong)
    for value in ("True", "option"):
        assert [*unsafe(ast.parse(f"\nload(path, trust_remote_code={value})"))] == [2]
