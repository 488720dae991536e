"""Agents at the management listener: the Model Context Protocol (MCP), revisions 2026-07-28 and 2025-11-25.

`protocol` is the protocol without I/O: a message and its headers in, a reply or a tool call out. Requests of the newer
revision carry all that they need. The older one has sessions, of which only the tools that are running are kept: a
session ends nothing else, and exists so that a cancellation finds its call. `endpoint` carries that over HTTP (the
transport "streamable HTTP", which answers each request with one JSON object), runs the calls and cancels them.

`tool` has what all tools share: their arguments are structs, of which both the checks and the JSON schemas are made.
`live_tools` ask this process, through the same objects as the management endpoints. `recording_tools` run the commands
that read recordings, in processes of their own (`command`): decoding takes seconds of computation, during which the
clients of the gateway would wait, and a cancelled call is a killed process. A page of results is a part of the
command's output, so a call holds no more than it returns, and a cursor is a count of lines.
"""
