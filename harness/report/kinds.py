"""Every kind of publication whose numbers this version recomputes, by name."""

from __future__ import annotations

from typing import Any

from harness.report.figures.published import FIGURE
from harness.report.publication import Publication
from harness.report.publish import TABLE
from harness.report.sweep import SWEEP

KINDS: dict[str, Publication[Any]] = {kind.name: kind for kind in (TABLE, FIGURE, SWEEP)}
