"""What an operator should know about a configuration that is valid all the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from penstock.config.address import Address
from penstock.config.listeners import ControllerListener, S2Listener, S3PListener, SegmentListener
from penstock.config.schema import Config

__all__ = ["Advice", "advice"]


class Advice(NamedTuple):
    """A remark; `insecure` where strangers could read, change or delete records."""

    insecure: bool
    text: str


def advice(config: Config) -> list[Advice]:
    """Remarks on `config`, the insecure first."""
    found: list[Advice] = []
    if config.listeners.s2 is not None:
        found += _about_s2(config.listeners.s2)
    if config.listeners.s3p is not None:
        found += _about_s3p(config.listeners.s3p)
    if config.listeners.segment is not None:
        found += _about_pravega("segment", config.listeners.segment)
    if config.listeners.controller is not None:
        found += _about_pravega("controller", config.listeners.controller)
    found += _about_tls(config)
    found += _about_basins(config)
    return sorted(found, key=lambda remark: not remark.insecure)


def _about_s2(listener: S2Listener) -> Iterator[Advice]:
    local = Address.parse(listener.bind).is_loopback
    if not local and not listener.auth_tokens:
        yield Advice(
            True,
            f"listeners.s2: whoever reaches {listener.bind} can read, write and delete everything. "
            "Give auth_tokens, or bind to 127.0.0.1.",
        )
    if not local and listener.auth_tokens and listener.tls_certificate is None:
        yield Advice(
            True,
            f"listeners.s2: bearer tokens cross the network to {listener.bind} in clear text. "
            "Give tls_certificate and tls_key, or put a proxy with TLS in front.",
        )
    if local and listener.cors and not listener.auth_tokens:
        yield Advice(
            False,
            "listeners.s2: any web page that is open on this machine can read, write and delete everything, since "
            "cors is true and there are no auth_tokens.",
        )


def _about_s3p(listener: S3PListener) -> Iterator[Advice]:
    if not Address.parse(listener.bind).is_loopback:
        yield Advice(
            True,
            f"listeners.s3p: whoever reaches {listener.bind} can read, write and delete every stream of basin "
            f"{listener.basin}: S3P knows neither users nor encryption. Bind to 127.0.0.1, or guard the port.",
        )


def _about_pravega(name: str, listener: SegmentListener | ControllerListener) -> Iterator[Advice]:
    if not Address.parse(listener.bind).is_loopback:
        yield Advice(
            True,
            f"listeners.{name}: whoever reaches {listener.bind} can read, write and delete everything: clients of "
            "Pravega are not asked who they are. Bind to 127.0.0.1, or guard the port.",
        )


def _about_tls(config: Config) -> Iterator[Advice]:
    """Pravega's clients use TLS with both or with neither."""
    segment, controller = config.listeners.segment, config.listeners.controller
    if segment is None or controller is None:
        return
    if (segment.tls_certificate is None) != (controller.tls_certificate is None):
        yield Advice(
            False,
            "listeners.segment and listeners.controller: one has TLS and the other has not; clients of Pravega use it "
            "for both or for neither.",
        )


def _about_basins(config: Config) -> Iterator[Advice]:
    ensured = {basin.name for basin in config.store.basins}
    named = {
        "listeners.s2.default_basin": config.listeners.s2.default_basin if config.listeners.s2 else None,
        "listeners.s3p.basin": config.listeners.s3p.basin if config.listeners.s3p else None,
        "listeners.segment.basin": config.listeners.segment.basin if config.listeners.segment else None,
    }
    for key, basin in named.items():
        if basin is not None and basin not in ensured:
            yield Advice(
                False,
                f"{key}: basin {basin} is not in [[store.basins]]; until somebody creates it, requests for its "
                "streams fail.",
            )
