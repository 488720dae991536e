"""Conformance cases of S3P, from its specification 0.2.0.

Commands are spelled as bytes here, and not by the codec: most cases send what a client must not. Where the
specification leaves a choice, every choice passes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from functools import partial
from typing import Final

import trio

from penstock.model.limits import KIB
from penstock.protocols.conformance import (
    Cases,
    Deviation,
    Suite,
    TestedServer,
    closed_in_time,
    require,
    require_equal,
)

__all__ = ["SUITE"]

_LAST_ID: Final = 2**64 - 1
_HUGE: Final = 1_000_000_000
"""A number beyond any limit that a server can have."""
_OPEN_SECONDS: Final = 0.2
"""Seconds that a connection must stay open to count as left open."""
_BLOCK_MS: Final = 400
_SLACK_MS: Final = 100
"""Clocks of client and server may differ by this in a wait."""
_AT_ONCE_MS: Final = 2_000
"""An answer that is not awaited comes within this on any machine."""
_UNRECOVERABLE: Final = ("ERR_BAD_FORMAT", "ERR_LIMITS")
_ERROR: Final = re.compile(rb"-([A-Z_]+) [\x20-\x7e]+\r\n")
_FOUR: Final = ((100, (b"a", b"b")), (101, (b"c",)), (200, (b"d",)))
"""Appends of most cases about reading."""


def _bulk(data: bytes | str) -> bytes:
    data = data.encode() if isinstance(data, str) else data
    return b"$%d\r\n%b\r\n" % (len(data), data)


def _array(*items: bytes) -> bytes:
    return b"*%d\r\n%b" % (len(items), b"".join(items))


def _bulks(*items: bytes | str) -> bytes:
    return _array(*map(_bulk, items))


def _command(name: str, stream: bytes, *options: str | bytes, records: Sequence[bytes] | None = None) -> bytes:
    """Return a command. `options`: keys and values in turn."""
    rest = [] if records is None else [_bulks(*records)]
    return _array(_bulk(name), _bulk(stream), _bulks(*options), *rest)


def _append(stream: bytes, *records: bytes, id: int | str | None = None) -> bytes:
    options = () if id is None else ("ID", str(id))
    return _command("APPEND", stream, *options, records=records)


def _replied(*pairs: tuple[str, bytes]) -> bytes:
    """Return the reply to READ: identifiers and records."""
    return _bulks(*(item for pair in pairs for item in pair))


class S3PTestLine:
    """One connection to the server."""

    def __init__(self, stream: trio.abc.Stream, patience: float) -> None:
        """`patience`: seconds to wait for an answer."""
        self._stream = stream
        self._patience = patience
        self._received = b""

    async def send(self, *pieces: bytes) -> None:
        """Send bytes, each piece in a write of its own."""
        for piece in pieces:
            await self._stream.send_all(piece)

    async def expect(self, *replies: bytes) -> None:
        """Read these bytes, and no others. Raises Deviation."""
        expected = b"".join(replies)
        while self._received != expected and expected.startswith(self._received):
            await self._receive(repr(expected)[:300])
        require_equal(self._received, expected)
        self._received = b""

    async def reply(self) -> bytes:
        """Read one line. Raises Deviation."""
        while b"\r\n" not in self._received:
            await self._receive("a line")
        line, _, self._received = self._received.partition(b"\r\n")
        return line + b"\r\n"

    async def ask(self, command: bytes, *replies: bytes) -> None:
        """Send a command, and read exactly these replies. Raises Deviation."""
        await self.send(command)
        await self.expect(*replies)

    async def error(self, *codes: str) -> None:
        """Read one error with one of the codes, and what must follow: the end of the connection for an unrecoverable
        one. Raises Deviation."""
        line = await self.reply()
        match = _ERROR.fullmatch(line)
        wanted = " or ".join(codes)
        require(match is not None and match[1].decode() in codes, f"-{wanted} and a message of printable ASCII", line)
        if codes[0] in _UNRECOVERABLE:
            require(await self._ended(self._patience), f"the end of the connection after {wanted}", "an open one")
        else:
            require(not await self._ended(_OPEN_SECONDS), f"an open connection after {wanted}", "its end")

    async def _ended(self, seconds: float) -> bool:
        with trio.move_on_after(seconds):
            try:
                more = self._received or await self._stream.receive_some()
            except trio.BrokenResourceError:
                return True
            require_equal(more, b"")
            return True
        return False

    async def _receive(self, expected: str) -> None:
        data = b""
        with trio.move_on_after(self._patience) as waiting:
            with suppress(trio.BrokenResourceError):
                data = bytes(await self._stream.receive_some())
        if not data:
            reason = f"nothing within {self._patience:g} s" if waiting.cancelled_caught else "the end of the connection"
            raise Deviation(f"expected {expected}, got {reason} after {self._received!r:.200}")
        self._received += data


class S3PTestSession:
    """A case's connections and streams."""

    def __init__(self, server: TestedServer) -> None:
        self._server = server
        self._names: list[bytes] = []
        self._streams: list[trio.abc.Stream] = []

    def name(self, end: bytes = b"") -> bytes:
        """Return a new name of a stream, deleted at the end of the case."""
        space = "" if self._server.space is None else f"{self._server.space}/"
        self._names.append(f"{space}{self._server.new_name()}".encode() + end)
        return self._names[-1]

    async def line(self) -> S3PTestLine:
        """Open a connection."""
        self._streams.append(await self._server.connect())
        return S3PTestLine(self._streams[-1], self._server.patience)

    async def created(self, *appends: tuple[int, Sequence[bytes]]) -> tuple[S3PTestLine, bytes]:
        """Create a stream and append to it: pairs of ID and records. Return a connection, and the stream's name."""
        line, stream = await self.line(), self.name()
        await line.ask(_command("CREATE", stream), b"+OK\r\n")
        for number, records in appends:
            await line.ask(_append(stream, *records, id=number), _bulk(f"{number}-{len(records) - 1}"))
        return line, stream

    async def close(self) -> None:
        """Delete the streams and close the connections."""
        try:
            with suppress(OSError, trio.BrokenResourceError, Deviation):  # a server that does not answer, as cases find
                cleaner = await self.line()
                for name in self._names:
                    await cleaner.send(_command("DELETE", name))
                    await cleaner.reply()
        finally:
            for stream in self._streams:
                await trio.aclose_forcefully(stream)


