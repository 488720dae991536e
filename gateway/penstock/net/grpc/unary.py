"""A client's unary call."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from penstock.model.failures import fail
from penstock.net.http.client import HttpClient
from penstock.net.upstream import broke
from penstock.wire.grpc import MAX_MESSAGE, GrpcError, MessageReader, call_headers, error_in, failure_code, frame

__all__ = ["unary"]


async def unary(http: HttpClient, method: MethodDescriptor, request: Message, authorization: str | None = None) -> Any:
    """Make a call, and return the message that answers it. `http`: a client of HTTP/2.

    Raises OperationFailed: by the status of the call (`failure_code`), UPSTREAM_FAULT for an answer that breaks the
    protocol, or what `HttpClient.request` raises.
    """
    upstream, name = http.upstream.settings, method.name
    response = await http.request(
        "POST",
        f"/{method.containing_service.full_name}/{name}",
        call_headers(upstream.request_seconds, authorization),
        frame(request.SerializeToString()),
        max_body=MAX_MESSAGE + 5,
    )
    if response.header("grpc-status") is None and response.status != 200:
        raise broke(upstream, f"it answers {name} with HTTP status {response.status}")
    fields = response.trailers or response.headers
    if (refusal := error_in(fields)) is not None:
        reason = f"{name}: {refusal.message or refusal.code.name}"
        if not any(field == "grpc-status" for field, _ in fields):
            raise broke(upstream, reason)
        raise fail(failure_code(refusal.code), f"{upstream.where}: {reason}")
    try:
        reader = MessageReader(response.header("grpc-encoding"))
        reader.receive(response.body)
        return GetMessageClass(method.output_type).FromString(reader.finish())
    except GrpcError as error:
        raise broke(upstream, f"{name}: {error.message}") from None
    except DecodeError:
        raise broke(upstream, f"it answers {name} with a message of another kind") from None
