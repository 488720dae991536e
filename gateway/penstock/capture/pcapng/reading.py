"""Decode the bytes of a capture file to capture events, in bounded memory, whatever the size of the file.

Reads files of `writing` and of tcpdump, dumpcap and Wireshark: any byte order, several sections, IPv4 and IPv6 over raw
IP, Ethernet, Linux cooked and loopback links. Segments out of order or sent twice are put in order within `window`
bytes of each side, and missing ones become `Lost`. From a file that ends in the middle of a block, as after its writer
was killed, all complete packets are read, and `damage` describes the fault and its place.

Conversations that no gateway recorded are judged by TCP alone. The side that spoke first is the client; if no SYN was
captured, the one with the higher port is, and offsets are sequence numbers, since the number of earlier bytes is
unknown.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Final

from penstock.capture.pcapng.assembly import Half, ReassemblyBudget
from penstock.capture.pcapng.events import (
    CaptureEvent,
    Closed,
    Conversation,
    Lost,
    Noted,
    Opened,
    Sender,
    SocketAddress,
    Withheld,
)
from penstock.capture.pcapng.files import Packet, PacketFile
from penstock.capture.pcapng.headers import ACK, FIN, RESET, SYN
from penstock.capture.pcapng.joining import KEY, JoinedParts
from penstock.capture.pcapng.notes import conversation_of, parse_note, parse_number
from penstock.capture.pcapng.packets import Ignored, TcpSegment, parse_packet
from penstock.model.limits import MIB

__all__ = ["MAX_CONVERSATIONS", "WINDOW_BYTES", "CaptureReader"]

WINDOW_BYTES: Final = 1 * MIB
"""Most bytes of one side held while bytes before them are missing."""
HELD_BYTES: Final = 64 * MIB
"""Most bytes of all conversations together that are held so."""
MAX_CONVERSATIONS: Final = 100_000
"""Most conversations that are open at once; of more, those that were silent for long are forgotten."""
MAX_CLOSED: Final = 10_000
"""Closed conversations that are remembered to recognize late segments."""

_SENDERS: Final = {sender.value: sender for sender in Sender}
_SPACE: Final = 1 << 32

Key = tuple[int, bytes]
"""An interface, and a segment's ends."""


class _Tracked:
    """A conversation whose segments are being put in order."""

    __slots__ = ("client", "conversation", "keys", "ours", "parts", "server")

    def __init__(
        self, conversation: Conversation, keys: tuple[Key, Key], window: int, holding: ReassemblyBudget, ours: bool
    ) -> None:
        self.conversation = conversation
        self.keys = keys
        """Keys of its client's and its server's segments."""
        self.ours = ours
        self.parts: JoinedParts | None = None
        self.client = Half(conversation, Sender.CLIENT, window, holding)
        self.server = Half(conversation, Sender.SERVER, window, holding)


