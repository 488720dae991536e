"""The Model Context Protocol: any body of a POST, in a session, in none, and with the headers of either revision."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any, Final

from penstock.app.management.mcp.protocol import MODERN, SESSIONS, McpHeaders, McpServer, Reply, ToolCall

WORDS: Final = (
    b"tools/call",
    b"tools/list",
    b"initialize",
    b"notifications/cancelled",
    b"requestId",
    b"echo",
    b"_meta",
)
TOOLS: Final = [{"name": "echo", "inputSchema": {"type": "object"}}]
STATUSES: Final = (200, 202, 400, 404)


def seeds() -> Iterator[bytes]:
    """Yield requests and notifications of both revisions."""
    meta = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
    for method, params in (
        ("initialize", {"protocolVersion": SESSIONS}),
        ("server/discover", {"_meta": meta}),
        ("tools/list", {"_meta": meta, "cursor": "1"}),
        ("tools/call", {"_meta": meta, "name": "echo", "arguments": {"x": [1]}}),
        ("notifications/cancelled", {"requestId": 1}),
        ("ping", {}),
    ):
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        yield json.dumps(message).encode()
        yield json.dumps(message | {"id": 1}).encode()


def check(data: bytes) -> None:
    """Check that each body is answered, with the id of its request, and that a call is answered once it is complete."""
    numbers = count()
    server = McpServer(TOOLS, {"name": "fuzz", "version": "1"}, "", lambda: str(next(numbers)))
    begun = server.receive(McpHeaders(), b'{"jsonrpc":"2.0","id":0,"method":"initialize"}')
    assert isinstance(begun, Reply)
    for head in (
        McpHeaders(),
        McpHeaders(version=SESSIONS, session=begun.session),
        McpHeaders(version=MODERN, method="tools/call", name="echo"),
        McpHeaders(version=MODERN, method="tools/list"),
    ):
        taken = server.receive(head, data)
        if isinstance(taken, ToolCall):
            assert taken.tool == "echo"
            taken = server.completed(taken, {"content": [], "isError": False})
        assert taken.status in STATUSES
        if taken.message is not None:
            _is_answer(taken.message)


def _is_answer(message: dict[str, Any]) -> None:
    assert message["jsonrpc"] == "2.0" and ("result" in message) != ("error" in message)
    assert "result" not in message or isinstance(message["id"], int | str)
    json.dumps(message)
