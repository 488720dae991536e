"""Where segments live, and requests to the stores that have them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

import trio

from penstock.backs.retries import RetryPolicy, retrying
from penstock.backs.segment.controller import Address, ControllerClient
from penstock.backs.segment.lines import Kind, Lines
from penstock.backs.segment.settings import SegmentBackSettings
from penstock.backs.upstream import Upstream, UpstreamSettings
from penstock.routing.segments import INTERNAL_BASIN, SegmentName
from penstock_codecs.failures import Failure, FailureCode, OperationFailed
from penstock_codecs.model import StreamRef
from penstock_codecs.segment import Message, draft, released
from penstock_codecs.segment.refusals import refusal

__all__ = ["Make", "Stores"]

T = TypeVar("T")

Make = Callable[[int, str], Message]
"""A request, for a request id and a delegation token."""

_MOST_REMEMBERED: Final = 10_000
"""Segments of which the place, the name or the token is remembered; about 300 bytes each."""


class _Remembered(OrderedDict[str, T]):
    """The latest of what was found out."""

    def keep(self, key: str, value: T) -> T:
        """Remember it, and forget the oldest."""
        self[key] = value
        self.move_to_end(key)
        while len(self) > _MOST_REMEMBERED:
            self.popitem(last=False)
        return value


class Stores:
    """All segment stores of a back. Their lines run in `nursery`; `server` gives the way to one."""

    def __init__(
        self,
        settings: SegmentBackSettings,
        nursery: trio.Nursery,
        controller: ControllerClient | None,
        server: Callable[[UpstreamSettings], Upstream],
    ) -> None:
        self.settings = settings
        self.nursery = nursery
        self.controller = controller
        self._server = server
        self._lines: dict[Address, Lines] = {}
        self._places: _Remembered[Address] = _Remembered()
        self._tokens: _Remembered[str] = _Remembered()
        self._segments: _Remembered[str] = _Remembered()
        self._policy = RetryPolicy(total_seconds=min(settings.recover_seconds, settings.upstream.request_seconds))

    # ---- names -------------------------------------------------------------------------------------------------------

    async def segment_of(self, stream: StreamRef) -> str:
        """The segment that a stream is; with a controller the one that its number 0 has become by now.

        Raises NOT_REPRESENTABLE where segment stores have no name for it.
        """
        name = self.name_of(stream)
        if not self.is_managed(stream, name):
            return str(name)
        found = self._segments.get(str(name))
        if found is None:
            assert self.controller is not None, "it manages the stream"
            found = self._segments.keep(str(name), str(await self.controller.first_segment(name)))
        return found

    def name_of(self, stream: StreamRef) -> SegmentName:
        """The segment that a stream is by its name. Raises NOT_REPRESENTABLE."""
        if stream.basin == INTERNAL_BASIN:
            return SegmentName.parse(stream.stream, self.settings.names.basin)
        return self.settings.names.from_stream(stream)

    def is_managed(self, stream: StreamRef, name: SegmentName) -> bool:
        """Whether the controller creates and deletes it: streams that clients see, not single segments of them."""
        return self.controller is not None and stream.basin != INTERNAL_BASIN and name.id == 0

    def forget_stream(self, stream: StreamRef) -> None:
        """It was created or deleted: what was known about it may be wrong."""
        name = str(self.name_of(stream))
        segment = self._segments.pop(name, name)
        self._places.pop(segment, None)
        self._tokens.pop(segment, None)

    # ---- places ------------------------------------------------------------------------------------------------------

    async def lines(self, segment: str) -> Lines:
        """The lines to the store that has a segment. Raises OperationFailed where the controller does not say."""
        store = self.settings.store
        if store is not None:
            return self._lines_to(Address(store.host, store.port))
        place = self._places.get(segment)
        if place is None:
            assert self.controller is not None, "settings have one of the two"
            name = SegmentName.parse(segment, self.settings.names.basin)
            place = self._places.keep(segment, await self.controller.where(name))
        return self._lines_to(place)

    def add(self, upstream: Upstream) -> Lines:
        """A store that segments may live in."""
        settings = upstream.settings
        lines = self._lines[Address(settings.host, settings.port)] = Lines(upstream, self.settings, self.nursery)
        return lines

    def _lines_to(self, place: Address) -> Lines:
        lines = self._lines.get(place)
        if lines is None:
            settings = replace(self.settings.upstream, host=place.host, port=place.port, protocol="segment")
            lines = self.add(self._server(settings))
        return lines

    def moved(self, segment: str) -> None:
        """The segment is not where it was, or its store cannot be reached: ask anew."""
        self._places.pop(segment, None)

    async def token(self, segment: str) -> str:
        """The delegation token to send with requests about a segment."""
        settings = self.settings
        if settings.delegation_token or settings.username is None or self.controller is None:
            return settings.delegation_token
        found = self._tokens.get(segment)
        if found is None:
            name = SegmentName.parse(segment, settings.names.basin)
            found = self._tokens.keep(segment, await self.controller.token(name))
        return found

    def failure_of(self, reply: Any, lines: Lines, segment: str) -> Failure | None:
        """The failure that a reply says, if any. What is known of the segment's place is given up with it."""
        failure = refusal(reply, lines.upstream.settings.where, segment)
        if isinstance(reply, released.WrongHost | draft.WrongHost):
            self.moved(segment)
        if isinstance(reply, released.AuthTokenCheckFailed):
            self._tokens.pop(segment, None)
        return failure

    # ---- requests ----------------------------------------------------------------------------------------------------

    async def ask(self, segment: str, make: Make, *, idempotent: bool = False) -> Any:
        """The reply to a request about a segment.

        It is asked again where nothing was done, and an `idempotent` request also where that is not known. Raises
        OperationFailed for the replies that say no.
        """
        attempt = partial(self.ask_once, segment, make)
        return await retrying(attempt, self._policy, idempotent=idempotent, back=self.settings.upstream.name)

    async def length(self, segment: str) -> int:
        """Where a segment ends. Raises OperationFailed."""
        reply = await self.ask(
            segment,
            lambda request_id, token: released.GetStreamSegmentInfo(request_id, segment, token),
            idempotent=True,
        )
        return int(reply.write_offset)

    async def ask_once(self, segment: str, make: Make, kind: Kind = Kind.CALLS, seconds: float | None = None) -> Any:
        """The same without asking again, and with another deadline than `request_seconds`."""
        fresh = segment not in self._tokens
        try:
            return await self._ask(segment, make, kind, seconds)
        except OperationFailed as error:
            if error.failure.code is FailureCode.HOT_SERVER:
                self.moved(segment)
            if error.failure.code is FailureCode.PERMISSION_DENIED and not fresh:  # the token was too old, maybe
                return await self._ask(segment, make, kind, seconds)
            raise

    async def _ask(self, segment: str, make: Make, kind: Kind, seconds: float | None) -> Any:
        token = await self.token(segment)
        lines = await self.lines(segment)
        limit = lines.upstream.settings.request_seconds if seconds is None else seconds
        async with lines.use(kind) as line:
            reply = await line.ask(lambda request_id: make(request_id, token), limit)
        failure = self.failure_of(reply, lines, segment)
        if failure is not None:
            raise OperationFailed(failure)
        return reply
