"""Comments that Penstock did not write cause no error of Lua."""

from __future__ import annotations

import random
import re
from pathlib import Path

from support.captures import s3p_talk
from support.captures.tshark import tshark

from penstock.capture.pcapng import CaptureWriter, Chunk

LINES = [
    b"penstock decoded",
    b"s3p APPEND",
    b"pravega",
    b"nothing of this name",
    b" record=6",
    b" record=zz",
    b" record=" + b"61" * 5000,
    b" records=18446744073709551616",
    b" records=-1",
    b" records=",
    b"  deep=1",
    b"   deeper",
    b" connection_id=00",
    b" offset=x",
    b" time=x",
    b" @sent=1",
    b" @asked=1",
    b" @asked",
    b" flags=1",
    b" =",
    b"=",
    b"\xff\xfe",
    b" request_in=1",
    b" fatal=maybe",
]


def test_any_text_behind_the_mark(tmp_path: Path) -> None:
    """Every line alone, and many at random."""
    dice = random.Random(5)
    writer, talk = CaptureWriter("test"), s3p_talk(rounds=100)
    blocks, left = list(writer.begin()), [[line] for line in LINES]
    for event in talk:
        if isinstance(event, Chunk):
            lines = left.pop() if left else dice.choices(LINES, k=dice.choice([2, 5, 20]))
            writer.comment(event.conversation, [b"penstock decoded\n" + b"\n".join(lines) + dice.choice([b"", b"\n"])])
        blocks += writer.encode(event)
    capture = tmp_path / "comments.pcapng"
    capture.write_bytes(b"".join(blocks))
    for arguments in (["-V"], ["-V", "-2", "-R", "tcp"]):
        text = tshark(capture, *arguments)
        assert "Lua Error" not in text, re.findall("Lua Error.*", text)[:3]
    assert "a comment that cannot be read" in text
    lines = tshark(capture, "-Y", "s3p", "-T", "fields", "-e", "_ws.col.Info").splitlines()
    assert "APPEND" in lines
