"""The published results as a data set that others can read: an RO-Crate of what the index says.

One file, `ro-crate-metadata.json`, beside the index (RO-Crate 1.1, https://w3id.org/ro/crate/1.1):
the data set, and every published file with its size, its type and its sha256. It is made from the
index and the files alone, the same for the same results, so that `harness verify` can make it again
and compare.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.report.publication import KEPT, Entry, dumps, read_index
from harness.runtime.files import write_whole

CRATE = "ro-crate-metadata.json"

SPECIFICATION = "https://w3id.org/ro/crate/1.1"

LICENCE = "https://spdx.org/licenses/Apache-2.0"

PAPER = "https://arxiv.org/abs/2411.00062"

TYPES = {
    ".json": "application/json",
    ".md": "text/markdown",
    ".parquet": "application/vnd.apache.parquet",
    ".png": "image/png",
    ".svg": "image/svg+xml",
}
"""What a file holds, by its ending."""

DESCRIPTION = (
    "Tables and figures of the eva paper (arXiv 2411.00062) as eva-harness computed them: reports, "
    "and behind each number the scores of single prompts with the fingerprints of the stages they "
    "came from. The profile `micro` is a toy in an embedded world; none of its values can be "
    "compared with the paper's."
)


def write_crate(results_dir: Path) -> Path:
    """Write the metadata of the published results beside their index; return the file.

    Raises:
        HarnessError: A file that the index names is not there, or nothing is published.
    """
    path = results_dir / CRATE
    write_whole(path, _text(results_dir))
    return path


def check_crate(results_dir: Path) -> None:
    """Check that the metadata, where it is there, says what the index and the files say.

    Raises:
        HarnessError: It says something else.
    """
    path = results_dir / CRATE
    if path.is_file() and path.read_text(encoding="utf-8") != _text(results_dir):
        raise HarnessError(
            f"{path} is not what follows from the index; write it again with `harness verify "
            "--write-crate`"
        )


def _text(results_dir: Path) -> str:
    return dumps(crate_of(results_dir, read_index(results_dir)))


def crate_of(results_dir: Path, index: Mapping[str, Entry]) -> dict[str, Any]:
    """Return the metadata of all that an index names, as JSON-LD.

    Raises:
        HarnessError: A file is not there, or the index names none.
    """
    if not index:
        raise HarnessError(f"nothing is published in {results_dir}; publish something first")
    publications = {place: entry for place, entry in index.items() if entry.kind != KEPT}
    files = [
        _file(results_dir, name, digest)
        for entry in index.values()
        for name, digest in entry.files.items()
    ]
    alone = [name for e in index.values() if e.kind == KEPT for name in e.files]
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": "eva-harness: published results",
        "description": DESCRIPTION,
        "license": {"@id": LICENCE},
        "isBasedOn": {"@id": PAPER},
        "hasPart": [{"@id": place} for place in (*(f"{p}/" for p in publications), *alone)],
    }
    descriptor = {
        "@id": CRATE,
        "@type": "CreativeWork",
        "conformsTo": {"@id": SPECIFICATION},
        "about": {"@id": "./"},
    }
    parts = [_publication(place, entry) for place, entry in publications.items()]
    others = [
        {"@id": LICENCE, "@type": "CreativeWork", "name": "Apache License 2.0"},
        {
            "@id": PAPER,
            "@type": "ScholarlyArticle",
            "name": "Evolving Alignment via Asymmetric Self-Play",
        },
    ]
    # RO-Crate 1.1 knows schema.org as it was in 2020, before `sha256`.
    context = [f"{SPECIFICATION}/context", {"sha256": "https://schema.org/sha256"}]
    return {"@context": context, "@graph": [descriptor, root, *parts, *files, *others]}


def _publication(place: str, entry: Entry) -> dict[str, Any]:
    """Return the folder of a publication: what kind it is, its seeds, how much it has."""
    extent = entry.extent
    said = f"kind: {entry.kind}"
    if extent is not None:
        said += f"; {len(extent.rows)} rows"
        said += f"; seeds {', '.join(map(str, extent.seeds))}" if extent.seeds else ""
    return {
        "@id": f"{place}/",
        "@type": "Dataset",
        "name": place,
        "description": said,
        "hasPart": [{"@id": name} for name in entry.files],
    }


def _file(results_dir: Path, name: str, digest: str) -> dict[str, Any]:
    path = results_dir / name
    if not path.is_file():
        raise HarnessError(f"{path} is in the index and not there; publish it again")
    return {
        "@id": name,
        "@type": "File",
        "name": path.name,
        "contentSize": str(path.stat().st_size),
        "encodingFormat": TYPES.get(path.suffix, "application/octet-stream"),
        "sha256": digest,
    }
