"""Read gRPC calls: the controller's messages, by the method in the path."""

from __future__ import annotations

from typing import Final

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from penstock_analysis.capture import Sender
from penstock_analysis.dialogue.http.clauses import GRPC
from penstock_analysis.dialogue.http.exchange import Exchange
from penstock_analysis.dialogue.http.places import Span
from penstock_analysis.dialogue.http.protobuf_faults import first_fault
from penstock_analysis.dialogue.http.readers import Reader
from penstock_analysis.dialogue.http.shapes import protobuf_fields, status_of
from penstock_analysis.dialogue.http.targets import Target, header
from penstock_analysis.dialogue.http.telling import Fault, Teller
from penstock_codecs.grpc import GrpcError, MessageReader
from penstock_codecs.model import StreamRef
from penstock_proto import pravega_controller_pb2 as pb

__all__ = ["CallMessage", "method_of"]

_SERVICE: Final = pb.DESCRIPTOR.services_by_name["ControllerService"]
_PREFIX_BYTES: Final = 5
_SUCCESS: Final = "SUCCESS"


def method_of(target: str) -> MethodDescriptor | None:
    """Return the method that a path names, or None if it is not one of the controller's."""
    service, _, name = target.removeprefix("/").rpartition("/")
    return _SERVICE.methods_by_name.get(name) if service == _SERVICE.full_name else None


class CallMessage(Reader):
    """The one message of a side of a unary call."""

    layer = "grpc"

    def __init__(self, teller: Teller, exchange: Exchange, sender: Sender, method: MethodDescriptor) -> None:
        super().__init__(teller, exchange, sender)
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
            raise Fault(self._places.offset(), error.message, GRPC) from None

    def finish(self, end: Span) -> None:
        """Report the message; a server that refuses a call may send none."""
        del end
        if not self._message.held:
            return
        span = self._places.whole
        try:
            content = self._message.finish()
        except GrpcError as error:
            raise Fault(span.start, error.message, GRPC) from None
        try:
            message = GetMessageClass(self._kind).FromString(content)
        except DecodeError as error:
            raise self._undecodable(content, str(error)) from None
        self._name_stream(message)
        kind = self._method.name if self._sender is Sender.CLIENT else self._kind.name
        fields = {"method": self._method.name} | protobuf_fields(message)
        self._say(span, kind, fields, failure=self._refusal(message), event=message)

    @property
    def half(self) -> str:
        """Name of the message, once it has begun."""
        return "a message" if self._message.held else ""

    def _undecodable(self, content: bytes, why: str) -> Fault:
        found = first_fault(content, self._kind)
        at = _PREFIX_BYTES + (found.at if found is not None and self._plain else 0)
        rule = f"not a valid {self._kind.name}: {why}" if found is None else found.rule
        return Fault(self._places.offset(at), rule, GRPC)

    def _refusal(self, message: Message) -> str:
        """Return the status of a response if its type has a success value and it is another; "" otherwise."""
        field = message.DESCRIPTOR.fields_by_name.get("status")
        if field is None or field.enum_type is None or _SUCCESS not in field.enum_type.values_by_name:
            return ""
        status = status_of(message)
        return "" if status == _SUCCESS else f"{status}: {self._method.name}"

    def _name_stream(self, message: Message) -> None:
        """Set the exchange's stream to that of the request."""
        for one in (message, *(getattr(message, name, None) for name in ("streamInfo", "stream"))):
            scope, stream = getattr(one, "scope", None), getattr(one, "stream", None)
            if isinstance(scope, str) and isinstance(stream, str) and stream:
                ref = StreamRef(scope, stream)
                self._exchange.target = Target(None, ref, str(ref))
                return
