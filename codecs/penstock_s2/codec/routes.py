"""Paths of the S2 API (S2 fact sheet 1.2, 1.3; the aliases are the spellings of the seeds' pages).

The path is matched raw, segment by segment, before percent-decoding: `a%2Fb` is one segment (fact sheet 1.1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from operator import itemgetter
from typing import NamedTuple

__all__ = ["RouteMatch", "S2Endpoint", "match_route"]

_BY_LENGTH: dict[int, list[_Route]] = {}


class S2Endpoint(Enum):
    """The endpoints of the API."""

    HEALTH = auto()
    LIST_BASINS = auto()
    CREATE_BASIN = auto()
    ENSURE_BASIN = auto()
    GET_BASIN = auto()
    RECONFIGURE_BASIN = auto()
    DELETE_BASIN = auto()
    LIST_STREAMS = auto()
    CREATE_STREAM = auto()
    ENSURE_STREAM = auto()
    GET_STREAM = auto()
    RECONFIGURE_STREAM = auto()
    DELETE_STREAM = auto()
    LIST_ACCESS_TOKENS = auto()
    ISSUE_ACCESS_TOKEN = auto()
    REVOKE_ACCESS_TOKEN = auto()
    ACCOUNT_METRICS = auto()
    BASIN_METRICS = auto()
    STREAM_METRICS = auto()
    LIST_LOCATIONS = auto()
    GET_DEFAULT_LOCATION = auto()
    SET_DEFAULT_LOCATION = auto()
    CHECK_TAIL = auto()
    APPEND = auto()
    READ = auto()


class RouteMatch(NamedTuple):
    """The match of a path: endpoints by method (empty if there is no such path), and its parameters, still
    percent-encoded."""

    endpoints: Mapping[str, S2Endpoint]
    parameters: Mapping[str, str]


_RECORDS = {"GET": S2Endpoint.READ, "POST": S2Endpoint.APPEND}


_ROUTES: dict[str, Mapping[str, S2Endpoint]] = {
    "health": {"GET": S2Endpoint.HEALTH},
    "ping": {"GET": S2Endpoint.HEALTH},
    "v1/basins": {"GET": S2Endpoint.LIST_BASINS, "POST": S2Endpoint.CREATE_BASIN},
    "v1/basins/{basin}": {
        "GET": S2Endpoint.GET_BASIN,
        "PUT": S2Endpoint.ENSURE_BASIN,
        "PATCH": S2Endpoint.RECONFIGURE_BASIN,
        "DELETE": S2Endpoint.DELETE_BASIN,
    },
    "v1/streams": {"GET": S2Endpoint.LIST_STREAMS, "POST": S2Endpoint.CREATE_STREAM},
    "v1/streams/{stream}": {
        "GET": S2Endpoint.GET_STREAM,
        "PUT": S2Endpoint.ENSURE_STREAM,
        "PATCH": S2Endpoint.RECONFIGURE_STREAM,
        "DELETE": S2Endpoint.DELETE_STREAM,
    },
    "v1/streams/{stream}/records": _RECORDS,
    "v1/streams/{stream}/records/tail": {"GET": S2Endpoint.CHECK_TAIL},
    "v1/access-tokens": {"GET": S2Endpoint.LIST_ACCESS_TOKENS, "POST": S2Endpoint.ISSUE_ACCESS_TOKEN},
    "v1/access-tokens/{id}": {"DELETE": S2Endpoint.REVOKE_ACCESS_TOKEN},
    "v1/locations": {"GET": S2Endpoint.LIST_LOCATIONS},
    "v1/locations/default": {"GET": S2Endpoint.GET_DEFAULT_LOCATION, "PUT": S2Endpoint.SET_DEFAULT_LOCATION},
    "v1/metrics": {"GET": S2Endpoint.ACCOUNT_METRICS},
    "v1/metrics/{basin}": {"GET": S2Endpoint.BASIN_METRICS},
    "v1/metrics/{basin}/{stream}": {"GET": S2Endpoint.STREAM_METRICS},
    # The seeds' pages put the basin into the path.
    "v1/basins/{basin}/streams/{stream}/records": _RECORDS,
    "v1/basins/{basin}/streams/{stream}/records/tail": {"GET": S2Endpoint.CHECK_TAIL},
    "v1/basins/{basin}/streams/{stream}/read": {"GET": S2Endpoint.READ},
    "v1/basins/{basin}/streams/{stream}/append": {"POST": S2Endpoint.APPEND},
}


class _Route(NamedTuple):
    """One of the paths: `fixed` returns those of its segments that are not parameters, which must be `expected`."""

    fixed: Callable[[Sequence[str]], object]
    expected: object
    parameters: tuple[tuple[str, int], ...]
    endpoints: Mapping[str, S2Endpoint]


for _pattern, _endpoints in _ROUTES.items():
    _parts = _pattern.split("/")
    _named = tuple((part[1:-1], index) for index, part in enumerate(_parts) if part.startswith("{"))
    _fixed = itemgetter(*(index for index, part in enumerate(_parts) if not part.startswith("{")))
    _BY_LENGTH.setdefault(len(_parts), []).append(_Route(_fixed, _fixed(_parts), _named, _endpoints))
_NOWHERE = RouteMatch({}, {})


def match_route(path: str) -> RouteMatch:
    """Return the match of a raw request path."""
    segments = path.removeprefix("/").split("/")
    for fixed, expected, named, endpoints in _BY_LENGTH.get(len(segments), ()):
        if fixed(segments) == expected and segments[-1]:  # an empty one elsewhere is an invalid name, as in S2
            return RouteMatch(endpoints, {name: segments[index] for name, index in named})
    return _NOWHERE
