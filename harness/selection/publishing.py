"""Reports written to the folder of published results, alone or a group's one after another."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from harness.errors import HarnessError
from harness.project import work_dir
from harness.registry.profile import Profile
from harness.registry.schema import Table
from harness.report.asked import recall
from harness.report.figures.publish import publish_figure
from harness.report.publication import Refused
from harness.report.publish import publish as publish_table
from harness.runtime import Store
from harness.selection.reporting import FigureReport, TableReport
from harness.selection.work import sorted_out
from harness.trainer.runs import plan_table


def publish(report: TableReport | FigureReport, results_dir: Path, *, allow_fewer: bool) -> Path:
    """Write the report of a table or a figure to the folder of published results.

    Returns:
        The folder it is in.

    Raises:
        Refused: It is not whole, or has less than what stands there, and that is not allowed.
    """
    if isinstance(report, FigureReport):
        return publish_figure(report.details, results_dir, allow_fewer=allow_fewer)
    return publish_table(report.runs, report.store, results_dir, allow_fewer=allow_fewer)


def publish_group(
    group: str,
    tables: Mapping[str, Table],
    profile: Profile,
    seeds: Callable[[Table], Sequence[int]],
    store: Store,
    results_dir: Path,
    fewer: Collection[str],
    on_note: Callable[[str], None],
    on_warning: Callable[[str], None],
) -> None:
    """Publish those tables of a group that were run; the refused ones do not stop the others.

    Args:
        group: Name of the group.
        tables: All declared tables.
        profile: The profile.
        seeds: The seeds of each table.
        store: What has been computed.
        results_dir: The folder of published results.
        fewer: Ids of what may be published though it is not whole, or has less than before.
        on_note: Takes a sentence for each folder written, and for what is left out.
        on_warning: Takes a sentence for each table that is refused.

    Raises:
        UserError: The profile can run none of the tables.
        HarnessError: Some of them were refused.
    """
    runnable, left_out = sorted_out(group, tables, profile)
    refused = []
    for table in runnable:
        report = TableReport(plan_table(table, profile, seeds(table)), store)
        # Rows of other tables do not make it one that was run.
        never = recall(work_dir(), table.id, profile.name) is None
        if never or {cell.state for cell in report.cells} <= {"not_run", "not_available"}:
            on_note(f"{table.id} was not run, and is not published")
            continue
        try:
            folder = publish(report, results_dir, allow_fewer=table.id in fewer)
        except Refused as error:
            refused.append(table.id)
            on_warning(str(error))
        else:
            on_note(f"published in {folder}")
    for name, reasons in left_out.items():
        on_note(f"left out: {name}: {'; '.join(reasons)}")
    if refused:
        raise HarnessError(f"not published: {', '.join(refused)}; the warnings above say why")
