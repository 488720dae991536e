"""Configuration of traces; see `penstock.app.config.schema`."""

from typing import Annotated
from urllib.parse import urlsplit

from penstock.app.config.urls import without_secrets
from penstock.core.config_fields import Table, key

__all__ = ["Tracing"]


class Tracing(Table, frozen=True, kw_only=True):
    """OpenTelemetry traces (docs/observing.md); without this table there are none. They need the extra `otel`."""

    endpoint: Annotated[
        str,
        key(
            "URL to which spans are sent, as OTLP over HTTP in protobuf; the path of a collector is `/v1/traces`.",
            example="http://127.0.0.1:4318/v1/traces",
        ),
    ]
    sample_ratio: Annotated[
        float,
        key(
            "Share of the traces that are recorded. If a client sends its own sampling decision, that decision is "
            "followed.",
            least=0,
            most=1,
        ),
    ] = 1.0
    service_name: Annotated[str, key("Name of the service in the spans' resource (`service.name`).")] = "penstock"

    @property
    def in_words(self) -> str:
        """A plain description for `penstock check`."""
        where = without_secrets(self.endpoint)
        return f"{self.sample_ratio:.4g} of the traces that begin here go to {where}, as service {self.service_name}."

    def __post_init__(self) -> None:
        parts = urlsplit(self.endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"endpoint: expected http://HOST:PORT/PATH, got {self.endpoint!r:.200}")
        if not self.service_name.strip():
            raise ValueError("service_name: expected a name")
