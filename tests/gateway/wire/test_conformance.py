"""The laws catch codecs that break them: each broken codec here breaks exactly one."""

import pytest

from penstock.model.failures import Failure, FailureCode, RemoteProtocolError
from penstock.wire import conformance
from penstock.wire.codec import NEED_DATA, Pull


class Lines:
    """A correct codec: lines of at most ten bytes."""

    def __init__(self) -> None:
        self.held = b""

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        self.held += bytes(data)

    def next_event(self) -> bytes | Pull:
        line, newline, rest = self.held.partition(b"\n")
        if len(line) > 10:
            self.held = self.held[:11]
            raise RemoteProtocolError(Failure(FailureCode.BAD_FORMAT, "line over ten bytes"))
        if not newline:
            return NEED_DATA
        self.held = rest
        return line

    def send(self, event: bytes) -> list[bytes]:
        return [event, b"\n"]

    @property
    def buffered(self) -> int:
        return len(self.held)


class SeesPieces(Lines):
    def receive(self, data: bytes | bytearray | memoryview) -> None:
        self.held += bytes(data) or b""
        if data and not self.held.endswith(b"\n"):
            self.held += b"\n"


class Surprises(Lines):
    def next_event(self) -> bytes | Pull:
        int(self.held[:1] or b"0")
        return super().next_event()


class GoesOn(Lines):
    def next_event(self) -> bytes | Pull:
        try:
            return super().next_event()
        except RemoteProtocolError:
            self.held = b""
            raise


class Hoards(Lines):
    def next_event(self) -> bytes | Pull:
        return NEED_DATA if b"\n" not in self.held else super().next_event()


SAMPLE = b"one\ntwo\nthree\n"


def test_a_correct_codec_keeps_every_law() -> None:
    for at in range(len(SAMPLE) + 1):
        conformance.cut_anywhere(Lines, SAMPLE, [at])
        conformance.prefix(Lines, SAMPLE, at)
    assert conformance.no_surprise(Lines, b"x" * 20)[1].startswith("error")
    conformance.bounded(Lines, b"x" * 100_000, limit=5_000)


def test_law_1_is_caught() -> None:
    with pytest.raises(AssertionError, match="law 1"):
        conformance.cut_anywhere(SeesPieces, SAMPLE, [2])


def test_law_2_is_caught() -> None:
    with pytest.raises(AssertionError, match="law 2"):
        conformance.no_surprise(Surprises, SAMPLE)


def test_going_on_after_an_error_is_caught() -> None:
    with pytest.raises(AssertionError, match="law 2: went on"):
        conformance.no_surprise(GoesOn, b"x" * 20)


def test_law_3_is_caught() -> None:
    with pytest.raises(AssertionError, match="law 3"):
        conformance.bounded(Hoards, b"x" * 100_000, limit=5_000)


def test_law_4_is_caught() -> None:
    class TellsTheEnd(Lines):
        def next_event(self) -> bytes | Pull:
            event = super().next_event()
            return event if isinstance(event, Pull) else event + (b"!" if not self.held else b"")

    with pytest.raises(AssertionError, match="law 4"):
        conformance.prefix(TellsTheEnd, SAMPLE, 4)
