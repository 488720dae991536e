"""TCP as it is on real networks: out of order, sent twice, cut, and without its beginning."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.captures import by_side, conversation, read, story, written
from support.captures.blocks import (
    ACK,
    ANSWER,
    ASK,
    FIN,
    FIRST,
    REPLY,
    RST,
    SHORT,
    TOLD,
    captured,
    enhanced,
    interface,
    section,
    told,
)

from penstock.capture.pcapng import CaptureReader, CaptureWriter, Chunk, Closed, Lost, Opened, Sender

CLIENT, SERVER = Sender.CLIENT, Sender.SERVER


def test_a_syn_with_data() -> None:
    """TCP Fast Open (RFC 7413)."""
    assert told([FIRST._replace(data=b"quest"), ANSWER, ASK._replace(sequence=105, data=b"ion"), REPLY]) == TOLD


@pytest.mark.parametrize("flags", [ACK, ACK | FIN, RST, ACK | RST])
def test_what_says_nothing_is_no_conversation(flags: int) -> None:
    """The last packets of one that began before the capture did."""
    assert read(captured([ASK._replace(flags=flags, data=b"")])) == []


def test_both_ends() -> None:
    ends = [
        ASK._replace(sequence=108, acknowledgement=506, flags=ACK | FIN, data=b""),
        REPLY._replace(sequence=506, acknowledgement=109, data=b" and more"),
        REPLY._replace(sequence=515, acknowledgement=109, flags=ACK | FIN, data=b""),
        ASK._replace(sequence=109, acknowledgement=516, data=b""),
        REPLY._replace(sequence=506, data=b" and more"),  # sent once more, too late
    ]
    assert told([*SHORT, *ends]) == [
        *TOLD,
        ("closed", CLIENT, False),
        (SERVER, 6, b" and more"),
        ("closed", SERVER, False),
    ]


def test_a_reset() -> None:
    lines = told([*SHORT, REPLY._replace(sequence=506, flags=RST, data=b""), ASK._replace(sequence=108)])
    assert lines == [*TOLD, ("closed", SERVER, True)]


def test_sent_twice_and_overlapping() -> None:
    segments = [
        FIRST,
        FIRST,
        ANSWER,
        ANSWER,
        ASK,
        ASK,
        ASK._replace(sequence=99, data=b"q"),  # a keep-alive
        ASK._replace(sequence=104, data=b"tion and on"),
        ASK._replace(sequence=100, data=b"question and on and on"),
    ]
    assert told(segments) == [("opened", 0, 0, False), (CLIENT, 0, b"question and on and on")]


def test_out_of_order() -> None:
    parts = [ASK._replace(sequence=100 + place, data=bytes([97 + place])) for place in (3, 1, 2, 2, 5, 0, 4)]
    assert told([FIRST, ANSWER, *parts]) == [("opened", 0, 0, False), (CLIENT, 0, b"abcdef")]


def test_a_fin_that_comes_early() -> None:
    fin = ASK._replace(sequence=108, flags=ACK | FIN, data=b"")
    assert told([FIRST, ANSWER, fin, ASK]) == [TOLD[0], TOLD[1], ("closed", CLIENT, False)]


def test_what_is_missing_before_a_fin_is_lost() -> None:
    """Nothing else shows it where nothing that came later is held."""
    fin = ASK._replace(sequence=120, flags=ACK | FIN, data=b"")
    assert told([*SHORT, fin]) == [*TOLD, ("lost", CLIENT, 8, 12), ("closed", CLIENT, False)]
    again = [each._replace(sequence=each.sequence + 7000) for each in (FIRST, ASK)]
    (lines, others) = story(read(captured([*SHORT, fin, *again]))).values()
    assert lines == [*TOLD, ("lost", CLIENT, 8, 12), ("closed", CLIENT, False)]
    assert others == [("opened", 0, 0, False), (CLIENT, 0, b"question")]


def test_a_syn_that_is_sent_again_late() -> None:
    """Both ends do that whose peer's answer was lost; it begins no other conversation."""
    assert told([*SHORT, FIRST, ANSWER, ASK._replace(sequence=108, data=b"!")]) == [*TOLD, (CLIENT, 8, b"!")]


def test_what_stays_missing_is_lost() -> None:
    late = ASK._replace(sequence=120, data=b"later")
    assert told([*SHORT, late]) == [*TOLD, ("lost", CLIENT, 8, 12), (CLIENT, 20, b"later")]
    reset = REPLY._replace(sequence=506, flags=RST, data=b"")
    assert told([*SHORT, late, reset])[-3:] == [
        ("lost", CLIENT, 8, 12),
        (CLIENT, 20, b"later"),
        ("closed", SERVER, True),
    ]