def _session(server: TestedServer) -> AbstractAsyncContextManager[S3PTestSession]:
    return closed_in_time(S3PTestSession(server), server.patience)


_CASES: Final = Cases[S3PTestSession]()


@contextmanager
def _lasting(least_ms: int, most_ms: float = math.inf) -> Iterator[None]:
    """Raise Deviation unless the block takes a time between these bounds."""
    began = trio.current_time()
    yield
    took = (trio.current_time() - began) * 1000
    require(least_ms <= took <= most_ms, f"an answer after {least_ms} to {most_ms} ms", f"one after {took:.0f} ms")


# ---- commands that must be refused -----------------------------------------------------------------------------------


def _refused(
    name: str, clause: str, demand: str, make: Callable[[bytes], bytes], *codes: str, records: bool = False
) -> None:
    """Add a case: a command, sent for a stream that exists, is answered with one of the errors, and changes nothing.

    `make`: returns the bytes for the stream's name. `records`: the stream has records.
    """

    async def run(session: S3PTestSession) -> None:
        line, stream = await session.created(*(_FOUR if records else ()))
        await line.send(make(stream))
        await line.error(*(codes or ("ERR_BAD_FORMAT",)))
        other = await session.line()
        pairs = [("100-0", b"a"), ("100-1", b"b"), ("101-0", b"c"), ("200-0", b"d")] if records else []
        await other.ask(_command("READ", stream), _replied(*pairs))

    _CASES.add(name, clause, demand, run)


