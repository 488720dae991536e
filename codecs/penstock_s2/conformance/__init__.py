"""Conformance cases of S2: records as JSON, as protobuf, as events and in S2S sessions, and their streams and basins.

The clauses are the operations of the specification. Each case makes a stream in the basin of the URL, or in a basin of
its own if the URL has none, or if it is about the configuration of a basin.
"""

from typing import Final

from penstock.protocols.conformance import Suite
from penstock_s2.conformance import (
    append_sessions,
    appends,
    encryption,
    reads,
    refusals,
    requests,
    streamed_reads,
    streams,
    transports,
)
from penstock_s2.conformance.session import open_session

__all__ = ["SUITE"]

_MODULES: Final = (
    requests,
    refusals,
    appends,
    reads,
    streamed_reads,
    append_sessions,
    transports,
    streams,
    encryption,
)

SUITE: Final = Suite(
    title="S2",
    source="the operations of its API v1",
    clauses={
        "tail": "Requests, and the tail",
        "append": "Append",
        "read": "Read",
        "wait": "Reads that wait for records",
        "events": "Read as server-sent events",
        "append-session": "Append in a session (S2S)",
        "read-session": "Read in a session (S2S)",
        "transports": "All ways to a stream together",
        "streams": "Streams",
        "basins": "Basins",
        "encryption": "Encryption at rest",
    },
    cases=tuple(case for module in _MODULES for case in module.CASES.found),
    session=open_session,
)
