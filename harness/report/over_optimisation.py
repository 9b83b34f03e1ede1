"""The page on over-optimisation: a learned reward pushed beyond what it knows.

    results/<profile>/over-optimisation/report.md     for people
                                        figure.svg    reward and oracle score by prompts trained on
                                        report.json   the numbers, and the stages they come from

It is no table of the paper. It shows why the reward model and the judge are two things.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.report.json import dumps
from harness.store.faults import explained

PAGE = """# What happens when the learned reward is pushed

RLOO on human prompts with a learning rate of {learning_rate:g} and no KL penalty, one run (seed
{seed}). After each x of prompts the policy answered the {prompts} validation prompts {n} times; the
reward model and the oracle scored the same answers. The settings of the tables come from the gate
instead (`harness micro online-gates`). One run has no interval: this is a picture, not a result.

![Mean reward and mean oracle score of the same answers, by prompts trained on](figure.svg)

| prompts | mean reward | mean oracle score |
|---|---:|---:|
{rows}

{finding}

Scale: toy. Reward model: {reward_model}. Commit: {commit}.
"""


def finding(points: Sequence[Mapping[str, float]]) -> str:
    """Return in a sentence whether the reward went on rising where the oracle score fell."""
    best = max(range(len(points)), key=lambda i: points[i]["oracle"])
    last, top = points[-1], points[best]
    reward, oracle = last["reward"] - top["reward"], last["oracle"] - top["oracle"]
    where = f"{top['size']:g}x" if top["size"] else "the start"
    if best == len(points) - 1:
        return (
            "The oracle score is highest at the end: this run was not pushed far enough to be "
            "over-optimised."
        )
    rose = "rose" if reward > 0 else "fell as well"
    return (
        f"The oracle score is highest at {where} ({top['oracle']:.3f}). From there to "
        f"{last['size']:g}x it fell by {-oracle:.3f}, and the learned reward {rose} "
        f"({reward:+.3f})."
    )


def publish_pushed(
    points: Sequence[Mapping[str, float]], setting: Mapping[str, Any], results_dir: Path
) -> Path:
    """Write the page; returns its folder.

    Args:
        points: `size` (multiples of x), `reward` and `oracle`, in order of size.
        setting: `learning_rate`, `seed`, `prompts`, `n`, `reward_model`, `commit` and `stages`.
        results_dir: folder of the profile's published results.

    Raises:
        StoreError: the folder cannot be written.
    """
    target = results_dir / "over-optimisation"
    rows = "\n".join(
        f"| {point['size']:g}x | {point['reward']:.3f} | {point['oracle']:.3f} |"
        for point in points
    )
    page = PAGE.format(rows=rows, finding=finding(points), **setting)
    with explained("publishing the page on over-optimisation", results_dir):
        target.mkdir(parents=True, exist_ok=True)
        _draw(points, target / "figure.svg")
        (target / "report.md").write_text(page, encoding="utf-8")
        data = {"points": [dict(point) for point in points], "setting": dict(setting)}
        (target / "report.json").write_text(dumps(data), encoding="utf-8")
    return target


def _draw(points: Sequence[Mapping[str, float]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    sizes = [point["size"] for point in points]
    with pyplot.rc_context({"svg.hashsalt": "harness", "font.size": 10}):
        figure, left = pyplot.subplots(figsize=(6.5, 3.6), layout="constrained")
        right = left.twinx()
        left.plot(sizes, [p["reward"] for p in points], "C0o-", label="learned reward (left)")
        right.plot(sizes, [p["oracle"] for p in points], "C1s--", label="oracle score (right)")
        left.set_xlabel("prompts trained on (multiples of x)")
        left.set_ylabel("mean reward")
        right.set_ylabel("mean oracle score")
        left.grid(alpha=0.3)
        figure.legend(loc="outside upper center", ncols=2)
        figure.savefig(path, format="svg", metadata={"Date": None})
        pyplot.close(figure)
