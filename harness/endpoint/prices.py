"""What a judge costs, and whether its seller has retired it, with the date and sources of the list.

Prices are in dollars for a million tokens. A model without a known price has none: its cost is then
not known, which is not zero. A retired model cannot be asked at its seller's any more; its
successor is another judge, with scores in columns of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from harness.errors import UserError
from harness.foreign import in_a_line
from harness.registry.documents import read_yaml
from harness.runtime.files import sha256_of
from harness.strict import Strict

PER_MILLION = 1e6
SHIPPED = Path(__file__).with_name("prices.yaml")

_Dollars = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


@dataclass(frozen=True)
class Price:
    """Dollars for a million tokens of the prompt and of the completion."""

    prompt: float
    completion: float

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return the price of so many tokens, in dollars."""
        dollars = prompt_tokens * self.prompt + completion_tokens * self.completion
        return dollars / PER_MILLION


class Retirement(Strict):
    """The end of a model at its seller's."""

    model: str
    retired: date
    """Since when it is not served any more."""
    successor: str | None
    """Who takes its place here; null where nobody was chosen."""
    source: str
    """What the day rests on."""

    @property
    def sentence(self) -> str:
        """What has happened, with what that rests on, for people."""
        successor = f"; its successor here is {self.successor}" if self.successor else ""
        return (
            f"{self.model} was retired by its seller on {self.retired} ({self.source}){successor}"
        )


@dataclass(frozen=True)
class PriceList:
    """Prices and retirements by model, with when and where they are from, and the file's digest."""

    as_of: str
    source: str
    sha256: str
    models: Mapping[str, Price] = field(default_factory=dict)
    retirements: Mapping[str, Retirement] = field(default_factory=dict)

    def of(self, model: str) -> Price | None:
        """Return a model's price; None where the list has none."""
        return self.models.get(model)

    @property
    def origin(self) -> str:
        """The list's date, digest and source, for people."""
        return f"prices of {self.as_of} (sha256 {self.sha256[:12]}): {self.source}"


class _Source(BaseModel):
    """What numbers of the list rest on: a page, the day it was seen, and whose it is."""

    model_config = ConfigDict(extra="forbid")
    rests_on: str
    url: str | None = None
    seen: date | None = None


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid")
    prompt: _Dollars
    completion: _Dollars
    source: str | None = None
    retired: date | None = None
    retired_source: str | None = None
    successor: str | None = None


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)
    as_of: str
    source: str
    sources: dict[str, _Source] = {}
    models: dict[str, _Entry]

    @model_validator(mode="after")
    def _named(self) -> _File:
        for name, entry in self.models.items():
            for source in (entry.source, entry.retired_source):
                if source is not None and source not in self.sources:
                    raise ValueError(f"{name} rests on `{source}`, which is none of `sources`")
        return self


def read_prices(path: Path = SHIPPED) -> PriceList:
    """Read a price list: a YAML file with `as_of`, `source` and `models` by name (see `_File`)."""
    found = read_yaml(path)
    try:
        read = _File.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        said = in_a_line(f"{where}: {first['msg']}")
        raise UserError(f"{path} is no price list ({said}); repair it") from error
    prices = {name: Price(entry.prompt, entry.completion) for name, entry in read.models.items()}
    retirements = {
        name: Retirement(
            model=name,
            retired=entry.retired,
            successor=entry.successor,
            source=_basis(read, entry.retired_source),
        )
        for name, entry in read.models.items()
        if entry.retired is not None
    }
    return PriceList(read.as_of, read.source, sha256_of(path), prices, retirements)


def _basis(read: _File, source: str | None) -> str:
    """Return where a day is from: the page and when it was seen, or what else it rests on."""
    if source is None:
        return read.source
    found = read.sources[source]
    return found.rests_on if found.url is None else f"{found.url}, seen {found.seen}"


def parse_price(option: str, text: str) -> Price:
    """Read a price from `IN,OUT`, dollars for a million tokens."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != 2 or not all(0.0 <= number < float("inf") for number in numbers):
        raise UserError(
            f"`{option} {text}` is not a price; write dollars for a million tokens of prompt and "
            "of completion, as `10,30`"
        )
    return Price(*numbers)
