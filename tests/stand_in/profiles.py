"""Profiles of the stand-ins: published ones, but for models, sizes and where prompts are from."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from harness.project import profiles_dir
from stand_in import build

ANSWER = 24
"""Longest answer, in tokens."""

OFFLINE, ONLINE = ("dpo", "sppo", "simpo", "orpo"), ("rloo", "oaif")
ROLES = ("pointwise", "pointwise_large", "pairwise", "pairwise_large")

JUDGED = {
    "benchmarks.arena_hard": build.ARENA_HARD,
    "benchmarks.ranked": build.RANKED,
    "benchmarks.mt_bench": len(build.MT_BENCH_CATEGORIES),
}
"""Number of items of each benchmark."""

OTHER: Mapping[str, Any] = {
    "scale": "toy",
    "description": "The code path of real models with small random stand-ins, on a processor.",
    "engine": "transformers",
    "threads": 1,
    "dtype": "float32",
    "x": 24,
    "prompts.source": f"{build.PROMPTS}/prompts.jsonl",
    "policy": f"{build.OWNER}/{build.POLICY}",
    **{
        f"reward_models.{role}": f"{build.OWNER}/{name}"
        for role, name in zip(ROLES, build.REWARD_MODELS, strict=True)
    },
    "creator.source": f"{build.OWNER}/creator",
    "creator.scorer": f"{build.OWNER}/scorer",
    "generation.max_new_tokens": ANSWER,
    "generation.batch_size": 64,
    # So that three steps of eight prompts change what is said.
    **{f"training.{name}.learning_rate": 3e-4 for name in (*OFFLINE, *ONLINE)},
    **{f"training.{name}.max_length": 384 for name in (*OFFLINE, *ONLINE)},
    **{f"training.{name}.max_prompt_length": 320 for name in OFFLINE},
    **{f"training.{name}.batch_size": 8 for name in OFFLINE},
    **{f"training.{name}.epochs": 1 for name in OFFLINE},
    **{f"training.{name}.max_new_tokens": ANSWER for name in ONLINE},
    **{f"training.{name}.segments": 1 for name in ONLINE},
    **{f"{place}.items": items for place, items in JUDGED.items()},
    **{f"{place}.judge": f"{build.OWNER}/judge" for place in JUDGED},
    **{f"{place}.max_new_tokens": ANSWER for place in JUDGED},
    "benchmarks.prompt_judge.items": 24,
    "benchmarks.prompt_judge.judge": f"{build.OWNER}/scorer",
}
"""What the stand-ins have otherwise than the paper's profile."""

LEFT_OUT = (
    "hardware",
    "prompts.revision",
    "prompts.splits",
    "benchmarks.downstream",  # its tasks are lm-evaluation-harness's own and cannot be made up
)
"""What they have not: GPUs, a data set of the hub, table 9."""


def write_profile(folder: Path, name: str = "stand-in", **more: Any) -> Path:
    """Write the profile of the stand-ins, in which still more is otherwise; return its file."""
    declared = published("paper")
    declared["benchmarks"]["ranked"] = declared["benchmarks"].pop("alpaca_eval")
    return write_changed(declared, folder / f"{name}.yaml", {**OTHER, **more}, LEFT_OUT)


def published(name: str) -> dict[str, Any]:
    text = (profiles_dir() / f"{name}.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)  # type: ignore[no-any-return]


def write_changed(
    declared: dict[str, Any], file: Path, other: Mapping[str, Any], left_out: Iterable[str]
) -> Path:
    """Write a profile of the file's name with some settings otherwise and some left out."""
    for path, value in {"name": file.stem, **other}.items():
        section, last = _place(declared, path)
        bare = isinstance(section.get(last), str) or isinstance(value, Mapping)
        section[last] = value if bare else {"value": value, "source": "ours: small"}
    for path in left_out:
        section, last = _place(declared, path)
        del section[last]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(declared, sort_keys=False), encoding="utf-8")
    return file


def _place(declared: dict[str, Any], path: str) -> tuple[dict[str, Any], str]:
    *sections, last = path.split(".")
    for section in sections:
        declared = declared[section]
    return declared, last
