"""Agents: the official Python client of the Model Context Protocol, unmodified, with each tool of a real gateway."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp
import pytest
from mcp.client.streamable_http import streamable_http_client
from support.captures.traffic import until
from support.peers import finish
from support.process import BASIN, CONFIG, GatewayProcess
from support.s2.client import S2Client
from support.s3p.client import S3PClient

AGENTS = """
[management]
bind = "127.0.0.1:{management_port}"
auth_tokens = ["all"]
read_tokens = ["look"]
mcp = true

[recorder]
directory = "{data}/recordings"
"""
SECONDS = 240
"""Time for one test: each call of a command starts a process."""
MODES = ("auto", "legacy")
EVERY_MODE = pytest.mark.parametrize("mode", MODES)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway with a recording of appends over two protocols, and of an error."""
    directory = tmp_path_factory.mktemp("agents")
    with GatewayProcess(CONFIG + AGENTS, directory=directory) as gateway:
        s2 = S2Client(("127.0.0.1", gateway.s2_port), BASIN)
        for number in range(30):
            s2.append("orders", f"order {number}")
        with S3PClient(("127.0.0.1", gateway.s3p_port)) as s3p:
            s3p.create("readings")
            s3p.append("readings", b"21.5 degrees")
            s3p.call("READ", "nowhere", [])
        gateway.terminate()
    with GatewayProcess(
        CONFIG + AGENTS.replace("[recorder]", "[recorder]\nstart = false"), directory=directory
    ) as gateway:
        yield gateway


