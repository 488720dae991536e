"""A conversation over HTTP as plain values that tests compare: pieces of body joined, framing headers left out."""

from collections.abc import Callable, Iterable

from penstock.model.failures import RemoteProtocolError
from penstock.wire.codec import Pull
from penstock.wire.http import Data, End, HttpCodec, Noise, Received, RequestHead, ResponseHead

Answer = Callable[[HttpCodec, Received], None]


def no_answer(codec: HttpCodec, event: Received) -> None:
    """The answer of clients, and of servers that send nothing."""


def answer_204(codec: HttpCodec, event: Received) -> None:
    """Answer each request when it is complete."""
    if isinstance(event, End):
        codec.send(ResponseHead(event.stream_id, 204, []))
        codec.send(End(event.stream_id))


def pull(codec: HttpCodec, answer: Answer = no_answer) -> list[Received]:
    """All events that there are now; RemoteProtocolError is raised."""
    events: list[Received] = []
    while not isinstance(event := codec.next_event(), Pull):
        if not isinstance(event, Noise):
            events.append(event)
            answer(codec, event)
    return events


def story(events: Iterable[Received]) -> list[object]:
    """Events of all streams, with the pieces of a stream's body joined and credits left out."""
    told: list[object] = []
    open_bodies: dict[int, list[object]] = {}
    for event in events:
        if isinstance(event, Data):
            if event.stream_id not in open_bodies:
                open_bodies[event.stream_id] = ["body", event.stream_id, b""]
                told.append(open_bodies[event.stream_id])
            open_bodies[event.stream_id][2] += event.data  # type: ignore[operator]
        elif isinstance(event, RequestHead):
            told.append(("request", event.stream_id, event.method, event.target, plain(event.headers)))
        elif isinstance(event, ResponseHead):
            told.append(("response", event.stream_id, event.status, plain(event.headers)))
        elif not isinstance(event, Noise):
            told.append(event)
    return told


def plain(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Headers without those that only one version of HTTP has."""
    return [(name, value) for name, value in headers if name not in ("host", "transfer-encoding", "connection")]


def tell(codec: HttpCodec, pieces: Iterable[bytes], answer: Answer = no_answer) -> tuple[list[object], str]:
    """Feed pieces to a codec; its story and how it ended."""
    events: list[Received] = []
    for piece in pieces:
        codec.receive(piece)
        try:
            while not isinstance(event := codec.next_event(), Pull):
                events.append(event)
                answer(codec, event)
        except RemoteProtocolError as error:
            return story(events), f"error {error.failure.code}"
    return story(events), "open"


def tells_the_same(
    make: Callable[[], HttpCodec], received: bytes, cuts: Iterable[Iterable[bytes]], answer: Answer = no_answer
) -> list[HttpCodec]:
    """Check that the events do not depend on how the bytes are cut, and that preludes can be asked for at each; return
    the codecs that had the pieces."""

    def with_preludes(codec: HttpCodec, event: Received) -> None:
        codec.preludes()
        answer(codec, event)

    whole, codecs = tell(make(), [received, b""], answer), []
    for pieces in cuts:
        codecs.append(make())
        cut = tell(codecs[-1], [*pieces, b""], with_preludes)
        assert cut == whole, f"whole gave {whole}, {pieces} gave {cut}"
    return codecs


def said(codec: HttpCodec) -> bytes:
    """Return the bytes that a codec wants written now."""
    out = b""
    while parts := codec.output(1 << 30):
        out += b"".join(parts)
    return out


def carry(source: HttpCodec, target: HttpCodec, answer: Answer = no_answer) -> list[Received]:
    """Move the output of `source` to `target`, and return the events of `target`."""
    data = said(source)
    if data:
        target.receive(data)
    return pull(target, answer)
