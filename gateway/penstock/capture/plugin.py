"""Plug-ins of captures: what a protocol adds so that its captures can be shown, redacted and recognized.

An installed distribution registers one `CapturePlugin` for each protocol in the entry-point group `penstock.captures`,
under the name that conversations in this protocol have (`Conversation.protocol`). The built-in protocols are registered
in the same way, in `<protocol>/plugin.py`; no other module has a list of protocols.

Plug-ins are loaded when the first conversation is looked at, all of them: a module with a plug-in imports the code that
does the work inside the functions that need it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.wire.plugins import installed

if TYPE_CHECKING:
    from penstock.capture.assigned_ids import AssignedIds
    from penstock.capture.dialogue.http.exchange import HttpProtocol
    from penstock.capture.dialogue.messages import Dialogue, Message
    from penstock.capture.pcapng import Conversation, Sender
    from penstock.capture.redaction.flow import Redaction
    from penstock.capture.redaction.requests import HttpBodies
    from penstock.capture.wireshark.fields import WiresharkProtocol

__all__ = [
    "HTTP",
    "CapturePlugin",
    "Likeness",
    "layers_over_http",
    "layers_settled_by_record",
    "plugins",
    "unasked_layers",
]

HTTP: Final = "http"
"""The layer of messages over HTTP, and the name of HTTP's own plug-in."""


class Likeness(IntEnum):
    """Likeness of the first bytes of a side to a protocol. Among plug-ins that give the same, the first by name is
    taken."""

    NONE = 0
    GUESS = 1
    """Bytes from the middle of a message of many protocols would do."""
    SHAPE = 2
    """A message of this protocol could begin so, and few others."""
    MARK = 3
    """Only this protocol begins so."""


class CapturePlugin(msgspec.Struct, frozen=True, kw_only=True):
    """One protocol, in captures.

    `dialogue` makes the dialogue of a conversation (`penstock.capture.dialogue.messages.Dialogue`); its second
    argument is what `memory` returned, for this capture. `layers`: the values of `Message.layer` that it gives, all of
    them; one that is carried by HTTP has `HTTP` among them.
    """

    dialogue: Callable[[Conversation, Any], Dialogue]
    layers: tuple[str, ...]
    begins: Callable[[Sender, bytes, bool], Likeness | None] | None = None
    """Compares the first bytes of a side, 1 to 64 of them, with this protocol; the last argument is True if they begin
    some message, and not the conversation. None as a result: more bytes are needed, which 64 never are. Without this
    function the protocol is known by configuration alone."""
    memory: Callable[[], Any] | None = None
    """Makes what all dialogues of one capture share, where messages of one conversation go on in another. Spark decodes
    conversations with one server in one task then."""
    heartbeats: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Kinds of the messages that a server sends to a waiting reader, by layer."""
    stream_of: Callable[[str], str] | None = None
    """Shortens the name of a part of a stream, as in `SeenRecord`, to that of the stream; other names stay."""
    unasked_layers: frozenset[str] = frozenset()
    """Those of its layers in which a server delivers batches without a request for each."""
    settles_by_record: bool = False
    """One answer may settle several appends, each with as many records as it had."""
    numbered_requests: bool = False
    """Exchanges are single requests, numbered from 1 in the order in which a connection's client sends them."""
    varying_requests: bool = False
    """Requests hold identifiers that each client makes up, so that two runs of a client have no equal requests, and
    `penstock mock` cannot answer them."""
    varying_headers: frozenset[str] = frozenset()
    """Headers over HTTP that differ between two runs of the same client, in lower case."""

    given_ids: Callable[[Message], Mapping[str, Hashable]] | None = None
    """Returns the ids that a server's message gives its client, by a name that the answer of another server to the
    same request has, too."""
    reassigned: Callable[[AssignedIds], Callable[[bytes], bytes]] | None = None
    """Makes the function that puts the ids of a replay into the messages of one recorded client, each as bytes, in
    order."""

    wireshark: Callable[[], Mapping[str, WiresharkProtocol]] | None = None
    """Returns how Wireshark shows its messages, by names of protocols in filters. Without it their fields have no names
    in filters."""

    redaction: Callable[[], Redaction] | None = None
    """Returns how secrets are found in messages on bare TCP. Without it (and without HTTP) bytes are searched for
    patterns, and for text that looks like a header line."""
    hides: frozenset[Sender] = frozenset()
    """Senders of tokens that no search finds, since nothing names them. Bytes of theirs that cannot be parsed are
    withheld."""
    packs: bool = True
    """Contents may be compressed or in base64: where rules look into contents, bytes that cannot be parsed are
    withheld."""
    redacts: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Parts of messages that each rule of redaction blanks, by the rule's key in `[recorder.redact]`; as `withheld`,
    those that are withheld where a rule looks into contents."""
    secret_headers: tuple[str, ...] = ()
    """Headers over HTTP whose values are secret by default, in lower case."""
    format_headers: tuple[str, ...] = ()
    """Headers over HTTP that tell how a body is to be read, in lower case. They stay, whatever the rules are."""

    http: Callable[[], HttpProtocol] | None = None
    """Returns how requests and bodies of a protocol on HTTP are read."""
    takes_unclaimed: bool = False
    """Requests over HTTP that no protocol claims are taken for its own."""
    bodies: Callable[[], HttpBodies] | None = None
    """Returns how secrets are found in bodies of a protocol on HTTP."""

    @property
    def over_http(self) -> bool:
        """True if the protocol is carried by HTTP."""
        return HTTP in self.layers


@cache
def plugins() -> dict[str, CapturePlugin]:
    """Return all installed plug-ins by protocol, in alphabetical order."""
    return installed("penstock.captures", CapturePlugin)


@cache
def unasked_layers() -> frozenset[str]:
    """Return the layers in which a server delivers batches without a request for each."""
    return frozenset(layer for plugin in plugins().values() for layer in plugin.unasked_layers)


@cache
def layers_settled_by_record() -> frozenset[str]:
    """Return the layers in which one answer may settle several appends."""
    return frozenset(layer for plugin in plugins().values() if plugin.settles_by_record for layer in plugin.layers)


@cache
def layers_over_http() -> frozenset[str]:
    """Return the layers of messages that HTTP carries: their exchanges have several messages each, and may overlap."""
    return frozenset(layer for plugin in plugins().values() if plugin.over_http for layer in plugin.layers)
