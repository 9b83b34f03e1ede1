"""AlpacaEval's own length-controlled win rate, by the package's own code and data.

The regression needs data that neither the package nor this project carries: `df_gamed.csv`, with
the difficulty of every instruction and the annotations of two gamed baselines. The package fetches
it from the hub at every call; here it is read from a file whose digest is checked. Without the
package, the file or all 805 annotations in the benchmark's order there is no score, because the
regression joins difficulties by position: an annotation that is missing shifts all that follow.
One that is there without a preference keeps its place, and the package leaves it out itself.

The win rate is the mean of the regression's predictions at equal lengths, one for each instruction;
its standard error in the package is that of these. So they are its values by prompt.

Source: alpaca_eval 0.6.6, `metrics/glm_winrate.py`.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import UserError
from harness.evaluation.benchmark_alpaca_eval import INSTRUCTIONS
from harness.evaluation.benchmark_alpaca_judge import installed
from harness.evaluation.scores import FloatArray
from harness.foreign import read_plain

FILE_NAME = "df_gamed.csv"
PUBLISHED_SHA256 = "97aeec3f1c7de6dee6fd31fe66f1702623f4614c3efe1c6fc5f4927cd5fd674d"
"""Digest of the published file as two others report it; this project has not seen the file."""


class NotAvailableError(UserError):
    """There is no length-controlled win rate, for a reason that the message says."""


def length_controlled_values(
    annotations: Sequence[Mapping[str, Any]],
    data_file: Path | None,
    sha256: str = PUBLISHED_SHA256,
    instructions: Sequence[str] | None = None,
) -> FloatArray:
    """Return what a model's length-controlled win rate is the mean of, in percent.

    Args:
        annotations: The model's annotations, in the benchmark's order.
        data_file: The file `df_gamed.csv`, or None.
        sha256: The digest it must have.
        instructions: The benchmark's instructions in their order; None takes the annotations' own.

    Returns:
        The preference predicted at equal lengths for each annotation, shape (805,).

    Raises:
        NotAvailableError: The package, the file, or an annotation is missing, or the file or the
            order is another one.
    """
    if data_file is None:
        raise NotAvailableError(f"there is no {FILE_NAME}")
    try:
        found = hashlib.sha256(read_plain(data_file)).hexdigest()
    except OSError as error:
        raise UserError(f"Cannot read {data_file}: {error.strerror or error}") from error
    if found != sha256.lower():
        raise NotAvailableError(f"{data_file} has the digest {found}, not {sha256}")
    if not installed():
        raise NotAvailableError("the package alpaca-eval (extra `alpaca`) is not installed")
    if len(annotations) != INSTRUCTIONS:
        raise NotAvailableError(
            f"there are {len(annotations)} annotations instead of {INSTRUCTIONS}"
        )
    own = [row.get("instruction") for row in annotations]
    if instructions is not None and own != list(instructions):
        raise NotAvailableError("the annotations are not in the benchmark's order")
    return _by_the_package(annotations, data_file)


@dataclass(frozen=True)
class LengthControl:
    """Where the data of AlpacaEval's length control are, and the digest they must have."""

    data_file: Path | None = None
    sha256: str = PUBLISHED_SHA256

    def values(
        self, records: Sequence[Mapping[str, Any]], instructions: Sequence[str] | None = None
    ) -> FloatArray | str:
        """Return what the length-controlled win rate is the mean of, or why there is none."""
        try:
            return length_controlled_values(records, self.data_file, self.sha256, instructions)
        except NotAvailableError as reason:
            return str(reason)


def _by_the_package(annotations: Sequence[Mapping[str, Any]], data_file: Path) -> FloatArray:
    import pandas as pd
    from alpaca_eval.metrics import glm_winrate

    table = pd.DataFrame([dict(row) for row in annotations])
    with _fetching(glm_winrate, data_file):
        glm_winrate.get_length_controlled_winrate(
            table,
            # The default writes into the installed package.
            save_weights_dir=None,
            is_add_glm_preference_inplace=True,
            is_warn_extreme_changes=False,
        )
    return 100.0 * table["glm_preference"].to_numpy(dtype=np.float64)


@contextlib.contextmanager
def _fetching(module: Any, data_file: Path) -> Iterator[None]:
    """Let the package's fetch of its data from the hub return a file that was checked."""
    original = module.hf_hub_download
    module.hf_hub_download = lambda **_: str(data_file)
    try:
        yield
    finally:
        module.hf_hub_download = original
