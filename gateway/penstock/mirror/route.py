"""A route with two backs: the primary, which answers clients, and the secondary, which is given a copy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from penstock.backs.base import Back
from penstock.mirror.settings import MirrorSettings
from penstock_codecs.model import StreamRef

__all__ = ["Holder", "MirroredRoute", "NamedBack"]


class NamedBack(NamedTuple):
    """A back and its configured name."""

    name: str
    back: Back


class Holder(Protocol):
    """What holds a route's back, so that it can be exchanged (`penstock.routing.router.TargetHolder`)."""

    async def hold(self, seconds: float) -> None:
        """From now on appends wait, each for `seconds` at most, and then fail with HOT_SERVER. Returns once no append
        is under way."""

    def release(self) -> None:
        """Appends go on, those that waited too."""

    def swap(self, target: Back) -> None:
        """From now on this is the route's back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredRoute:
    """`route`: its name. `backs`: the configured back and the mirror's. `store`: the embedded store, for tables.

    `belongs`: whether a stream of the backs is one of the route's; asked where streams are listed.
    """

    route: str
    backs: tuple[NamedBack, NamedBack]
    store: Back
    holder: Holder
    settings: MirrorSettings = field(default_factory=MirrorSettings)
    belongs: Callable[[StreamRef], bool] = lambda _stream: True

    async def open(self) -> None:
        """Find out which back is the primary, after cut-overs of earlier runs, and put it into the holder. To be called
        before clients are served."""

    async def run(self) -> None:
        """Copy and compare, for ever."""
