"""What a judge costs: prices by model, with the date and the source of the list.

Prices are in dollars for a million tokens. The list that is shipped was not checked; a user gives
one of his own in the same form, or the price of one model. A model without a known price has none:
its cost is then not known, which is not zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.catalogue.yaml_reader import read_yaml
from harness.errors import UserError

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


@dataclass(frozen=True)
class PriceList:
    """Prices by model.

    Attributes:
        as_of: When they were the seller's: a year, month or day.
        source: Where they are from.
        models: Model to price.
    """

    as_of: str
    source: str
    models: Mapping[str, Price] = field(default_factory=dict)

    def of(self, model: str) -> Price | None:
        """Return a model's price; None where the list has none."""
        return self.models.get(model)

    @property
    def origin(self) -> str:
        """The list's date and source, for people."""
        return f"prices of {self.as_of}: {self.source}"


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid")
    prompt: _Dollars
    completion: _Dollars


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)
    as_of: str
    source: str
    models: dict[str, _Entry]


def read_prices(path: Path = SHIPPED) -> PriceList:
    """Read a price list.

    Args:
        path: A YAML file with `as_of`, `source` and `models`: model to `prompt` and `completion`.

    Raises:
        UserError: The file cannot be read or has another form.
    """
    found = read_yaml(path)
    try:
        if isinstance(found, dict) and "as_of" in found:
            found["as_of"] = str(found["as_of"])
        read = _File.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise UserError(f"{path} is no price list ({where}: {first['msg']}); repair it") from error
    prices = {name: Price(entry.prompt, entry.completion) for name, entry in read.models.items()}
    return PriceList(read.as_of, read.source, prices)


def parse_price(option: str, text: str) -> Price:
    """Read a price from `IN,OUT`, dollars for a million tokens.

    Raises:
        UserError: The text is not two numbers, zero or more.
    """
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
