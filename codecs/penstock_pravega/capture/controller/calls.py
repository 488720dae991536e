"""Read gRPC calls: the controller's messages, by the method in the path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from penstock.capture.dialogue.http.collector import MessageCollector
from penstock.capture.dialogue.http.exchange import BodyReader, HttpProtocol, SeenExchange, header
from penstock.capture.dialogue.http.protobuf_faults import first_fault
from penstock.capture.pcapng import Sender
from penstock.model.records import StreamRef
from penstock.wire.grpc import GrpcError, MessageReader, accepts_content_type
from penstock.wire.http import RequestHead
from penstock.wire.http.observer.faults import HttpFault, TimedRange
from penstock_proto import pravega_controller_pb2 as pb

__all__ = ["ControllerCalls"]

GRPC: Final = "gRPC over HTTP2, section Length-Prefixed-Message"

_SERVICE: Final = pb.DESCRIPTOR.services_by_name["ControllerService"]
_PREFIX_BYTES: Final = 5
_SUCCESS: Final = "SUCCESS"


class CallMessage(BodyReader):
    """The one message of a side of a unary call."""

    layer = "grpc"

    def __init__(
        self, collector: MessageCollector, exchange: SeenExchange, sender: Sender, method: MethodDescriptor
    ) -> None:
        super().__init__(collector, exchange, sender)
        client = sender is Sender.CLIENT
        headers = exchange.headers if client else exchange.response_headers
        self._method = method
        self._kind = method.input_type if client else method.output_type
        self._plain = header(headers, "grpc-encoding") in (None, "identity")
        self._message = MessageReader(header(headers, "grpc-encoding"))

    def receive(self, data: memoryview, offset: int, time_ns: int) -> None:
        """Hold a piece."""
        self._places.add(offset, len(data), time_ns)
        try:
            self._message.receive(bytes(data))
        except GrpcError as error:
            raise HttpFault(self._places.offset(), error.message, GRPC) from None

    def finish(self, end: TimedRange) -> None:
        """Report the message; a server that refuses a call may send none."""
        del end
        if not self._message.held:
            return
        span = self._places.whole
        try:
            content = self._message.finish()
        except GrpcError as error:
            raise HttpFault(span.start, error.message, GRPC) from None
        try:
            message = GetMessageClass(self._kind).FromString(content)
        except DecodeError as error:
            raise self._undecodable(content, str(error)) from None
        self._name_stream(message)
        kind = self._method.name if self._sender is Sender.CLIENT else self._kind.name
        fields = {"method": self._method.name} | _fields(message)
        self._report(span, kind, fields, failure=self._refusal(message), event=message)

    @property
    def half(self) -> str:
        """Name of the message, once it has begun."""
        return "a message" if self._message.held else ""

    def _undecodable(self, content: bytes, reason: str) -> HttpFault:
        fault = first_fault(content, self._kind)
        at = _PREFIX_BYTES + (fault.at if fault is not None and self._plain else 0)
        rule = f"not a valid {self._kind.name}: {reason}" if fault is None else fault.rule
        return HttpFault(self._places.offset(at), rule, GRPC)

    def _refusal(self, message: Message) -> str:
        """Return the status of a response if its type has a success value and it is another; "" otherwise."""
        field = message.DESCRIPTOR.fields_by_name.get("status")
        if field is None or field.enum_type is None or _SUCCESS not in field.enum_type.values_by_name:
            return ""
        status = _status_of(message)
        return "" if status == _SUCCESS else f"{status}: {self._method.name}"

    def _name_stream(self, message: Message) -> None:
        """Set the exchange's stream to that of the request."""
        for part_message in (message, *(getattr(message, name, None) for name in ("streamInfo", "stream"))):
            scope, stream = getattr(part_message, "scope", None), getattr(part_message, "stream", None)
            if isinstance(scope, str) and isinstance(stream, str) and stream:
                self._exchange.ref = StreamRef(scope, stream)
                self._exchange.stream = str(self._exchange.ref)
                return


class ControllerCalls(HttpProtocol):
    """Calls of the controller; `subject` is the method."""

    def claims(self, exchange: SeenExchange, request: RequestHead, _noted: Sequence[str]) -> bool:
        service, _, name = request.target.removeprefix("/").rpartition("/")
        exchange.subject = _SERVICE.methods_by_name.get(name) if service == _SERVICE.full_name else None
        return exchange.subject is not None

    def reader(
        self, collector: MessageCollector, exchange: SeenExchange, sender: Sender, content_type: str | None
    ) -> BodyReader | None:
        return (
            CallMessage(collector, exchange, sender, exchange.subject) if accepts_content_type(content_type) else None
        )


def _fields(message: Message) -> dict[str, Any]:
    """Return the fields of a message that are set, by the names of its descriptor; bytes as sizes, enums by name.

    A response's `status` is included even if it is the enum's first value, which is not sent.
    """
    fields = {field.name: _value(field, value) for field, value in message.ListFields()}
    status = _status_of(message)
    return fields if status is None else fields | {"status": status}


def _status_of(message: Message) -> str | None:
    """Return the name of a response's `status`, or None if it has none."""
    field = message.DESCRIPTOR.fields_by_name.get("status")
    if field is None or field.enum_type is None:
        return None
    return str(_one(cast(FieldDescriptor, field), getattr(message, field.name)))


def _value(field: FieldDescriptor, value: Any) -> Any:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        of = kind.fields_by_name["value"]
        return {str(key): _one(of, element) for key, element in value.items()}
    if field.is_repeated:
        return [_one(field, element) for element in value]
    return _one(field, value)


def _one(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is not None:
        return _fields(value)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return value if named is None else named.name
    return {"bytes": len(value)} if isinstance(value, bytes) else value