class CaptureReader:
    """Decoder of one file: bytes in, events out. Never raises because of a file's bytes; see `damage`."""

    def __init__(
        self, window: int = WINDOW_BYTES, max_conversations: int = MAX_CONVERSATIONS, held: int = HELD_BYTES
    ) -> None:
        self._file = PacketFile()
        self._window = window
        self._holding = ReassemblyBudget(held)
        self._most = max_conversations
        self._tracked: dict[Key, tuple[_Tracked, Half, Half]] = {}
        """For each direction its conversation, its own half, and its peer's."""
        self._open: OrderedDict[_Tracked, None] = OrderedDict()
        """Open conversations, longest silent first."""
        self._closed: dict[Key, None] = {}
        self._ours: dict[tuple[str, int], _Tracked] = {}
        """Those that a gateway recorded, by run and number."""
        self._foreign = 0
        self._at_end = False
        self.ignored: dict[str, int] = {}
        """Packets that say nothing here, as ARP, UDP and fragments: how many, by why."""

    @property
    def damage(self) -> str | None:
        """Fault of the file and its byte, or None if there is none so far. No event follows it."""
        return self._file.damage

    @property
    def recognized(self) -> bool:
        """True if the file's first bytes are those of a capture."""
        return self._file.recognized

    def next_file(self) -> str | None:
        """Start the next file of the same recording: conversations continue in it as the same objects. Return the
        damage of the file that has ended; from now on `damage` is that of the next."""
        self._file.receive(b"")
        for _ in self._file.packets():  # all were given; this judges the end
            pass
        damage = self._file.damage
        self._file = PacketFile()
        return damage

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Take the next bytes of the file; b"" marks its end."""
        self._file.receive(data)
        self._at_end = not len(data)

    def events(self) -> Iterator[CaptureEvent]:
        """Yield the events of the bytes received so far; exhaust it before the next `receive`."""
        out: list[CaptureEvent] = []
        for packet in self._file.packets():
            try:
                if packet.link is None:
                    raise Ignored("unknown interface")
                segment = parse_packet(packet.link, packet.buffer, packet.start, packet.end, packet.cut)
            except Ignored as reason:
                self._ignore(str(reason))
                continue
            self._take(packet, segment, out)
            if out:
                yield from out
                out.clear()
        if self._at_end:
            for tracked in self._open:
                tracked.client.flush(out)
                tracked.server.flush(out)
                yield from out
                out.clear()
            self._open.clear()
            self._tracked.clear()
            self._ours.clear()

    def _ignore(self, reason: str) -> None:
        self.ignored[reason] = self.ignored.get(reason, 0) + 1

    def _take(self, packet: Packet, segment: TcpSegment, out: list[CaptureEvent]) -> None:
        time_ns, key, flags = packet.time_ns, (packet.interface, segment.key), segment.flags
        for comment in packet.comments:
            self._comment(comment, time_ns, key, segment, out)
        entry = self._tracked.get(key)
        sequence, start, end = segment.sequence, segment.start, segment.end
        if flags & SYN:
            sequence = (sequence + 1) % _SPACE
            if entry is None or not entry[0].ours:
                entry = self._synchronize(entry, time_ns, key, segment, out)
        if entry is None:
            if end <= start or key in self._closed:
                return
            entry = self._begin_in_middle(time_ns, key, segment, out)
        tracked, half, peer = entry
        self._open.move_to_end(tracked)
        if flags & ACK and not peer.anchored:
            peer.anchor(segment.acknowledgement, peer.next)
        if (end > start or segment.cut or flags & FIN) and (tracked.ours or not half.finished):
            half.segment(time_ns, sequence, packet.buffer[start:end], segment.cut, out, bool(flags & FIN))
        if flags & RESET:
            self._forget(tracked, out)
            out.append(Closed(tracked.conversation, time_ns, _sender(tracked, half), reset=True))
        elif half.finished and peer.finished:
            self._forget(tracked, out)

    # ---- conversations that we recorded --------------------------------------------------------------------------

    def _comment(self, comment: bytes, time_ns: int, key: Key, segment: TcpSegment, out: list[CaptureEvent]) -> None:
        pairs = parse_note(comment)
        if pairs is None:
            self._ignore("comment")
            return
        if "side" in pairs:
            self._identified(pairs, time_ns, key, segment, out)
            return
        entry = self._tracked.get(key)
        if entry is None or not entry[0].ours or entry[0].conversation.number != parse_number(pairs, "connection"):
            self._ignore("comment")
            return
        tracked = entry[0]
        if "lost" in pairs:
            self._lost(tracked, pairs, time_ns, out)
            return
        if "withheld" in pairs:
            sender, at, length = (
                _SENDERS.get(pairs["withheld"]),
                parse_number(pairs, "at"),
                parse_number(pairs, "length"),
            )
            if sender is None or at is None or length is None:
                self._ignore("comment")
            else:
                out.append(Withheld(tracked.conversation, time_ns, sender, at, length))
            return
        del pairs["connection"]
        if KEY in pairs:
            try:
                tracked.parts = tracked.parts or JoinedParts()
                joined = tracked.parts.add(pairs.pop(KEY), tracked.conversation, time_ns)
            except ValueError:
                self._ignore("comment")
            else:
                out += [] if joined is None else [joined]
        out += [Noted(tracked.conversation, time_ns, name, value) for name, value in pairs.items()]

    def _identified(
        self, pairs: dict[str, str], time_ns: int, key: Key, segment: TcpSegment, out: list[CaptureEvent]
    ) -> None:
        ends = _ends(segment.key)
        offsets = parse_number(pairs, "client_offset"), parse_number(pairs, "server_offset")
        conversation = conversation_of(pairs, *ends)
        if conversation is None or offsets[0] is None or offsets[1] is None:
            self._ignore("comment")
            return
        continued = pairs.get("continued") == "yes"
        earlier = self._ours.get((conversation.run, conversation.number))
        if earlier is not None and _same(earlier.conversation, conversation):
            self._forget(earlier, out)
            if continued or any(offsets):
                conversation = earlier.conversation
        entry = self._tracked.get(key)
        # Another gateway's may go on in its next file: networks of containers are all alike.
        if entry is not None and not (entry[0].ours and entry[0].conversation.run != conversation.run):
            self._forget(entry[0], out)
        tracked = self._track(conversation, key, True, out, time_ns)
        client_offset, server_offset = offsets[0], offsets[1]
        tracked.client.anchor((segment.sequence + bool(segment.flags & SYN)) % _SPACE, client_offset)
        tracked.server.next = server_offset
        if segment.flags & ACK:
            tracked.server.anchor(segment.acknowledgement, server_offset)
        out.append(Opened(conversation, time_ns, client_offset, server_offset, continued))

    def _lost(self, tracked: _Tracked, pairs: dict[str, str], time_ns: int, out: list[CaptureEvent]) -> None:
        sender, at, length = _SENDERS.get(pairs["lost"]), parse_number(pairs, "at"), parse_number(pairs, "length")
        if sender is None or at is None or length is None:
            self._ignore("comment")
            return
        half = tracked.client if sender is Sender.CLIENT else tracked.server
        if not length:
            at = max(at, half.next)
        half.lose(time_ns, at, length, pairs.get("reason", ""), out)
        if not length:
            self._forget(tracked, out)

    # ---- all conversations ---------------------------------------------------------------------------------------

    def _synchronize(
        self,
        entry: tuple[_Tracked, Half, Half] | None,
        time_ns: int,
        key: Key,
        segment: TcpSegment,
        out: list[CaptureEvent],
    ) -> tuple[_Tracked, Half, Half]:
        """Handle a SYN that no gateway wrote: a new conversation, or a retransmission."""
        first = (segment.sequence + 1) % _SPACE
        answers = bool(segment.flags & ACK)
        if entry is not None:
            tracked, half, _peer = entry
            if half.begins_at(first):
                return entry
            if answers and half is tracked.server and not half.anchored:
                half.anchor(first, 0)
                return entry
            self._forget(tracked, out)
        tracked = self._begin(key, segment, answers, out, time_ns)
        entry = self._tracked[key]
        entry[1].anchor(first, 0)
        if answers:
            entry[2].anchor(segment.acknowledgement, 0)
        out.append(Opened(tracked.conversation, time_ns))
        return entry

    def _begin_in_middle(
        self, time_ns: int, key: Key, segment: TcpSegment, out: list[CaptureEvent]
    ) -> tuple[_Tracked, Half, Half]:
        """Begin a conversation whose beginning was not captured: offsets are its sequence numbers."""
        ends = _ends(segment.key)
        tracked = self._begin(key, segment, ends[0].port < ends[1].port, out, time_ns)
        entry = self._tracked[key]
        entry[1].anchor(segment.sequence, segment.sequence or _SPACE)
        if segment.flags & ACK:
            entry[2].anchor(segment.acknowledgement, segment.acknowledgement or _SPACE)
        out.append(Opened(tracked.conversation, time_ns, tracked.client.next, tracked.server.next))
        return entry

    def _begin(
        self, key: Key, segment: TcpSegment, from_server: bool, out: list[CaptureEvent], time_ns: int
    ) -> _Tracked:
        """Track a conversation that was not recorded by a gateway."""
        self._foreign += 1
        client, server = _ends(segment.key)
        if from_server:
            client, server, key = server, client, (key[0], _turned(key[1]))
        return self._track(Conversation(self._foreign, client, server), key, False, out, time_ns)

    def _track(
        self, conversation: Conversation, key: Key, ours: bool, out: list[CaptureEvent], time_ns: int
    ) -> _Tracked:
        """Track a conversation. `key`: that of its client's segments."""
        if len(self._open) >= self._most:
            self._forget_idle(out, time_ns)
        keys = key, (key[0], _turned(key[1]))
        tracked = _Tracked(conversation, keys, 0 if ours else self._window, self._holding, ours)
        self._open[tracked] = None
        if ours:
            self._ours[conversation.run, conversation.number] = tracked
        self._tracked[keys[0]] = tracked, tracked.client, tracked.server
        self._tracked[keys[1]] = tracked, tracked.server, tracked.client
        return tracked

    def _forget_idle(self, out: list[CaptureEvent], time_ns: int) -> None:
        """Forget the conversation that was silent for longest."""
        tracked = next(iter(self._open))
        self._forget(tracked, out)
        reason = f"more than {self._most} conversations were open at once"
        out.append(Lost(tracked.conversation, time_ns, Sender.CLIENT, tracked.client.next, 0, reason))

    def _forget(self, tracked: _Tracked, out: list[CaptureEvent]) -> None:
        """Forget a conversation that has ended, and emit all that is held of it."""
        tracked.client.flush(out)
        tracked.server.flush(out)
        del self._open[tracked]
        conversation = tracked.conversation
        if self._ours.get((conversation.run, conversation.number)) is tracked:
            del self._ours[conversation.run, conversation.number]
        for key in tracked.keys:
            entry = self._tracked.get(key)  # the ends of a connection with itself are one
            if entry is not None and entry[0] is tracked:
                del self._tracked[key]
            self._closed.pop(key, None)
            self._closed[key] = None
        while len(self._closed) > MAX_CLOSED:
            del self._closed[next(iter(self._closed))]


def _sender(tracked: _Tracked, half: Half) -> Sender:
    return Sender.CLIENT if half is tracked.client else Sender.SERVER


def _same(one: Conversation, other: Conversation) -> bool:
    return (one.number, one.run, one.name, one.client, one.server) == (
        other.number,
        other.run,
        other.name,
        other.client,
        other.server,
    )


def _ends(key: bytes) -> tuple[SocketAddress, SocketAddress]:
    """Return the ends of a segment's key, its sender first."""
    size = (len(key) - 4) // 2
    hosts = str(ip_address(key[:size])), str(ip_address(key[size : 2 * size]))
    return SocketAddress(hosts[0], int.from_bytes(key[-4:-2], "big")), SocketAddress(
        hosts[1], int.from_bytes(key[-2:], "big")
    )


def _turned(key: bytes) -> bytes:
    """Return the key of the other direction."""
    size = (len(key) - 4) // 2
    return key[size : 2 * size] + key[:size] + key[-2:] + key[-4:-2]
