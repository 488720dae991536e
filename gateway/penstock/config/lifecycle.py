"""What can be configured about stopping, and about changing the configuration while the gateway runs; see
`penstock.config.schema` and docs/operations.md."""

from __future__ import annotations

from typing import Annotated

from penstock.config.fields import Table, key

__all__ = ["Drain", "Reload"]


class Drain(Table, frozen=True, kw_only=True):
    """What happens on SIGTERM and SIGINT (docs/operations.md)."""

    accept_seconds: Annotated[
        float,
        key(
            "How long it still accepts and serves, once it has said that it is not ready: for as long as balancers "
            "take to send new clients elsewhere.",
            least=0,
        ),
    ] = 0.0
    grace_seconds: Annotated[
        float, key("How long S2 sessions, advised to reconnect, go on before they are ended in order.", least=0)
    ] = 3.0
    deadline_seconds: Annotated[
        float,
        key(
            "How long clients have to finish in all, once nothing is accepted; then their connections are cut.", least=0
        ),
    ] = 10.0


class Reload(Table, frozen=True, kw_only=True):
    """When the configuration is read again (docs/operations.md). SIGHUP and `POST /reload` do it whatever is said
    here."""

    watch: Annotated[bool, key("Read it again whenever its file has changed.")] = False
    watch_seconds: Annotated[float, key("How often the file is looked at.", least=0.1)] = 2.0
