"""Model prices and retirement dates, each with its source.

Prices are in dollars per million tokens. A model without a known price has an unknown cost, not a
cost of zero. A retired model is no longer available from its provider; its successor counts as a
different judge, with scores in separate columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError, model_validator

from harness.errors import UserError
from harness.foreign import in_a_line
from harness.registry.documents import read_yaml
from harness.runtime.files import sha256_of
from harness.strict import Strict, refuse

SHIPPED = Path(__file__).with_name("prices.yaml")


@dataclass(frozen=True)
class TokenPrice:
    """Dollars per million prompt and completion tokens."""

    prompt: float
    completion: float

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return the cost in dollars."""
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / 1e6


class Retirement(Strict):
    """A model's retirement by its provider."""

    model: str
    retired: date
    """First day without service."""
    successor: str | None
    """The model chosen to replace it in this project, if any."""
    source: str
    """Source of the date."""

    @property
    def sentence(self) -> str:
        successor = f"; its successor here is {self.successor}" if self.successor else ""
        return (
            f"{self.model} was retired by its provider on {self.retired} ({self.source}){successor}"
        )


@dataclass(frozen=True)
class PriceList:
    """Prices and retirements by model, with the list's date, source and SHA-256."""

    as_of: str
    source: str
    sha256: str
    models: Mapping[str, TokenPrice]
    retirements: Mapping[str, Retirement]

    def of(self, model: str) -> TokenPrice | None:
        return self.models.get(model)

    @property
    def origin(self) -> str:
        """The list's date, digest and source as display text."""
        return f"prices of {self.as_of} (sha256 {self.sha256[:12]}): {self.source}"


class _Source(Strict):
    rests_on: str
    url: str | None = None
    seen: date | None = None

    @property
    def basis(self) -> str:
        return self.rests_on if self.url is None else f"{self.url}, seen {self.seen}"


_Dollars = Annotated[float, Field(ge=0.0)]


class _Entry(Strict):
    prompt: _Dollars
    completion: _Dollars
    source: str
    retired: date | None = None
    retired_source: str | None = None
    successor: str | None = None


class _PriceFile(Strict):
    as_of: str
    source: str
    sources: dict[str, _Source]
    models: dict[str, _Entry]

    @model_validator(mode="after")
    def _consistent(self) -> _PriceFile:
        named = {it for e in self.models.values() for it in (e.source, e.retired_source) if it}
        missing = sorted(named - self.sources.keys())
        refuse((missing, f"`sources` lacks {', '.join(missing)}"))
        return self


def read_prices(path: Path = SHIPPED) -> PriceList:
    """Read a price list in the format of the shipped one."""
    found = read_yaml(path)
    try:
        read = _PriceFile.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        said = in_a_line(f"{where}: {first['msg']}")
        raise UserError(f"{path} is no price list ({said}); repair it") from error
    prices = {
        name: TokenPrice(entry.prompt, entry.completion) for name, entry in read.models.items()
    }
    retirements = {
        name: Retirement(
            model=name,
            retired=entry.retired,
            successor=entry.successor,
            source=read.sources[entry.retired_source or entry.source].basis,
        )
        for name, entry in read.models.items()
        if entry.retired is not None
    }
    return PriceList(read.as_of, read.source, sha256_of(path), prices, retirements)


def parse_price(option: str, text: str) -> TokenPrice:
    """Parse `IN,OUT`, in dollars per million tokens."""
    try:
        prompt, completion = (float(part) for part in text.split(","))
    except ValueError:
        prompt = completion = -1.0
    if not (0.0 <= prompt < float("inf") and 0.0 <= completion < float("inf")):
        raise UserError(
            f"`{option} {text}` is not a price; write dollars for a million tokens of prompt and "
            "of completion, as `10,30`"
        )
    return TokenPrice(prompt, completion)
