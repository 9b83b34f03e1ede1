"""Reward over-optimization: a learned reward pushed too far, published on its own page.

It shows why the reward model and the judge must be separate.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from harness.report.plots import Picture, Target, canvas, plain_frame
from harness.report.publication import IndexEntry, Publication
from harness.report.render import template
from harness.strict import Strict

PUSHED_FOLDER = "over-optimisation"

TITLE = "What happens when the learned reward is pushed"

ALT = "Mean reward and mean oracle score of the same answers, by prompts trained on"


class PushedPoint(Strict):
    size: int
    """Prompts trained on, in multiples of x."""
    reward: float
    oracle: float


class PushedSetting(Strict):
    learning_rate: float
    beta: float
    seed: int
    prompts: int
    """Number of validation prompts."""
    n: int
    """Answers per prompt."""
    reward_model: str
    commit: str
    stages: dict[str, str]
    """Fingerprint of the reward stage at each size."""


class OverOptimisation(Strict):
    points: Annotated[tuple[PushedPoint, ...], Field(min_length=1)]
    setting: PushedSetting

    @property
    def finding(self) -> str:
        last, top = self.points[-1], max(self.points, key=lambda point: point.oracle)
        if top is last:
            return (
                "The oracle score is highest at the end: this run was not pushed far enough to be "
                "over-optimised."
            )
        reward, oracle = last.reward - top.reward, last.oracle - top.oracle
        where = f"{top.size}x" if top.size else "the start"
        rose = "rose" if reward > 0 else "fell as well"
        return (
            f"The oracle score is highest at {where} ({top.oracle:.3f}). From there to "
            f"{last.size}x it fell by {-oracle:.3f}, and the learned reward {rose} "
            f"({reward:+.3f})."
        )

    @property
    def markdown(self) -> str:
        return template("over_optimisation.md.j2").render(
            picture=self.picture, points=self.points, setting=self.setting, finding=self.finding
        )

    @property
    def extent(self) -> IndexEntry:
        """Index entry; its rows are the measured sizes."""
        return IndexEntry(
            rows=tuple(f"{point.size}x" for point in self.points),
            seeds=(self.setting.seed,),
            counts={"prompts": self.setting.prompts, "answers to each": self.setting.n},
        )

    @property
    def picture(self) -> Picture:
        return Picture(TITLE, "figure.svg", ALT, self._draw)

    def _draw(self, target: Target) -> None:
        sizes = [point.size for point in self.points]
        with canvas(target, "harness", (6.5, 3.6)) as (sheet, panels):
            left = panels[0][0]
            right = left.twinx()
            rewards, scores = zip(*((p.reward, p.oracle) for p in self.points), strict=True)
            left.plot(sizes, rewards, "C0o-", label="learned reward (left)")
            right.plot(sizes, scores, "C1s--", label="oracle score (right)")
            left.set_xlabel("prompts trained on (multiples of x)")
            left.set_ylabel("mean reward")
            right.set_ylabel("mean oracle score")
            plain_frame(left, grid="both")
            right.spines["top"].set_visible(False)
            sheet.legend(loc="outside upper center", ncols=2)


OVER_OPTIMISATION = Publication(
    PUSHED_FOLDER,
    OverOptimisation,
    lambda found: found.extent,
    page=lambda found: found.markdown,
    pictures=lambda found: [found.picture],
)
"""One run pushed without a KL penalty, published at `<profile>/over-optimisation`."""
