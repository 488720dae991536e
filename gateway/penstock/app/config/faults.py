"""Configuration of injected faults; see docs/faults.md."""

from types import MappingProxyType
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
    "cut_places": ("cut",),
    "bytes_per_second": ("throttle",),
    "piece_bytes": ("throttle",),
    "records": ("terminal",),
    "code": ("error", "terminal"),
    "message": ("error", "terminal"),
}
"""The actions that each key applies to."""
_USUAL: Final = {"delay": "in", "error": "in"}
_DONE: Final = {
    "delay": "delayed by {self.delay_ms:g} ms, and up to {self.jitter_ms:g} ms more at random",
    "drop": "dropped",
    "duplicate": "duplicated",
    "cut": "the connection is cut {self._cut}",
    "throttle": "throttled to {self.bytes_per_second} bytes per second",
    "error": "fails with {self.code}",
    "terminal": "ends with {self.code} after {self.records} records",
}


class FaultTable(Table, frozen=True, kw_only=True):
    """A rule that injects faults, to test clients (docs/faults.md); there is none by default. A rule applies to the
    messages that meet all its conditions. Every rule that applies to a message is tried, in the order of the file."""

    values_removed = MappingProxyType({"action": {"unknown": "messages get no unknown fields any more"}})

    name: Annotated[str, key("Name of the rule in logs, metrics and `penstock check`.", example="slow-acks")]
    action: Annotated[
        Literal["delay", "drop", "duplicate", "cut", "throttle", "error", "terminal"],
        key(
            'Effect on the message. "delay": the message waits, and so do those behind it; "drop": it is never '
            'sent, or never processed; "duplicate": it is processed twice; "cut": the connection is closed '
            'in the middle of it; "throttle": it is transferred at a limited rate; "error": it fails; "terminal": '
            "the session ends with an error.",
            example="delay",
        ),
    ]
    direction: Annotated[
        Literal["in", "out"] | None,
        key(
            'Direction of the messages. "in": from clients (requests, records to append); "out": to clients '
            '(acknowledgements, records, answers). Absent: "in" for delay and for error, which fails the request '
            'before it is executed; else "out". Must be "in" for duplicate.',
            example="out",
        ),
    ] = None
    listeners: Annotated[
        tuple[str, ...],
        key('Listeners whose clients are affected: "s2" for all of a kind, "s2.NAME" for one; empty: all.'),
    ] = ()
    routes: Annotated[tuple[str, ...], key("Names of the routes whose streams are affected; empty: all.")] = ()
    identity: Annotated[tuple[str, ...], key("Identities of the affected clients; empty: all clients.")] = ()
    operations: Annotated[
        tuple[Literal["append", "read", "control"], ...],
        key('Kinds of messages: "append", "read", or "control" for every other kind; empty: all.'),
    ] = ()
    match: Annotated[Literal["exact", "prefix", "glob", "regex"], key("Meaning of `stream`, as for routes.")] = "exact"
    basin: Annotated[
        str | None, key("Glob of the basins whose streams are affected; absent: all.", example="telemetry")
    ] = None
    stream: Annotated[
        str | None,
        key(
            "Streams that are affected, by the names that clients use (see `match`); absent: all, and messages "
            "that concern no stream.",
            example="orders",
        ),
    ] = None
    seed: Annotated[int, key("Seed of random choices: the same seed and the same traffic give the same faults.")] = 0
    probability: Annotated[
        float, key("Probability of the fault for each message that the rule matches.", least=0, most=1)
    ] = 1.0
    every: Annotated[int, key("Interval of the faults, in matching messages: 3 affects every third one.", least=1)] = 1
    after: Annotated[int, key("Number of matching messages to skip first.", least=0)] = 0
    times: Annotated[int, key("Most faults that the rule injects; 0: unlimited.", least=0)] = 0
    delay_ms: Annotated[
        float, key("For delay: time that a message waits, in milliseconds.", least=0, most=3_600_000)
    ] = 100.0
    jitter_ms: Annotated[
        float, key("For delay: largest random addition to delay_ms, in milliseconds.", least=0, most=3_600_000)
    ] = 0.0
    cut_after_bytes: Annotated[
        int,
        key(
            "For cut: bytes of an outgoing message to send before the connection is closed; an incoming message is "
            "not processed at all.",
            least=0,
        ),
    ] = 3
    cut_places: Annotated[
        int,
        key(
            "For cut: number of places in an outgoing message, instead of cut_after_bytes: the first message is cut at "
            "the first of them, which is its beginning, the next one at the next, and so on to the last; 0: none.",
            least=0,
        ),
    ] = 0
    bytes_per_second: Annotated[int, key("For throttle: rate in bytes per second.", least=1)] = 1024
    piece_bytes: Annotated[
        int,
        key(
            "For throttle: bytes of an outgoing message that are sent at a time, such as 1 for clients that must take "
            "it however it is cut; 0: a twentieth of bytes_per_second.",
            least=0,
        ),
    ] = 0
    records: Annotated[
        int, key("For terminal: records that the session carries before it ends (docs/faults.md).", least=0)
    ] = 100
    code: Annotated[
        Code, key("For error and terminal: kind of the error, which each protocol reports in its own terms.")
    ] = "unavailable"
    message: Annotated[
        str | None, key("For error and terminal: message of the error; absent: the rule's name.", example="not today")
    ] = None

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("name: a fault needs a name")
        defaults = {field.name: field.default for field in msgspec.structs.fields(FaultTable)}
        for key_name, actions in _OF_ACTIONS.items():
            if self.action not in actions and getattr(self, key_name) != defaults[key_name]:
                raise ValueError(f"{key_name}: applies to {' and '.join(actions)}, not to {self.action}")
        if self.action == "duplicate" and self.towards == "out":
            raise ValueError('direction: duplicate was removed for answers; for requests, say direction = "in"')
        if self.action == "terminal" and self.towards == "in":
            raise ValueError("direction: terminal is always out")
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
    def _cut(self) -> str:
        if self.cut_places:
            return f"at one place after the other of {self.cut_places}"
        return f"after {self.cut_after_bytes} bytes"

    @property
    def _where(self) -> str:
        what = " and ".join(self.operations) or "all"
        whole = {"exact": "{}", "prefix": "{}...", "glob": "{} (glob)", "regex": "{} (regular expression)"}[self.match]
        stream = "" if self.stream is None else f" of streams {whole.replace('{}', self.stream)}"
        basin = "" if self.basin is None else f" of basin {self.basin}"
        limits = ((" of routes ", self.routes), (" on listeners ", self.listeners), (" of identities ", self.identity))
        rest = "".join(f"{word}{', '.join(names)}" for word, names in limits if names)
        way = "from clients" if self.towards == "in" else "to clients"
        return f"{what} messages {way}{stream}{basin}{rest}"

    @property
    def _when(self) -> str:
        every = "each message" if self.every == 1 else f"one of every {self.every} messages"
        odds = "" if self.probability == 1 else f" with probability {self.probability:g} (seed {self.seed})"
        after = f" after the first {self.after}" if self.after else ""
        times = f", at most {self.times} times" if self.times else ""
        return f"applied to {every}{odds}{after}{times}"
