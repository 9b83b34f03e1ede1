"""Model prices in dollars per million tokens, each with its source; unknown is not zero."""

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
from harness.strict import Strict

SHIPPED = Path(__file__).with_name("prices.yaml")


@dataclass(frozen=True)
class TokenPrice:
    """Dollars per million prompt and completion tokens."""

    prompt: float
    completion: float

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return the cost in dollars."""
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / 1e6


@dataclass(frozen=True)
class PriceList:
    """Prices by model, with the list's date, source and SHA-256."""

    as_of: str
    source: str
    sha256: str
    models: Mapping[str, TokenPrice]

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


_Dollars = Annotated[float, Field(ge=0.0)]


class _Entry(Strict):
    prompt: _Dollars
    completion: _Dollars
    source: str


class _PriceFile(Strict):
    as_of: str
    source: str
    sources: dict[str, _Source]
    models: dict[str, _Entry]

    @model_validator(mode="after")
    def _consistent(self) -> _PriceFile:
        missing = sorted({entry.source for entry in self.models.values()} - self.sources.keys())
        if missing:
            raise ValueError(f"`sources` lacks {', '.join(missing)}")
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
        raise UserError(f"{path} is not a price list ({said}); repair it") from error
    prices = {
        name: TokenPrice(entry.prompt, entry.completion) for name, entry in read.models.items()
    }
    return PriceList(read.as_of, read.source, sha256_of(path), prices)


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
