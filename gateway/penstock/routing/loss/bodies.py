"""Conversion of records for servers whose records are plain bodies; see docs/loss.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.model.envelope import is_marked, unwrap, wrap
from penstock.model.failures import FailureCode, fail
from penstock.model.features import Feature, feature_of
from penstock.model.records import NO_HEADERS, Headers
from penstock.routing.loss.loss import Loss, LossPolicy

__all__ = ["to_bodies", "to_records"]

_KEYS: Final = {Feature.HEADERS: "headers", Feature.EMPTY_BODY: "empty_body", Feature.COMMAND: "command_records"}


def to_bodies(
    bodies: list[bytes], headers: Mapping[int, Headers], policy: LossPolicy, server: str, *, keep_empty: bool = False
) -> list[bytes]:
    """Return the bodies that stand for these records on the server, one per record; some may be envelopes.

    If the policy uses envelopes, a body that looks like one is enveloped as well. `keep_empty`: the server takes empty
    bodies. `server`: its name in messages. Raises NOT_REPRESENTABLE naming the first record that the policy refuses.
    """
    looks_like_one = policy.envelopes and any(map(is_marked, bodies))
    if not headers and (keep_empty or all(bodies)) and not looks_like_one:
        return bodies
    return [_body(index, headers.get(index, ()), body, policy, server, keep_empty) for index, body in enumerate(bodies)]


def _body(index: int, headers: Headers, body: bytes, policy: LossPolicy, server: str, keep_empty: bool) -> bytes:
    feature = feature_of(headers, body)
    if feature is Feature.HEADERS and policy.headers is Loss.DROP:
        headers, feature = (), feature_of((), body)
    if feature is None or (feature is Feature.EMPTY_BODY and keep_empty):
        return wrap(headers, body) if policy.envelopes and is_marked(body) else body
    if policy.about(feature) is Loss.ENVELOPE:
        return wrap(headers, body)
    raise fail(
        FailureCode.NOT_REPRESENTABLE,
        f"record {index + 1} of the batch {feature.value}, which {server} cannot carry (loss.{_KEYS[feature]})",
    )


def to_records(bodies: list[bytes], policy: LossPolicy) -> tuple[list[bytes], Mapping[int, Headers]]:
    """Return bodies and headers of records on the server. Envelopes are unwrapped if the policy uses them; a body that
    only looks like one, appended by another client of the server, is left as it is."""
    if not policy.envelopes or not any(map(is_marked, bodies)):
        return bodies, NO_HEADERS
    taken = list(bodies)
    headers_by_index: dict[int, Headers] = {}
    for index, body in enumerate(bodies):
        if not is_marked(body):
            continue
        try:
            headers, taken[index] = unwrap(body)
        except ValueError:
            continue
        if headers:
            headers_by_index[index] = headers
    return taken, headers_by_index
