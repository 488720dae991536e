"""MCP without I/O: both revisions, their headers, sessions and errors."""

from __future__ import annotations

import base64
import json
from itertools import count
from typing import Any

import pytest

from penstock.app.management.mcp import protocol
from penstock.app.management.mcp.protocol import MODERN, SESSIONS, McpHeaders, McpServer, Reply, ToolCall

TOOLS = [{"name": "echo", "inputSchema": {"type": "object"}}, {"name": "grüße", "inputSchema": {"type": "object"}}]
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}
RESULT = {"content": [], "structuredContent": {"a": 1}, "isError": False}


@pytest.fixture
def server() -> McpServer:
    numbers = count(1)
    return McpServer(TOOLS, {"name": "penstock", "version": "1"}, "Look.", lambda: f"session-{next(numbers)}")


def request(method: str, params: dict[str, Any] | None = None, number: Any = 1) -> bytes:
    """Return the body of a request."""
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}).encode()


def modern(server: McpServer, method: str, /, params: dict[str, Any] | None = None, **headers: str | None) -> Any:
    """Send a request of the newer revision, with the headers that belong to it unless they are given."""
    params = {"_meta": META, **(params or {})}
    head = {"version": MODERN, "method": method, "name": params.get("name"), **headers}
    return server.receive(McpHeaders(**head), request(method, params))


def failed(reply: Any, status: int, code: int) -> str:
    """Return the message of an error."""
    assert isinstance(reply, Reply) and reply.message is not None
    assert (reply.status, reply.message["error"]["code"]) == (status, code), reply
    return str(reply.message["error"]["message"])


# ---- revision 2026-07-28 -------------------------------------------------------------------------------------------


def test_a_request_carries_all_that_it_needs(server: McpServer) -> None:
    found = modern(server, "server/discover").message["result"]
    assert found["supportedVersions"] == [MODERN, SESSIONS]
    assert found["capabilities"] == {"tools": {}} and found["instructions"] == "Look."
    listed = modern(server, "tools/list").message
    assert listed["id"] == 1 and listed["result"]["tools"] == TOOLS
    for result in (found, listed["result"]):
        assert (result["resultType"], result["cacheScope"], result["ttlMs"] >= 0) == ("complete", "private", True)
        assert result["_meta"]["io.modelcontextprotocol/serverInfo"] == {"name": "penstock", "version": "1"}


def test_a_call_is_returned_and_answered_when_it_is_complete(server: McpServer) -> None:
    call = modern(server, "tools/call", {"name": "echo", "arguments": {"x": 1}})
    assert isinstance(call, ToolCall)
    assert (call.id, call.tool, call.arguments) == (1, "echo", {"x": 1})
    reply = server.completed(call, RESULT)
    assert reply.message is not None and reply.message["result"].items() >= RESULT.items()
    assert reply.message["result"]["resultType"] == "complete"


@pytest.mark.parametrize(
    ("params", "headers", "code", "words"),
    [
        ({"_meta": {}}, {}, -32602, "protocolVersion is missing"),
        ({"_meta": {**META, "io.modelcontextprotocol/clientCapabilities": 1}}, {}, -32602, "clientCapabilities"),
        ({}, {"version": None}, -32020, "mcp-protocol-version is missing"),
        ({}, {"version": SESSIONS}, -32020, "mcp-protocol-version is '2025-11-25', the body has '2026-07-28'"),
        ({}, {"method": None}, -32020, "mcp-method is missing"),
        ({}, {"method": "tools/list"}, -32020, "mcp-method is 'tools/list'"),
        ({}, {"name": None}, -32020, "mcp-name is missing"),
        ({}, {"name": "other"}, -32020, "mcp-name is 'other', the body has 'echo'"),
        ({}, {"name": "=?base64?***?="}, -32020, "not valid base64"),
    ],
)
def test_headers_and_body_must_agree(
    server: McpServer, params: dict[str, Any], headers: dict[str, str], code: int, words: str
) -> None:
    assert words in failed(modern(server, "tools/call", {"name": "echo", **params}, **headers), 400, code)


def test_a_name_in_a_header_may_be_in_base64(server: McpServer) -> None:
    name = f"=?base64?{base64.b64encode('grüße'.encode()).decode()}?="
    assert isinstance(modern(server, "tools/call", {"name": "grüße"}, name=name), ToolCall)


@pytest.mark.parametrize("meta", [{}, {**META, "io.modelcontextprotocol/protocolVersion": "1900-01-01"}])
def test_another_version_is_refused_with_those_that_are_known(server: McpServer, meta: dict[str, Any]) -> None:
    reply = modern(server, "tools/list", {"_meta": meta}, version="1900-01-01")
    failed(reply, 400, -32022)
    assert reply.message["error"]["data"] == {"supported": [MODERN, SESSIONS], "requested": "1900-01-01"}


@pytest.mark.parametrize("method", ["initialize", "ping", "resources/list", "subscriptions/listen", "nonsense"])
def test_other_methods_do_not_exist(server: McpServer, method: str) -> None:
    assert repr(method) in failed(modern(server, method), 404, -32601)


def test_an_unknown_tool_is_an_error_of_the_request(server: McpServer) -> None:
    said = failed(modern(server, "tools/call", {"name": "nonsense"}), 200, -32602)
    assert said == "unknown tool: 'nonsense'; the tools are echo, grüße"


def test_arguments_are_an_object_and_the_list_is_one_page(server: McpServer) -> None:
    failed(modern(server, "tools/call", {"name": "echo", "arguments": [1]}), 200, -32602)
    failed(modern(server, "tools/list", {"cursor": "2"}), 400, -32602)


