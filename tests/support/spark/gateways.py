"""Gateways before servers of other protocols, through which Spark reads and writes over S2S."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from support.process import GatewayProcess, running_gateway

__all__ = ["gateway_before_s3p", "gateway_before_segments", "serve_command"]

ROOT: Final = Path(__file__).parents[3]
_COMMAND: Final = re.compile(r"^penstock serve --config (config/\S*s3p\S*)$", re.MULTILINE)


def serve_command() -> str:
    """Return the command that docs/pipeline.md has for an S3P server."""
    (command,) = _COMMAND.finditer((ROOT / "docs" / "pipeline.md").read_text())
    return command[0]


@contextmanager
def gateway_before_s3p(port: int) -> Iterator[GatewayProcess]:
    """Run the command of the page before the S3P server at this port."""
    path = serve_command().split()[-1]
    with _gateway(path, {'"127.0.0.1:7600"': f'"127.0.0.1:{port}"', '"../data/s2-to-s3p"': '"{data}"'}) as gateway:
        yield gateway


@contextmanager
def gateway_before_segments(controller_port: int, headers: str) -> Iterator[GatewayProcess]:
    """Run a gateway before segment stores with the controller at this port. `headers`: key of the back's losses."""
    changes = {
        '"127.0.0.1:9091"': f'"127.0.0.1:{controller_port}"',
        '"../data/s2-to-segment"': '"{data}"',
        'headers = "envelope"': f'headers = "{headers}"',
    }
    with _gateway("config/bridge-s2-to-segment.toml", changes) as gateway:
        yield gateway


@contextmanager
def _gateway(path: str, changes: dict[str, str]) -> Iterator[GatewayProcess]:
    """Run an example on a free port, with these changes."""
    config = (ROOT / path).read_text()
    for old, new in {'"127.0.0.1:8080"': '"127.0.0.1:{s2_port}"', **changes}.items():
        assert config.count(old) == 1
        config = config.replace(old, new)
    with running_gateway(config + '\n[log]\nformat = "json"\n') as gateway:
        yield gateway
