"""The environment variables by which known clients find their server.

Each kind of listener names those of its clients (`ListenerKind.environment`). Every kind also has `PENSTOCK_KIND`, the
server's HOST:PORT, as `PENSTOCK_S3P`, for clients that read no variable of their own.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.core.address import Address
from penstock.protocols.plugin import listener_kinds

__all__ = ["client_environment", "client_variables"]


def client_environment(addresses: Mapping[str, Address], before: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for clients of servers at these addresses, by kind of listener. `before`: the environment so
    far, whose credentials stay."""
    variables: dict[str, str] = {}
    for name, address in addresses.items():
        kind = listener_kinds()[name]
        variables[_address_variable(name)] = str(address)
        variables |= kind.environment(kind.table(), address)
        variables |= {variable: value for variable, value in kind.placeholders.items() if variable not in before}
    return variables


def client_variables() -> dict[str, list[str]]:
    """Return the names of the variables by kind of listener."""
    nowhere = Address("127.0.0.1", 1)
    return {name: sorted(client_environment({name: nowhere}, {})) for name in listener_kinds()}


def _address_variable(kind: str) -> str:
    return f"PENSTOCK_{kind.upper().replace('-', '_')}"
