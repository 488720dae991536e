"""From capture events to pcapng blocks (RFC draft "PCAP Now Generic", sections 4.1, 4.2 and 4.3).

One `CaptureWriter` writes one file. Packets are raw IP (LINKTYPE_RAW) with TCP inside, one interface for each listener or
back. Each conversation begins with SYN, SYN-ACK and ACK where it is recorded from its first byte, and each side's bytes
have the sequence numbers of their offsets, so that Wireshark follows and reassembles without a warning. The first
packet of a conversation in a file has a comment with all that `Conversation` knows (`capture.notes`).
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock_codecs.capture.events import CaptureEvent

__all__ = ["CaptureWriter"]


class CaptureWriter:
    """Blocks of one file. Memory: a few hundred bytes for each conversation that is open."""

    def __init__(self, application: str) -> None:
        """`application`: who writes, with its version, for the section header's shb_userappl."""
        raise NotImplementedError

    def begin(self) -> list[bytes]:
        """The section header; once, before anything else."""
        raise NotImplementedError

    def encode(self, event: CaptureEvent) -> Sequence[bytes | bytearray | memoryview]:
        """Whole blocks, as pieces to be written in order; the data of a chunk is not copied. Between two calls the
        file is readable.

        An event of a conversation that this file has not seen `Opened` is preceded by what identifies it.
        """
        raise NotImplementedError
