"""Find a request's endpoint, basin and stream as the S2 front does (S2 fact sheet, 1.1 and 1.2).

Nothing is refused here: an illegal name is shown as it is, since it is the server that refuses it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import parse_qs

from penstock_codecs.failures import OperationFailed
from penstock_codecs.http import RequestHead
from penstock_codecs.model import StreamRef
from penstock_codecs.s2.names import decode_path_segment
from penstock_codecs.s2.routes import Endpoint, find

__all__ = ["NOWHERE", "Target", "header", "target_of"]

_BASIN_HOSTS: Final = (".localhost", ".b.s2.dev", ".b.aws.s2.dev")
"""Suffixes of hosts that begin with a basin: S2's own hosts, and the front's default."""


class Target(NamedTuple):
    """Target of a request. `endpoint` None: none of S2's. `ref`: as far as known. `stream`: its spelling, or empty."""

    endpoint: Endpoint | None
    ref: StreamRef
    stream: str


NOWHERE: Final = Target(None, StreamRef("", ""), "")


def header(headers: Iterable[tuple[str, str]], name: str) -> str | None:
    """Return the first header of this name."""
    return next((value for found, value in headers if found == name), None)


def target_of(head: RequestHead, noted: Iterable[str]) -> Target:
    """Return the target of a request. `noted`: streams that the gateway noted, used if the request names no basin."""
    path, _, query = head.target.partition("?")
    endpoints, parameters = find(path)
    endpoint = endpoints.get("GET" if head.method == "HEAD" else head.method)
    if endpoint is None:
        return NOWHERE
    name = _decoded(parameters.get("stream", ""))
    basin = _decoded(parameters["basin"]) if "basin" in parameters else _basin(head, query)
    if not name:
        return Target(endpoint, StreamRef(basin, ""), "")
    if not basin:
        basin = next((one.removesuffix("/" + name) for one in noted if one.endswith("/" + name)), "")
    ref = StreamRef(basin, name)
    return Target(endpoint, ref, str(ref) if basin else name)


def _basin(head: RequestHead, query: str) -> str:
    named = header(head.headers, "s2-basin")
    if named is not None:
        return named
    host = head.authority.rsplit(":", 1)[0].lower()
    for suffix in _BASIN_HOSTS:
        if host.endswith(suffix) and len(host) > len(suffix):
            return host[: -len(suffix)]
    if "s2-basin" not in query:
        return ""
    try:
        return parse_qs(query, max_num_fields=100).get("s2-basin", [""])[-1]
    except ValueError:
        return ""


def _decoded(segment: str) -> str:
    try:
        return decode_path_segment(segment)
    except OperationFailed:
        return segment
