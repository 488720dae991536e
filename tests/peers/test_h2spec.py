"""h2spec, strict, against every listener that speaks HTTP/2."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.h2spec import CASES, EXCEPTIONS, FEWER_STREAMS, LISTENERS, run_h2spec
from support.process import CONFIG, GatewayProcess, running_gateway
from support.real_peers import h2spec_program
from support.tls.certificates import needs_openssl, self_signed

pytestmark = pytest.mark.skipif(not h2spec_program().exists(), reason="h2spec is not installed: `make peers`")


@pytest.fixture(scope="module")
def plain() -> Iterator[GatewayProcess]:
    """A gateway without TLS."""
    with running_gateway(CONFIG + FEWER_STREAMS) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway with TLS on all listeners of HTTP."""
    certificate, key = self_signed(tmp_path_factory.mktemp("tls"))
    tls = f'tls_certificate = "{certificate}"\ntls_key = "{key}"\n'
    text = CONFIG + '[management]\nbind = "127.0.0.1:{management_port}"\n'
    for table in ("listeners.s2", "listeners.controller", "listeners.segment", "management"):
        text = text.replace(f"[{table}]\n", f"[{table}]\n{tls}")
    with running_gateway(text) as gateway:
        yield gateway


@pytest.mark.parametrize("listener", LISTENERS)
def test_all_but_the_exceptions_pass(plain: GatewayProcess, listener: str) -> None:
    told = run_h2spec(getattr(plain, f"{listener}_port"), "--path", LISTENERS[listener])
    assert told == (CASES, dict.fromkeys(EXCEPTIONS, "failed"))


@needs_openssl
@pytest.mark.parametrize("listener", LISTENERS)
def test_the_exceptions_pass_where_they_apply(secured: GatewayProcess, listener: str) -> None:
    port = getattr(secured, f"{listener}_port")
    sections = [name.partition(":")[0] for name in EXCEPTIONS]
    told = run_h2spec(port, "--tls", "--insecure", "--max-header-length", "14000", *sections)
    assert told == (5, {})
