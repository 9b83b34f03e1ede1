"""A published report as the report it was written from, but for its curves."""

from __future__ import annotations

from typing import Any

from harness.errors import HarnessError
from harness.registry.profile import Profile
from harness.registry.schema import Table
from harness.report.assumptions import Assumption
from harness.report.creation import Creation
from harness.report.distances import PromptDistance
from harness.report.online import OnlineCost
from harness.report.origin import Origin
from harness.report.published import Published
from harness.report.report import Report
from harness.report.reward_study import Study
from harness.report.summary import Summary


def restored(published: Published, table: Table, profile: Profile) -> Report:
    """Return what a published report says, as a report.

    The curves stay where they are published, as a drawing.

    Args:
        published: The published report.
        table: Its table, as declared now.
        profile: Its profile, as declared now.

    Raises:
        HarnessError: It does not fit the declarations, or was written in another form.
    """
    data = published.report
    try:
        rows = [row["id"] for row in data["rows"]]
        columns = [column["id"] for column in data["columns"]]
        if columns != [column.id for column in table.columns]:
            raise HarnessError(
                f"{published.folder}: the columns of `{table.id}` have changed since it was "
                "published; publish the table again"
            )
        return Report(
            table=table,
            profile=profile,
            seeds=tuple(data["seeds"]),
            rows=tuple(table.row(name) for name in rows),
            cells=tuple(published.cells),
            summaries=tuple(Summary(**summary) for summary in data["summary"]),
            distances=tuple(PromptDistance(**distance) for distance in data["distances"]),
            creations=tuple(Creation(**creation) for creation in data["creation"]),
            online=tuple(OnlineCost(**cost) for cost in data["online"]),
            curves={},
            study=Study.from_json(data["study"]) if "study" in data else None,
            origin=_origin(data["origin"]),
            assumptions=tuple(Assumption(**assumption) for assumption in data["assumptions"]),
            calibrations={},
        )
    except (KeyError, TypeError) as error:
        raise HarnessError(
            f"{published.folder} was published in another form ({error}); publish the table again"
        ) from error


def _origin(data: dict[str, Any]) -> Origin:
    found: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
    return Origin(**found)
