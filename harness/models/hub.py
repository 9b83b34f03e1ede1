"""Where a model lies on this machine: a folder, or the hub's cache.

Nothing is downloaded here. Weights of tens of gigabytes, and licences that a person has to accept,
are fetched by that person with `hf download`, and found by name afterwards.
"""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

from harness.errors import UserError


def local_folder(model: Path | str, revision: str | None = None) -> Path:
    """Return the folder of a model.

    Args:
        model: a folder, or the hub's name of a model, as in `llm-blender/PairRM-hf`.
        revision: commit, tag or branch, for a name; the hub's main branch if not given.

    Raises:
        UserError: it is a name, and the cache has no such model.
    """
    folder = Path(model).expanduser()
    if isinstance(model, Path) or folder.is_dir():
        return folder
    try:
        return Path(snapshot_download(model, revision=revision, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError) as error:
        at = f" --revision {revision}" if revision else ""
        raise UserError(
            f"there is neither a folder nor a downloaded model `{model}`: type `hf download "
            f"{model}{at}` (a gated model asks for its licence to be accepted at "
            f"https://huggingface.co/{model}, and for `hf auth login`)."
        ) from error
