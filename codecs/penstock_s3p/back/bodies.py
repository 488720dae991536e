"""Conversion between records and S3P's bodies by the loss policy: envelope, drop or refuse (docs/loss.md)."""

from __future__ import annotations

from penstock.model.envelope import is_marked, unwrap, wrap
from penstock.model.failures import FailureCode, fail
from penstock.model.features import Feature, feature_of
from penstock.model.operations import Append
from penstock.model.records import Headers
from penstock.routing.loss.loss import Loss, LossPolicy

__all__ = ["from_bodies", "to_bodies"]


def to_bodies(append: Append, policy: LossPolicy) -> list[bytes]:
    """Return the bodies to send for an append's records. Raises NOT_REPRESENTABLE if the policy refuses one."""
    bodies = append.bodies
    if not append.headers and all(bodies) and not (policy.envelopes and any(map(is_marked, bodies))):
        return bodies
    return [_to_body(index, append.headers.get(index, ()), body, policy) for index, body in enumerate(bodies)]


def _to_body(index: int, headers: Headers, body: bytes, policy: LossPolicy) -> bytes:
    feature = feature_of(headers, body)
    if feature is Feature.HEADERS and policy.headers is Loss.DROP:
        headers, feature = (), feature_of((), body)
    if feature is None:
        return wrap((), body) if policy.envelopes and is_marked(body) else body
    if policy.about(feature) is Loss.ENVELOPE:
        return wrap(headers, body)
    raise fail(
        FailureCode.NOT_REPRESENTABLE, f"record {index + 1} of the batch {feature.value}, which S3P cannot carry"
    )


def from_bodies(bodies: list[bytes], policy: LossPolicy) -> tuple[list[bytes], dict[int, Headers]]:
    """Return bodies and headers from a server's bodies. A body that is no envelope is taken as it is."""
    headers_by_index: dict[int, Headers] = {}
    if not (policy.envelopes and any(map(is_marked, bodies))):
        return bodies, headers_by_index
    plain = list(bodies)
    for index, body in enumerate(bodies):
        if is_marked(body):
            try:
                headers, plain[index] = unwrap(body)
            except ValueError:
                continue
            if headers:
                headers_by_index[index] = headers
    return plain, headers_by_index
