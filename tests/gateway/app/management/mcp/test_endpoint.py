"""`/mcp` in memory: access, the tools that ask this process, cancellation, and the bounds on results."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from support.http.client import memory_pair, serving
from support.management import JSON, Process, overview
from support.store import STREAM

from penstock.app.config import parse_config
from penstock.app.management.front import ManagementFront
from penstock.app.management.mcp.protocol import MODERN
from penstock.app.management.mcp.tool import MOST_BYTES, Pager, ToolFailed
from penstock.app.management.overview import Overview
from penstock.app.management.settings import ManagementSettings
from penstock.app.management.traffic import Traffic
from penstock.backends.embedded import EmbeddedBack
from penstock.observe.taps.connections import Connections
from penstock.observe.taps.tap import Tap
from penstock.recorder.recorder import Recorder
from penstock.recorder.recordings import Recordings

APPEND = b"*4\r\n$6\r\nAPPEND\r\n$5\r\nhello\r\n*0\r\n*1\r\n$%d\r\n%b\r\n"
META = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
SECRETS = ManagementSettings(bearer_tokens=frozenset({"all"}), read_tokens=frozenset({"look"}), mcp=True)


class Agent:
    """A client of one front, each of whose requests has a connection of its own."""

    def __init__(self, front: ManagementFront, connections: Connections, process: Process) -> None:
        self.front = front
        self.connections = connections
        self.process = process
        self.headers: list[tuple[str, str]] = []

    def speaks(self) -> Tap:
        """A connection of a client of S3P."""
        return self.connections.accepted(memory_pair()[1], 1, "listeners.s3p", "s3p").tap

    async def ask(self, method: str, body: bytes = b"", headers: list[tuple[str, str]] | None = None) -> Any:
        """Send one request to `/mcp`."""
        async with serving(self.front.handle, "http/1.1") as client:
            return await client.ask(method, "/mcp", [*JSON, *self.headers, *(headers or [])], body)

    async def rpc(self, method: str, params: dict[str, Any] | None = None, status: int = 200) -> Any:
        """Send a request of the newer revision, and return its answer."""
        params = {"_meta": META, **(params or {})}
        named = [("mcp-name", params["name"])] if "name" in params else []
        headers = [("mcp-protocol-version", MODERN), ("mcp-method", method), *named]
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = await self.ask("POST", json.dumps(body).encode(), headers)
        assert answer.status == status, answer
        return json.loads(answer.body)

    async def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool, which must succeed."""
        result = (await self.rpc("tools/call", {"name": tool, "arguments": arguments}))["result"]
        assert not result["isError"], result
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
        return result["structuredContent"]

    async def fails(self, tool: str, **arguments: Any) -> str:
        """Call a tool, which must fail; return what it says."""
        result = (await self.rpc("tools/call", {"name": tool, "arguments": arguments}))["result"]
        assert result["isError"] and "structuredContent" not in result, result
        return str(result["content"][0]["text"])


@asynccontextmanager
async def agent_of(shown: Overview, settings: ManagementSettings | None = None) -> AsyncIterator[Agent]:
    connections, process = Connections(), Process()
    traffic = Traffic(connections, Recordings(Recorder(connections, {}), None, None), ["s3p"], [])
    front = ManagementFront(shown, settings or ManagementSettings(mcp=True), traffic, process.controls)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(front.run)
        yield Agent(front, connections, process)
        front.drain()
        nursery.cancel_scope.cancel()


@pytest.fixture
async def agent(back: EmbeddedBack) -> AsyncIterator[Agent]:
    async with agent_of(overview(back)) as one:
        yield one


# ---- access --------------------------------------------------------------------------------------------------------


async def test_it_is_off_unless_it_is_switched_on(back: EmbeddedBack) -> None:
    async with agent_of(overview(back), ManagementSettings()) as agent:
        for method in ("GET", "POST", "DELETE"):
            answer = await agent.ask(method, b"{}")
            assert (answer.status, json.loads(answer.body)["code"]) == (404, "not_found")
            assert "/mcp" not in json.loads(answer.body)["message"].partition("the endpoints are")[2]


async def test_there_is_no_stream_to_get_and_no_session_to_delete(agent: Agent) -> None:
    assert (await agent.ask("GET")).status == 405
    assert (await agent.ask("DELETE")).status == 404


async def test_pages_of_others_and_foreign_names_are_refused(back: EmbeddedBack) -> None:
    async with agent_of(overview(back), ManagementSettings(mcp=True, loopback=True)) as agent:
        for headers, code in (
            ([("origin", "http://evil.example")], "foreign_page"),
            ([("host", "evil.example")], "foreign_name"),
        ):
            answer = await agent.ask("POST", b"{}", headers)
            assert (answer.status, json.loads(answer.body)["code"]) == (403, code)


