"""Messages, problems and conversations as rows of a table with fixed column widths, so that each row can be printed at
once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from penstock.capture.dialogue import Message, Problem, SeenRecord
from penstock.capture.dialogue.summaries import Summary
from penstock.capture.pcapng import Sender
from penstock.recorder.captures.lines import utc
from penstock.recorder.captures.text import column, duration, fields_text, printable, shortened, size

__all__ = ["CONVERSATION_HEAD", "MESSAGE_HEAD", "RowFormat", "record_row"]

ARROWS: Final = {Sender.CLIENT: "->", Sender.SERVER: "<-"}
"""Direction of a message: from the client, from the server."""
_FIELDS_WIDTH: Final = 120
_BODY_WIDTH: Final = 80

_KIND_WIDTH: Final = 18
_STREAM_WIDTH: Final = 24
_NAME_WIDTH: Final = 20

_MESSAGE: Final = "{:>12}  {:>6} {} {:<7} {} {} {:>9} {:>6} {:>9}  {:<12} {}"
MESSAGE_HEAD: Final = _MESSAGE.format(
    *("TIME", "CONN", "  ", "LAYER", column("KIND", _KIND_WIDTH), column("STREAM", _STREAM_WIDTH)),
    *("SIZE", "EXCH", "ANSWER", "STATE", "DETAILS"),
)
_CONVERSATION: Final = "{:>12}  {:>6}  {:<14} {} {:<21} {:>10} {:>10} {:>8} {:>6} {:>9}  {:<14} {}"
CONVERSATION_HEAD: Final = _CONVERSATION.format(
    "TIME",
    "CONN",
    "PROTOCOL",
    column("AT", _NAME_WIDTH),
    "CLIENT",
    "SENT",
    "RECEIVED",
    "MESSAGES",
    "ERRORS",
    "LASTED",
    "ENDED",
    "NOTES",
)


class RowFormat:
    """Formats rows of messages and problems. Times are seconds since the first event, or, with `absolute`, UTC."""

    def __init__(self, absolute: bool = False, bodies: bool = False) -> None:
        self._absolute = absolute
        self._bodies = bodies
        self._start_ns: int | None = None

    def begin(self, time_ns: int) -> None:
        """Set the start of the capture; later calls have no effect."""
        if self._start_ns is None:
            self._start_ns = time_ns

    def time(self, time_ns: int) -> str:
        """Return a time as text."""
        if self._absolute:
            return utc(time_ns)[11:]
        return f"{(time_ns - (self._start_ns or 0)) / 1_000_000_000:.6f}"

    def of(self, item: Message | Problem) -> Iterator[str]:
        """Yield the row of a message or a problem, and with `bodies` one row for each record."""
        if isinstance(item, Problem):
            yield self.problem(item)
            return
        yield self.message(item)
        if self._bodies:
            for record in item.own_records:
                yield record_row(record)

    def message(self, message: Message) -> str:
        """Return the row of a message."""
        failure = f"!! {printable(message.failure)}" if message.failure else ""
        withheld = f"({size(message.withheld)} withheld by redaction) " if message.withheld else ""
        return _MESSAGE.format(
            self.time(message.end_ns),
            f"#{message.conversation.number}",
            ARROWS[message.sender],
            message.layer,
            column(printable(message.kind), _KIND_WIDTH),
            column(printable(message.stream), _STREAM_WIDTH),
            size(message.length),
            "" if message.exchange is None else message.exchange,
            duration(message.answers),
            message.state,
            withheld + (failure or _fields(message.fields)),
        ).rstrip()

    def problem(self, problem: Problem) -> str:
        """Return the row of a problem."""
        clause = f" ({problem.clause})" if problem.clause else ""
        what = f"!! byte {problem.offset}: {printable(problem.rule)}{clause}"
        number = f"#{problem.conversation.number}"
        return f"{self.time(problem.time_ns):>12}  {number:>6} {ARROWS[problem.sender]} {what}"

    def conversation(self, summary: Summary) -> str:
        """Return the row that summarises a conversation."""
        conversation = summary.conversation
        notes = " ".join(f"{key}={printable(','.join(values))}" for key, values in summary.notes.items())
        return _CONVERSATION.format(
            self.time(summary.start_ns),
            f"#{conversation.number}",
            (conversation.protocol or "?") + ("+tls" if conversation.tls else ""),
            column(printable(conversation.name or str(conversation.server)), _NAME_WIDTH),
            shortened(str(conversation.client), 21),
            size(summary.sent[Sender.CLIENT]),
            size(summary.sent[Sender.SERVER]),
            summary.messages,
            summary.problems + summary.failures,
            duration(summary.end_ns - summary.start_ns),
            shortened(printable(summary.ended), 14),
            ("" if summary.whole else "(not whole) ") + shortened(notes, 100),
        ).rstrip()


def record_row(record: SeenRecord) -> str:
    """Return the row of a record, shown below its message."""
    places = {
        "seq": record.seq_num,
        "id": record.record_id,
        "at": record.offset,
        "time": record.timestamp if record.record_id is None else None,  # a record identifier contains the time
    }
    place = " ".join(f"{name} {value}" for name, value in places.items() if value is not None)
    headers = "".join(f" {_text(name)}={_text(value)}" for name, value in record.headers)
    wrong = "" if record.acknowledged else " (not acknowledged)"
    body = shortened(_text(record.body[: 4 * _BODY_WIDTH]), _BODY_WIDTH)
    return shortened(f"{'':26}{record.action} {place} {size(len(record.body))} {body}{headers}{wrong}", 240)


def _text(data: bytes) -> str:
    return printable(data.decode(errors="backslashreplace"))


def _fields(fields: Mapping[str, Any]) -> str:
    return shortened(fields_text(fields), _FIELDS_WIDTH)
