"""Mutation testing: which changes of a room's code turn no test of the room red?

    python tests/mutation/mutate.py harness/eva harness/statistics
    python tests/mutation/mutate.py harness/report/verdicts.py --sample 100

One change at a time: a statement of a function is deleted, a condition becomes true or false, an
operator, a comparison or a number becomes its neighbour. The tests that run the changed line
(of `tests/<room>`, or those that `--tests` names) are run until one fails. What fails none is
printed and, where `survivors.yaml` gives no reason why it may live, the command ends with 1.

The tests are imported and run once, with coverage; then each change is tried in a fork of that
process, where the code of the live functions is exchanged, so a change costs the time of the
quickest test that sees it. No file is written. Changed are bodies of functions and numbers of
modules; not: messages, annotations, imports and bodies of classes.

Libraries (mutmut 3, cosmic-ray 8) neither delete statements nor fork after the import.
"""

import argparse
import ast
import copy
import functools
import gc
import importlib
import os
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import coverage
import pytest
import yaml
from _pytest.runner import runtestprotocol
from hypothesis import Phase, settings

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 60
"""Seconds of the processor after which a change counts as one that never ends."""

LONGEST = 100
"""Characters of a statement that are shown whole."""

LISTED = Path(__file__).with_name("survivors.yaml")

OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.Pow: ast.Mult, ast.FloorDiv: ast.Div, ast.Mod: ast.Mult, ast.MatMult: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
NAMES = {"min": "max", "max": "min", "argmin": "argmax", "argmax": "argmin", "any": "all"}
NAMES |= {"all": "any", "minimum": "maximum", "maximum": "minimum", "low": "high", "high": "low"}
Function = ast.FunctionDef | ast.AsyncFunctionDef
TESTED = (ast.If, ast.IfExp, ast.While)
DELETED = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Return, ast.Raise, ast.Continue)


@dataclass
class Mutant:
    """A change of one file: where, the changed statement before and after, and how it is made."""

    path: Path
    where: str
    lines: set[int]
    before: str = ""
    after: str = ""
    tree: ast.Module = field(default_factory=lambda: ast.Module([], []))
    holder: Any = None
    slot: Any = None
    new: Any = None

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What names it in the list of survivors, whatever its line."""
        return (str(self.path.relative_to(ROOT)), self.where, self.before, self.after)

    def during(self, look: Callable[[], Any]) -> Any:
        """Return what is seen of the tree while the change is in it."""
        old, self.holder[self.slot] = self.holder[self.slot], self.new
        try:
            return look()
        finally:
            self.holder[self.slot] = old


def changed(node: ast.AST) -> Iterator[ast.AST]:
    """Give each change of one node, children left alone."""
    if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in OPERATORS:
        yield replaced(node, op=OPERATORS[type(node.op)]())
    elif isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            yield replaced(node, ops=[*node.ops[:i], OPERATORS[type(op)](), *node.ops[i + 1 :]])
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        other = not node.value if isinstance(node.value, bool) else node.value + 1
        yield replaced(node, value=other)
    elif isinstance(node, ast.Name | ast.Attribute):
        name = "id" if isinstance(node, ast.Name) else "attr"
        if isinstance(node.ctx, ast.Load) and getattr(node, name) in NAMES:
            yield replaced(node, **{name: NAMES[getattr(node, name)]})
    elif isinstance(node, ast.comprehension) and node.ifs:
        yield replaced(node, ifs=[])
    if isinstance(node, TESTED):
        for value in (True, False):
            if not (value and isinstance(node, ast.While)):
                yield replaced(node, test=ast.Constant(value))
    if isinstance(node, DELETED) and not is_text(node):
        yield ast.Pass()


def replaced(node: ast.AST, **fields: Any) -> ast.AST:
    """Return a shallow copy with other fields."""
    new = copy.copy(node)
    vars(new).update(fields)
    return new


def is_text(node: ast.AST) -> bool:
    """Return whether a statement is a docstring or `...`."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def mutants(path: Path) -> Iterator[Mutant]:
    """Give every change of a file."""
    tree = ast.parse(path.read_text("utf-8"))

    def walk(node: ast.AST, where: str, statement: Any, function: bool) -> Iterator[Mutant]:
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "type_params", "decorator_list", "msg"):
                continue
            if isinstance(node, ast.Raise) or isinstance(value, ast.JoinedStr):
                continue
            for place, child in enumerate(value if isinstance(value, list) else [value]):
                if not isinstance(child, ast.AST):
                    continue
                inside = child if isinstance(child, ast.stmt) else statement
                named = (
                    [where, child.name] if isinstance(child, Function | ast.ClassDef) else [where]
                )
                body = (function or isinstance(node, Function)) and name != "args"
                if body or (not where and isinstance(child, ast.Constant)):
                    for new in changed(child):
                        yield made(node, name, place, new, where, inside)
                if not isinstance(child, ast.Import | ast.ImportFrom):
                    yield from walk(child, ".".join(filter(None, named)), inside, body)

    def made(node: Any, name: str, place: int, new: Any, where: str, statement: Any) -> Mutant:
        among = getattr(node, name)
        holder: Any
        holder, slot = (among, place) if isinstance(among, list) else (vars(node), name)
        old = holder[slot]
        first = getattr(old, "lineno", statement.lineno)
        last = first if isinstance(old, ast.If | ast.While) else getattr(old, "end_lineno", first)
        mutant = Mutant(path, where, {statement.lineno, *range(first, last + 1)}, head(statement))
        if not where:  # a number of the module: what runs the lines that name it
            named = {it.id for it in ast.walk(statement) if isinstance(it, ast.Name)}
            uses = (it for it in ast.walk(tree) if isinstance(it, ast.Name) and it.id in named)
            mutant.lines |= {it.lineno for it in uses}
        ast.fix_missing_locations(ast.copy_location(new, old))
        mutant.tree, mutant.holder, mutant.slot, mutant.new = tree, holder, slot, new
        after = mutant.during(lambda: head(new if statement is old else statement))
        mutant.before, mutant.after = around(mutant.before, after)
        return mutant

    yield from walk(tree, "", None, False)


