"""MCP without I/O: `McpServer` takes the messages of clients and returns replies, or calls of tools to carry out.

Clauses name pages of modelcontextprotocol.io/specification/2026-07-28, or of 2025-11-25 where they say so.
"""

from __future__ import annotations

import base64
import binascii
from collections import OrderedDict
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from penstock.model.failures import json_fault

__all__ = ["MODERN", "SESSIONS", "McpHeaders", "McpServer", "Reply", "RpcCode", "ToolCall"]

MODERN: Final = "2026-07-28"
"""The revision without sessions: each request says its version (basic/versioning)."""
SESSIONS: Final = "2025-11-25"
"""The revision whose clients begin with `initialize` and name their session from then on."""
MOST_SESSIONS: Final = 1000
"""Most sessions; the one that was silent for longest is forgotten, and its client begins another."""
_FRESH_MS: Final = 300_000
"""Time for which clients may keep the list of tools, in ms: it changes with the program only."""

_META: Final = "io.modelcontextprotocol/"
_VERSION: Final = f"{_META}protocolVersion"
_CAPABILITIES: Final = f"{_META}clientCapabilities"
_BASE64: Final = ("=?base64?", "?=")


class RpcCode(IntEnum):
    """Codes of errors (basic, "Error Codes")."""

    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    HEADER_MISMATCH = -32020
    UNSUPPORTED_VERSION = -32022


class McpHeaders(msgspec.Struct, frozen=True, kw_only=True):
    """The headers of a POST that the protocol reads; None if missing (basic/transports/streamable-http)."""

    version: str | None = None
    method: str | None = None
    name: str | None = None
    session: str | None = None