def _raw(data: bytes) -> Callable[[bytes], bytes]:
    return lambda _stream: data


def _with(name: str, *options: str | bytes, records: Sequence[bytes] | None = None) -> Callable[[bytes], bytes]:
    return lambda stream: _command(name, stream, *options, records=records)


_refused("null-bulk-string", "3", "A null bulk string is refused.", _raw(b"*3\r\n$-1\r\n"))
_refused("negative-array", "3", "A negative number of elements is refused.", _raw(b"*-1\r\n"))
_refused("integer", "3", "An integer, a type of RESP that S3P lacks, is refused.", _raw(b"*3\r\n:1\r\n"))
_refused("line-feed-alone", "3", "LF is no separator.", lambda s: _command("READ", s).replace(b"\r\n", b"\n"))
_refused(
    "carriage-return-alone", "3", "CR is no separator.", lambda s: _command("READ", s).replace(b"\r\n", b"\r") + b"\r\n"
)
_refused(
    "bulk-string-without-its-end",
    "3",
    "CRLF must follow the bytes of a bulk string.",
    lambda s: b"*3\r\n$4\r\nREADxx" + _bulk(s),
)
_refused("empty-name", "3", "A stream's name has at least one byte.", _raw(_command("READ", b"")))
_refused(
    "empty-record",
    "3",
    "A record has at least one byte; no record of the command is stored.",
    _with("APPEND", records=(b"hello", b"")),
)
_refused("empty-option-value", "3", "An option's value has at least one byte.", _with("READ", "COUNT", b""))
_refused("simple-string-as-command", "4", "A command is an array.", _raw(b"+OK\r\n"))
_refused("inline-command", "4", "A line of text is no command.", _raw(b"PING\r\n"))
_refused(
    "record-as-simple-string",
    "4",
    "Records are bulk strings.",
    lambda s: _array(_bulk("APPEND"), _bulk(s), _bulks(), b"*1\r\n+x\r\n"),
)
_refused("name-as-array", "4", "A stream's name is a bulk string.", _raw(_array(_bulk("READ"), _bulks(), _bulks())))
_refused(
    "command-name-as-array", "7", "A command's name is a bulk string.", lambda s: _array(_bulks(), _bulk(s), _bulks())
)
_refused(
    "odd-number-of-options",
    "7",
    "Options come in pairs.",
    lambda s: _array(_bulk("APPEND"), _bulk(s), _bulks("ID"), _bulks(b"x")),
)
_refused(
    "array-as-option",
    "7",
    "Options are bulk strings.",
    lambda s: _array(_bulk("READ"), _bulk(s), _array(_bulks(), _bulks())),
)
_refused(
    "unknown-option-of-create", "7", "CREATE has no options.", lambda s: _command("CREATE", s + b"-2", "MAX_SIZE", "1")
)
_refused(
    "unknown-option-of-append",
    "7",
    "An unknown option of APPEND is refused.",
    _with("APPEND", "TTL", "5", records=(b"x",)),
)
_refused("unknown-option-of-read", "7", "An unknown option of READ is refused.", _with("READ", "FROM", "0-0"))
_refused(
    "unknown-option-of-trim",
    "7",
    "An unknown option of TRIM is refused, though a known one stands beside it.",
    _with("TRIM", "MIN_ID", "200-0", "UNTIL", "2-0"),
    records=True,
)
_refused("unknown-option-of-delete", "7", "DELETE has no options.", _with("DELETE", "FORCE", "1"), records=True)
_refused(
    "create-with-an-element-too-many",
    "8.1",
    "CREATE has three elements.",
    lambda s: _array(_bulk("CREATE"), _bulk(s + b"-2"), _bulks(), _bulks()),
)
_refused("append-without-records", "8.2", "APPEND has at least one record.", _with("APPEND", records=()))
for _name, _text in {
    "whole-identifier": "1-0",
    "decimal": "1.5",
    "sign": "+1",
    "negative": "-1",
    "word": "abc",
    "beyond-64-bits": str(_LAST_ID + 1),
}.items():
    _refused(
        f"append-id-{_name}",
        "8.2",
        f"ID is milliseconds in decimal digits, below 2^64, unlike {_text}.",
        _with("APPEND", "ID", _text, records=(b"x",)),
    )
