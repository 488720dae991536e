"""The front: serves clients over any back.

One task of a connection takes frames, one for each subscription pushes messages, and one sends heartbeats.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final
from uuid import uuid4

import structlog
import trio

from penstock.core.back import Back, Following
from penstock.model.envelope import wrap
from penstock.model.failures import Failure, FailureCode, OperationFailed, RemoteProtocolError, fail
from penstock.model.features import Feature, feature_of
from penstock.model.names import validate_stream_name
from penstock.model.operations import Append, FromSeqNum, FromTailOffset, Read, Start
from penstock.model.records import Header, Record, StreamRef, metered_size
from penstock.net.draining import Draining
from penstock.net.http.traced import traced_connections
from penstock.net.limits.work import Work
from penstock.net.transport import TooSlow
from penstock.observe.metrics.clients import count_error
from penstock.protocols.links import DuplexLink
from penstock.protocols.opening import ListenerContext, OpenListener
from penstock.routing.access.clients import ClientRules, admit_token, log_in
from penstock.routing.loss.loss import Loss
from penstock.wire.codec import Role
from stomp_front.codec import HEARTBEAT, Frame, StompCodec
from stomp_front.config import StompListener

__all__ = ["StompFront", "open_listener"]

log = structlog.get_logger()

NOT_OF_THE_RECORD: Final = frozenset({"destination", "receipt", "content-length", "transaction"})
"""Headers of SEND that are not headers of the record; and those of MESSAGE, which a record cannot replace."""
OF_A_MESSAGE: Final = frozenset({"subscription", "message-id", "destination", "ack", "content-length"})
MODES: Final = ("auto", "client", "client-individual")


class StompFront:
    """Serves connections over one back."""

    def __init__(self, back: Back, table: StompListener, clients: ClientRules) -> None:
        self.back = back
        self.table = table
        self.clients = clients
        self.draining = Draining()

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Serve one connection to its end."""
        codec = StompCodec(Role.SERVER)
        limits = self.table.limits
        link = DuplexLink(
            stream,
            codec,
            self.draining,
            send_timeout=limits.send_timeout_seconds,
            idle_timeout=limits.idle_timeout_seconds,
        )
        try:
            await _Connection(self, link, codec).run()
        except* (trio.BrokenResourceError, trio.ClosedResourceError, TooSlow) as lost:
            log.debug("connection_lost", reason=type(lost.exceptions[0]).__name__)
        finally:
            await link.cut()


def open_listener(context: ListenerContext, label: str, table: StompListener) -> OpenListener:
    """See `penstock.protocols.plugin.ListenerKind.open`."""
    back = context.back(label, tokens=True)
    clients = context.clients(table.auth_tokens, anonymous=table.anonymous, passwords=True)
    front = StompFront(context.faulty(back, label, throttled_whole=True), table, clients)
    return OpenListener(traced_connections(front.serve), front.draining.begin, (back,), ())


class _Subscription:
    """One subscription. `credit`: messages that may be sent before one is acknowledged; None: any number."""

    def __init__(self, frame: Frame, stream: StreamRef, prefetch: int) -> None:
        self.name = _required(frame, "id")
        self.destination = _required(frame, "destination")
        self.stream = stream
        self.mode = frame.header("ack") or "auto"
        if self.mode not in MODES:
            raise _refused(f"ack:{self.mode[:32]} is none of {', '.join(MODES)}")
        count = _number(frame, "prefetch-count") or prefetch
        self.credit = None if self.mode == "auto" else trio.Semaphore(count)
        self.unacknowledged: OrderedDict[str, None] = OrderedDict()
        self.scope = trio.CancelScope()

    def start(self, frame: Frame) -> Start:
        """Return where it begins."""
        offset = frame.header("x-stream-offset")
        if offset in (None, "next"):
            return FromTailOffset(0)
        return FromSeqNum(0 if offset == "first" else _number(frame, "x-stream-offset"))

    def acknowledge(self, name: str) -> None:
        """Give back the credit of a message; with `ack:client`, of all before it, too."""
        assert self.credit is not None, "only these have names"
        names = list(self.unacknowledged)
        first = 0 if self.mode == "client" else names.index(name)
        for acknowledged in names[first : names.index(name) + 1]:
            del self.unacknowledged[acknowledged]
            self.credit.release()