class ToolCall(msgspec.Struct, frozen=True, eq=False):
    """A call to carry out, then to give to `McpServer.completed`. `session`: "" for the revision without sessions."""

    id: int | str
    tool: str
    arguments: dict[str, Any]
    session: str = ""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP status and the JSON of the answer, None for none. `session`: the ID to send in a header. `cancels`: a
    running call whose result is no longer wanted."""

    status: int
    message: dict[str, Any] | None = None
    session: str = ""
    cancels: ToolCall | None = None


class _Message(msgspec.Struct, frozen=True):
    """A JSON-RPC request or notification; answers of clients have no method."""

    jsonrpc: str
    method: str
    id: int | str | UnsetType = UNSET
    params: dict[str, Any] | UnsetType = UNSET

    @property
    def given(self) -> dict[str, Any]:
        return {} if self.params is UNSET else self.params

    @property
    def meta(self) -> dict[str, Any]:
        meta = self.given.get("_meta")
        return meta if isinstance(meta, dict) else {}


class _Refused(Exception):
    """An error answer. `data`: as in JSON-RPC."""

    def __init__(self, code: RpcCode, message: str, status: int = 400, data: object = None) -> None:
        super().__init__(message)
        self.status = status
        self.error = {"code": int(code), "message": message} | ({} if data is None else {"data": data})


class _Session(msgspec.Struct):
    running: dict[int | str, ToolCall] = msgspec.field(default_factory=dict)


class McpServer:
    """The server's side. `tools`: their definitions (server/tools, "Tool"). `info`: name and version of the server.
    `new_session`: makes an ID that cannot be guessed."""

    def __init__(
        self, tools: Sequence[dict[str, Any]], info: dict[str, str], instructions: str, new_session: Callable[[], str]
    ) -> None:
        self._tools = list(tools)
        self._names = {tool["name"] for tool in tools}
        self._info = info
        self._instructions = instructions
        self._new_session = new_session
        self._sessions: OrderedDict[str, _Session] = OrderedDict()

    def receive(self, head: McpHeaders, body: bytes) -> Reply | ToolCall:
        """Take the message of a POST."""
        try:
            message = _decoded(body)
        except _Refused as refusal:
            return _error(refusal, UNSET)
        try:
            if message.id is UNSET:
                return self._notified(head, message)
            if _VERSION not in message.meta and _has_session(head, message):
                return self._in_session(head, message, message.id)
            _check_modern(head, message)
            return self._modern(message, message.id)
        except _Refused as refusal:
            return _error(refusal, message.id)

    def completed(self, call: ToolCall, result: dict[str, Any]) -> Reply:
        """Return the reply to a call that has ended. `result`: `content`, `structuredContent` and `isError`."""
        self.forget(call)
        if call.session:
            return _reply(call.id, result)
        return self._complete(call.id, result)

    def forget(self, call: ToolCall) -> None:
        """Forget a call that was cancelled, or whose client has gone."""
        session = self._sessions.get(call.session)
        if session is not None and session.running.get(call.id) is call:
            del session.running[call.id]

    def end_session(self, session: str | None) -> Sequence[ToolCall] | None:
        """End a session, and return its running calls; None if there is no such session (2025-11-25, basic/transports,
        "Session Management")."""
        ended = self._sessions.pop(session or "", None)
        return None if ended is None else list(ended.running.values())

    # ---- revision 2026-07-28 -------------------------------------------------------------------------------------

    def _modern(self, message: _Message, number: int | str) -> Reply | ToolCall:
        if message.method == "server/discover":
            fresh = {"supportedVersions": [MODERN, SESSIONS], **self._about(), **_cacheable()}
            return self._complete(number, fresh)
        if message.method == "tools/list":
            return self._complete(number, {**self._listed(message), **_cacheable()})
        if message.method == "tools/call":
            return self._call(message, number, "")
        raise _Refused(RpcCode.METHOD_NOT_FOUND, f"method {message.method!r:.80} is not offered", 404)

    def _complete(self, number: int | str, result: dict[str, Any]) -> Reply:
        return _reply(number, {"resultType": "complete", **result, "_meta": {f"{_META}serverInfo": self._info}})

    # ---- revision 2025-11-25 -------------------------------------------------------------------------------------

    def _in_session(self, head: McpHeaders, message: _Message, number: int | str) -> Reply | ToolCall:
        if message.method == "initialize":
            name = self._begin()
            begun = {"protocolVersion": SESSIONS, **self._about(), "serverInfo": self._info}
            return Reply(status=200, message=_reply(number, begun).message, session=name)
        session = self._session(head)
        if message.method == "ping":
            return _reply(number, {})
        if message.method == "tools/list":
            return _reply(number, self._listed(message))
        if message.method == "tools/call":
            if number in session.running:
                raise _Refused(RpcCode.INVALID_REQUEST, f"id {number!r:.80} is in use by a call that is still running")
            assert head.session is not None, "the session was found by its name"
            call = self._call(message, number, head.session)
            session.running[number] = call
            return call
        raise _Refused(RpcCode.METHOD_NOT_FOUND, f"method {message.method!r:.80} is not offered", 200)

    def _begin(self) -> str:
        name = self._new_session()
        self._sessions[name] = _Session()
        if len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return name

    def _session(self, head: McpHeaders) -> _Session:
        """Return the session that a message names. Raises _Refused: 400 without a name, 404 for an unknown one."""
        if head.version not in (None, SESSIONS):
            raise _unsupported(head.version or "")
        if head.session is None:
            raise _Refused(RpcCode.INVALID_REQUEST, "mcp-session-id is missing; begin with initialize")
        session = self._sessions.get(head.session)
        if session is None:
            raise _Refused(RpcCode.INVALID_REQUEST, "this session has ended; begin another with initialize", 404)
        self._sessions.move_to_end(head.session)
        return session

    def _notified(self, head: McpHeaders, message: _Message) -> Reply:
        """Accept a notification. Of those of this protocol only a cancellation needs anything to be done."""
        if head.session is None:
            return Reply(status=202)
        running = self._session(head).running
        cancelled = message.given.get("requestId") if message.method == "notifications/cancelled" else None
        call = running.pop(cancelled, None) if isinstance(cancelled, int | str) else None
        return Reply(status=202, cancels=call)

    # ---- both ----------------------------------------------------------------------------------------------------

    def _about(self) -> dict[str, Any]:
        return {"capabilities": {"tools": {}}, "instructions": self._instructions}

    def _listed(self, message: _Message) -> dict[str, Any]:
        if message.given.get("cursor") is not None:
            raise _Refused(RpcCode.INVALID_PARAMS, "cursor: the tools are one page, which has no next one")
        return {"tools": self._tools}

    def _call(self, message: _Message, number: int | str, session: str) -> ToolCall:
        name, arguments = message.given.get("name"), message.given.get("arguments", {})
        if not isinstance(name, str) or name not in self._names:
            known = ", ".join(tool["name"] for tool in self._tools)
            raise _Refused(RpcCode.INVALID_PARAMS, f"unknown tool: {name!r:.80}; the tools are {known}", 200)
        if not isinstance(arguments, dict):
            raise _Refused(RpcCode.INVALID_PARAMS, "arguments: expected an object", 200)
        return ToolCall(number, name, arguments, session)


def _decoded(body: bytes) -> _Message:
    """Return the message of a body. Raises _Refused."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _Refused(RpcCode.PARSE_ERROR, f"the body is not JSON: {json_fault(error)}") from None
    try:
        message = msgspec.convert(value, _Message)
    except msgspec.ValidationError as error:
        raise _Refused(RpcCode.INVALID_REQUEST, f"not one request or notification of JSON-RPC: {error}") from None
    if message.jsonrpc != "2.0":
        raise _Refused(RpcCode.INVALID_REQUEST, f'jsonrpc: expected "2.0", got {message.jsonrpc!r:.20}')
    return message


