"""How long the page of all tables takes from the store of a work folder, and how large it is.

Prints JSON: wall time and processor time in seconds (the best of three), the stages in the store,
the cells with numbers, and the size of the page in MB. The work folder is that of `HARNESS_WORK`.

Usage: python benchmarks/report_page.py
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness.project import store_dir

COMMAND = [sys.executable, "-c", "from harness.cli.main import main; main()", "report", "--all"]


def measured(arguments: list[str]) -> tuple[float, float]:
    """Run the command; return its wall time and its processor time in seconds."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([*COMMAND, *arguments], stderr=subprocess.DEVNULL, check=True)
    wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        page, cells = Path(folder) / "page.html", Path(folder) / "cells.json"
        times = [measured(["--format", "html", "--output", str(page)]) for _ in range(3)]
        measured(["--format", "json", "--output", str(cells)])
        found = json.loads(cells.read_text(encoding="utf-8"))
        figures = {
            "wall_s": round(min(wall for wall, _ in times), 1),
            "processor_s": round(min(processor for _, processor in times), 1),
            "stages": sum(1 for _ in store_dir().glob("stages/??/*/stage.json")),
            "cells_with_numbers": sum(cell["mean"] is not None for cell in found),
            "page_mb": round(page.stat().st_size / 1e6, 1),
        }
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