class _Connection:
    def __init__(self, front: StompFront, link: DuplexLink[Frame], codec: StompCodec) -> None:
        self._front = front
        self._link = link
        self._codec = codec
        self._subscriptions: dict[str, _Subscription] = {}
        self._nursery: trio.Nursery

    async def run(self) -> None:
        """Serve the connection from CONNECT to the last frame."""
        async with trio.open_nursery() as self._nursery:
            self._link.begin(self._nursery)
            try:
                await self._connect()
                while (frame := await self._link.next_message(lambda: bool(self._subscriptions))) is not None:
                    await self._execute(frame)
                    if (receipt := frame.header("receipt")) is not None:
                        self._send("RECEIPT", ("receipt-id", receipt))
                    if frame.command == "DISCONNECT":
                        break
                    await self._link.room()
            except (OperationFailed, RemoteProtocolError) as error:
                self._refuse(error.failure)
            await self._link.flush()
            self._nursery.cancel_scope.cancel()
        await self._link.close()

    # ---- frames of the client ----------------------------------------------------------------------------------------

    async def _connect(self) -> None:
        """Take the first frame. Raises AUTHN and others."""
        if (frame := await self._link.next_message()) is None:
            return
        if frame.command not in ("CONNECT", "STOMP"):
            raise _refused(f"{frame.command} comes before CONNECT")
        if "1.2" not in (frame.header("accept-version") or "").split(","):
            raise _refused("the gateway speaks STOMP 1.2 alone (accept-version)")
        name, passcode = frame.header("login") or "", frame.header("passcode") or ""
        try:
            if passcode:
                await log_in(name, passcode, self._front.clients)
            else:
                admit_token("", self._front.clients)
        except OperationFailed as error:
            if error.failure.code is FailureCode.AUTHN:
                self._link.quota.login_failed()
            raise
        own = int(self._front.table.heartbeat_seconds * 1000)
        sends, wants = _heartbeats(frame)
        self._send(
            "CONNECTED",
            ("version", "1.2"),
            ("heart-beat", f"{own},{own}"),
            ("session", uuid4().hex),
            ("server", "penstock"),
        )
        if sends:
            self._link.expect_within(2 * max(sends, own) / 1000)
        if wants:
            self._nursery.start_soon(self._link.beat, max(wants, own) / 1000, (HEARTBEAT,))

    async def _execute(self, frame: Frame) -> None:
        match frame.command:
            case "SEND":
                await self._append(frame)
            case "SUBSCRIBE":
                self._subscribe(frame)
            case "UNSUBSCRIBE":
                if (subscription := self._subscriptions.pop(_required(frame, "id"), None)) is not None:
                    subscription.scope.cancel()
            case "ACK":
                name = _required(frame, "id")
                of_subscription = self._subscriptions.get(name.rpartition("@")[0])
                if of_subscription is not None and name in of_subscription.unacknowledged:
                    of_subscription.acknowledge(name)
            case "DISCONNECT":
                pass
            case command:
                raise _refused(f"{command} is not supported: streams have neither redelivery nor transactions")

    async def _append(self, frame: Frame) -> None:
        if frame.header("transaction") is not None:
            raise _refused("transactions are not supported")
        headers = tuple(
            Header(name.encode(), value.encode()) for name, value in frame.headers if name not in NOT_OF_THE_RECORD
        )
        by_record = {0: headers} if headers else {}
        stream = self._stream(_required(frame, "destination"))
        await self._front.back.perform(
            Append(stream, [frame.body], metered_size([frame.body], by_record), headers=by_record)
        )

    def _subscribe(self, frame: Frame) -> None:
        table = self._front.table
        stream = self._stream(_required(frame, "destination"))
        subscription = _Subscription(frame, stream, table.prefetch)
        if subscription.name in self._subscriptions:
            raise _refused(f"there is a subscription {subscription.name[:64]!r}")
        if len(self._subscriptions) >= table.limits.max_subscriptions:
            self._link.quota.limited("max_subscriptions")
            raise fail(
                FailureCode.LIMIT_EXCEEDED, f"a connection has at most {table.limits.max_subscriptions} subscriptions"
            )
        self._subscriptions[subscription.name] = subscription
        self._nursery.start_soon(self._push, subscription, subscription.start(frame))

    def _stream(self, destination: str) -> StreamRef:
        name = validate_stream_name(destination.removeprefix("/"), FailureCode.INVALID)
        return StreamRef(self._front.table.basin, name)

    # ---- messages to the client --------------------------------------------------------------------------------------

    async def _push(self, subscription: _Subscription, start: Start) -> None:
        """Send the records of a stream until the subscription ends."""
        work = Work(self._link.quota)
        with subscription.scope:
            try:
                async with self._front.back.read_session(Read(subscription.stream, start, clamp=True)) as session:
                    while (batch := await session.next()) is not None:
                        if isinstance(batch, Following):
                            continue
                        async for record in work.each(batch.records()):
                            if (frame := self._message(subscription, record)) is not None:
                                if subscription.credit is not None:
                                    await subscription.credit.acquire()
                                self._link.send(self._codec.send(frame))
                                await self._link.room()
            except OperationFailed as error:
                self._refuse(error.failure)

    def _message(self, subscription: _Subscription, record: Record) -> Frame | None:
        """Return the frame of a record; None if it is dropped. Raises NOT_REPRESENTABLE."""
        headers, body = record.headers, record.body
        feature = feature_of(headers, body)
        try:
            texts = tuple((name.decode(), value.decode()) for name, value in headers)
            lost = feature is Feature.COMMAND or any(name in OF_A_MESSAGE for name, _ in texts)
        except UnicodeDecodeError:
            texts, lost = (), True
        if lost and feature is not None:
            match self._front.table.loss.policy.about(feature):
                case Loss.REFUSE:
                    raise fail(
                        FailureCode.NOT_REPRESENTABLE,
                        f"record {record.seq_num} {feature.value}, which no frame can carry",
                    )
                case Loss.ENVELOPE:
                    texts, body = (), wrap(headers, body)
                case Loss.DROP if feature is Feature.COMMAND:
                    return None
                case Loss.DROP:
                    texts = ()
        of_message = [
            ("subscription", subscription.name),
            ("message-id", str(record.seq_num)),
            ("destination", subscription.destination),
        ]
        if subscription.credit is not None:
            name = f"{subscription.name}@{record.seq_num}"
            subscription.unacknowledged[name] = None
            of_message.append(("ack", name))
        return Frame("MESSAGE", (*of_message, *texts), body)

    def _send(self, command: str, *headers: tuple[str, str]) -> None:
        self._link.send(self._codec.send(Frame(command, headers)))

    def _refuse(self, failure: Failure) -> None:
        """Send ERROR, behind which the connection ends."""
        if failure.code is FailureCode.CLIENT_HANGUP:
            return
        count_error(failure.code)
        log.info("request_refused", code=failure.code.value, reason=failure.message)
        self._send("ERROR", ("message", f"{failure.code.value}: {failure.message}"))
        self._link.end()


def _refused(reason: str) -> OperationFailed:
    return fail(FailureCode.INVALID, reason)


def _required(frame: Frame, name: str) -> str:
    if (value := frame.header(name)) is None:
        raise _refused(f"{frame.command} lacks the header {name}")
    return value


def _number(frame: Frame, name: str) -> int:
    text = frame.header(name) or "0"
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise _refused(f"{name}:{text[:32]} is no number")
    return int(text)


def _heartbeats(frame: Frame) -> tuple[int, int]:
    """Return the ms after which the client sends a heartbeat, and those after which it wants one; 0: none."""
    sends, comma, wants = (frame.header("heart-beat") or "0,0").partition(",")
    if not (comma and sends.isdigit() and wants.isdigit() and len(sends) + len(wants) < 20):
        raise _refused("heart-beat is no pair of numbers")
    return int(sends), int(wants)
