"""HTTP/2: floods and bombs, and what a client must not make the server hold."""

import struct

import pytest
from hpack import Decoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)
from support.http.h2_frames import (
    GET,
    POST,
    frames_of,
    headers,
    length_of,
    server,
    started,
    wire,
)
from support.http.story import pull, said

from penstock.model.failures import FailureCode, RemoteProtocolError
from penstock.wire.http import Data, End, HttpLimits, Noise, RequestHead, Reset, ResponseHead, h2_frames


def test_rapid_reset_is_cut_off() -> None:
    limits = HttpLimits(max_abandoned=20)
    frames = [f for i in range(3, 24) for f in (headers(2 * i + 1, POST), RstStreamFrame(2 * i + 1, 8))]
    codec = started(*(headers(2 * i + 1, GET, "END_STREAM") for i in range(3)), limits=limits)
    for i in range(3):  # earlier answers do not make up for later resets
        codec.send(ResponseHead(2 * i + 1, 204, [], end=True))
    codec.receive(b"".join(frame.serialize() for frame in frames[:-1]))
    pull(codec)
    said(codec)
    codec.receive(frames[-1].serialize())
    with pytest.raises(RemoteProtocolError) as caught:
        pull(codec)
    assert caught.value.failure.code is FailureCode.LIMIT_EXCEEDED
    assert [frame.error_code for frame in frames_of(codec, GoAwayFrame)] == [0xB]


def test_resets_after_an_answer_are_no_flood() -> None:
    codec = server(HttpLimits(max_abandoned=20))
    codec.receive(wire())
    for i in range(200):
        codec.receive(headers(2 * i + 1, POST).serialize())
        pull(codec)
        codec.send(ResponseHead(2 * i + 1, 200, []))
        codec.receive(RstStreamFrame(2 * i + 1, 0).serialize())
        assert pull(codec) == [Reset(2 * i + 1, 0)]


def test_frames_that_say_nothing_give_others_their_turn() -> None:
    codec = server()
    codec.receive(wire(*[PingFrame(0, b"12345678")] * 1000, headers(1, GET, "END_STREAM")))
    assert codec.next_event() == Noise()
    assert codec.buffered > 15000
    heard = pull(codec)
    assert isinstance(heard[0], RequestHead)
    assert len(frames_of(codec, PingFrame)) == 1000


def test_frames_without_an_event_are_counted_and_nothing_else() -> None:
    """The gateway cuts off clients that send too many of them; a long body in small pieces is none of these."""
    codec = started(headers(1, POST))
    before = codec.noise
    for byte in PingFrame(0, b"12345678").serialize() * 5:
        codec.receive(bytes((byte,)))
        assert pull(codec) == []
    assert codec.noise == before + 5
    for _ in range(100):
        codec.receive(DataFrame(1, b"x").serialize())
        assert pull(codec) == [Data(1, b"x", 1)]
    assert codec.noise == before + 5


