"""The Python API: the same functionality as the command line.

User errors raise `harness.UserError` and other expected failures `harness.HarnessError`, each with
a one-sentence message: what went wrong, where, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness import project
from harness.extensions import load_plugins
from harness.quiet import silence
from harness.registry import declared
from harness.registry.declared import GROUPS
from harness.selection.experiment import Experiment, select
from harness.selection.names import DEFAULT_PROFILE, Seeds

if TYPE_CHECKING:
    from harness.evaluation.scores import Evaluation
    from harness.report.verify import Verified

silence()


def load(
    name: str,
    profile: str = DEFAULT_PROFILE,
    *,
    rows: str | Iterable[str] | None = None,
    seeds: Seeds = None,
    plugins: str | Sequence[str] = (),
) -> Experiment:
    """Load a table, a figure, or several tables, to plan, run and report.

    Args:
        name: A table (`table4`), a figure (`figure5`), a group (`all-offline`, `all`), or the
            path of your own YAML file that declares a table.
        profile: The scale: a profile's name, or the path of a YAML file that declares one.
        rows: Only these rows of a table and their baselines.
        seeds: Root seeds, as numbers or a string such as `0-4`.
        plugins: Your own Python files or modules that add metrics, losses and so on; or just one.
    """
    load_plugins(plugins)
    return select(name, profile, rows, seeds)


def list_tables() -> list[str]:
    """Return the names that `load` accepts: tables, figures, and groups of tables."""
    load_plugins()
    return [*declared.all_tables(), *declared.all_figures(), *GROUPS]


def list_profiles() -> list[str]:
    """Return the names of the shipped profiles."""
    load_plugins()
    return list(declared.all_profiles())


def evaluate(
    benchmark: str,
    *,
    answers: str | Path | None = None,
    model: str | None = None,
    judge: str | None = None,
    judgments: str | Path | None = None,
    data: str | Path | None = None,
    budget_usd: float | None = None,
    track: bool = True,
) -> list[Evaluation]:
    """Judge a model's answers to a benchmark, or score a file of published judgments.

    Requests cost money; cap it with `budget_usd`. Replies are cached, so that repeating a call
    sends none.

    Args:
        benchmark: `mt_bench`, `arena_hard`, `alpaca_eval`, or a plug-in's benchmark.
        answers: A file of the model's answers.
        model: The model, where a file has several; its name in scores.
        judge: The judge, if not the benchmark's own; environment variables say where it is served.
        judgments: A file of published judgments to score; no requests are sent.
        data: The folder of the benchmark's own files, if not that of the fetched ones.
        budget_usd: Stop before the work folder has spent more in all.
        track: Whether to write the scores to MLflow as well.

    Returns:
        The evaluations: one, or one for each model in a file of judgments.
    """
    from harness.tracking import Mlflow, evaluation_records
    from harness.worlds.real import evaluating

    load_plugins()
    done = evaluating.evaluate(
        benchmark,
        answers=None if answers is None else Path(answers),
        model=model,
        judge=judge,
        judgments=None if judgments is None else Path(judgments),
        data=None if data is None else Path(data),
        budget_usd=budget_usd,
    )
    if track:
        Mlflow(project.work_dir()).attempt(lambda: evaluation_records(done.kept()))
    return done.found


def verify() -> Verified:
    """Recompute everything published; a `HarnessError` names the first difference."""
    from harness.report.verify import verify as verify_results

    load_plugins()
    return verify_results(project.publishing_dir())
