"""Gateways before servers of other protocols, through which Spark reads and writes over S2S."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from support.process import GatewayProcess, running_gateway

__all__ = ["gateway_before", "serve_command"]

ROOT: Final = Path(__file__).parents[3]
_COMMAND: Final = re.compile(r"`penstock serve --config (config/bridge-s2-to-(\w+)[.]toml)`")
_ADDRESSES: Final = {
    "s3p": "127.0.0.1:7600",
    "segment": "127.0.0.1:9091",
    "durable": "127.0.0.1:4438",
    "kafka": "127.0.0.1:9094",
}
"""The server's address in the configuration, by the kind of its back; that of a controller for segments."""


def serve_command(kind: str) -> str:
    """Return the command that docs/pipeline.md has for servers of this kind."""
    page = (ROOT / "docs" / "pipeline.md").read_text()
    (command,) = (found[0] for found in _COMMAND.finditer(page) if found[2] == kind)
    return command.strip("`")


@contextmanager
def gateway_before(kind: str, address: str, changes: dict[str, str] | None = None) -> Iterator[GatewayProcess]:
    """Run the command of the page before the server at this address, on a free port, with these changes to the
    configuration."""
    config = (ROOT / serve_command(kind).split()[-1]).read_text()
    given = {
        '"127.0.0.1:8080"': '"127.0.0.1:{s2_port}"',
        f'"{_ADDRESSES[kind]}"': f'"{address}"',
        f'"../data/s2-to-{kind}"': '"{data}"',
        **(changes or {}),
    }
    for old, new in given.items():
        assert config.count(old) == 1
        config = config.replace(old, new)
    with running_gateway(config + '\n[log]\nformat = "json"\n') as gateway:
        yield gateway
