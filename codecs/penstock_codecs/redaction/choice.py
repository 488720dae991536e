"""Which contents are looked into, and as what: by the head in front of them."""

from __future__ import annotations

from penstock_codecs.redaction.contents import Content, Searched
from penstock_codecs.redaction.exchanges import Exchange
from penstock_codecs.redaction.flow import Flow
from penstock_codecs.redaction.heads import Fields
from penstock_codecs.redaction.secrets import Secrets

__all__ = ["Choice"]


class Choice:
    """Chooses for one Redactor. None: there can be nothing secret in it."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    def of_request(self, flow: Flow, exchange: Exchange, fields: Fields) -> Content | None:
        """The body of a request."""
        return self.of_unknown(flow)

    def of_response(self, flow: Flow, exchange: Exchange, fields: Fields) -> Content | None:
        """The body of an answer."""
        return self.of_unknown(flow)

    def of_unknown(self, flow: Flow) -> Content | None:
        """A body without a head."""
        return Searched(flow, self._secrets.patterns) if self._secrets.patterns else None
