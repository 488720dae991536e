"""The replay of a capture: its events become items of conversations, and each conversation has a player."""

from __future__ import annotations

import math
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from itertools import islice
from typing import Final

import msgspec
import trio
from msgspec.structs import replace

from penstock.capture.assigned_ids import AssignedIds
from penstock.capture.dialogue import Dialogue, Message
from penstock.capture.dialogue.choosing import dialogue_for
from penstock.capture.pcapng import CaptureEvent, Chunk, Closed, Conversation, Joined, Lost, Opened, Sender, Side
from penstock.capture.plugin import plugins
from penstock.net.tls import ClientTls
from penstock.net.upstream import Dial
from penstock.protocols.plugin import listener_kinds
from penstock.protocols.servers import Server
from penstock.recorder.captures.opening import CaptureEvents
from penstock.tools.replay import AS_RECORDED, PATIENCE_SECONDS
from penstock.tools.replay.items import ClientSent, Finish, Item, Over, ServerGave
from penstock.tools.replay.live import (
    ExchangeNumbers,
    Live,
    LiveBytes,
    LiveExchanges,
    Rewritten,
    live_conversation,
    reach,
    upstream_of,
)
from penstock.tools.replay.player import PlaybackBuffer, Player, ReplayPace, ReplayState, RequestsInFlight, Turns
from penstock.tools.replay.recorded import RecordedBytes, RecordedConversation, RecordedExchanges, is_http, protocol_of
from penstock.tools.replay.report import ReplaySummary, ReplayTally, Report
from penstock.tools.target.back import TargetOptions
from penstock.tools.target.gateway import LazyGateway
from penstock.wire.http import PREFACE, Reset

__all__ = ["PlayedParts", "Replay", "ReplaySettings", "capture_events", "moment"]

_AT_ONCE: Final = 256
"""Events fetched together: a hop between threads costs about as much as twenty of them."""
_NANOSECONDS: Final = 1_000_000_000
Events = Callable[[], AsyncGenerator[CaptureEvent, None]]
MOST_HELD = 64
"""Events of a conversation that are held until its protocol is known."""


async def capture_events(captures: CaptureEvents) -> AsyncGenerator[CaptureEvent, None]:
    """Yield all events, in order. Raises UnreadableCapture.

    Events from a pipe are yielded as they arrive; on cancellation a silent pipe is not waited for.
    """
    events = iter(captures)
    count = 1 if captures.live else _AT_ONCE
    while some := await trio.to_thread.run_sync(lambda: list(islice(events, count)), abandon_on_cancel=captures.live):
        for event in some:
            yield event


class PlayedParts(msgspec.Struct, frozen=True):
    """The criteria, all of which must hold.

    `side`: FRONT or BACK; conversations that no gateway recorded count for either. `connections`: numbers; empty: all.
    `streams`: globs over names as `penstock show` spells them, with or without the basin. `since_ns`, `until_ns`: the
    times between which messages begin.
    """

    side: Side = Side.FRONT
    connections: frozenset[int] = frozenset()
    streams: Sequence[str] = ()
    since_ns: int | None = None
    until_ns: int | None = None

    def unwanted(self, conversation: Conversation) -> str:
        """Return why a conversation is not played; "" if it is."""
        if conversation.side not in (self.side, Side.FOREIGN):
            return f"they are of the {conversation.side.value} side (--side)"
        if self.connections and conversation.number not in self.connections:
            return "they were not asked for (--connection)"
        return ""

    def wants(self, message: Message) -> bool:
        """Return whether a message is played. Messages that concern no stream always are."""
        if self.since_ns is not None and message.start_ns < self.since_ns:
            return False
        return not self.streams or not message.stream or any(map(self._matches, _spellings(message.stream)))

    def _matches(self, name: str) -> bool:
        return any(fnmatchcase(name, glob) for glob in self.streams)


def _spellings(stream: str) -> list[str]:
    """Return a name, the name without its basin or scope, and both without a segment's number."""
    names = [stream]
    head, _, last = stream.rpartition("/")
    if ".#epoch." in last:
        names.append(head)
    return names + [name.partition("/")[2] for name in names if "/" in name]


