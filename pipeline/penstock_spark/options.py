"""Options of a format as a table of names, parsers and meanings.

Spark passes options as text, names in any case. All of them are checked and all faults are reported at once, including
unknown options, since a misspelled one would otherwise be ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from penstock_spark.clients.endpoint import ENDPOINT_OPTIONS, Endpoint, EndpointError, parse_endpoint

__all__ = [
    "Option",
    "WrongOptions",
    "boolean",
    "endpoint_of",
    "integer",
    "read_options",
    "text",
]


class WrongOptions(ValueError):
    """Invalid options; the message has one line for each fault."""

    def __init__(self, where: str, faults: Sequence[str]) -> None:
        super().__init__("\n  ".join((f"{where}: {len(faults)} wrong", *faults)))
        self.where = where
        self.faults = tuple(faults)

    def __reduce__(self) -> tuple[type[WrongOptions], tuple[str, tuple[str, ...]]]:
        return WrongOptions, (self.where, self.faults)


class Option(NamedTuple):
    """One option. `read`: parses its value from text, raises ValueError with the fault. `default`: a value, not
    text."""

    name: str
    read: Callable[[str], Any]
    default: Any
    meaning: str


def read_options(
    table: Iterable[Option], given: Mapping[str, str], faults: list[str], *, endpoint: bool = True
) -> dict[str, Any]:
    """Return the value of each option of the table; `given` has names in lower case, as Spark passes them. Faults are
    added to `faults`, and the option gets its default. `endpoint`: accept the endpoint's options, too, and leave them
    to `endpoint_of`."""
    known = {option.name: option for option in table}
    elsewhere = ("endpoint", *ENDPOINT_OPTIONS) if endpoint else ()
    values = {name: option.default for name, option in known.items()}
    for name, value in sorted(given.items()):
        option = known.get(name)
        if option is None and name not in elsewhere:
            near = get_close_matches(name, (*known, *elsewhere), n=1)
            faults.append(f"{name}: unknown option" + (f"; is it {near[0]}?" if near else ""))
        if option is None:
            continue
        try:
            values[name] = option.read(value.strip())
        except ValueError as wrong:
            faults.append(f"{name}: {wrong}")
    return values


def text(value: str) -> str:
    """Accept any text but an empty one."""
    if not value:
        raise ValueError("is empty")
    return value


def integer(least: int, most: int = 2**63 - 1) -> Callable[[str], int]:
    """Return a parser of integers between two bounds."""

    def read(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            raise ValueError(f"{value!r} is not an integer") from None
        if not least <= number <= most:
            raise ValueError(f"{number} is not between {least} and {most}")
        return number

    return read


def boolean(value: str) -> bool:
    """Parse `true` or `false`."""
    value_of = {"true": True, "false": False}.get(value.lower())
    if value_of is None:
        raise ValueError(f"{value!r} is not true or false")
    return value_of


def endpoint_of(given: Mapping[str, str], faults: list[str]) -> Endpoint | None:
    """Return the endpoint of the options (`clients.endpoint`); None if they are invalid, with faults added to
    `faults`."""
    try:
        return parse_endpoint(given.get("endpoint", ""), given)
    except EndpointError as wrong:
        faults += wrong.faults
        return None