def head(statement: ast.AST) -> str:
    """Return a statement in one line, a compound one without its body."""
    if hasattr(statement, "body"):
        statement = replaced(statement, body=[], orelse=[], handlers=[])
    return ast.unparse(statement).strip()


def around(before: str, after: str) -> tuple[str, str]:
    """Return two texts, long ones only as far as they differ and a little around it."""
    if max(len(before), len(after)) <= LONGEST:
        return before, after
    first = alike(before, after)
    last = alike(before[first:][::-1], after[first:][::-1])
    start, end = max(0, first - LONGEST // 3), max(0, last - LONGEST // 3)
    return before[start : len(before) - end], after[start : len(after) - end]


def alike(one: str, other: str) -> int:
    """Return how many characters two texts have in common at their beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def exchange(mutant: Mutant, live: Sequence[FunctionType]) -> None:
    """Exchange the code of the functions in this process, or a module's number everywhere."""
    code = mutant.during(lambda: compile(mutant.tree, str(mutant.path), "exec"))
    new = {(inner.co_qualname, inner.co_firstlineno): inner for inner in codes(code)}
    for function in live:
        inner = new.get((function.__code__.co_qualname, function.__code__.co_firstlineno))
        if inner is not None and len(inner.co_freevars) == len(function.__code__.co_freevars):
            function.__code__ = inner
    if not mutant.where:  # a number of the module: short, so that `after` is the whole statement
        module = ".".join(mutant.path.relative_to(ROOT).with_suffix("").parts)
        told = dict(vars(importlib.import_module(module)))
        exec(mutant.after, told)
        constant = mutant.after.partition(" ")[0].rstrip(":")
        for loaded in list(sys.modules.values()):
            if constant in getattr(loaded, "__dict__", {}):
                setattr(loaded, constant, told[constant])


def functions(path: Path) -> list[FunctionType]:
    """Return the live functions of a file."""
    return [
        it
        for it in gc.get_objects()
        if isinstance(it, FunctionType) and it.__code__.co_filename == str(path)
    ]


def codes(code: CodeType) -> Iterator[CodeType]:
    """Give every function's code within a code."""
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield const
            yield from codes(const)


class Trial:
    """The plug-in that runs the tests once, and then what concerns each change in a fork."""

    def __init__(self, paths: list[Path], asked: argparse.Namespace) -> None:
        self.paths, self.asked = paths, asked
        self.survivors: list[Mutant] = []
        self.tried: Counter[str] = Counter()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        quick = settings(settings.default, phases=(Phase.explicit, Phase.generate))
        settings.register_profile("mutation", quick)
        settings.load_profile("mutation")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        cover = coverage.Coverage(
            data_file=None, config_file=False, include=[*map(str, self.paths)]
        )
        items, took = {item.nodeid: item for item in session.items}, {}
        cover.start()
        for item in session.items:
            cover.switch_context(item.nodeid)
            began = time.process_time()
            if not passes(item):
                raise pytest.UsageError(f"{item.nodeid} fails without a change: mend it first")
            took[item.nodeid] = time.process_time() - began
        cover.stop()
        live = {path: functions(path) for path in self.paths}
        every = {path: list(mutants(path)) for path in self.paths}
        for it in gc.get_objects():  # what was computed without a change says nothing of it
            if isinstance(it, functools._lru_cache_wrapper):
                it.cache_clear()
        gc.freeze()
        gc.disable()
        nothing = Mutant(self.paths[0], "nothing", set(), holder=[None], slot=0)
        if killer := self.killer(nothing, session.items, []):
            raise pytest.UsageError(f"{killer} fails in a fork where nothing is changed")
        kills: Counter[str] = Counter()
        for path in self.paths:
            runs = cover.get_data().contexts_by_lineno(str(path))
            all_of = [it for it in every[path] if self.asked.match in it.before]
            random.Random(0).shuffle(all_of)
            for mutant in sorted(all_of[: self.asked.sample], key=lambda m: min(m.lines)):
                near = {test for line in mutant.lines for test in runs.get(line, [])} & {*items}
                near = {test for test in near if took[test] <= self.asked.slowest}
                order = sorted(near, key=lambda test: took[test] / (1 + kills[test]))
                killer = self.killer(mutant, [items[test] for test in order], live[path])
                self.tried[str(path.relative_to(ROOT))] += 1
                kills[killer] += 1
                if not killer:
                    self.survivors.append(mutant)
                    file, where, before, after = mutant.key
                    print(f"\n{file}:{min(mutant.lines)} {where} ({len(near)} tests)")
                    print(f"  - {before}\n  + {after}", flush=True)
        return True

    def killer(self, mutant: Mutant, items: list[pytest.Item], live: Sequence[FunctionType]) -> str:
        """Return the test that fails under a change, or what else ended the trial; `` if none."""
        read, write = os.pipe()
        child = os.fork()
        if not child:
            resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT))
            devnull = os.open(os.devnull, os.O_WRONLY)
            os.dup2(devnull, 1), os.dup2(devnull, 2)
            exchange(mutant, live)
            failed = next((item.nodeid for item in items if not passes(item)), "")
            os.write(write, failed.encode() or b" ")
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            said = pipe.read()
        os.waitpid(child, 0)
        return said.strip() if said else "time"


