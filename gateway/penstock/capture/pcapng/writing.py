"""Encode capture events as pcapng blocks (RFC draft "PCAP Now Generic", sections 4.1, 4.2 and 4.3).

One `CaptureWriter` writes one file. Packets are raw IP (LINKTYPE_RAW) with TCP inside, one interface for each listener
or back. Each conversation that is recorded from its first byte begins with SYN, SYN-ACK and ACK, and each side's bytes
have the sequence numbers of their offsets, so that Wireshark follows and reassembles without a warning. The first
packet of a conversation in a file has a comment with all fields of its `Conversation` (`capture.notes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from penstock.capture.pcapng.blocks import interface_block, section_block
from penstock.capture.pcapng.events import (
    CaptureEvent,
    Chunk,
    Closed,
    Conversation,
    Joined,
    Lost,
    Noted,
    Opened,
    Sender,
    Side,
    Withheld,
)
from penstock.capture.pcapng.headers import ACK, FIN, RESET, SYN, PacketFramer, Piece, addresses
from penstock.capture.pcapng.joining import KEY, joined_values
from penstock.capture.pcapng.notes import identity, loss, note, withholding
from penstock.model.limits import MIB

__all__ = ["CaptureWriter"]

_ACKNOWLEDGE_BYTES: Final = 1 * MIB
_ACKNOWLEDGE_PACKETS: Final = 64
"""Packets of one side after which its silent peer acknowledges: readers keep unacknowledged bytes."""
_SEQUENCE_STEP: Final = 65_537
"""A conversation's sequence numbers begin at its number times this (modulo 2^32), so that a later one between the same
ports is not taken for the same."""
_MAX_NOTES: Final = 64
"""Most notes of a conversation that are repeated in the next file, or wait for a packet."""
_WAYS: Final = {Side.FRONT: (1, 2), Side.BACK: (2, 1), Side.FOREIGN: (0, 0)}
"""epb_flags of the client's packets and of the server's: the gateway receives from clients, and sends to servers."""


class _Written:
    """State of a conversation in one file."""

    __slots__ = ("client", "notes", "pending", "server")

    def __init__(self, client: PacketFramer, server: PacketFramer) -> None:
        self.client = client
        self.server = server
        self.pending: list[bytes] = []
        """Comments that wait for a packet."""
        self.notes: dict[tuple[str, str], None] = {}
        """Notes, in order, for the next file."""

    def sides(self, sender: Sender) -> tuple[PacketFramer, PacketFramer]:
        """Return the side that sends, and its peer."""
        return (self.client, self.server) if sender is Sender.CLIENT else (self.server, self.client)


# A packet of 64 KiB takes 2 us, a chunk of 16 KiB that is read again 8 us (Python 3.11).
class CaptureWriter:
    """Encoder of one file's blocks. Memory: about two kilobytes for each conversation that is open."""

    def __init__(self, application: str, after: CaptureWriter | None = None) -> None:
        """Create a writer. `application`: the writing program with its version, for the section header's shb_userappl.

        `after`: the writer of the file before this one, which writes no more: conversations that are open there
        continue here, each identified again (with its notes and offsets) before its first event.
        """
        self._application = application
        self._interfaces: dict[str, int] = {}
        self._open: dict[Conversation, _Written] = {}
        self._earlier: dict[Conversation, _Written] = {**after._earlier, **after._open} if after else {}
        self._encoders: dict[type, Callable[[Any], Sequence[Piece]]] = {
            Chunk: self._chunk,
            Opened: self._opened,
            Noted: self._noted,
            Joined: self._joined,
            Lost: self._lost,
            Withheld: self._withheld,
            Closed: self._closed,
        }

    def begin(self) -> list[bytes]:
        """Return the section header; call it once, before anything else."""
        return [section_block(self._application)]

    def encode(self, event: CaptureEvent) -> Sequence[Piece]:
        """Return whole blocks, as pieces to be written in order; the data of a chunk is not copied. Between two calls
        the file is readable.

        An event of a conversation without `Opened` in this file is preceded by the packets that identify it. Times are
        ns since 1970, not negative.
        """
        return self._encoders[type(event)](event)

    def comment(self, conversation: Conversation, comments: Iterable[bytes]) -> None:
        """Add comments, of at most 65,535 bytes each, to the next packet of a conversation that is open in this
        file."""
        written = self._open.get(conversation)
        if written is not None:
            written.pending += comments

    def _chunk(self, chunk: Chunk) -> Sequence[Piece]:
        pieces: list[Piece] = []
        time_ns, data, offset = chunk.time_ns, chunk.data, chunk.offset
        written = self._open.get(chunk.conversation) or self._resumed(chunk, pieces, chunk.sender, offset)
        sender, peer = written.sides(chunk.sender)
        if len(data) <= sender.max_payload:
            if data:
                self._packet(pieces, written, sender, peer, time_ns, offset, data)
            return pieces
        view = memoryview(data)
        for place in range(0, len(view), sender.max_payload):
            part = view[place : place + sender.max_payload]
            self._packet(pieces, written, sender, peer, time_ns, offset + place, part)
        return pieces

    def _packet(
        self,
        pieces: list[Piece],
        written: _Written,
        sender: PacketFramer,
        peer: PacketFramer,
        time_ns: int,
        offset: int,
        data: Piece,
    ) -> None:
        """Append one packet of data, and its acknowledgement where it is due."""
        pieces += sender.data(time_ns, offset, peer.acknowledged, data, written.pending)
        if written.pending:
            written.pending = []
        length = len(data)
        end = offset + length
        sender.written = end
        if end > sender.end:
            sender.end = end
        sender.unacknowledged += length
        sender.unacknowledged_packets += 1
        peer.unacknowledged = peer.unacknowledged_packets = 0
        if sender.unacknowledged >= _ACKNOWLEDGE_BYTES or sender.unacknowledged_packets >= _ACKNOWLEDGE_PACKETS:
            pieces.append(_control(written, peer, sender, time_ns, ACK))

    def _opened(self, opened: Opened, notes: Sequence[tuple[str, str]] = ()) -> Sequence[Piece]:
        conversation, time_ns = opened.conversation, opened.time_ns
        pieces: list[Piece] = []
        interface = self._interfaces.get(conversation.name)
        if interface is None:
            interface = self._interfaces[conversation.name] = len(self._interfaces)
            pieces.append(interface_block(conversation.name or "penstock"))
        written, hosts = _directions(conversation, interface)
        client, server = written.client, written.server
        client.end = client.written = opened.client_offset
        server.end = server.written = opened.server_offset
        written.notes = dict.fromkeys(notes)
        self._open[conversation] = written
        self._earlier.pop(conversation, None)
        comments = [identity(opened, hosts), *(note(conversation, key, value) for key, value in notes)]
        if opened.continued or opened.client_offset or opened.server_offset:
            pieces.append(client.bare(time_ns, client.end, server.end, ACK, comments))
        else:
            pieces.append(client.bare(time_ns, -1, 0, SYN, comments))
            pieces.append(server.bare(time_ns, -1, 0, SYN | ACK))
            pieces.append(client.bare(time_ns, 0, 0, ACK))
        return pieces

    def _resumed(
        self, event: CaptureEvent, pieces: list[Piece], sender: Sender = Sender.CLIENT, offset: int = 0
    ) -> _Written:
        """Identify a conversation that is new in this file: it continues from an earlier file, or begins here, with the
        byte at `offset` of `sender`."""
        conversation = event.conversation
        if earlier := self._earlier.get(conversation):
            ends = earlier.client.end, earlier.server.end
            notes = tuple(earlier.notes)
        else:
            ends = (offset, 0) if sender is Sender.CLIENT else (0, offset)
            notes = ()
        pieces += self._opened(Opened(conversation, event.time_ns, *ends, continued=True), notes)
        return self._open[conversation]

    def _noted(self, noted: Noted) -> Sequence[Piece]:
        pieces: list[Piece] = []
        written = self._open.get(noted.conversation) or self._resumed(noted, pieces)
        if len(written.notes) < _MAX_NOTES:
            written.notes[noted.key, noted.value] = None
        written.pending.append(note(noted.conversation, noted.key, noted.value))
        return pieces + self._news(written, noted.time_ns)

    def _joined(self, joined: Joined) -> Sequence[Piece]:
        """Encode preludes, which are not repeated in the next file, where other bytes follow."""
        pieces: list[Piece] = []
        written = self._open.get(joined.conversation) or self._resumed(joined, pieces)
        written.pending += [note(joined.conversation, KEY, part) for part in joined_values(joined)]
        return pieces + self._news(written, joined.time_ns)

    @staticmethod
    def _news(written: _Written, time_ns: int) -> list[Piece]:
        """Write packets for pending comments, if packets may be made for them."""
        pieces: list[Piece] = []
        for sender, peer in ((written.server, written.client), (written.client, written.server)):
            # A packet of its own that acknowledges nothing new would look like a duplicate acknowledgement.
            if written.pending and (peer.unacknowledged or len(written.pending) > _MAX_NOTES):
                pieces.append(_control(written, sender, peer, time_ns, ACK))
        return pieces

    def _lost(self, lost: Lost) -> Sequence[Piece]:
        pieces: list[Piece] = []
        written = self._open.get(lost.conversation) or self._resumed(lost, pieces, lost.sender, lost.offset)
        sender, peer = written.sides(lost.sender)
        sender.end = max(sender.end, lost.offset + lost.length)
        written.pending.append(loss(lost))
        if sender.unacknowledged or not lost.length:
            pieces.append(_control(written, peer, sender, lost.time_ns, ACK))
        if not lost.length:
            del self._open[lost.conversation]
        return pieces

    def _withheld(self, withheld: Withheld) -> Sequence[Piece]:
        """Encode the mark of bytes that follow: it is in the packet of the first of them."""
        pieces: list[Piece] = []
        written = self._open.get(withheld.conversation) or self._resumed(
            withheld, pieces, withheld.sender, withheld.offset
        )
        written.pending.append(withholding(withheld))
        return pieces

    def _closed(self, closed: Closed) -> Sequence[Piece]:
        conversation = closed.conversation
        if conversation not in self._open and conversation not in self._earlier:
            return ()
        pieces: list[Piece] = []
        written = self._open.get(conversation) or self._resumed(closed, pieces)
        sender, peer = written.sides(closed.sender)
        if closed.reset:
            pieces.append(_control(written, sender, peer, closed.time_ns, RESET | ACK))
        elif not sender.finished:
            pieces.append(_control(written, sender, peer, closed.time_ns, FIN | ACK))
            sender.finished = True
            if peer.finished:
                pieces.append(_control(written, peer, sender, closed.time_ns, ACK))
        if closed.reset or (sender.finished and peer.finished):
            del self._open[conversation]
        return pieces


def _control(written: _Written, sender: PacketFramer, peer: PacketFramer, time_ns: int, control: int) -> bytes:
    """Return a packet without bytes, with the pending comments."""
    comments, written.pending = written.pending, []
    peer.unacknowledged = peer.unacknowledged_packets = 0
    offset = sender.written if control == ACK and not sender.finished else sender.end + sender.finished
    return sender.bare(time_ns, offset, peer.acknowledged, control, comments)


def _directions(conversation: Conversation, interface: int) -> tuple[_Written, dict[str, str]]:
    """Return both sides, with nothing written yet, and the hosts that their addresses cannot express."""
    client, server = conversation.client, conversation.server
    source, target = addresses(client, server)
    base = (conversation.number * _SEQUENCE_STEP + 1) & 0xFFFF_FFFF
    ways = _WAYS[conversation.side]
    ports = client.port, server.port
    written = _Written(
        PacketFramer(interface, ways[0], base, (source, target), ports),
        PacketFramer(interface, ways[1], base, (target, source), ports[::-1]),
    )
    hosts = {"client_host": client.host, "server_host": server.host}
    spelled = {"client_host": str(source), "server_host": str(target)}
    return written, {key: host for key, host in hosts.items() if host != spelled[key]}
