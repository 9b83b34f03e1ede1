"""Has a judge compare answers that others judged: a reward model, a function, or an endpoint's.

A reward model reads answers one by one, so that no order can matter. Others are asked about each
pair in both orders, in one wording of this project's own for all benchmarks: what comes out is the
judge's and not a benchmark's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from harness.endpoint.client import work_through
from harness.endpoint.request import ChatRequest, Message
from harness.evaluation.calibration import (
    Calibration,
    Comparison,
    measure,
    published_file,
    read_comparisons,
    record_path,
)
from harness.evaluation.scores import write_json
from harness.extensions import JUDGES
from harness.project import calibrations_dir
from harness.registry.profile import REWARD_JUDGE
from harness.worlds.real import rewards
from harness.worlds.real.models import access_to

Verdicts = list[tuple[float | None, float | None]]

WORDING = """Two assistants answered the same prompt. Decide which answer serves better: correct,
helpful, to the point. Neither the order of the answers nor their length counts.

<prompt>
{prompt}
</prompt>

<answer A>
{first}
</answer A>

<answer B>
{second}
</answer B>

End your reply with [[A]], [[B]], or [[C]] if neither is better."""

SETTINGS = {"temperature": 0.0, "max_tokens": 1024}

_SHARES = {"A": 0.0, "B": 1.0, "C": 0.5}


def calibrate(
    judge: str,
    published: Path | None,
    limit: int | None = None,
    done: Callable[[int, int], None] = lambda count, total: None,
) -> Calibration:
    """Have a judge compare published answers, and keep how far it agrees with who judged them.

    Raises:
        UserError: There are no published judgments, or the judge is not here.
        HarnessError: It does not answer, or the budget is used up.
    """
    path = published_file(published)
    by_whom, comparisons = read_comparisons(path)
    comparisons = comparisons[:limit]
    identity, verdicts = (
        _by_reward(judge.removeprefix(REWARD_JUDGE), comparisons)
        if judge.startswith(REWARD_JUDGE)
        else _asked(judge, comparisons, done)
    )
    found = measure(judge, identity, comparisons, verdicts, (by_whom, path))
    write_json(record_path(calibrations_dir(), judge), found.model_dump(mode="json"))
    return found


def _by_reward(named: str, comparisons: list[Comparison]) -> tuple[str, Verdicts]:
    identity = rewards.identity_of(named)
    model = rewards.load(identity, "one answer")
    found = model.score(
        [[{"role": "user", "content": one.prompt}] for one in comparisons],
        [[one.first, one.second] for one in comparisons],
    )
    gaps = found.values[:, 1] - found.values[:, 0]
    shares = [None if np.isnan(gap) else 0.5 + 0.5 * float(np.sign(gap)) for gap in gaps]
    return identity, [(share, share) for share in shares]


def _asked(
    judge: str, comparisons: list[Comparison], done: Callable[[int, int], None]
) -> tuple[str, Verdicts]:
    access = access_to("JUDGE", judge)
    client = access.client()

    def verdict(item: tuple[Comparison, bool]) -> float | None:
        one, swapped = item
        first, second = (one.second, one.first) if swapped else (one.first, one.second)
        fields = {"prompt": one.prompt, "first": first, "second": second}
        text = re.sub(r"\{(\w+)\}", lambda found: fields[found[1]], WORDING)
        request = ChatRequest("a comparison", judge, (Message("user", text),), SETTINGS)
        share = read(client.ask(request).text)
        return 1.0 - share if swapped and share is not None else share

    items = [(one, swapped) for one in comparisons for swapped in (False, True)]
    outcomes = work_through(items, verdict, client, access.concurrency, done)
    shares = [outcome.result for outcome in outcomes]
    plugin = JUDGES.identity(judge).get("plugin")
    identity = judge if plugin is None else f"{judge}@{plugin['name']}-{plugin['version']}"
    return identity, list(zip(shares[::2], shares[1::2], strict=True))


def read(reply: str) -> float | None:
    """Return the share for the second answer in a reply's last label, None where it has none."""
    found = re.findall(r"\[\[([ABC])\]\]", reply)
    return _SHARES[found[-1]] if found else None