def passes(item: pytest.Item) -> bool:
    """Run one test with fixtures of its own."""
    return all(report.outcome != "failed" for report in runtestprotocol(item, log=False))


def main() -> int:
    """Try the changes of the files named; 1 where one survives without a reason."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--tests", nargs="+", help="tests to use, of tests/<room> by default")
    parser.add_argument("--sample", type=int, help="try so many changes a file, drawn at random")
    parser.add_argument("--match", default="", help="try only changes of statements with this text")
    parser.add_argument("--slowest", type=float, default=1.0, help="CPU seconds of a test to use")
    asked = parser.parse_args()
    paths = [p.resolve() for path in asked.paths for p in (sorted(path.glob("*.py")) or [path])]
    rooms = sorted({f"tests/{path.relative_to(ROOT).parts[1]}" for path in paths})
    trial = Trial(paths, asked)
    quiet = "-q -s --no-header --disable-warnings -p no:cacheprovider -p no:timeout -p no:xdist"
    if pytest.main([*quiet.split(), *(asked.tests or rooms)], plugins=[trial]) not in (0, 5):
        return 2
    listed = {tuple(row[k] for k in ("file", "where", "before", "after")) for row in known()}
    new = [mutant for mutant in trial.survivors if mutant.key not in listed]
    print(
        f"{sum(trial.tried.values())} changes, {len(trial.survivors)} survive, {len(new)} unlisted"
    )
    rows = [dict(zip(("file", "where", "before", "after"), m.key, strict=True)) for m in new]
    print(yaml.safe_dump(rows, sort_keys=False, width=100) if rows else "", end="")
    return int(bool(new))


def known() -> list[dict[str, str]]:
    """Return the survivors that may live, each with its reason `why`."""
    return yaml.safe_load(LISTED.read_text("utf-8")) if LISTED.exists() else []


if __name__ == "__main__":
    sys.exit(main())