@asynccontextmanager
async def agent(gateway: GatewayProcess, mode: str = MODES[0], token: str = "all") -> AsyncIterator[mcp.Client]:
    """A client of this revision."""
    headers = {"authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=SECONDS) as http:
        url = f"http://127.0.0.1:{gateway.management_port}/mcp"
        async with mcp.Client(streamable_http_client(url, http_client=http), mode=mode) as client:
            yield client


async def call(client: mcp.Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool, which must succeed. The client checks its result against its schema."""
    found = await client.call_tool(tool, arguments)
    assert not found.is_error, found
    assert isinstance(found.structured_content, dict)
    return found.structured_content


async def failure(client: mcp.Client, tool: str, **arguments: Any) -> str:
    """Call a tool, which must fail, and return what it says."""
    found = await client.call_tool(tool, arguments)
    assert found.is_error, found
    return str(found.content[0].text)


async def names(client: mcp.Client) -> list[str]:
    """Return the names of all recordings, oldest first."""
    found = await call(client, "recordings")
    return sorted(one["name"] for one in found["recordings"])


@EVERY_MODE
def test_the_client_connects_and_lists_the_tools(recorded: GatewayProcess, mode: str) -> None:
    async def main() -> None:
        async with agent(recorded, mode) as client:
            assert client.server_info.name == "penstock"
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert {name for name, tool in tools.items() if not tool.annotations.read_only_hint} == {"replay"}
            assert "Durable Streams by HTTP" in json.dumps((await call(client, "check"))["parts"])

    finish(main(), SECONDS)


@EVERY_MODE
def test_search_goes_through_a_recording_page_by_page(recorded: GatewayProcess, mode: str) -> None:
    async def main() -> None:
        async with agent(recorded, mode) as client:
            asked = {"recordings": await names(client), "kinds": ["POST"], "streams": [f"{BASIN}/orders"]}
            pages: list[dict[str, Any]] = []
            cursor = None
            while not pages or cursor is not None:
                pages.append(await call(client, "search", **asked, limit=12, cursor=cursor))
                cursor = pages[-1]["next_cursor"]
            messages = [message for page in pages for message in page["messages"]]
            assert [len(page["messages"]) for page in pages] == [12, 12, 6]
            assert {message["kind"] for message in messages} == {"POST"}
            found = await call(client, "search", recordings=asked["recordings"], text="order 17", bodies=True)
            assert {body["body"] for one in found["messages"] for body in one["bodies"]} == {"order 17"}
            found = await call(client, "search", recordings=asked["recordings"], text="not to be found")
            assert found["messages"] == []

    finish(main(), SECONDS)


def test_explain_shows_an_error_with_its_bytes(recorded: GatewayProcess) -> None:
    async def main() -> None:
        async with agent(recorded) as client:
            found = await call(client, "explain", recordings=await names(client))
            (error,) = found["errors"]
            assert "ERR_UNKNOWN_STREAM" in error["failure"] and error["protocol"] == "s3p"
            assert error["asked"]["kind"] == "READ" and "before" not in error
            assert "-ERR" in error["dump"][0]

    finish(main(), SECONDS)


def test_positions_and_diff_and_replay(recorded: GatewayProcess) -> None:
    async def main() -> None:
        async with agent(recorded) as client:
            found = await call(client, "positions", stream=f"{BASIN}/orders", seq_num=3)
            assert found["position"]["seq_num"] == 3 and found["read_on"]["s2"] is not None
            (recording,) = await names(client)
            here = f"s2://127.0.0.1:{recorded.s2_port}/{BASIN}"
            equal = await call(client, "diff", a=recording, b=here, streams=["*/orders"])
            assert equal["equal"] and [one["b"]["records"] for one in equal["streams"]] == [30]
            asked = {"recordings": [recording], "streams": ["*/orders"], "renames": ["*=again"]}
            report = await call(client, "replay", **asked, to=here)
            assert report["total"]["appended"] == 30 and not report["interrupted"]
            found = await call(client, "positions", stream=f"{BASIN}/again", tail_offset=0)
            assert found["position"]["seq_num"] == 30

    finish(main(), SECONDS)


def test_tail_waits_for_traffic(recorded: GatewayProcess) -> None:
    async def main() -> None:
        async with agent(recorded) as client:
            waiting = asyncio.create_task(call(client, "tail", stream="*/tailed", limit=1, seconds=20))
            while not waiting.done():
                await asyncio.to_thread(S2Client(("127.0.0.1", recorded.s2_port), BASIN).append, "tailed", "now")
                await asyncio.sleep(0.05)
            (message,) = (await waiting)["messages"]
            assert message["stream"] == f"{BASIN}/tailed"

    finish(main(), SECONDS)


def test_a_token_for_looking_looks(recorded: GatewayProcess) -> None:
    async def main() -> None:
        async with agent(recorded, token="look") as client:
            (recording,) = await names(client)
            assert (await call(client, "search", recordings=[recording], limit=1))["messages"]
            here = f"s2://127.0.0.1:{recorded.s2_port}/{BASIN}"
            assert "permits only looking" in await failure(client, "replay", recordings=[recording], to=here)
            assert "permits only looking" in await failure(client, "diff", a=recording, b=here)

    finish(main(), SECONDS)


def test_no_other_file_can_be_named(recorded: GatewayProcess) -> None:
    """Neither by a path, nor by a link, nor as an option of a command."""
    directory = recorded.data / "recordings"
    (recorded.data / "outside.pcapng").write_bytes(b"")
    link = directory / "link.pcapng"
    link.symlink_to(recorded.data / "outside.pcapng")
    outside = [
        "../outside.pcapng",
        str(recorded.data / "outside.pcapng"),
        "link.pcapng",
        "recordings/../../outside.pcapng",
        "/etc/passwd",
        ".",
        "-",
        "--help",
        "",
        "a\0b",
    ]

    async def main() -> None:
        async with agent(recorded) as client:
            assert "link.pcapng" not in await names(client)
            for name in outside:
                for tool, arguments in (
                    ("search", {"recordings": [name]}),
                    ("explain", {"recordings": [name]}),
                    ("diff", {"a": name, "b": name}),
                    ("replay", {"recordings": [name], "to": "s3p://127.0.0.1:1"}),
                ):
                    assert "is not a recording of this gateway" in await failure(client, tool, **arguments)

    try:
        finish(main(), SECONDS)
    finally:
        link.unlink()


def test_a_command_says_why_it_failed(recorded: GatewayProcess) -> None:
    async def main() -> None:
        async with agent(recorded) as client:
            (recording,) = await names(client)
            assert "--help" in await failure(client, "replay", recordings=[recording], to="--help")
            said = await failure(client, "search", recordings=[recording], protocols=["nonsense"])
            assert "'nonsense' is not one of" in said
            said = await failure(client, "diff", a=recording, b="s2://127.0.0.1:1/basin-of-none")
            assert "127.0.0.1:1" in said

    finish(main(), SECONDS)


def commands(gateway: GatewayProcess) -> list[int]:
    """Return the processes that the gateway started."""
    lists = Path(f"/proc/{gateway.pid}/task").glob("*/children")  # of each thread: any of them may have started some
    return [int(one) for children in lists for one in children.read_text().split()]


@EVERY_MODE
def test_a_call_that_its_client_leaves_ends_its_command(recorded: GatewayProcess, mode: str) -> None:
    async def main() -> None:
        async with agent(recorded, mode) as client:
            (recording,) = await names(client)
            slow = {"recordings": [recording], "to": f"s2://127.0.0.1:{recorded.s2_port}/{BASIN}", "speed": 0.001}
            waiting = asyncio.create_task(client.call_tool("replay", slow))
            await asyncio.to_thread(until, lambda: commands(recorded))
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await asyncio.to_thread(until, lambda: not commands(recorded))

    finish(main(), SECONDS)


def test_a_replay_that_takes_too_long_reports_what_it_did(recorded: GatewayProcess) -> None:
    async def main() -> None:
        async with agent(recorded) as client:
            (recording,) = await names(client)
            here = f"s2://127.0.0.1:{recorded.s2_port}/{BASIN}"
            found = await call(client, "replay", recordings=[recording], to=here, speed=0.0001, seconds=30)
            assert found["interrupted"] and not found["same"]

    finish(main(), SECONDS)
