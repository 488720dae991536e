"""S3P: both ends of a connection, with limits so narrow that short inputs reach them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fuzz.laws import chosen, keeps_the_laws, pull

from penstock.wire.codec import Role
from penstock_s3p.codec import PLUGIN, S3PClient, S3PServer
from penstock_s3p.codec.encoding import encode_command, encode_reply
from penstock_s3p.codec.limits import S3PLimits

LIMITS: Final = S3PLimits(
    max_name_bytes=20, max_records_per_append=5, max_record_bytes=400, max_append_bytes=500, max_option_pairs=4
)
MOST_HELD: Final = 5000
"""Five records of 500 bytes together or a reply of 600, options, and framing."""
ENDS: Final = (lambda: S3PServer(LIMITS), lambda: S3PClient(LIMITS, max_reply_bytes=600, observer=True))

WORDS: Final = (
    b"\r\n",
    b"*0\r\n",
    b"$1\r\n",
    b"APPEND",
    b"READ",
    b"TRIM",
    b"CREATE",
    b"DELETE",
    b"COUNT",
    b"BLOCK",
    b"MIN_ID",
    b"$2\r\nID\r\n",
    b"0-0",
    b"18446744073709551615",
    b"+OK\r\n",
    b"-ERR_BAD_FORMAT ",
)


def seeds() -> Iterator[bytes]:
    """Yield the sample of each end."""
    for index, role in enumerate((Role.SERVER, Role.CLIENT)):
        yield bytes([index]) + PLUGIN.sample(role, "0.2.0")


def check(data: bytes) -> None:
    """Check the laws of codecs, and that each command and reply is encoded to bytes that give it again."""
    make, said = chosen(ENDS, data)
    keeps_the_laws(make, said, MOST_HELD)
    server = make is ENDS[0]
    for event in pull(make(), said):
        encoded = b"".join(encode_command(event)) if server else encode_reply(event)
        assert pull(make(), encoded) == [event], f"{event!r} became {encoded!r}"