for _name, _text in {
    "without-sequence": "5",
    "without-milliseconds": "-5",
    "empty-sequence": "5-",
    "three-parts": "1-2-3",
    "beyond-64-bits": f"0-{_LAST_ID + 1}",
    "word": "abc",
}.items():
    _refused(
        f"read-min-id-{_name}", "8.3", f"MIN_ID of READ is <ms>-<seq>, unlike {_text}.", _with("READ", "MIN_ID", _text)
    )
    _refused(
        f"trim-min-id-{_name}",
        "8.4",
        f"MIN_ID of TRIM is <ms>-<seq>, unlike {_text}.",
        _with("TRIM", "MIN_ID", _text),
        records=True,
    )
_refused("trim-without-min-id", "8.4", "TRIM needs MIN_ID.", _with("TRIM"), records=True)
_refused("read-count-zero", "8.3", "COUNT is at least 1.", _with("READ", "COUNT", "0"), "ERR_LIMITS")
_refused("read-block-negative", "8.3", "BLOCK is at least 0.", _with("READ", "BLOCK", "-1"), "ERR_LIMITS")
for _option in ("COUNT", "BLOCK"):
    for _name, _text in {"decimal": "1.5", "sign": "+1", "word": "many"}.items():
        _refused(
            f"read-{_option.lower()}-{_name}",
            "15",
            f"{_option} is decimal digits, unlike {_text}.",
            _with("READ", _option, _text),
        )
_refused("read-count-beyond-the-limit", "11", "COUNT has a limit.", _with("READ", "COUNT", str(_HUGE)), "ERR_LIMITS")
_refused("read-block-beyond-the-limit", "11", "BLOCK has a limit.", _with("READ", "BLOCK", str(_HUGE)), "ERR_LIMITS")
_refused(
    "name-beyond-the-limit",
    "11",
    "A name that is announced too long is refused before its bytes come.",
    _raw(b"*3\r\n" + _bulk("CREATE") + b"$%d\r\n" % _HUGE),
    "ERR_LIMITS",
)
_refused(
    "record-beyond-the-limit",
    "11",
    "A record that is announced too large is refused before its bytes come.",
    lambda s: b"*4\r\n" + _bulk("APPEND") + _bulk(s) + b"*0\r\n*1\r\n$%d\r\n" % _HUGE,
    "ERR_LIMITS",
)
_refused(
    "records-beyond-the-limit",
    "11",
    "More records than allowed are refused before they come.",
    lambda s: b"*4\r\n" + _bulk("APPEND") + _bulk(s) + b"*0\r\n*%d\r\n" % _HUGE,
    "ERR_LIMITS",
)
_refused("unknown-command", "14", "An unknown command is an unrecoverable error.", _with("XADD"))
_refused("command-of-redis", "14", "PING, as clients of Redis send it, is no command.", _raw(_bulks("PING")))
_refused(
    "array-length-of-20-digits",
    "15",
    "An absurd number of elements is refused.",
    _raw(b"*99999999999999999999\r\n"),
    "ERR_BAD_FORMAT",
    "ERR_LIMITS",
)
_refused("signed-length", "15", "A length has no sign.", _raw(b"*+3\r\n"))
_refused(
    "bytes-without-a-separator",
    "15",
    "A header line without an end is refused, and not kept.",
    _raw(b"*" + b"1" * (4 * KIB)),
    "ERR_BAD_FORMAT",
    "ERR_LIMITS",
)

# ---- framing and names -----------------------------------------------------------------------------------------------


