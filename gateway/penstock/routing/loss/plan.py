"""Prediction of losses between the clients of a listener and a back: each feature is kept, enveloped, refused or
dropped.

It follows from what both sides can carry and from their loss tables, so it is known before any record is sent, and for
servers that cannot be reached. docs/loss.md and docs/guarantees.md explain it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from penstock.model.features import Feature
from penstock.model.limits import MIB
from penstock.model.operations import Capability
from penstock.routing.loss.loss import Loss, LossPolicy

__all__ = ["EMBEDDED_SIDE", "BackSide", "Fate", "FrontSide", "Item", "LossPlan", "bodies", "carried", "plan_losses"]

_COMMANDS: Final = "a trim is executed; a fence is stored as data and fences no writer"


class Fate(Enum):
    """The fate of a feature; the value is its name for people."""

    KEPT = "kept"
    ENVELOPED = "enveloped"
    REFUSED = "refused"
    DROPPED = "dropped"


_FATES: Final = {Loss.REFUSE: Fate.REFUSED, Loss.ENVELOPE: Fate.ENVELOPED, Loss.DROP: Fate.DROPPED}


class Item(NamedTuple):
    """One feature, its fate, and an explanation."""

    what: str
    fate: Fate
    how: str = ""


class BackSide(msgspec.Struct, frozen=True, kw_only=True):
    """A back, as far as plans depend on it. The defaults describe a server that keeps everything.

    `kind`: as configured. `delivery`: the configured guarantee after lost acknowledgements. `loss`: its policy for
    records that it cannot carry, None if it can carry all. `kept`: features that it carries nevertheless, each with a
    remark. `largest`: largest body of a record, in bytes. `appends`: False if it is only read. `embedded`: it is the
    store in this process. `numbered`: the gateway counts its records. `byte_offsets`, `record_ids`: it has its own.
    `event_times`: it keeps the times of events that fall. `timestamps_kept`, `timestamps_read`: remarks on timestamps.
    `finds_out`: how it is found out whether an append was stored whose acknowledgement was lost. `exactly_once`:
    deliveries for which that is done. `for_bytes`: the fate of what only clients that append bytes use, in place of the
    default. `passes`: the format of sessions that pass through untouched from clients that speak the same.
    """

    kind: str
    capabilities: frozenset[Capability] = frozenset(Capability)
    delivery: str = "exactly-once"
    loss: LossPolicy | None = None
    kept: Mapping[Feature, str] = msgspec.field(default_factory=dict)
    largest: int = 1 * MIB - 8
    appends: bool = True
    embedded: bool = False
    numbered: bool = False
    byte_offsets: bool = False
    record_ids: bool = False
    event_times: bool = False
    timestamps_kept: str = "according to the stream's timestamping mode"
    timestamps_read: str = ""
    finds_out: str = "the gateway looks for the records at their place on the server before it sends them again"
    exactly_once: frozenset[str] = frozenset({"exactly-once"})
    for_bytes: tuple[Item, ...] = ()
    passes: str = ""


class FrontSide:
    """A listener, as far as plans depend on it; this base class describes one whose clients append and read bodies.

    `loss`: its policy for records that its protocol cannot carry, None if it can carry all. `passes`: as in `BackSide`.
    """

    def __init__(self, loss: LossPolicy | None = None, passes: str = "") -> None:
        self.loss = loss
        self.passes = passes

    def appends(self, back: BackSide) -> Iterator[Item]:
        """Yield the fate of each feature of records that its clients append."""
        yield from bodies(back, "bodies")
        if self.loss is not None and self.loss.envelopes:
            for item in carried(back):
                yield item._replace(what=f"{item.what} in envelopes")

    def positions(self, back: BackSide) -> Iterator[Item]:  # noqa: ARG002
        """Yield the fate of positions and timestamps that its clients read."""
        return iter(())


EMBEDDED_SIDE: Final = BackSide(kind="embedded", embedded=True, byte_offsets=True, record_ids=True, event_times=True)
"""The store in this process."""


class LossPlan(msgspec.Struct, frozen=True):
    """The plan for one listener and one back. `appends`, `reads`: the fate of features in either direction.
    `guarantee`: the delivery guarantee for appends whose acknowledgement is lost; several lines if clients differ."""

    appends: tuple[Item, ...]
    reads: tuple[Item, ...]
    guarantee: tuple[str, ...]


def plan_losses(front: FrontSide, back: BackSide) -> LossPlan:
    """Return the fate of records that this listener's clients append to this back, and of those that they read."""
    if back.appends:
        appends = tuple(front.appends(back))
    else:
        appends = (Item("everything", Fate.REFUSED, "the server is only read"),)
    return LossPlan(appends, tuple(_reads(front, back)), tuple(_guarantee(front, back)))


# ---- appends -------------------------------------------------------------------------------------------------


def carried(back: BackSide) -> Iterator[Item]:
    """Yield the fate of headers, empty bodies and command records on the back."""
    fates = {feature: _fate(back, feature) for feature in Feature}
    headers, empty, commands = fates[Feature.HEADERS], fates[Feature.EMPTY_BODY], fates[Feature.COMMAND]
    dropped = "the body is appended without them" if headers is Fate.DROPPED else ""
    yield Item("headers", headers, back.kept.get(Feature.HEADERS, dropped))
    yield Item("empty bodies", empty, back.kept.get(Feature.EMPTY_BODY, ""))
    if back.loss is None:
        yield Item("command records", commands, "fence and trim are executed")
    else:
        yield Item("command records", commands, _COMMANDS if commands is Fate.ENVELOPED else "")


def _fate(back: BackSide, feature: Feature) -> Fate:
    if back.loss is None or feature in back.kept:
        return Fate.KEPT
    return _FATES[back.loss.about(feature)]


def bodies(back: BackSide, what: str) -> Iterator[Item]:
    """Yield the fate of bodies; `what`: the protocol's word for them."""
    yield Item(what, Fate.KEPT, "byte for byte, in order")
    if back.largest < 1 * MIB - 8:
        yield Item(f"bodies of more than {back.largest} bytes", Fate.REFUSED, "the server accepts none")


# ---- reads ---------------------------------------------------------------------------------------------------


def _reads(front: FrontSide, back: BackSide) -> Iterator[Item]:
    yield Item("bodies", Fate.KEPT, "byte for byte, in order")
    if front.loss is not None:
        headers = _FATES[front.loss.headers]
        yield Item("headers", headers, "the body is delivered without them" if headers is Fate.DROPPED else "")
        yield Item("empty bodies", _FATES[front.loss.empty_body])
        yield Item("command records", _FATES[front.loss.command_records])
    else:
        unwrapped = back.loss is not None and back.loss.envelopes
        yield Item("headers, empty bodies, command records", Fate.KEPT, "out of envelopes" if unwrapped else "")
    yield from front.positions(back)


# ---- lost acknowledgements -----------------------------------------------------------------------------------


def _guarantee(front: FrontSide, back: BackSide) -> Iterator[str]:
    if not back.appends:
        yield "nothing is appended"
        return
    if back.embedded:
        yield "exactly once: there is no connection to lose, and acknowledged records are on disk"
        return
    if back.delivery in back.exactly_once:
        yield f"exactly once: after a lost acknowledgement {back.finds_out}"
    elif back.delivery == "at-least-once":
        yield "at least once: after a lost acknowledgement it is sent again, so records may be stored twice"
    else:
        yield "at most once for each try: after a lost acknowledgement the append fails, and the client decides"
    if front.passes and front.passes == back.passes:
        what = f"{front.passes} sessions pass through untouched"
        yield f"{what}, so after a lost connection their client's own policy holds"