@pytest.mark.parametrize("size", [1, 1000])
def test_no_more_is_held_than_the_window(size: int) -> None:
    reader = CaptureReader(window=100_000)
    reader.receive(captured([FIRST, ANSWER]))
    list(reader.events())
    waited = 0
    for place in range(10_000):
        reader.receive(enhanced(ASK._replace(sequence=150 + place * size, data=bytes(size)).ip()))
        if any(isinstance(event, Lost) for event in reader.events()):
            break
        waited += size + 200
    assert 90_000 < waited <= 100_000


def test_all_conversations_hold_so_much_together() -> None:
    """Of more, those that have waited longest wait no more; what comes late for them is not believed."""
    reader = CaptureReader(held=10 * 300)
    late = [ASK._replace(source_port=1000 + number, sequence=200, data=bytes(100)) for number in range(30)]
    for number, each in enumerate(late):
        reader.receive((captured([]) if not number else b"") + enhanced(FIRST._replace(source_port=1000 + number).ip()))
        reader.receive(enhanced(each.ip()))
        lost = [event.conversation.client.port for event in reader.events() if isinstance(event, Lost)]
        assert lost == ([] if number < 10 else [990 + number])
    reader.receive(enhanced(late[25]._replace(sequence=100, data=bytes(100)).ip()))
    assert sum(len(event.data) for event in reader.events() if isinstance(event, Chunk)) == 200


def test_packets_that_were_cut() -> None:
    """With a snap length, missing bytes are known at once."""
    whole = ASK.ip()
    file = captured([FIRST, ANSWER]) + enhanced(whole[:43], original=len(whole))
    file += enhanced(ASK._replace(sequence=108, data=b"!").ip())
    (lines,) = story(read(file)).values()
    assert lines == [("opened", 0, 0, False), (CLIENT, 0, b"que"), ("lost", CLIENT, 3, 5), (CLIENT, 8, b"!")]


def test_without_its_beginning() -> None:
    """The one with the lower port is the server, and places are sequence numbers, which are told apart beyond 4 GiB."""
    reply = REPLY._replace(sequence=2**32 - 3)
    segments = [reply, ASK, reply._replace(sequence=3, data=b"more")]
    events = read(captured(segments))
    assert story(events) == {
        (1, ""): [
            ("opened", 108, 2**32 - 3, False),
            (SERVER, 2**32 - 3, b"answermore"),
        ]
    }
    assert events[0].conversation.client.port == 50_000


def test_without_the_first_syn() -> None:
    assert told(SHORT[1:]) == TOLD
    assert told([SHORT[0], *SHORT[2:]]) == TOLD


def test_ports_used_again() -> None:
    again = [
        each._replace(sequence=each.sequence + 7777, acknowledgement=each.acknowledgement + 7777) for each in SHORT
    ]
    assert story(read(captured([*SHORT, *again]))) == {(1, ""): TOLD, (2, ""): TOLD}


def test_the_same_ends_on_two_interfaces() -> None:
    """A packet that goes by twice is not one that is sent twice."""
    file = section() + interface() + interface()
    file += b"".join(enhanced(each.ip(), number=number) for each in SHORT for number in (0, 1))
    assert story(read(file)) == {(1, ""): TOLD, (2, ""): TOLD}


def test_only_so_many_conversations_are_tracked() -> None:
    """Those that were silent longest are forgotten, and it is said."""
    reader = CaptureReader(max_conversations=10)
    segments = []
    for number in range(40):
        segments += [each._replace(source_port=1000 + number) for each in (FIRST, ASK)]
        segments.append(ASK._replace(source_port=1000, sequence=108 + number, data=b"!"))
    events = read(captured(segments), reader=reader)
    lost = [event for event in events if isinstance(event, Lost)]
    assert [event.conversation.client.port for event in lost] == list(range(1001, 1031))
    assert all(event.length == 0 for event in lost)
    assert len(reader._closed) <= 60
    first = [event for event in events if event.conversation.client.port == 1000]
    assert by_side(first)[CLIENT] == b"question" + b"!" * 40