@_CASES.case("3")
async def bytes_one_by_one(session: S3PTestSession) -> None:
    """A command may arrive in any pieces, also byte by byte."""
    line, stream = await session.line(), session.name()
    command = _command("CREATE", stream) + _append(stream, b"a", id=1)
    await line.send(*(command[at : at + 1] for at in range(len(command))))
    await line.expect(b"+OK\r\n", _bulk("1-0"))


@_CASES.case("4")
async def records_of_any_bytes(session: S3PTestSession) -> None:
    """Records are opaque: separators, NUL and bytes that are no text come back as they were."""
    line, stream = await session.created()
    bodies = (b"\r\n$0\r\n", b"\x00\xff*1\r\n", bytes(range(256)))
    await line.ask(_append(stream, *bodies, id=5), _bulk("5-2"))
    pairs = [(f"5-{number}", body) for number, body in enumerate(bodies)]
    await line.ask(_command("READ", stream), _replied(*pairs))


@_CASES.case("6")
async def names_of_any_bytes(session: S3PTestSession) -> None:
    """Names are binary: a name with blanks, separators, NUL and a byte that is no text works."""
    line, stream = await session.line(), session.name(b" \r\n\x00\xff")
    await line.ask(_command("CREATE", stream), b"+OK\r\n")
    await line.ask(_command("READ", stream), _replied())


@_CASES.case("6")
async def names_differ_by_case(session: S3PTestSession) -> None:
    """Names are case-sensitive."""
    line, lower = await session.line(), session.name(b"x")
    await line.ask(_command("CREATE", lower), b"+OK\r\n")
    await line.send(_command("READ", lower[:-1] + b"X"))
    await line.error("ERR_UNKNOWN_STREAM")


@_CASES.case("7")
async def last_of_equal_options(session: S3PTestSession) -> None:
    """Of an option that is given twice, the last value counts; keys are equal whatever their case."""
    line, stream = await session.created(*_FOUR)
    command = _command("READ", stream, "count", "3", "COUNT", "1")
    await line.ask(command, _replied(("100-0", b"a")))


@_CASES.case("9")
async def errors_of_one_line(session: S3PTestSession) -> None:
    """An error is one line, also about a name with separators."""
    line, stream = await session.line(), session.name(b"\r\n+OK\r\n")
    await line.send(_command("READ", stream))
    await line.error("ERR_UNKNOWN_STREAM")


@_CASES.case("10")
async def command_names_of_any_case(session: S3PTestSession) -> None:
    """Names of commands are case-insensitive."""
    line, stream = await session.line(), session.name()
    await line.ask(_command("CrEaTe", stream), b"+OK\r\n")
    await line.ask(_command("read", stream), _replied())


# ---- CREATE ----------------------------------------------------------------------------------------------------------


@_CASES.case("8.1")
async def create(session: S3PTestSession) -> None:
    """CREATE answers +OK, and the stream is empty."""
    line, stream = await session.created()
    await line.ask(_command("READ", stream), _replied())


@_CASES.case("8.1")
async def create_again(session: S3PTestSession) -> None:
    """CREATE of a stream that exists is a recoverable error, and changes nothing."""
    line, stream = await session.created((5, (b"kept",)))
    await line.send(_command("CREATE", stream))
    await line.error("ERR_STREAM_EXISTS")
    await line.ask(_command("READ", stream), _replied(("5-0", b"kept")))


# ---- APPEND ----------------------------------------------------------------------------------------------------------


@_CASES.case("8.2")
async def append_with_the_clock(session: S3PTestSession) -> None:
    """Without ID, the server's clock gives the milliseconds; the answer is the last record's identifier."""
    line, stream = await session.created()
    await line.send(_append(stream, b"hello", b"world"))
    require_equal(await line.reply(), b"$15\r\n")
    last = await line.reply()
    require(re.fullmatch(rb"1\d{12}-1\r\n", last) is not None, "<milliseconds since 1970>-1", last)


