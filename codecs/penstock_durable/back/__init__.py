"""Servers of Durable Streams: the client side.

What the protocol has not is made up for here, or is missing. It has no boundaries in streams of bytes, so streams that
the gateway creates have a content type of their own, whose content keeps records apart; streams of JSON are used as
they are. It has no positions, only opaque offsets where an answer ends: positions are counted in the content, and
`offsets` finds the place on the server from which to count. `cursor` reads on where it was; `writer` makes all appends
to a stream, as one idempotent producer. See decision 19.
"""

from penstock_durable.back.native import CAPABILITIES, DurableNative, open_durable
from penstock_durable.back.settings import DurableBackSettings

__all__ = ["CAPABILITIES", "DurableBackSettings", "DurableNative", "open_durable"]