# ---- revision 2025-11-25 -------------------------------------------------------------------------------------------


def begun(server: McpServer) -> McpHeaders:
    """Begin a session and return the headers of its requests."""
    reply = server.receive(McpHeaders(), request("initialize", {"protocolVersion": SESSIONS, "capabilities": {}}))
    assert isinstance(reply, Reply) and reply.message is not None
    assert reply.message["result"]["protocolVersion"] == SESSIONS
    return McpHeaders(version=SESSIONS, session=reply.session)


def test_a_session_begins_lists_calls_and_ends(server: McpServer) -> None:
    head = begun(server)
    initialized = server.receive(head, b'{"jsonrpc": "2.0", "method": "notifications/initialized"}')
    assert initialized == Reply(status=202)
    assert server.receive(head, request("ping")) == Reply(
        status=200, message={"jsonrpc": "2.0", "id": 1, "result": {}}
    ), "peers refuse more keys in an empty result"
    listed = server.receive(head, request("tools/list"))
    assert isinstance(listed, Reply) and listed.message == {"jsonrpc": "2.0", "id": 1, "result": {"tools": TOOLS}}
    call = server.receive(head, request("tools/call", {"name": "echo"}, "a"))
    assert isinstance(call, ToolCall) and call.arguments == {}
    assert server.completed(call, RESULT).message == {"jsonrpc": "2.0", "id": "a", "result": RESULT}
    assert server.end_session(head.session) == []
    assert server.end_session(head.session) is None
    failed(server.receive(head, request("ping")), 404, -32600)


def test_a_client_that_asks_for_another_version_is_offered_this_one(server: McpServer) -> None:
    reply = server.receive(McpHeaders(), request("initialize", {"protocolVersion": "2024-11-05"}))
    assert isinstance(reply, Reply) and reply.message is not None
    assert reply.message["result"]["protocolVersion"] == SESSIONS


def test_a_session_is_named(server: McpServer) -> None:
    failed(server.receive(McpHeaders(version=SESSIONS), request("tools/list")), 400, -32600)
    failed(server.receive(McpHeaders(session="guessed"), request("tools/list")), 404, -32600)
    head = begun(server)
    failed(server.receive(McpHeaders(version="2025-06-18", session=head.session), request("ping")), 400, -32022)
    failed(server.receive(head, request("resources/list")), 200, -32601)
    for name in (None, 7, ["echo"], {}):
        failed(server.receive(head, request("tools/call", {"name": name})), 200, -32602)


def cancellation(number: Any) -> bytes:
    notice = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}
    return json.dumps(notice).encode()


def test_a_cancellation_finds_the_call_of_its_own_session(server: McpServer) -> None:
    one, other = begun(server), begun(server)
    call = server.receive(one, request("tools/call", {"name": "echo"}, 7))
    assert isinstance(call, ToolCall)
    failed(server.receive(one, request("tools/call", {"name": "echo"}, 7)), 400, -32600)
    same_number = server.receive(other, request("tools/call", {"name": "echo"}, 7))
    assert isinstance(same_number, ToolCall)
    for unknown in (8, "7", None, [7]):
        assert server.receive(one, cancellation(unknown)) == Reply(status=202)
    assert server.receive(one, cancellation(7)) == Reply(status=202, cancels=call)
    assert server.receive(one, cancellation(7)) == Reply(status=202)
    assert server.end_session(other.session) == [same_number]


def test_a_completed_call_is_not_cancelled(server: McpServer) -> None:
    head = begun(server)
    call = server.receive(head, request("tools/call", {"name": "echo"}))
    assert isinstance(call, ToolCall)
    server.completed(call, RESULT)
    assert server.receive(head, cancellation(1)) == Reply(status=202)
    assert isinstance(server.receive(head, request("tools/call", {"name": "echo"})), ToolCall)


def test_the_session_that_was_silent_for_longest_is_forgotten(
    server: McpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "MOST_SESSIONS", 2)
    one, two = begun(server), begun(server)
    server.receive(one, request("ping"))
    begun(server)
    failed(server.receive(two, request("ping")), 404, -32600)
    assert isinstance(server.receive(one, request("ping")), Reply)


# ---- messages that are none ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b'{"jsonrpc": "2.0", "method": "\xff"}', -32700),
        (b'{"jsonrpc": "2.0", "method": "\0"}', -32700),
        (b"[" * 200_000, -32700),
        (b"[]", -32600),
        (b"7", -32600),
        (b'{"method": "ping", "id": 1}', -32600),
        (b'{"jsonrpc": "1.0", "method": "ping", "id": 1}', -32600),
        (b'{"jsonrpc": "2.0", "method": "ping", "id": null}', -32600),
        (b'{"jsonrpc": "2.0", "method": "ping", "id": 1.5}', -32600),
        (b'{"jsonrpc": "2.0", "method": "ping", "id": true}', -32600),
        (b'{"jsonrpc": "2.0", "method": "ping", "id": 1, "params": []}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "result": {}}', -32600),
        (b'[{"jsonrpc": "2.0", "method": "ping", "id": 1}]', -32600),
    ],
)
def test_what_is_no_message_of_json_rpc_is_refused(server: McpServer, body: bytes, code: int) -> None:
    reply = server.receive(McpHeaders(), body)
    failed(reply, 400, code)
    assert isinstance(reply, Reply) and reply.message is not None and "id" not in reply.message


def test_a_notification_without_a_session_is_taken(server: McpServer) -> None:
    assert server.receive(McpHeaders(), cancellation(1)) == Reply(status=202)