@_CASES.case("8.2")
async def append_with_an_id(session: S3PTestSession) -> None:
    """All records of an APPEND have the client's milliseconds, and consecutive sequence numbers from 0."""
    line, stream = await session.created(_FOUR[0])
    await line.ask(_command("READ", stream), _replied(("100-0", b"a"), ("100-1", b"b")))


@_CASES.case("8.2")
async def append_to_an_unknown_stream(session: S3PTestSession) -> None:
    """APPEND creates no stream."""
    line, stream = await session.line(), session.name()
    for command in (_append(stream, b"x"), _command("READ", stream)):
        await line.send(command)
        await line.error("ERR_UNKNOWN_STREAM")


@_CASES.case("5")
async def least_and_greatest_id(session: S3PTestSession) -> None:
    """0 and 2^64-1 are valid milliseconds."""
    line, stream = await session.created((0, (b"x",)), (_LAST_ID, (b"y",)))
    await line.ask(_command("READ", stream), _replied(("0-0", b"x"), (f"{_LAST_ID}-0", b"y")))


@_CASES.case("12")
async def equal_id(session: S3PTestSession) -> None:
    """Milliseconds equal to the last record's continue its sequence."""
    line, stream = await session.created(_FOUR[0])
    await line.ask(_append(stream, b"c", id=100), _bulk("100-2"))


@_CASES.case("12")
async def greater_id(session: S3PTestSession) -> None:
    """Greater milliseconds begin a new sequence at 0."""
    line, stream = await session.created(_FOUR[0])
    await line.ask(_append(stream, b"c", id=101), _bulk("101-0"))


@_CASES.case("12")
async def smaller_id(session: S3PTestSession) -> None:
    """Smaller milliseconds than the last record's are refused, and nothing is stored."""
    line, stream = await session.created(_FOUR[0])
    await line.send(_append(stream, b"c", id=99))
    await line.error("ERR_NON_MONOTONIC_ID")
    await line.ask(_command("READ", stream), _replied(("100-0", b"a"), ("100-1", b"b")))


@_CASES.case("12")
async def clock_behind_the_last_id(session: S3PTestSession) -> None:
    """If the clock is behind the last record, its milliseconds are used again, with the next sequence number."""
    line, stream = await session.created((_LAST_ID - 1, (b"x",)))
    await line.ask(_append(stream, b"y"), _bulk(f"{_LAST_ID - 1}-1"))


@_CASES.case("12")
async def ids_compare_as_numbers(session: S3PTestSession) -> None:
    """10 is greater than 9, though not as text."""
    line, stream = await session.created((9, (b"x",)), (10, (b"y",)))
    await line.ask(_command("READ", stream, "MIN_ID", "10-0"), _replied(("10-0", b"y")))


@_CASES.case("12")
async def trim_keeps_the_last_id(session: S3PTestSession) -> None:
    """Identifiers rise strictly even if all records were removed."""
    line, stream = await session.created((100, (b"x",)))
    await line.ask(_command("TRIM", stream, "MIN_ID", "200-0"), b"+OK\r\n")
    await line.ask(_append(stream, b"y", id=100), _bulk("100-1"))
    await line.send(_append(stream, b"z", id=99))
    await line.error("ERR_NON_MONOTONIC_ID")


@_CASES.case("12")
async def concurrent_appends(session: S3PTestSession) -> None:
    """Appends of several clients have different identifiers, and are read in rising order."""
    line, stream = await session.created()
    ids: list[bytes] = []

    async def append() -> None:
        client = await session.line()
        for _ in range(10):
            await client.send(_append(stream, b"x"))
            await client.reply()
            ids.append((await client.reply()).rstrip())

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(append)
    ordered = sorted(ids, key=lambda record_id: tuple(map(int, record_id.split(b"-"))))
    require_equal(len(set(ids)), 40)
    await line.ask(
        _command("READ", stream, "COUNT", "40"), _replied(*((record_id.decode(), b"x") for record_id in ordered))
    )


# ---- READ ------------------------------------------------------------------------------------------------------------