async def test_a_token_is_needed_where_there_are_any(back: EmbeddedBack) -> None:
    async with agent_of(overview(back), SECRETS) as agent:
        for token in ("all-of-it", "wrong"):
            agent.headers = [("authorization", f"Bearer {token}")]
            answer = await agent.ask("POST", b"{}")
            assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
        for token in ("all", "look"):
            agent.headers = [("authorization", f"Bearer {token}")]
            assert (await agent.call("check"))["valid"]


async def test_a_token_for_looking_neither_replays_nor_names_servers_nor_describes_files(back: EmbeddedBack) -> None:
    async with agent_of(overview(back), SECRETS) as agent:
        agent.process.config = parse_config("[listeners.s3p]\n[recorder]\ndirectory = '/nonexistent'")
        replay = {"recordings": ["x.pcapng"], "to": "s3p://127.0.0.1:1"}
        agent.headers = [("authorization", "Bearer look")]
        assert "permits only looking" in await agent.fails("replay", **replay)
        assert (await agent.call("check", config="[listeners.s3p]")) == {"valid": True, "problem": None, "parts": []}
        agent.headers = [("authorization", "Bearer all")]
        assert "is not a recording of this gateway" in await agent.fails("replay", **replay)
        assert (await agent.call("check", config="[listeners.s3p]"))["parts"]


async def test_a_token_for_looking_changes_nothing_elsewhere_either(back: EmbeddedBack) -> None:
    async with agent_of(overview(back), SECRETS) as agent, serving(agent.front.handle, "http/1.1") as client:
        look, every = (("authorization", f"Bearer {token}") for token in ("look", "all"))
        assert (await client.ask("GET", "/routes", [look])).status == 200
        for method, target in (("POST", "/drain"), ("PUT", "/log"), ("DELETE", "/connections/1")):
            answer = await client.ask(method, target, [*JSON, look], b"{}")
            assert (answer.status, json.loads(answer.body)["code"]) == (403, "permission_denied")
        assert agent.process.asked == []
        assert (await client.ask("POST", "/drain", [*JSON, every], b"{}")).status == 202


# ---- messages ------------------------------------------------------------------------------------------------------


async def test_a_body_must_be_json_of_bounded_size(agent: Agent) -> None:
    async with serving(agent.front.handle, "http/1.1") as client:
        assert (await client.ask("POST", "/mcp", [("content-type", "text/plain")], b"{}")).status == 400
    assert (await agent.ask("POST", b" " * 600_000)).status == 400
    answer = await agent.ask("POST", b"{")
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (400, -32700)


async def test_tools_have_schemas_and_hints(agent: Agent) -> None:
    tools = {tool["name"]: tool for tool in (await agent.rpc("tools/list"))["result"]["tools"]}
    assert set(tools) == {"tail", "positions", "check", "recordings", "search", "explain", "diff", "replay"}
    for name, tool in tools.items():
        assert tool["annotations"]["readOnlyHint"] == (name != "replay")
        for schema in (tool["inputSchema"], tool["outputSchema"]):
            assert schema["type"] == "object" and schema["properties"]
        assert tool["inputSchema"]["additionalProperties"] is False
        assert all("description" in one for one in tool["inputSchema"]["properties"].values())


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("tail", {"limit": 0}, "Expected `int` >= 1 - at `$.limit`"),
        ("tail", {"seconds": 31}, "$.seconds"),
        ("tail", {"cursor": "nonsense"}, "the gateway was restarted since"),
        ("positions", {}, "missing required field `stream`"),
        ("positions", {"stream": str(STREAM)}, "give exactly one of seq_num"),
        ("positions", {"stream": "none-at-all/such", "seq_num": 0}, "none-at-all"),
        ("check", {"confg": ""}, "unknown field `confg`"),
        ("search", {"recordings": []}, "$.recordings"),
        ("recordings", {}, "no [recorder] directory"),
    ],
)
async def test_bad_arguments_are_an_answer_of_the_tool(
    agent: Agent, tool: str, arguments: dict[str, Any], words: str
) -> None:
    assert words in await agent.fails(tool, **arguments)


# ---- tools ---------------------------------------------------------------------------------------------------------


async def test_positions_are_those_of_the_endpoint(agent: Agent) -> None:
    async with serving(agent.front.handle, "http/1.1") as client:
        asked = await client.ask("GET", f"/positions?stream={STREAM}&seq_num=3")
    assert asked.status == 200, asked
    assert await agent.call("positions", stream=str(STREAM), seq_num=3) == json.loads(asked.body)


async def test_check_describes_the_configuration_in_force_or_a_text(agent: Agent) -> None:
    parts = {part["title"]: part["lines"] for part in (await agent.call("check"))["parts"]}
    assert parts["Listeners"] and parts["Store"]
    found = await agent.call("check", config="[listeners.s3p]\n[store]\ndirectory = 7")
    assert not found["valid"] and "store.directory" in found["problem"] and found["parts"] == []
    assert (await agent.call("check", config="[listeners.s3p]"))["valid"]


