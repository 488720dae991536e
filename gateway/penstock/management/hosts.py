"""What a listener of this machine alone may be called.

A web page can have its own name lead to 127.0.0.1 (DNS rebinding): to a browser it then asks its own server, and may
read the answers, the traffic among them. The name that was asked for tells: whoever means this machine says so.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

__all__ = ["is_local_name"]

_PORT: Final = re.compile(r":[0-9]*\Z")


def is_local_name(authority: str) -> bool:
    """Whether a Host header or `:authority` names no other machine: an address, `localhost`, or nothing."""
    host = _PORT.sub("", authority).lower().removesuffix(".")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    return bare in ("", "localhost") or host.endswith(".localhost") or _address(bare) is not None


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