@_CASES.case("8.3")
async def read_from_an_id(session: S3PTestSession) -> None:
    """MIN_ID is inclusive, and need not be that of a record."""
    line, stream = await session.created(*_FOUR)
    rest = (("101-0", b"c"), ("200-0", b"d"))
    await line.ask(_command("READ", stream, "MIN_ID", "100-1"), _replied(("100-1", b"b"), *rest))
    await line.ask(_command("READ", stream, "MIN_ID", "100-2"), _replied(*rest))
    await line.ask(_command("READ", stream, "MIN_ID", "150-7"), _replied(rest[1]))


@_CASES.case("8.3")
async def read_from_the_greatest_id(session: S3PTestSession) -> None:
    """The greatest identifier is a valid MIN_ID."""
    line, stream = await session.created(*_FOUR)
    await line.ask(_command("READ", stream, "MIN_ID", f"{_LAST_ID}-{_LAST_ID}"), _replied())


@_CASES.case("8.3")
async def read_at_most(session: S3PTestSession) -> None:
    """COUNT bounds the records, not the elements of the answer."""
    line, stream = await session.created(*_FOUR)
    pairs = (("100-0", b"a"), ("100-1", b"b"), ("101-0", b"c"))
    await line.ask(_command("READ", stream, "COUNT", "3"), _replied(*pairs))


@_CASES.case("8.3")
async def read_of_an_unknown_stream(session: S3PTestSession) -> None:
    """READ of an unknown stream is an error at once, also with BLOCK, and creates nothing."""
    line, stream = await session.line(), session.name()
    with _lasting(0, _AT_ONCE_MS):
        await line.send(_command("READ", stream, "BLOCK", "5000"))
        await line.error("ERR_UNKNOWN_STREAM")
    await line.ask(_command("CREATE", stream), b"+OK\r\n")


@_CASES.case("8.3")
async def read_that_need_not_wait(session: S3PTestSession) -> None:
    """BLOCK does not delay an answer with records."""
    line, stream = await session.created(*_FOUR)
    with _lasting(0, _AT_ONCE_MS):
        await line.ask(_command("READ", stream, "BLOCK", "5000", "COUNT", "1"), _replied(("100-0", b"a")))


@_CASES.case("8.3")
async def read_that_waits_in_vain(session: S3PTestSession) -> None:
    """BLOCK without new records ends with an empty array when its time is over."""
    line, stream = await session.created()
    with _lasting(_BLOCK_MS - _SLACK_MS):
        await line.ask(_command("READ", stream, "BLOCK", str(_BLOCK_MS)), _replied())


async def _meanwhile(session: S3PTestSession, commands: Sequence[bytes], read: Callable[[], Awaitable[None]]) -> None:
    """Send commands on a connection of their own while a READ waits."""
    other = await session.line()

    async def later() -> None:
        await trio.sleep(_BLOCK_MS / 4000)
        await other.send(*commands)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(later)
        await read()


@_CASES.case("8.3")
async def read_that_waits_for_a_record(session: S3PTestSession) -> None:
    """BLOCK ends with the first record that another client appends."""
    line, stream = await session.created()
    read = partial(line.ask, _command("READ", stream, "BLOCK", "9000"), _replied(("5-0", b"x")))
    with _lasting(0, 9000):
        await _meanwhile(session, [_append(stream, b"x", id=5)], read)


@_CASES.case("8.3")
async def read_that_waits_for_an_id(session: S3PTestSession) -> None:
    """A record below MIN_ID does not end a BLOCK."""
    line, stream = await session.created()
    command = _command("READ", stream, "BLOCK", str(_BLOCK_MS), "MIN_ID", "50-0")
    with _lasting(_BLOCK_MS - _SLACK_MS):
        await _meanwhile(session, [_append(stream, b"x", id=5)], partial(line.ask, command, _replied()))


# ---- TRIM and DELETE -------------------------------------------------------------------------------------------------


