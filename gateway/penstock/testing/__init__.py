"""Gateways and mock servers for tests of programs that use them: `Gateway` and `MockServers`.

Both run in processes of their own, on free ports, so that tests of any framework can use them, whether they block or
not. They are context managers. `pytest_plugin` makes fixtures of them, which pytest finds by itself where Penstock is
installed.
"""

from penstock.testing.gateway import Gateway, GatewayError
from penstock.testing.mock_servers import MockServers, RequestsMissed

__all__ = ["Gateway", "GatewayError", "MockServers", "RequestsMissed"]
