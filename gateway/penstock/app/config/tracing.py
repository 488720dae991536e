"""Configuration of traces; see `penstock.app.config.schema`."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from penstock.app.config.urls import without_secrets
from penstock.core.config_fields import Table, key

__all__ = ["Tracing"]


class Tracing(Table, frozen=True, kw_only=True):
    """OpenTelemetry traces (docs/observing.md). Without the table none are made. Needs the extra `otel`."""

    endpoint: Annotated[
        str,
        key(
            "Where spans are sent, as OTLP over HTTP in protobuf; a collector's path is `/v1/traces`.",
            example="http://127.0.0.1:4318/v1/traces",
        ),
    ]
    sample_ratio: Annotated[
        float,
        key("The share of traces that are recorded. Clients that say so themselves are followed.", least=0, most=1),
    ] = 1.0
    service_name: Annotated[str, key("What the spans' resource is called.")] = "penstock"

    @property
    def in_words(self) -> str:
        """A plain description for `penstock check`."""
        where = without_secrets(self.endpoint)
        return f"{self.sample_ratio:.4g} of the traces that begin here go to {where}, as {self.service_name}."

    def __post_init__(self) -> None:
        parts = urlsplit(self.endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"endpoint: expected http://HOST:PORT/PATH, got {self.endpoint!r:.200}")
        if not self.service_name.strip():
            raise ValueError("service_name: expected a name")