@_CASES.case("8.4")
async def trim(session: S3PTestSession) -> None:
    """TRIM removes the records below MIN_ID, and no others."""
    line, stream = await session.created(*_FOUR)
    for start, pairs in (
        ("0-0", [("100-0", b"a"), ("100-1", b"b"), ("101-0", b"c"), ("200-0", b"d")]),
        ("100-1", [("100-1", b"b"), ("101-0", b"c"), ("200-0", b"d")]),
        ("300-0", []),
    ):
        await line.ask(_command("TRIM", stream, "MIN_ID", start), b"+OK\r\n")
        await line.ask(_command("READ", stream), _replied(*pairs))


@_CASES.case("8.4")
async def trim_of_an_unknown_stream(session: S3PTestSession) -> None:
    """TRIM of an unknown stream is a recoverable error."""
    line = await session.line()
    await line.send(_command("TRIM", session.name(), "MIN_ID", "1-0"))
    await line.error("ERR_UNKNOWN_STREAM")


@_CASES.case("8.5")
async def delete(session: S3PTestSession) -> None:
    """DELETE removes the stream and its identifiers; CREATE may use the name again."""
    line, stream = await session.created(*_FOUR)
    await line.ask(_command("DELETE", stream), b"+OK\r\n")
    await line.send(_command("READ", stream))
    await line.error("ERR_UNKNOWN_STREAM")
    await line.ask(_command("CREATE", stream), b"+OK\r\n")
    await line.ask(_append(stream, b"x", id=1), _bulk("1-0"))
    await line.ask(_command("READ", stream), _replied(("1-0", b"x")))


@_CASES.case("8.5")
async def delete_of_an_unknown_stream(session: S3PTestSession) -> None:
    """DELETE of an unknown stream is a recoverable error."""
    line = await session.line()
    await line.send(_command("DELETE", session.name()))
    await line.error("ERR_UNKNOWN_STREAM")


# ---- pipelines -------------------------------------------------------------------------------------------------------


@_CASES.case("13")
async def pipeline(session: S3PTestSession) -> None:
    """Commands in one write are answered in order, and a recoverable error does not end them."""
    line, stream = await session.line(), session.name()
    await line.send(
        _command("CREATE", stream)
        + _append(stream, b"a", id=2)
        + _append(stream, b"b", id=1)
        + _command("READ", stream)
    )
    require_equal([await line.reply() for _ in range(3)], [b"+OK\r\n", b"$3\r\n", b"2-0\r\n"])
    error = await line.reply()
    require(error.startswith(b"-ERR_NON_MONOTONIC_ID "), "-ERR_NON_MONOTONIC_ID", error)
    await line.expect(_replied(("2-0", b"a")))


@_CASES.case("13")
async def pipeline_with_an_unrecoverable_error(session: S3PTestSession) -> None:
    """An unrecoverable error ends a pipeline: the commands behind it are not executed."""
    line, stream, other = await session.line(), session.name(), session.name()
    await line.send(_command("CREATE", stream) + _command("NOPE", stream) + _command("CREATE", other))
    require_equal(await line.reply(), b"+OK\r\n")
    await line.error("ERR_BAD_FORMAT")
    again = await session.line()
    await again.send(_command("READ", other))
    await again.error("ERR_UNKNOWN_STREAM")


SUITE: Final = Suite(
    title="S3P 0.2.0",
    source="the sections of its specification",
    clauses={
        "3": "Data types and framing",
        "4": "General rules",
        "5": "Identifiers",
        "6": "Stream naming",
        "7": "Options",
        "8.1": "CREATE",
        "8.2": "APPEND",
        "8.3": "READ",
        "8.4": "TRIM",
        "8.5": "DELETE",
        "9": "Errors",
        "10": "Case",
        "11": "Limits",
        "12": "Order",
        "13": "Pipelines",
        "14": "Extensibility",
        "15": "Security",
    },
    cases=tuple(_CASES.found),
    session=_session,
)