def moment(text: str, start_ns: int) -> int:
    """Parse a time, RFC 3339 or seconds after `start_ns`, to ns since 1970. Raises ValueError."""
    try:
        return start_ns + int(float(text) * _NANOSECONDS)
    except (ValueError, OverflowError):
        pass
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither a number of seconds nor a time such as 2026-01-31T12:00:00Z") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return int(time.timestamp() * 1_000_000) * 1000


class ReplaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a replay.

    `options`: of the target; renames may have `{loop}`, the number of the run, in their templates. `speed`, `rate`: see
    `ReplayPace`. `together`: conversations wait for each other, in the order of the capture, instead of each playing by
    itself. `patience`: seconds for each wait. `gives_up`: end a conversation when a wait runs out. `since`, `until`:
    seconds from the start of the capture, or RFC 3339. `loops`: number of runs. `through`: use a gateway in this
    process even for protocols that the target speaks.
    """

    options: TargetOptions = msgspec.field(default_factory=TargetOptions)
    parts: PlayedParts = msgspec.field(default_factory=PlayedParts)
    speed: float = AS_RECORDED
    rate: float | None = None
    together: bool = True
    patience: float = PATIENCE_SECONDS
    gives_up: bool = False
    since: str | None = None
    until: str | None = None
    loops: int = 1
    through: bool = False


class _Playing:
    """A recorded conversation, and its player once its protocol is known."""

    __slots__ = ("closed", "held", "left_out", "player", "recorded", "report")

    def __init__(self) -> None:
        self.held: list[CaptureEvent] = []
        """Events before the protocol is known."""
        self.recorded: RecordedConversation | None = None
        self.player: Player | None = None
        self.report: Report | None = None
        self.closed: set[Sender] = set()
        self.left_out = False

    def closes(self, event: CaptureEvent) -> bool:
        """Return whether the event is the last one of the conversation."""
        if isinstance(event, Lost):
            return not event.length
        if not isinstance(event, Closed):
            return False
        self.closed.add(event.sender)
        return event.reset or len(self.closed) == len(Sender)


class Replay:
    """The replay of a capture to a target. `events` starts from the beginning for each loop. `dial`: to the target,
    instead of over TCP."""

    def __init__(
        self, target: Server, events: Events, settings: ReplaySettings | None = None, dial: Dial | None = None
    ) -> None:
        self._target = target
        self._dial = dial
        self._events = events
        self._settings = settings or ReplaySettings()
        self.summary = ReplaySummary()
        """The report, complete when `run` has returned."""

    async def run(self) -> ReplaySummary:
        """Play the capture, in all loops. Raises CannotStart for files that cannot be used and for a target that cannot
        be reached, ValueError for invalid times."""
        tls = ClientTls(self._settings.options.tls_ca) if self._target.tls else None
        for loop in range(1, self._settings.loops + 1):
            settings = _of_loop(self._settings, loop)
            async with LazyGateway(self._target, settings.options) as gateway:
                run = _Run(self._target, settings, self.summary, gateway, tls, self._dial)
                async with aclosing(self._events()) as events:
                    await run.play(events)
        return self.summary


def _of_loop(settings: ReplaySettings, loop: int) -> ReplaySettings:
    renames = tuple((pattern, template.replace("{loop}", str(loop))) for pattern, template in settings.options.renames)
    return replace(settings, options=replace(settings.options, renames=renames))


class _Run:
    """One run through the capture."""

    def __init__(
        self,
        target: Server,
        settings: ReplaySettings,
        summary: ReplaySummary,
        gateway: LazyGateway,
        tls: ClientTls | None,
        dial: Dial | None,
    ) -> None:
        self._target = target
        self._settings = settings
        self._summary = summary
        self._gateway = gateway
        self._tls = tls
        self._dial = dial
        self._reached = dial is not None
        pace = ReplayPace(settings.speed, settings.rate)
        self._stage = ReplayState(
            turns=Turns(settings.together),
            pace=pace,
            ahead=PlaybackBuffer(),
            patience=settings.patience,
            gives_up=settings.gives_up,
        )
        self._requests = RequestsInFlight()
        self._ids = AssignedIds(secrets.token_bytes(16))
        self._parts = settings.parts
        self._until_ns: float = math.inf
        self._now = 0
        self._records = 0
        self._playing: dict[Conversation, _Playing] = {}

    async def play(self, events: AsyncIterator[CaptureEvent]) -> None:
        """Read and play the capture; returns when all is played. Exceptions are raised as they are, not in a group."""
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            try:
                await self._read(events, nursery)
            except Exception as error:
                failure = error
                nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        self._summary.reached = self._summary.reached or self._gateway.reached
        self._summary.late_seconds = max(self._summary.late_seconds, self._stage.pace.latest)

    async def _read(self, events: AsyncIterator[CaptureEvent], nursery: trio.Nursery) -> None:
        async for event in events:
            if not self._now:
                self._begin(event.time_ns)
            self._now = max(self._now, event.time_ns)
            if self._now > self._until_ns:
                break
            await self._take(event, nursery)
        for playing in self._playing.values():
            await self._end(playing)

    def _begin(self, start_ns: int) -> None:
        settings = self._settings
        if settings.since is not None:
            self._parts = replace(self._parts, since_ns=moment(settings.since, start_ns))
        if settings.until is not None:
            self._until_ns = moment(settings.until, start_ns)

    # ---- events --------------------------------------------------------------------------------------------------

    async def _take(self, event: CaptureEvent, nursery: trio.Nursery) -> None:
        playing = self._playing.get(event.conversation)
        if playing is None:
            if not isinstance(event, Opened | Chunk):
                return  # of a conversation that has ended
            playing = self._playing[event.conversation] = _Playing()
        if playing.recorded is not None:
            await self._hear(playing, [event])
        elif not playing.left_out:
            playing.held.append(event)
            await self._decide(event.conversation, playing, nursery)
        if playing.closes(event):
            await self._end(self._playing.pop(event.conversation))

    async def _decide(self, conversation: Conversation, playing: _Playing, nursery: trio.Nursery) -> None:
        """Begin to play a conversation once its protocol is known, or leave it out."""
        protocol = protocol_of(conversation, playing.held)
        unwanted = self._parts.unwanted(conversation)
        if protocol is None and not unwanted and len(playing.held) < MOST_HELD:
            return
        protocol = protocol or ""
        whole = protocol in listener_kinds() and listener_kinds()[protocol].from_its_beginning
        if whole and self._parts.since_ns is not None and self._now < self._parts.since_ns:
            unwanted = unwanted or "they began before the time that was asked for (--from)"
        reason = unwanted
        if protocol not in listener_kinds():
            reason = reason or (
                f"nothing plays what they speak ({protocol})" if protocol else "what they speak is not known"
            )
        if reason:
            self._summary.count_left_out(reason, wanted=not unwanted)
            playing.left_out = True
            playing.held.clear()
            return
        playing.report = Report(conversation, protocol)
        if is_http(protocol):
            playing.recorded = RecordedExchanges(conversation, self._parts.wants)
        else:
            dialogue = dialogue_for(replace(conversation, protocol=protocol))
            numbered = plugins()[protocol].numbered_requests
            playing.recorded = RecordedBytes(conversation, dialogue, self._parts.wants, numbered)
        live, tally = await self._live(conversation, protocol, playing.report, _first(playing.held))
        if not self._reached:
            await reach(self._target, self._tls)
            self._reached = True
        playing.player = Player(self._stage, live, tally, playing.report)
        nursery.start_soon(self._run_player, playing.player, playing.report)
        held, playing.held = playing.held, []
        await self._hear(playing, held)

    async def _run_player(self, player: Player, report: Report) -> None:
        try:
            await player.run()
        finally:
            self._summary.add(report)

    async def _hear(self, playing: _Playing, events: Iterable[CaptureEvent]) -> None:
        assert playing.recorded is not None
        for event in events:
            before = playing.recorded.records
            await self._put(playing, playing.recorded.receive(event))
            self._records += playing.recorded.records - before

    async def _put(self, playing: _Playing, items: Iterator[Item]) -> None:
        assert playing.player is not None
        for item in items:
            item.time_ns = self._now
            self._note_requests(playing, item)
            if isinstance(item, ClientSent):
                item.records = self._records
            await playing.player.put(item)

    def _note_requests(self, playing: _Playing, item: Item) -> None:
        requests, together = self._requests, self._settings.together
        match item:
            case ClientSent(exchange=int(exchange)):
                requests.begin(playing, exchange)
            case ClientSent(move=Reset(stream_id=exchange)):
                requests.end(playing, exchange)
            case ServerGave(exchange=None):
                item.alone = together and requests.is_alone(playing, item.asked)
                requests.end(playing, item.asked)
            case Over():
                item.alone = together and requests.is_alone(playing, item.exchange)
                requests.end(playing, item.exchange)
            case Finish():
                requests.end(playing, None)
            case _:
                pass

    async def _end(self, playing: _Playing) -> None:
        self._requests.end(playing, None)
        if playing.left_out:
            return
        if playing.recorded is None:
            has_client_bytes = any(isinstance(event, Chunk) and event.sender is Sender.CLIENT for event in playing.held)
            reason = (
                "their clients said too little to tell what they speak"
                if has_client_bytes
                else "their clients said nothing"
            )
            self._summary.count_left_out(reason, wanted=has_client_bytes)
            return
        await self._put(playing, playing.recorded.end())
        assert playing.player is not None and playing.report is not None
        for problem in playing.recorded.problems:
            playing.report.leave_out(problem)
        if playing.report.way == "translated" and playing.recorded.raw is not None:
            playing.report.leave_out(f"not said again over another protocol: {playing.recorded.raw}")
        playing.player.end()

    # ---- connections ---------------------------------------------------------------------------------------------

    async def _live(
        self, conversation: Conversation, protocol: str, report: Report, first: bytes
    ) -> tuple[Live, ReplayTally]:
        """Return a connection that is not yet made: to the target, or to the front of a gateway before it."""
        target, options = self._target, self._settings.options
        direct = self._direct(protocol, first)
        report.way = "direct" if direct else "translated"
        dial = self._dial if direct else await self._to_front(protocol)
        tls = self._tls if direct else None
        shown = live_conversation(conversation, protocol, target)

        def new_dialogue() -> Dialogue:
            return dialogue_for(shown)

        if not is_http(protocol):
            numbers = ExchangeNumbers(plugins()[protocol].numbered_requests)
            tally = ReplayTally(new_dialogue, report, numbers.recorded, by_exchange=False, ids=self._ids)
            upstream = upstream_of(target, tls, tally, shown, dial)
            make = plugins()[protocol].reassigned
            return LiveBytes(upstream, tally, numbers.sent, bytes if make is None else make(self._ids)), tally
        token = options.token if direct else None
        basin = target.space if direct else None
        scheme = "https" if direct and target.tls else "http"
        patience = self._settings.patience
        rewritten = Rewritten(str(target.address), scheme, token, basin, listener_kinds()[protocol].replayed_headers)
        live: LiveExchanges
        tally = ReplayTally(
            new_dialogue, report, lambda exchange: live.recorded(exchange), by_exchange=True, ids=self._ids
        )
        upstream = upstream_of(target, tls, tally, shown, dial)
        live = LiveExchanges(upstream, tally, rewritten, "2" if first.startswith(b"PRI") else "1.1", patience)
        return live, tally

    def _direct(self, protocol: str, first: bytes) -> bool:
        """Return whether messages are sent as recorded: the target speaks the same protocol, and no names change on the
        way."""
        target, settings = self._target, self._settings
        if settings.through or settings.options.renames or target.kind.protocol != protocol:
            return False
        return target.kind.takes_recorded(target, first)

    async def _to_front(self, protocol: str) -> Dial:
        gateway = await self._gateway.get()

        async def dial(_host: str, _port: int) -> trio.abc.Stream:
            return await gateway.connect(protocol)

        return dial


def _first(events: Sequence[CaptureEvent]) -> bytes:
    """Return the client's first bytes, which identify the version of HTTP or the dialect of another protocol."""
    if any(isinstance(event, Joined) and event.version == "2" for event in events):
        return PREFACE
    return b"".join(
        bytes(event.data[:8]) for event in events if isinstance(event, Chunk) and event.sender is Sender.CLIENT
    )
