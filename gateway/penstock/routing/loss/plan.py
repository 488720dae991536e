"""Prediction of losses between the clients of a listener and a back: each feature is kept, enveloped, refused or
dropped.

It follows from what both sides can carry and from their loss tables, so it is known before any record is sent, and for
servers that cannot be reached. docs/loss.md and docs/guarantees.md explain it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from penstock.routing.loss.loss import Loss, LossPolicy
from penstock_codecs.limits import MIB
from penstock_codecs.operations import Capability

__all__ = ["BackSide", "Fate", "FrontSide", "Item", "Plan", "capabilities_of", "plan"]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontSide:
    """A listener. `kind`: s2, s3p or segment. `loss`: its policy for records that its protocol cannot carry, None if it
    can carry all."""

    kind: str
    loss: LossPolicy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackSide:
    """A back. `kind`: embedded, s2, s2-sse, s3p or segment. `loss`: its policy for records that it cannot carry, None
    if it can carry all. `keep_empty`: records with an empty body are appended as they are. `draft`: it uses the draft
    dialect. `largest`: largest body of a record, in bytes."""

    kind: str
    delivery: str = "exactly-once"
    loss: LossPolicy | None = None
    keep_empty: bool = False
    draft: bool = False
    largest: int = 1 * MIB - 8


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan for one listener and one back. `appends`, `reads`: the fate of features in either direction.
    `guarantee`: the delivery guarantee for appends whose acknowledgement is lost; several lines if clients differ."""

    appends: tuple[Item, ...]
    reads: tuple[Item, ...]
    guarantee: tuple[str, ...]


_ALL: Final = frozenset(Capability)
_NUMBERED: Final = frozenset({Capability.TRIM, Capability.FOLLOW, Capability.LOCATE, Capability.RECORD_IDS})
_BY_KIND: Final[Mapping[str, frozenset[Capability]]] = {
    "embedded": _ALL,
    "s2": _ALL - {Capability.TABLES},
    "s2-sse": frozenset(
        {Capability.HEADERS, Capability.EMPTY_BODIES, Capability.TIMESTAMPS, Capability.FOLLOW, Capability.BYTES}
    ),
    "s3p": _NUMBERED | {Capability.BYTES},
    "segment": _NUMBERED | {Capability.TIMESTAMPS, Capability.BYTES, Capability.TABLES, Capability.MATCH_SEQ_NUM},
}
_DRAFT_LACKS: Final = frozenset({Capability.TABLES, Capability.MATCH_SEQ_NUM})


def capabilities_of(back: BackSide) -> frozenset[Capability]:
    """Return the capabilities of a back of this kind."""
    able = _BY_KIND[back.kind] - (_DRAFT_LACKS if back.draft else frozenset())
    loss = back.loss
    if loss is not None:
        able |= {Capability.HEADERS} if loss.headers is Loss.ENVELOPE else frozenset()
        able |= {Capability.EMPTY_BODIES} if back.keep_empty or loss.empty_body is Loss.ENVELOPE else frozenset()
    return able


def plan(front: FrontSide, back: BackSide) -> Plan:
    """Return the fate of records that this listener's clients append to this back, and of those that they read."""
    if back.kind == "s2-sse":
        appends: tuple[Item, ...] = (Item("everything", Fate.REFUSED, "it is a source that is only read"),)
    else:
        appends = tuple(_APPENDS[front.kind](front, back))
    return Plan(appends, tuple(_reads(front, back)), tuple(_guarantee(front, back)))


# ---- appends -------------------------------------------------------------------------------------------------


_COMMANDS: Final = "a trim is carried out, a fence is data: it holds nobody back"


def _carried(back: BackSide) -> Iterator[Item]:
    """Yield the fate of headers, empty bodies and command records on the back."""
    loss = back.loss
    headers = Fate.KEPT if loss is None else _FATES[loss.headers]
    yield Item("headers", headers, "the body is appended without them" if headers is Fate.DROPPED else "")
    empty = Fate.KEPT if loss is None or back.keep_empty else _FATES[loss.empty_body]
    yield Item("empty bodies", empty, "as events without bytes" if back.keep_empty else "")
    if loss is None:
        yield Item("command records", Fate.KEPT, "fence and trim are carried out")
    else:
        commands = _FATES[loss.command_records]
        yield Item("command records", commands, _COMMANDS if commands is Fate.ENVELOPED else "")


def _bodies(back: BackSide, what: str) -> Iterator[Item]:
    yield Item(what, Fate.KEPT, "byte for byte, in order")
    if back.largest < 1 * MIB - 8:
        yield Item(f"bodies of more than {back.largest} bytes", Fate.REFUSED, "the server takes none")


