"""What `penstock check` says about backs and routes."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from penstock.config import (
    EMBEDDED,
    BackTable,
    Config,
    RouteTable,
    S2SseBack,
    S3PBack,
    S3PListener,
    SegmentBack,
    SegmentListener,
)
from penstock.policy.loss import Loss, LossPolicy
from penstock.policy.plan import BackSide, Fate, FrontSide, Item, plan
from penstock.routing.permissions import Permission

__all__ = ["back_lines", "back_side", "route_parts"]

_KINDS = {"s2": "S2", "s2-sse": "S2, only read, over SSE", "s3p": "S3P", "segment": "segments"}
_CREDENTIALS = {
    "none": "no credentials",
    "static": "one token for all",
    "pass": "each client's own token",
    "swap": "a token for each identity",
}


def back_lines(config: Config) -> Iterator[str]:
    """A line for each back."""
    for name, table in config.backs.items():
        kind = table.__struct_config__.tag
        where = " and ".join(
            f"{what}{address}"
            for what, address in (("", table.address), ("controller ", getattr(table, "controller", None)))
            if address is not None
        )
        shown = getattr(table, "credentials", None)
        secure = "over TLS" if table.tls else "in plaintext"
        yield f"{name}: {_KINDS[str(kind)]} at {where}, {secure}{f', {_CREDENTIALS[shown]}' if shown else ''}"


def route_parts(config: Config) -> Iterator[tuple[str, list[str]]]:
    """A headed list for each route and kind of listener that it serves."""
    for route in config.routes:
        yield f"Route {route.name}", list(_about(config, route))
        said: list[str] = []
        for label, front in _fronts(config, route):
            lines = list(_planned(front, back_side(config.backs.get(route.back)), route.permissions))
            if lines != said:
                said = lines
                yield f"Route {route.name}, clients of {label}", lines


def _about(config: Config, route: RouteTable) -> Iterator[str]:
    named = f", named {route.to_basin or '{basin}'}/{route.to_stream or '{stream}'} there"
    to = route.back if route.back == EMBEDDED else f"back {route.back}"
    yield f"{route.in_words}: to {to}{named if route.to_basin or route.to_stream else ''}"
    if route.mirror is not None:
        yield f"mirrored to {route.mirror}, whose records are compared; a cut-over makes that the route's back"
    if route.permissions == ("read",):
        yield "only for reading: whatever changes something is refused"
        return
    if len(set(route.permissions)) < len(Permission):
        yield f"clients may {' and '.join(dict.fromkeys(route.permissions))}; the rest is refused"
    if not route.create_streams:
        yield "clients cannot create streams there"
        return
    table = config.backs.get(route.back)
    if isinstance(table, S3PBack | SegmentBack) and not table.create_streams:
        yield f"an append does not create a missing stream (backs.{route.back}.create_streams)"


def _fronts(config: Config, route: RouteTable) -> Iterator[tuple[str, FrontSide]]:
    for label, listener in config.listeners.labelled():
        kind = label.partition(".")[0]
        if kind == "controller" or (route.listeners and not {label, kind} & set(route.listeners)):
            continue
        loss = None
        if isinstance(listener, S3PListener | SegmentListener):
            words = listener.loss
            loss = LossPolicy(Loss(words.headers), Loss(words.empty_body), Loss(words.command_records))
        yield label, FrontSide(kind=kind, loss=loss)


def back_side(table: BackTable | None) -> BackSide:
    """A back as a plan sees it; None: the embedded store."""
    if table is None:
        return BackSide(kind=EMBEDDED)
    if isinstance(table, S2SseBack):
        return BackSide(kind="s2-sse", delivery="refuse")
    if not isinstance(table, S3PBack | SegmentBack):
        return BackSide(kind="s2", delivery=table.delivery)
    words = table.loss
    keep = words.empty_body == "keep"
    empty = Loss.REFUSE if keep else Loss(words.empty_body)
    loss = LossPolicy(Loss(words.headers), empty, Loss(words.command_records))
    if isinstance(table, S3PBack):
        return BackSide(kind="s3p", delivery=table.delivery, loss=loss, largest=table.limits.max_record_bytes)
    draft = table.dialect == "draft"
    return BackSide(kind="segment", delivery=table.delivery, loss=loss, keep_empty=keep, draft=draft)


def _planned(front: FrontSide, back: BackSide, permissions: Collection[str]) -> Iterator[str]:
    """What comes of what clients with these permissions append and read, and what is guaranteed."""
    found = plan(front, back)
    for way, items in (("appends", found.appends), ("reads", found.reads)):
        if way.removesuffix("s") not in permissions:
            continue
        for fate in Fate:
            if some := [_item(item) for item in items if item.fate is fate]:
                yield f"{way}, {fate.value}: {'; '.join(some)}"
    for line in found.guarantee:
        yield f"guarantee: {line}"


def _item(item: Item) -> str:
    return f"{item.what} ({item.how})" if item.how else item.what