def _has_session(head: McpHeaders, message: _Message) -> bool:
    """Return whether a request without a version of its own belongs to a revision with sessions."""
    return message.method == "initialize" or head.session is not None or head.version == SESSIONS


def _check_modern(head: McpHeaders, message: _Message) -> None:
    """Check what each request must carry (basic, "Per-request protocol fields"), and that its headers say the same
    (basic/transports/streamable-http, "Server Validation"). Raises _Refused."""
    version, meta = head.version, message.meta
    claimed = meta.get(_VERSION)
    if claimed is None and version not in (None, MODERN):
        raise _unsupported(version or "")
    if not isinstance(claimed, str):
        raise _Refused(RpcCode.INVALID_PARAMS, f"params._meta: {_VERSION} is missing")
    _check_header("mcp-protocol-version", version, claimed)
    if claimed != MODERN:
        raise _unsupported(claimed)
    if not isinstance(meta.get(_CAPABILITIES), dict):
        raise _Refused(RpcCode.INVALID_PARAMS, f"params._meta: {_CAPABILITIES} is missing")
    _check_header("mcp-method", head.method, message.method)
    if message.method == "tools/call":
        _check_header("mcp-name", _plain(head.name), message.given.get("name"))


def _check_header(name: str, value: str | None, expected: object) -> None:
    if value is None:
        raise _Refused(RpcCode.HEADER_MISMATCH, f"the header {name} is missing")
    if value != expected:
        raise _Refused(RpcCode.HEADER_MISMATCH, f"the header {name} is {value!r:.80}, the body has {expected!r:.80}")


def _plain(value: str | None) -> str | None:
    """Return a header's value, decoded if it is in base64 (basic/transports/streamable-http, "Value Encoding")."""
    begins, ends = _BASE64
    if value is None or not (value.startswith(begins) and value.endswith(ends)):
        return value
    try:
        return base64.b64decode(value[len(begins) : -len(ends)], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise _Refused(RpcCode.HEADER_MISMATCH, "the header mcp-name is not valid base64") from None


def _unsupported(version: str) -> _Refused:
    supported = [MODERN, SESSIONS]
    return _Refused(
        RpcCode.UNSUPPORTED_VERSION,
        f"version {version!r:.40} is not supported; expected {' or '.join(supported)}",
        data={"supported": supported, "requested": version},
    )


def _cacheable() -> dict[str, Any]:
    return {"ttlMs": _FRESH_MS, "cacheScope": "private"}


def _reply(number: int | str, result: dict[str, Any]) -> Reply:
    return Reply(status=200, message={"jsonrpc": "2.0", "id": number, "result": result})


def _error(refusal: _Refused, number: int | str | UnsetType) -> Reply:
    known = {} if number is UNSET else {"id": number}
    return Reply(status=refusal.status, message={"jsonrpc": "2.0", **known, "error": refusal.error})
