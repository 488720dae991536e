"""Configuration of injected faults; see docs/faults.md."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from penstock.core.config_fields import Table, key
from penstock.core.matching import Match, StreamPattern

__all__ = ["FaultTable"]

Code = Literal[
    "invalid",
    "authn",
    "permission_denied",
    "quota_exhausted",
    "basin_not_found",
    "stream_not_found",
    "request_timeout",
    "transaction_conflict",
    "stream_deletion_pending",
    "stream_sealed",
    "rate_limited",
    "other",
    "storage",
    "not_implemented",
    "hot_server",
    "server_draining",
    "unavailable",
    "upstream_timeout",
]
"""Failure codes that need only a message, and that mean something to clients."""

_OF_ACTIONS: Final = {
    "delay_ms": ("delay",),
    "jitter_ms": ("delay",),
    "cut_after_bytes": ("cut",),
    "bytes_per_second": ("throttle",),
    "records": ("terminal",),
    "code": ("error", "terminal"),
    "message": ("error", "terminal"),
}
"""The actions that each key applies to."""
_USUAL: Final = {"delay": "in", "error": "in"}
_ONLY_OUT: Final = "terminal"


class FaultTable(Table, frozen=True, kw_only=True):
    """A fault that is injected on purpose, to test clients: docs/faults.md. None by default. A rule applies to messages
    that match everything it says; all rules that apply are tried, in order."""

    name: Annotated[str, key("By which logs, metrics and `penstock check` call it.", example="slow-acks")]
    action: Annotated[
        Literal["delay", "drop", "duplicate", "cut", "throttle", "error", "terminal"],
        key(
            'What is done. "delay": it waits, and what is behind it too; "drop": it is never sent, or never taken; '
            '"duplicate": it is sent, or taken, twice; "cut": the connection is closed in the middle of it; '
            '"throttle": it goes slowly; "error": it fails; "terminal": the session ends with an error.',
            example="delay",
        ),
    ]
    direction: Annotated[
        Literal["in", "out"] | None,
        key(
            'Messages from clients ("in": requests, records to be stored) or to them ("out": acknowledgements, '
            'records, answers). Absent: "in" for delay, and for error, which then comes before anything is done; else '
            '"out".',
            example="out",
        ),
    ] = None
    listeners: Annotated[
        tuple[str, ...],
        key('Clients who came by these: "s2", "s3p", "segment" for all of a kind, "s2.NAME" for one; none: by any.'),
    ] = ()
    routes: Annotated[tuple[str, ...], key("Streams that these routes take, by name; none: all.")] = ()
    identity: Annotated[tuple[str, ...], key("Clients who are one of these identities; none: anybody.")] = ()
    operations: Annotated[
        tuple[Literal["append", "read", "control"], ...],
        key('What messages are about: "control" is whatever neither appends nor reads records; none: anything.'),
    ] = ()
    match: Annotated[Literal["exact", "prefix", "glob", "regex"], key("How `stream` is meant, as for routes.")] = (
        "exact"
    )
    basin: Annotated[str | None, key("Streams of this basin, a glob; absent: of any.", example="telemetry")] = None
    stream: Annotated[
        str | None, key("Streams that clients call so; absent: all, and what is about none.", example="orders")
    ] = None
    seed: Annotated[int, key("The same seed and the same traffic give the same faults.")] = 0
    probability: Annotated[float, key("How likely it is for each message.", least=0, most=1)] = 1.0
    every: Annotated[int, key("Only at each so manieth message.", least=1)] = 1
    after: Annotated[int, key("Not at the first so many messages.", least=0)] = 0
    times: Annotated[int, key("At most so many times; 0: without end.", least=0)] = 0
    delay_ms: Annotated[float, key("For delay: how long, in ms.", least=0, most=3_600_000)] = 100.0
    jitter_ms: Annotated[float, key("For delay: up to so many ms more, at random.", least=0, most=3_600_000)] = 0.0
    cut_after_bytes: Annotated[
        int,
        key("For cut: so many bytes of the message go out before it; a message that comes in is never begun.", least=0),
    ] = 3
    bytes_per_second: Annotated[int, key("For throttle: how fast it goes.", least=1)] = 1024
    records: Annotated[
        int, key("For terminal: how many records the session still carries; see docs/faults.md.", least=0)
    ] = 100
    code: Annotated[Code, key("For error and terminal: what went wrong, in each protocol's own words.")] = "unavailable"
    message: Annotated[
        str | None, key("For error and terminal: what clients are told; absent: the rule's name.", example="not today")
    ] = None

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("name: a fault needs a name")
        defaults = {field.name: field.default for field in msgspec.structs.fields(FaultTable)}
        for one, actions in _OF_ACTIONS.items():
            if self.action not in actions and getattr(self, one) != defaults[one]:
                raise ValueError(f"{one}: it is for {' and '.join(actions)}, and the action is {self.action}")
        if self.action == _ONLY_OUT and self.direction == "in":
            raise ValueError(f"direction: {_ONLY_OUT} is always out")
        self.pattern()

    @property
    def towards(self) -> str:
        """The direction, with its default if none is given."""
        return self.direction or _USUAL.get(self.action, "out")

    def pattern(self) -> StreamPattern | None:
        """Compile the pattern of the affected streams; None: any stream, and messages about none. Raises ValueError."""
        if self.basin is None and self.stream is None:
            return None
        return StreamPattern.compile(Match(self.match), self.basin, self.stream)

    @property
    def in_words(self) -> str:
        """A plain description of the fault, the messages it affects, and its frequency."""
        return f"{self.name}: {_DONE[self.action].format(self=self)}; {self._where}; {self._when}"

    @property
    def _where(self) -> str:
        what = " and ".join(self.operations) or "all"
        whole = {"exact": "{}", "prefix": "{}...", "glob": "{} (glob)", "regex": "{} (regular expression)"}[self.match]
        stream = "" if self.stream is None else f" of streams {whole.replace('{}', self.stream)}"
        basin = "" if self.basin is None else f" of basin {self.basin}"
        limits = ((" of routes ", self.routes), (" by ", self.listeners), (" of identity ", self.identity))
        rest = "".join(f"{word}{', '.join(names)}" for word, names in limits if names)
        way = "from clients" if self.towards == "in" else "to clients"
        return f"{what} messages {way}{stream}{basin}{rest}"

    @property
    def _when(self) -> str:
        every = "each" if self.every == 1 else f"one of every {self.every}"
        odds = "" if self.probability == 1 else f" with probability {self.probability:g} (seed {self.seed})"
        after = f" after the first {self.after}" if self.after else ""
        times = f", {self.times} times at most" if self.times else ""
        return f"at {every}{odds}{after}{times}"


_DONE: Final = {
    "delay": "delayed by {self.delay_ms:g} ms and up to {self.jitter_ms:g} ms more",
    "drop": "dropped",
    "duplicate": "doubled",
    "cut": "the connection is cut after {self.cut_after_bytes} bytes",
    "throttle": "slowed down to {self.bytes_per_second} bytes a second",
    "error": "fails with {self.code}",
    "terminal": "ends with {self.code} after {self.records} records",
}
