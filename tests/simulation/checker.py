"""Linearizability of the history of one log: is there an order of its calls, each between its beginning and its end,
in which a log that does one thing at a time gives every answer that was given?

The method is that of Wing and Gong: try every call that could come next, and remember which sets of calls led to which
log. The histories are short (a few clients, some dozens of calls), so it needs nothing more. A call without an answer,
as a crash leaves it, may have been done at any time since it began, or never.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

__all__ = [
    "COMMAND",
    "EMPTY",
    "EVENT_HEADER",
    "Call",
    "Done",
    "Log",
    "Lost",
    "NotLinearizable",
    "Refused",
    "TooManyOrders",
    "View",
    "outcomes",
]

View = Literal["records", "data", "bodies", "bytes"]
"""The form in which a client sees a log: records with their numbers; or the same without commands; or bodies alone,
without commands; or bytes, in which each of these bodies has a header of `EVENT_HEADER` bytes."""
_NUMBERED: Final = frozenset({"records", "data"})
COMMAND: Final = b"command "
"""Begins the body of a record that is a command, here in the model."""
EVENT_HEADER: Final = 8


@dataclass(frozen=True, slots=True)
class Log:
    """The state of a log."""

    bodies: tuple[bytes, ...] = ()
    trim_point: int = 0
    token: str = ""
    sealed: bool = False


EMPTY: Final = Log()
_SHORT: Final = reprlib.Repr()
_SHORT.maxtuple, _SHORT.maxdict, _SHORT.maxother = 1000, 1000, 40
MOST_STATES: Final = 100_000
"""Bound on the search. Histories of a store without defects need some hundreds; one that fits no order may need all."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The answer to a call that changed nothing."""

    reason: str


class _Word:
    def __init__(self, word: str) -> None:
        self._word = word

    def __repr__(self) -> str:
        return self._word


Lost: Final = _Word("no answer")
"""The answer that did not come."""
Done: Final = _Word("done")
"""An answer that says no more than that the call was done."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a client. `did`: "append", "fence", "merge", "commit", "trim", "seal", "tail" or "read".

    `answer`: for append, fence: the first sequence number; merge, seal: None; trim: the trim point; tail: the tail;
    read: the records, each as sequence number and body; or `Refused`, `Lost`, or `Done`. To those who see bodies: a
    read gives these; to those who see bytes as well, and appends and the tail give the length in bytes.

    `to`: what a trim keeps begins at this number; `bodies`: at this body, or, with `to`, the command that is appended.
    """

    did: str
    begun: float
    ended: float
    answer: Any
    bodies: tuple[bytes, ...] = ()
    match: int | None = None
    token: str | None = None
    new_token: str = ""
    to: int | None = None
    client: str = ""
    view: View = "records"

    def __str__(self) -> str:
        shown = ("bodies", "match", "token", "new_token", "to")
        more = {name: value for name in shown if (value := getattr(self, name)) not in ((), None, "")}
        asked, answer = _SHORT.repr(more) if more else "", _SHORT.repr(self.answer)
        return f"{self.begun:9.4f} {self.ended:9.4f} {self.client:12} {self.did} {asked} -> {answer}"


class NotLinearizable(AssertionError):
    """No order of the calls explains their answers."""


class TooManyOrders(Exception):
    """The search was given up: it is not known whether an order explains the answers."""


def done(log: Log, call: Call) -> tuple[Log, Any]:
    """Return the log after a call, and the answer."""
    match call.did:
        case "append" | "fence" | "merge" | "trim" if call.bodies and (call.did != "trim" or call.to is not None):
            if log.sealed:
                return log, Refused("sealed")
            if call.token is not None and call.token != log.token:
                return log, Refused("token")
            if call.match is not None and call.match != (_length(log) if call.view == "bytes" else len(log.bodies)):
                return log, Refused("match")
            token = call.new_token if call.did == "fence" else log.token
            after = replace(log, bodies=log.bodies + call.bodies, token=token)
            if call.to is not None:
                after = replace(after, trim_point=max(log.trim_point, min(call.to, len(after.bodies))))
            if call.view == "bytes":
                return after, _length(after)
            return after, None if call.did == "merge" else len(log.bodies)
        case "commit":  # Kafka knows no seals: what a transaction has for a sealed log is lost
            return log if log.sealed else replace(log, bodies=log.bodies + call.bodies), None
        case "trim":
            to = call.to
            if to is None:  # one that is trimmed already is not known any more
                to = log.bodies.index(call.bodies[0]) if call.bodies[0] in log.bodies else 0
                if call.view == "bytes" and all(one.startswith(COMMAND) for one in log.bodies[log.trim_point : to]):
                    to = log.trim_point  # commands have no bytes: no byte lies before the offset
            after = replace(log, trim_point=max(log.trim_point, min(to, len(log.bodies))))
            return after, after.trim_point
        case "seal":
            return replace(log, sealed=True), None
        case "tail":
            return log, _length(log) if call.view == "bytes" else len(log.bodies)
        case "read" if call.view == "records":
            return log, tuple(enumerate(log.bodies))[log.trim_point :]
        case "read":
            data = [one for one in enumerate(log.bodies) if not one[1].startswith(COMMAND) and one[0] >= log.trim_point]
            return log, tuple(data) if call.view == "data" else tuple(body for _, body in data)
    raise AssertionError(call.did)