def _of_s2(_front: FrontSide, back: BackSide) -> Iterator[Item]:
    able = capabilities_of(back)
    yield from _bodies(back, "bodies")
    yield from _carried(back)
    if Capability.TIMESTAMPS in able:
        kept = "in the gateway's index" if back.kind == "segment" else "as the stream's timestamping says"
        yield Item("clients' timestamps", Fate.KEPT, kept)
    else:
        yield Item("clients' timestamps", Fate.DROPPED, "the server stamps records")
    for name, capability in (("match_seq_num", Capability.MATCH_SEQ_NUM), ("fencing_token", Capability.FENCING)):
        fate = Fate.KEPT if capability in able else Fate.REFUSED
        yield Item(name, fate, "" if fate is Fate.KEPT else "the server has no such condition")


def _of_s3p(front: FrontSide, back: BackSide) -> Iterator[Item]:
    yield from _bodies(back, "bodies")
    if front.loss is not None and front.loss.envelopes:
        for item in _carried(back):
            yield item._replace(what=f"{item.what} in envelopes")


def _of_segments(front: FrontSide, back: BackSide) -> Iterator[Item]:
    able = capabilities_of(back)
    yield from _bodies(back, "events")
    if front.loss is not None and front.loss.envelopes:
        for item in _carried(back):
            yield item._replace(what=f"{item.what} in envelopes")
    own = back.kind in ("embedded", "segment")
    if not own:
        whole = Capability.HEADERS in able
        yield Item(
            "larger events, and bytes that are no events",
            Fate.KEPT if whole else Fate.REFUSED,
            "as pieces, which have headers" if whole else "pieces of them need headers",
        )
    yield Item("positions of writers", Fate.KEPT, "" if own else "beside the server, in the embedded store")
    if back.kind == "segment" and back.draft:
        how = "its writers' positions are event numbers, and those of the draft are bytes"
        yield Item("events of clients of the released dialect", Fate.REFUSED, how)
        yield Item("transactions", Fate.REFUSED, "the draft has none")
    else:
        yield Item("transactions", Fate.KEPT, "" if own else "in the embedded store until they are committed")


_APPENDS: Final = {"s2": _of_s2, "s3p": _of_s3p, "segment": _of_segments}


# ---- reads ---------------------------------------------------------------------------------------------------

_STAMPS: Final = {"segment": "the gateway's, kept in its index", "s3p": "the server's identifiers have them"}


def _reads(front: FrontSide, back: BackSide) -> Iterator[Item]:
    numbered = back.kind in ("s3p", "segment")
    yield Item("bodies", Fate.KEPT, "byte for byte, in order")
    if front.loss is not None:
        headers = _FATES[front.loss.headers]
        yield Item("headers", headers, "the body is given without them" if headers is Fate.DROPPED else "")
        yield Item("empty bodies", _FATES[front.loss.empty_body])
        yield Item("command records", _FATES[front.loss.command_records])
    else:
        unwrapped = back.loss is not None and back.loss.envelopes
        yield Item("headers, empty bodies, command records", Fate.KEPT, "out of envelopes" if unwrapped else "")
    if front.kind == "s2":
        yield Item("sequence numbers", Fate.KEPT, "counted by the gateway, kept in its index" if numbered else "")
        yield Item("timestamps", Fate.KEPT, _STAMPS.get(back.kind, ""))
    elif front.kind == "s3p":
        yield Item("identifiers", Fate.KEPT, "" if back.kind in ("embedded", "s3p") else "from the timestamps")
    else:
        counted = "" if back.kind in ("embedded", "segment") else "counted by the gateway, kept in its index"
        yield Item("byte offsets", Fate.KEPT, counted)


# ---- lost acknowledgements -----------------------------------------------------------------------------------

_ASKED: Final = {
    "s2": "the records are looked for at their place on the server before anything is sent again",
    "segment": "the server is asked for its writer's last append before anything is sent again",
}


def _guarantee(front: FrontSide, back: BackSide) -> Iterator[str]:
    if back.kind == "s2-sse":
        yield "nothing is appended"
        return
    if back.kind == "embedded":
        yield "exactly once: there is no connection to lose, and an acknowledgement means on disk"
        return
    if back.delivery == "exactly-once" or (back.kind == "segment" and back.delivery == "at-least-once"):
        yield f"exactly once: after a lost acknowledgement {_ASKED[back.kind]}"
    elif back.delivery == "at-least-once":
        yield "at least once: after a lost acknowledgement it is sent again, and records may be there twice"
    else:
        yield "at most once for each try: after a lost acknowledgement the append fails, and the client decides"
    if (front.kind, back.kind) == ("s2", "s2"):
        yield "S2S sessions pass through untouched, so after a lost connection their client's own policy holds"