def test_data_of_a_request_that_is_over_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, each frame was looked for together with up to 64 behind it, and then read alone."""
    headers_read = 0

    class CountingHeader:
        def unpack_from(self, data: bytearray, at: int) -> tuple[int, ...]:
            nonlocal headers_read
            headers_read += 1
            return header.unpack_from(data, at)

    header = h2_frames._FRAME_HEADER
    monkeypatch.setattr(h2_frames, "_FRAME_HEADER", CountingHeader())
    codec = started(headers(1, POST))
    codec.send(ResponseHead(1, 400, [], end=True))
    codec.receive(DataFrame(1, b"x").serialize() * 1000)
    assert not any(isinstance(event, Data) for event in pull(codec))
    assert headers_read < 1100


def test_data_on_the_connection_itself_is_refused() -> None:
    codec = started(headers(1, POST))
    codec.receive(bytes.fromhex("000001 00 00 00000000 00"))
    with pytest.raises(RemoteProtocolError):
        pull(codec)


def test_a_change_of_the_windows_counts_by_the_streams_that_it_changes() -> None:
    codec = started(*(headers(2 * i + 1, POST) for i in range(40)))
    before = codec.noise
    codec.receive(SettingsFrame(0, settings={4: 100_000}).serialize())
    assert pull(codec) == []
    assert before < codec.noise <= before + 20


def test_padding_gives_back_no_more_window_than_it_took() -> None:
    codec = started(headers(1, POST), limits=HttpLimits(stream_window=65535, connection_window=65536))
    padded = DataFrame(1, bytes(1000), pad_length=100, flags=["PADDED"])
    codec.receive(padded.serialize() * 40)
    assert len(pull(codec)) == 40
    given = [(frame.stream_id, frame.window_increment) for frame in frames_of(codec, WindowUpdateFrame)]
    assert all(sum(size for one, size in given if one == stream_id) <= 40 * 101 for stream_id in (0, 1))


def test_a_client_cannot_make_us_remember_headers() -> None:
    """It announces a table of 4 GiB, and each of its requests brings a header that the answer repeats."""
    codec = server()
    codec.receive(wire(SettingsFrame(0, settings={1: 2**32 - 1})))
    for i in range(50):
        codec.receive(headers(2 * i + 1, GET, "END_STREAM").serialize())
        pull(codec)
        codec.send(ResponseHead(2 * i + 1, 200, [("x", f"{i}" + "y" * 1000)]))
        codec.send(End(2 * i + 1))
        said(codec)
    assert codec._h2.encoder.header_table._current_size <= 4096


@pytest.mark.parametrize("size", [0, 100, 4096, 2**32 - 1])
def test_headers_tell_that_their_table_became_smaller(size: int) -> None:
    """RFC 7541, 4.2; of a larger table than the usual one no use is made."""
    codec = server()
    codec.receive(wire(SettingsFrame(0, settings={1: size}), headers(1, GET, "END_STREAM")))
    pull(codec)
    codec.send(ResponseHead(1, 200, [("x", "y")]))
    (frame,) = frames_of(codec, HeadersFrame)
    decoder = Decoder()
    decoder.max_allowed_table_size = min(size, 4096)
    assert [(str(name), str(value)) for name, value in decoder.decode(frame.data)] == [(":status", "200"), ("x", "y")]
    assert (frame.data[0] & 0xE0 == 0x20) is (size < 4096)


def test_settings_are_not_hoarded() -> None:
    codec = server()
    codec.receive(wire())
    for i in range(0, 60_000, 1000):
        unknown = b"".join(struct.pack(">HL", code, 1) for code in range(100 + i, 1100 + i))
        codec.receive(len(unknown).to_bytes(3, "big") + b"\x04\0\0\0\0\0" + unknown)
        codec.receive(SettingsFrame(0, settings={1: i}).serialize())
        pull(codec)
    assert len(codec._h2.remote_settings) < 20
    assert len(codec._h2.encoder.table_size_changes) <= 2
    codec.receive(headers(1, GET, "END_STREAM").serialize())
    pull(codec)
    codec.send(ResponseHead(1, 204, []))
    assert len(frames_of(codec, HeadersFrame)) == 1


def test_more_streams_than_allowed_are_refused() -> None:
    codec = server(HttpLimits(max_streams=3))
    codec.receive(wire(*[headers(2 * i + 1, POST) for i in range(5)]))
    assert [event.stream_id for event in pull(codec)] == [1, 3, 5]
    assert [(frame.stream_id, frame.error_code) for frame in frames_of(codec, RstStreamFrame)] == [(7, 7), (9, 7)]
    assert codec.noise >= 2


@pytest.mark.parametrize("flags", [["END_HEADERS"], []])
def test_header_blocks_are_bounded(flags: list[str]) -> None:
    block = b"".join(b"\x00\x01%c%s" % (97 + i, length_of(1000)) + b"v" * 1000 for i in range(15))
    first = HeadersFrame(1, block)
    more = [ContinuationFrame(1, block) for _ in range(8)]
    more[-1].flags |= set(flags)
    codec = server()
    codec.receive(wire(first, *more))
    with pytest.raises(RemoteProtocolError) as caught:
        pull(codec)
    assert caught.value.failure.code is FailureCode.LIMIT_EXCEEDED


def test_a_header_bomb_is_refused() -> None:
    # One large value for the table, then 4,000 references to it: 6 KB that would become 8 MB.
    block = b"\x40\x01a" + length_of(2000) + b"v" * 2000
    pseudo = headers(1, GET).data
    bomb = HeadersFrame(1, pseudo + block + b"\xbe" * 4000, flags=["END_HEADERS", "END_STREAM"])
    codec = server()
    codec.receive(wire(bomb))
    with pytest.raises(RemoteProtocolError) as caught:
        pull(codec)
    assert caught.value.failure.code is FailureCode.LIMIT_EXCEEDED


def test_what_is_held_is_bounded() -> None:
    announced = (2**24 - 1).to_bytes(3, "big") + b"\x00\x00" + (1).to_bytes(4, "big")
    codec = server()
    codec.receive(wire(headers(1, POST)) + announced)
    with pytest.raises(RemoteProtocolError):  # before any of its body has come
        pull(codec)
    full = started(headers(1, POST))
    full.receive(b"\x01\x00\x00\x00\x00" + (1).to_bytes(4, "big") + b"x" * 65535)
    assert pull(full) == []
    assert full.buffered == 65535 + 9


def test_more_data_than_the_window_ends_the_connection() -> None:
    codec = started(headers(1, POST), limits=HttpLimits(stream_window=70000, connection_window=100000))
    codec.receive(b"".join(DataFrame(1, b"x" * 16384).serialize() for _ in range(5)))
    with pytest.raises(RemoteProtocolError):
        pull(codec)
