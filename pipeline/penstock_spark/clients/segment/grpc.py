"""Unary gRPC calls to a controller over HTTP/2, one after the other."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from penstock_codecs.codec import NEED_DATA, Role
from penstock_codecs.failures import FailureCode, RemoteProtocolError, fail
from penstock_codecs.grpc import GrpcError, MessageReader, basic, call_headers, error_in, failure_code, frame
from penstock_codecs.http import Body, Credit, Data, End, Noise, RequestHead, ResponseHead
from penstock_codecs.http.h2 import Http2Connection
from penstock_proto import pravega_controller_pb2 as pb
from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.clients.failing import lost
from penstock_spark.clients.pool import PooledConnection
from penstock_spark.clients.transport import BlockingTransport

__all__ = ["GrpcConnection"]

_SERVICE: Final = pb.DESCRIPTOR.services_by_name["ControllerService"]
_ALL: Final = 2**31


class GrpcConnection(PooledConnection):
    """See `pool.Connection`. A token `user:password` is sent as Pravega's own clients do (Basic), any other as
    Bearer."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._transport = BlockingTransport(endpoint, alpn=("h2",))
        self._codec = Http2Connection(Role.CLIENT, scheme="https" if endpoint.tls else "http")
        self._clean = True
        self._authorization = _authorization(endpoint.token)

    @property
    def clean(self) -> bool:
        return self._clean and self._transport.open and not self._codec.closed

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def call(self, name: str, request: Message) -> Any:
        """Return the answer to a call of the controller. Raises OperationFailed with the failure of the status, or
        UNAVAILABLE."""
        self._clean = False
        head, body, trailers = self._exchange(name, request)
        self._clean = True
        answered = dict(head.headers)
        if "grpc-status" not in answered and head.status != 200:
            raise fail(FailureCode.OTHER, f"{self._endpoint} answers {name} with HTTP status {head.status}")
        try:
            error = error_in(trailers or head.headers)
            if error is not None:
                raise error
            reader = MessageReader(answered.get("grpc-encoding"))
            for piece in body:
                reader.receive(piece)
            return GetMessageClass(_SERVICE.methods_by_name[name].output_type).FromString(reader.finish())
        except GrpcError as error:
            message = error.message or error.code.name
            raise fail(failure_code(error.code), f"{self._endpoint}: {name}: {message}") from None
        except DecodeError:
            raise fail(FailureCode.OTHER, f"{self._endpoint} answers {name} with a message of another kind") from None

    def _exchange(self, name: str, request: Message) -> tuple[ResponseHead, list[bytes], Any]:
        stream = self._codec.new_stream()
        path = f"/{_SERVICE.full_name}/{name}"
        headers = call_headers(self._endpoint.request_seconds, self._authorization)
        scheme = "https" if self._endpoint.tls else "http"
        self._codec.send(RequestHead(stream, "POST", path, headers, self._endpoint.authority, scheme))
        self._codec.send(Body(stream, [frame(request.SerializeToString())], end=True))
        head: ResponseHead | None = None
        body: list[bytes] = []
        reader_bytes = 0
        while True:
            event = self._next()
            if isinstance(event, ResponseHead):
                head = event
            elif isinstance(event, Data):
                body.append(bytes(event.data))
                reader_bytes += len(event.data)
                self._codec.send(Credit(stream, event.credit))
            elif isinstance(event, End) and head is not None:
                return head, body, event.trailers
            elif not isinstance(event, Noise):
                raise lost(self._endpoint, f"it ended the call {name} before it was answered")

    def _next(self) -> Any:
        try:
            while True:
                self._flush()
                event = self._codec.next_event()
                if event is not NEED_DATA:
                    return event
                self._flush()
                self._codec.receive(self._transport.receive())
        except RemoteProtocolError as error:
            raise lost(self._endpoint, error.failure.message) from None

    def _flush(self) -> None:
        pieces = self._codec.output(_ALL)
        if pieces:
            self._transport.send(pieces)


def _authorization(token: str) -> str | None:
    user, colon, password = token.partition(":")
    if colon:
        return basic(user, password)
    return f"Bearer {token}" if token else None
