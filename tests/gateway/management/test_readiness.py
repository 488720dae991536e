"""Whether clients are welcome, of a real gateway whose server goes and comes."""

from __future__ import annotations

import pytest
from support.management import ask
from support.process import BASIN, CONFIG, GatewayProcess
from support.real_backs import SecondPenstock
from support.recorded_traffic import until
from support.s2_http import S2Client

BACK = """
[backs.second]
kind = "s2"
address = "127.0.0.1:PORT"
breaker_failures = 1
breaker_open_seconds = 0.5
recover_seconds = 0
[[routes]]
name = "away"
stream = "orders"
back = "second"
[[routes]]
name = "here"
back = "embedded"
"""


def test_a_server_that_comes_back_is_found_without_any_client() -> None:
    server = SecondPenstock("s2")
    with server:
        port = server.process.s2_port
    config = CONFIG + BACK.replace("PORT", str(port))
    with GatewayProcess(config) as gateway:
        assert ask(gateway.management_port, "/ready") == (200, {"ready": True, "reasons": []})
        with pytest.raises(AssertionError):
            S2Client(("127.0.0.1", gateway.s2_port), BASIN).append("orders", "lost")
        down = (503, {"ready": False, "reasons": ["back second is down"]})
        assert ask(gateway.management_port, "/ready") == down
        assert ask(gateway.management_port, "/live")[0] == 200
        with SecondPenstock("s2") as again:
            again.process.terminate()
            again.process.s2_port = port
            again.process.start()
            until(lambda: ask(gateway.management_port, "/ready")[0] == 200)
