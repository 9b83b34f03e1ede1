"""The page on over-optimisation: a learned reward pushed beyond what it knows.

    results/<profile>/over-optimisation/report.md     for people
                                        figure.svg    reward and oracle score by prompts trained on
                                        report.json   the numbers, and the stages they come from
                                        digests.json  sha256 of the files

It is no table of the paper. It shows why the reward model and the judge are two things.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.report.publication import (
    PAGE,
    REPORT,
    Extent,
    Kind,
    check_files,
    check_page,
    dumps,
    publish_folder,
    read_json,
)

FOLDER, FIGURE = "over-optimisation", "figure.svg"

TEXT = """# What happens when the learned reward is pushed

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
    points: Sequence[Mapping[str, float]],
    setting: Mapping[str, Any],
    results_dir: Path,
    profile: str,
    *,
    allow_fewer: bool = False,
) -> Path:
    """Write the page, in place of what was published before.

    Args:
        points: `size` (multiples of x), `reward` and `oracle`, in order of size.
        setting: `learning_rate`, `seed`, `prompts`, `n`, `reward_model`, `commit` and `stages`.
        results_dir: The folder of published results.
        profile: Name of the profile.
        allow_fewer: Publish it though it has less than what stands there.

    Returns:
        The folder that was written.

    Raises:
        Refused: It has less than what stands there, and that is not allowed.
        StoreError: The folder cannot be written.
    """

    def write(draft: Path) -> None:
        _draw(points, draft / FIGURE)
        data = {"points": [dict(point) for point in points], "setting": dict(setting)}
        (draft / REPORT).write_text(dumps(data), encoding="utf-8")
        (draft / PAGE).write_text(as_markdown(data), encoding="utf-8")

    place = f"{profile}/{FOLDER}"
    return publish_folder(OVER_OPTIMISATION, place, results_dir, write, allow_fewer=allow_fewer)


def as_markdown(report: Mapping[str, Any]) -> str:
    """Return the page, given the content of `report.json`."""
    points = report["points"]
    rows = "\n".join(
        f"| {point['size']:g}x | {point['reward']:.3f} | {point['oracle']:.3f} |"
        for point in points
    )
    return TEXT.format(rows=rows, finding=finding(points), **report["setting"])


def extent(report: Mapping[str, Any]) -> Extent:
    """Return how much the page has; its rows are the sizes after which was measured."""
    setting = report["setting"]
    return Extent(
        rows=tuple(f"{point['size']:g}x" for point in report["points"]),
        seeds=(setting["seed"],),
        counts={"prompts": setting["prompts"], "answers to each": setting["n"]},
    )


def check(folder: Path) -> int:
    """Check what was published: its files, and the page, which follows from the numbers.

    Returns:
        How many sizes the page has.

    Raises:
        HarnessError: A file is missing or changed, or the page does not follow.
    """
    check_files(folder, (PAGE, REPORT, FIGURE), FOLDER)
    report = read_json(folder / REPORT, FOLDER)
    check_page(folder, lambda: as_markdown(report), FOLDER)
    return len(report["points"])


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


OVER_OPTIMISATION = Kind(FOLDER, "setting", extent, check)
"""One run pushed without a KL penalty."""