@given(st.binary(min_size=1, max_size=400), st.integers(0, 2**32 - 1), st.data())
def test_any_order_of_any_pieces(sent: bytes, start: int, data: st.DataObject) -> None:
    """Sent in pieces that overlap, come in any order and more than once: the bytes are the same, each once."""
    pieces = [(0, len(sent))]
    for _ in range(data.draw(st.integers(0, 20))):
        begin = data.draw(st.integers(0, len(sent) - 1))
        pieces.append((begin, data.draw(st.integers(begin + 1, len(sent)))))
    order = data.draw(st.permutations(pieces))
    ask = ASK._replace(acknowledgement=500)
    segments = [FIRST._replace(sequence=start - 1), ANSWER._replace(acknowledgement=start % 2**32)]
    segments += [ask._replace(sequence=start + begin, data=sent[begin:end]) for begin, end in order]
    events = read(captured(segments))
    assert by_side(events)[CLIENT] == sent
    place = 0
    for event in events:
        if isinstance(event, Chunk):
            assert event.offset == place
            place += len(event.data)


def test_a_connection_with_itself() -> None:
    """Both its directions are the same: its bytes are no use, but nothing fails."""
    same = {"target": FIRST.source, "target_port": FIRST.source_port}
    read(captured([each._replace(**same) for each in (FIRST, ASK, ASK._replace(flags=RST), FIRST)]))


def test_files_of_one_recording() -> None:
    """A conversation goes on in the next file as the same object; one of other people's does too."""
    one = conversation()
    writer = CaptureWriter("x")
    first = written([Opened(one, 1), Chunk(one, 2, CLIENT, 0, b"question")], writer) + captured([FIRST, ANSWER, ASK])
    rest = written(
        [Chunk(one, 3, SERVER, 0, b"answer"), Closed(one, 4, CLIENT, reset=True)], CaptureWriter("x", writer)
    )
    again = written([Opened(one, 5)])
    reader = CaptureReader()
    events = []
    for file in (first, rest + captured([REPLY]), again):
        reader.receive(file)
        events += reader.events()
        assert reader.recognized and reader.damage is None
        reader.next_file()
        assert not reader.recognized
    ours = [event for event in events if event.conversation.run]
    assert [event.conversation is ours[0].conversation for event in ours] == [True] * 5 + [False]
    assert ours[2] == Opened(ours[0].conversation, 3, 8, 0, continued=True)
    assert story(event for event in events if not event.conversation.run) == {(1, ""): TOLD}


def test_files_of_two_gateways_with_the_same_addresses() -> None:
    """Networks of containers are all alike. Their files may stand in one directory, in the order of their names."""
    runs = [replace(conversation(), run=run) for run in ("one", "two")]
    writers = [CaptureWriter("x"), CaptureWriter("x")]
    files = [
        written([Opened(one, 1), Chunk(one, 2, CLIENT, 0, b"que")], w) for one, w in zip(runs, writers, strict=True)
    ]
    for one, writer in zip(runs, writers, strict=True):
        rest = [Chunk(one, 3, CLIENT, 3, b"stion"), Closed(one, 4, CLIENT), Closed(one, 4, SERVER)]
        files.append(written(rest, CaptureWriter("x", writer)))
    reader, events = CaptureReader(), []
    for file in files:
        reader.receive(file)
        events += reader.events()
        reader.next_file()
    ends = [("closed", CLIENT, False), ("closed", SERVER, False)]
    whole = [("opened", 0, 0, False), (CLIENT, 0, b"que"), ("opened", 3, 0, True), (CLIENT, 3, b"stion"), *ends]
    assert story(events) == {(1, "one"): whole, (1, "two"): whole}
    assert len({event.conversation for event in events}) == 2


@pytest.mark.parametrize("key", ["connection", "side", "client_offset", "server_offset"])
def test_identities_that_say_too_little(key: str) -> None:
    """A comment that looks like ours, but is none: TCP alone says what it says, and the comment is counted."""
    one = conversation()
    file = written([Opened(one, 1), Chunk(one, 2, CLIENT, 0, b"question")])
    value = {"connection": "1", "side": "front", "client_offset": "0", "server_offset": "0"}[key]
    broken = file.replace(f"{key}={value}".encode(), f"{key}={'x' * len(value)}".encode())
    assert broken != file
    reader = CaptureReader()
    assert story(read(broken, reader=reader)) == {(1, ""): TOLD[:2]}
    assert reader.ignored == {"comment": 1}


def test_ours_without_its_comments() -> None:
    """As `editcap -F pcap` leaves it: TCP alone says the same."""
    one = conversation()
    data = bytes(range(256)) * 1000
    events = [
        Opened(one, 1),
        Chunk(one, 2, CLIENT, 0, b"question"),
        Chunk(one, 3, SERVER, 0, data),
        Closed(one, 4, CLIENT),
        Closed(one, 5, SERVER),
    ]
    bare = written(events).replace(b"penstock connection", b"something different")
    assert list(story(read(bare)).values()) == list(story(events).values())