def _length(log: Log) -> int:
    """Return the length in bytes."""
    return sum(EVENT_HEADER + len(body) for body in log.bodies if not body.startswith(COMMAND))


def _explains(log: Log, call: Call, answer: Any) -> bool:
    """Return whether a call's answer is right where the log would give `answer`."""
    if call.answer is Lost:
        return True
    if call.answer is Done:
        return not isinstance(answer, Refused)
    if call.did == "read" and not isinstance(call.answer, Refused):
        # Its first batches may be from before a trim, and its last one from after it.
        early = len(call.answer) - len(answer)
        if early < 0 or call.answer[early:] != answer:
            return False
        if call.view not in _NUMBERED:
            return set(call.answer[:early]) <= set(log.bodies)
        return _are_of(log, call.answer[:early])
    return bool(call.answer == answer)


def _places(calls: Iterable[Call]) -> dict[int, bytes]:
    """Return the records whose places are known from answers: a search that puts another one there is given up."""
    found: dict[int, bytes] = {}
    for call in calls:
        if call.answer in (Lost, Done) or isinstance(call.answer, Refused) or call.view not in _NUMBERED:
            continue
        match call.did:
            case "append" | "fence" | "trim":  # a trim without bodies appends nothing
                found.update(enumerate(call.bodies, call.answer))
            case "read":
                found.update(call.answer)
    return found


def _fits(log: Log, after: Log, places: dict[int, bytes], numbers: dict[bytes, int]) -> bool:
    begin = len(log.bodies)
    return all(
        places.get(number, body) == body and numbers.get(body, number) == number
        for number, body in enumerate(after.bodies[begin:], begin)
    )


def _shown(calls: Iterable[Call]) -> frozenset[bytes]:
    """Return the bodies that calls name that do not know their places."""
    found: set[bytes] = set()
    for call in calls:
        if call.view not in _NUMBERED and call.did == "read" and isinstance(call.answer, tuple):
            found.update(call.answer)
        elif call.did == "trim":
            found.update(call.bodies)
    return frozenset(found)


def _known(log: Log, begin: int, places: dict[int, bytes], shown: frozenset[bytes]) -> Log:
    """Forget the bodies from `begin` on that no answer shows: logs that differ in these alone are one. Lengths stay."""
    kept = [
        body if number in places or body in shown else COMMAND if body.startswith(COMMAND) else bytes(len(body))
        for number, body in enumerate(log.bodies[begin:], begin)
    ]
    return replace(log, bodies=(*log.bodies[:begin], *kept))


def _are_of(log: Log, records: tuple[tuple[int, bytes], ...]) -> bool:
    return all(number < len(log.bodies) and log.bodies[number] == body for number, body in records)


def outcomes(
    calls: Sequence[Call],
    before: Iterable[Log],
    last: Call | None = None,
    *,
    seen: Mapping[int, bytes] | None = None,
    tail: float = math.inf,
) -> frozenset[Log]:
    """Return all logs that these calls may have left, begun on one of those `before`.

    Raises NotLinearizable, TooManyOrders.

    `last`, if given, is a read of all after the end of these calls, when those without an answer do nothing any more.
    `seen`: the bodies that anyone ever saw, at their places. No two calls append the same body, but for commands.
    `tail`: that of the log after `last`.
    """
    places = _places((*calls, last) if last is not None else calls) | dict(seen or {})
    numbers = {body: number for number, body in places.items() if not body.startswith(COMMAND)}
    shown = _shown(calls)
    calls = sorted(calls, key=lambda call: call.begun)
    ends = [math.inf if call.answer is Lost else call.ended for call in calls]
    required = sum(1 << number for number, call in enumerate(calls) if call.answer is not Lost)
    open_ones = [(0, log) for log in before]
    tried = set(open_ones)
    left: set[Log] = set()
    furthest = 0
    while open_ones:
        if len(tried) > MOST_STATES:
            raise TooManyOrders(f"{MOST_STATES} states were tried for {len(calls)} calls")
        mask, log = open_ones.pop()
        furthest = max(furthest, mask & required, key=int.bit_count)
        if mask & required == required and (last is None or _explains(log, last, done(log, last)[1])):
            left.add(log)
        earliest = math.inf  # end of those not done yet
        possible = []
        for number, call in enumerate(calls):
            if call.begun > earliest:
                break
            if not mask >> number & 1:
                earliest = min(earliest, ends[number])
                possible.append(number)
        for number in possible:
            if calls[number].begun > earliest:
                continue
            after, answer = done(log, calls[number])
            if calls[number].answer is Lost and after == log:
                continue  # as if it had never been made
            if len(after.bodies) > tail or not _explains(log, calls[number], answer):
                continue
            if not _fits(log, after, places, numbers):
                continue
            if last is not None:
                after = _known(after, len(log.bodies), places, shown)
            following = (mask | 1 << number, after)
            if following not in tried:
                tried.add(following)
                open_ones.append(following)
    if not left:
        missing = [call for number, call in enumerate(calls) if required & ~furthest & 1 << number] or [last]
        story = "\n".join(map(str, calls if last is None else [*calls, last]))
        raise NotLinearizable(f"no order explains these calls; the longest leaves out\n{missing[0]}\n{story}")
    return frozenset(left)
