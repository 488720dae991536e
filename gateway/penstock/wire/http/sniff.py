"""Detect the HTTP version of a plaintext connection from its first bytes (RFC 9113, 3.3: prior knowledge)."""

from __future__ import annotations

from typing import Final

__all__ = ["PREFACE", "sniff"]

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def sniff(start: bytes | bytearray | memoryview) -> str | None:
    """Return "h2" or "http/1.1" (the names of ALPN), or None if more bytes are needed; 24 always suffice."""
    head = bytes(start[: len(PREFACE)])
    if head == PREFACE:
        return "h2"
    return None if PREFACE.startswith(head) else "http/1.1"