async def until(condition: Callable[[], object]) -> None:
    with trio.fail_after(10):
        while not condition():
            await trio.lowlevel.checkpoint()


async def tailed(agent: Agent, tap: Tap, speak: Callable[[], None], **asked: Any) -> Any:
    """Return the answer of `tail` to what a client says while it waits."""
    found: list[Any] = []

    async def tail() -> None:
        found.append(await agent.call("tail", **asked))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(tail)
        await until(lambda: tap.sinks)
        speak()
    return found[0]


async def test_tail_shows_what_passes_and_goes_on_at_its_cursor(agent: Agent) -> None:
    tap = agent.speaks()

    def says(*bodies: bytes) -> None:
        for body in bodies:
            tap.received(APPEND % (len(body), body))

    first = await tailed(agent, tap, lambda: says(b"one", b"two", b"three"), limit=2)
    assert [one["kind"] for one in first["messages"]] == ["APPEND", "APPEND"]
    assert first["missed"] == 0
    second = await agent.call("tail", cursor=first["next_cursor"], seconds=0.1)
    assert [one["nth"] for one in second["messages"]] == [3], "the third waited"
    third = await tailed(agent, tap, lambda: says(b"four"), cursor=second["next_cursor"], stream="other", seconds=0.1)
    assert third["messages"] == [] and third["missed"] == 0
    assert (await agent.call("tail", cursor=third["next_cursor"], seconds=0.1))["messages"] == []
    place = third["next_cursor"].rpartition("-")[0]
    for ordinal in ("", "x", "٣", "1" * 20):
        assert "is none that a call returned" in await agent.fails("tail", cursor=f"{place}-{ordinal}")


async def test_tail_counts_what_came_too_fast(agent: Agent) -> None:
    tap = agent.speaks()

    def says_much() -> None:
        tap.received(b"".join(APPEND % (3, b"%03d" % number) for number in range(700)))

    first = await tailed(agent, tap, says_much, limit=1)
    rest = [first]
    while rest[-1]["messages"]:
        rest.append(await agent.call("tail", cursor=rest[-1]["next_cursor"], seconds=0.1, limit=200))
    seen = sum(len(one["messages"]) for one in rest)
    assert rest[-2]["messages"][-1]["nth"] == 700
    before = first["messages"][0]["nth"] - 1
    assert before + seen + sum(one["missed"] for one in rest) == 700


# ---- cancellation --------------------------------------------------------------------------------------------------


async def test_a_cancelled_call_ends_without_an_answer(agent: Agent, autojump_clock: object) -> None:
    begin = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
    answer = await agent.ask("POST", json.dumps(begin).encode())
    session = [("mcp-session-id", answer.headers["mcp-session-id"]), ("mcp-protocol-version", "2025-11-25")]
    tail = {"name": "tail", "arguments": {"seconds": 30}}
    found: list[Any] = []

    async def called() -> None:
        call = {"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": tail}
        found.append(await agent.ask("POST", json.dumps(call).encode(), session))

    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(called)
        await trio.testing.wait_all_tasks_blocked(0.01)
        notice = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "a"}}
        accepted = await agent.ask("POST", json.dumps(notice).encode(), session)
        assert (accepted.status, accepted.body) == (202, b"")
    assert trio.current_time() - start < 30
    assert (found[0].status, found[0].headers["content-type"], found[0].body) == (200, "text/event-stream", b"")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(called)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert (await agent.ask("DELETE", b"", session)).status == 204
    assert trio.current_time() - start < 30


# ---- bounds --------------------------------------------------------------------------------------------------------


def test_a_page_is_bounded_by_count_by_bytes_and_within_each_item() -> None:
    pager = Pager("2", 3)
    pager.take_all(range(10))
    assert (pager.items, pager.next_cursor) == ([2, 3, 4], "5")
    pager = Pager("5", 50)
    pager.take_all(range(10))
    assert (pager.items, pager.next_cursor) == ([5, 6, 7, 8, 9], None)
    pager = Pager(None, 200)
    pager.take_all({"body": "x" * 1900} for _ in range(200))
    assert MOST_BYTES / 1900 - 1 < len(pager.items) < MOST_BYTES / 1900 + 2
    assert pager.next_cursor == str(len(pager.items))
    pager = Pager(None, 1)
    pager.take({"text": "y" * 5000, "list": [*range(150)]})
    assert pager.items[0]["text"] == "y" * 2000 + "… (5000 characters)"
    assert pager.items[0]["list"] == [*range(100), "… (150 items)"]


@pytest.mark.parametrize("cursor", ["", "-1", "1.5", "1234567890", "٣"])
def test_a_cursor_is_a_count(cursor: str) -> None:
    with pytest.raises(ToolFailed, match="is not one of this tool's"):
        Pager(cursor, 1)
