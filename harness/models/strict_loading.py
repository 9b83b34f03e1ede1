"""Loading that refuses a checkpoint which is not exactly the model it is taken for.

The model. A class of model and a `config.json` say which tensors there are, by name and shape. The
headers of the safetensors files say which tensors a folder holds. Both lists are compared before a
weight is read, and the first difference is an error that names the tensor: a lacking one would be
left random by a lenient loader, one too many would be dropped, and a reward would still come out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from harness.errors import HarnessError, UserError
from harness.models.loading import DTYPES, from_folder, weight_files

Shape = tuple[int, ...]


def load_strictly(kind: Any, path: Path, device: str = "cpu", dtype: str = "float32") -> Any:
    """Load a model whose tensors are exactly those in the files, in evaluation mode.

    Args:
        kind: class of transformers, or one derived from its classes.
        path: folder with `config.json` and safetensors weights.
        device: torch device to run on.
        dtype: number format to run in, `float32` or `bfloat16`.

    Raises:
        HarnessError: no checkpoint at `path`, another model's, or an incomplete one; the device or
            the number format does not exist here, or the weights do not fit into its memory.
    """
    weight_files(path)
    place = _device(device)
    if dtype not in DTYPES:
        raise UserError(f"there is no number format `{dtype}` here: use {' or '.join(DTYPES)}.")
    config = kind.config_class.from_pretrained(path, local_files_only=True)
    with torch.device("meta"):  # shapes without memory
        empty = kind(config)
    expected = {name: tuple(tensor.shape) for name, tensor in empty.state_dict().items()}
    check_tensors(path, kind.__name__, expected)
    try:
        return from_folder(kind, path, dtype).to(place).eval()
    except torch.OutOfMemoryError as error:
        raise HarnessError(
            f"the model at {path} does not fit into the memory of {device}: free it, use bfloat16, "
            "or a larger one."
        ) from error


def read_config(path: Path) -> dict[str, Any]:
    """Read a checkpoint's `config.json`.

    Raises:
        HarnessError: no checkpoint at `path`, or a configuration that is no JSON object.
    """
    weight_files(path)
    file = Path(path) / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{file} is not JSON ({error}): download the model again.") from error
    if not isinstance(config, dict):
        raise UserError(f"{file} is no model's configuration: download the model again.")
    return config


def check_tensors(path: Path, kind: str, expected: Mapping[str, Shape]) -> None:
    """Compare the tensors of a checkpoint with those that a model has.

    Args:
        path: folder of the checkpoint.
        kind: name of the model's class, for the message.
        expected: shape of each of the model's tensors.

    Raises:
        UserError: one is missing, one is too many, or one has another shape.
    """
    found = tensor_shapes(path)
    missing = [name for name in expected if name not in found]
    if missing:
        raise UserError(
            f"the checkpoint at {path} lacks the tensor {missing[0]} ({len(missing)} are missing) "
            f"and so is no whole {kind}: check its name, or download it again."
        )
    extra = [name for name in found if name not in expected]
    if extra:
        raise UserError(
            f"the checkpoint at {path} has the tensor {extra[0]} ({len(extra)} too many), which no "
            f"{kind} of its config.json has: it is another model."
        )
    for name, shape in expected.items():
        if found[name] != shape:
            raise UserError(
                f"the tensor {name} at {path} has the shape {list(found[name])}, where its "
                f"config.json asks for {list(shape)}: the two do not belong together."
            )


def tensor_shapes(path: Path) -> dict[str, Shape]:
    """Return the shape of each tensor in the files that make up a checkpoint.

    These are `model.safetensors`, or else what `model.safetensors.index.json` lists; other files
    in the folder are not the model's.

    Raises:
        HarnessError: a file is missing or unreadable.
    """
    shapes: dict[str, Shape] = {}
    for file in _files(path):
        if not file.is_file():
            raise UserError(
                f"the checkpoint at {path} is incomplete, {file.name} is missing: go on "
                "with its download."
            )
        try:
            with safe_open(file, framework="pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118 - it is no mapping
                    shapes[name] = tuple(tensors.get_slice(name).get_shape())
        except SafetensorError as error:
            raise UserError(
                f"{file} is no safetensors file ({error}), perhaps an interrupted download or a "
                "pointer of Git LFS: download it again."
            ) from error
    return shapes


def _files(path: Path) -> list[Path]:
    whole, index = Path(path) / "model.safetensors", Path(path) / "model.safetensors.index.json"
    if whole.is_file() or not index.is_file():
        return [whole]
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise UserError(f"{index} cannot be read ({error!r}): download the model again.") from error
    return [Path(path) / str(name) for name in sorted(names)]


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UserError(f"`{name}` is no device: use cpu, cuda or cuda:0.") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"there is no `{name}` here: use cpu, or a machine with that GPU.")
    return device
