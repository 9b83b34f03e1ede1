"""A full evaluation that is killed three times, against one that nothing disturbs.

805 judgments of AlpacaEval, 1,000 of Arena-Hard and 160 of MT-Bench, by the stand-in judge of the
tests over real HTTP: first with a tenth of all requests failing once (429, 500, cut, broken and
empty replies) and the command killed with SIGKILL three times, once in each benchmark; then again
in peace, in another work folder. Prints one JSON object: for each benchmark the judgments, how
many were answered more than once (they were under way when the command was killed), whether every
judgment is there exactly once, and whether the scores are the same to the last digit.

AlpacaEval needs the extra `alpaca`; without it the other two are run and its place says so.

    python benchmarks/judge_acceptance.py [concurrency]
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from full_size_data import JUDGMENTS, write_data  # noqa: E402
from judge_stand_in import Body, StandIn, judge  # noqa: E402

from harness.evaluation.benchmarks.alpaca_package import installed  # noqa: E402

FAILING = 0.1
COMMAND = "import sys; sys.argv[0] = 'harness'; from harness.cli.main import main; main()"


class Killer:
    """A judge that kills the command which asks it, once half of the judgments are there.

    Args:
        after: Requests before the kill; None never kills.
    """

    def __init__(self, after: int | None) -> None:
        self.after = after
        self.kills = 0
        self.running: subprocess.Popen[str] | None = None
        self._asked = 0
        self._guard = threading.Lock()

    def __call__(self, body: Body) -> Any:
        """Reply as the stand-in does."""
        with self._guard:
            self._asked += 1
            if self.after is not None and self._asked >= self.after and self.running:
                os.kill(self.running.pid, signal.SIGKILL)
                self.after = None
                self.kills += 1
        return judge(body)


def evaluate(
    benchmark: str, options: Sequence[str], work: Path, concurrency: int, disturbed: bool
) -> dict[str, Any]:
    """Run one benchmark to its end, and return its judgments and counts."""
    killer = Killer(JUDGMENTS[benchmark] // 2 if disturbed else None)
    began = time.perf_counter()
    with StandIn(killer, failing=FAILING if disturbed else 0.0) as server:
        command = [
            sys.executable, "-c", COMMAND, "evaluate", benchmark, *options, "--no-track",
            "--json",
        ]  # fmt: skip
        codes: list[int] = []
        while not codes or (codes[-1] == -signal.SIGKILL and len(codes) < 3):
            killer.running = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env={
                    **os.environ, "HARNESS_WORK": str(work), "PYTHONPATH": str(ROOT),
                    "HARNESS_JUDGE_URL": server.url, "HARNESS_JUDGE_CONCURRENCY": str(concurrency),
                },
            )  # fmt: skip
            out, errors = killer.running.communicate()
            codes.append(killer.running.returncode)
        if codes[-1] != 0:
            raise SystemExit(f"{benchmark} ended with {codes}: {errors}")
        answered = server.answered
    (folder,) = work.glob(f"evaluations/{benchmark}/*/*")
    return {
        "scores": json.loads(out)["items"][0],
        "judgments": _identities(benchmark, folder / "judgments.jsonl"),
        "kills": killer.kills,
        "requests": server.requests,
        "answered_again": sum(answered.values()) - len(answered),
        "wall_s": round(time.perf_counter() - began, 1),
    }


def _identities(benchmark: str, path: Path) -> list[str]:
    """Return what each judgment in a file is of, as often as it is there."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        record: Mapping[str, Any] = json.loads(line)
        if benchmark == "arena_hard":
            games = [game for game in record["games"] if game["score"] is not None]
            found += [f"{record['question_id']} {i}" for i in range(len(games))]
        elif benchmark == "mt_bench":
            found += [f"{record['question_id']} {record['turn']}"] * (record["score"] != -1)
        else:
            found += [record["instruction"]] * (record["preference"] is not None)
    return found


def accept(concurrency: int) -> dict[str, Any]:
    """Run all benchmarks twice and compare."""
    report: dict[str, Any] = {"concurrency": concurrency, "failing": FAILING}
    with tempfile.TemporaryDirectory() as folder:
        options = write_data(Path(folder) / "data")
        for benchmark, judgments in JUDGMENTS.items():
            if benchmark == "alpaca_eval" and not installed():
                report[benchmark] = "not run: the extra `alpaca` is not installed"
                continue
            runs = {
                name: evaluate(
                    benchmark, options[benchmark], Path(folder) / name, concurrency, disturbed
                )
                for name, disturbed in (("disturbed", True), ("peaceful", False))
            }
            killed, calm = runs["disturbed"], runs["peaceful"]
            report[benchmark] = {
                "judgments": judgments,
                "once_each": len(killed["judgments"]) == len(set(killed["judgments"])) == judgments,
                "kills": killed["kills"],
                "requests": killed["requests"],
                "answered_again": killed["answered_again"],
                "same_scores": killed["scores"] == calm["scores"],
                "scores": killed["scores"]["scores"],
                "wall_s": {name: run["wall_s"] for name, run in runs.items()},
            }
    return report


if __name__ == "__main__":
    print(json.dumps(accept(int(sys.argv[1]) if len(sys.argv) > 1 else 16), indent=1))
