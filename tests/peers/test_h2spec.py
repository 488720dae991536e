"""h2spec, strict, against every listener that speaks HTTP/2."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from support.h2spec import CASES, EXCEPTIONS, FEWER_STREAMS, LISTENERS, H2SpecResult, run_h2spec
from support.process import CONFIG, GatewayProcess, running_gateway
from support.real_peers import h2spec_program
from support.tls.certificates import needs_openssl, self_signed

pytestmark = pytest.mark.skipif(not h2spec_program().exists(), reason="h2spec is not installed: `make peers`")


Results = dict[str, Future[H2SpecResult]]
"""By listener. h2spec mostly waits, so all listeners are judged at once."""


def judging(gateway: GatewayProcess, path: bool, *arguments: str) -> Iterator[Results]:
    """Judge each listener of a gateway; `path`: ask for the one that LISTENERS has."""
    with ThreadPoolExecutor(len(LISTENERS)) as pool:
        yield {
            name: pool.submit(
                run_h2spec, getattr(gateway, f"{name}_port"), *(["--path", asked] if path else []), *arguments
            )
            for name, asked in LISTENERS.items()
        }


@pytest.fixture(scope="module")
def plain() -> Iterator[Results]:
    """The results without TLS."""
    with running_gateway(CONFIG + FEWER_STREAMS) as gateway:
        yield from judging(gateway, True)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Results]:
    """The results of the exceptions, with TLS on all listeners of HTTP."""
    certificate, key = self_signed(tmp_path_factory.mktemp("tls"))
    tls = f'tls_certificate = "{certificate}"\ntls_key = "{key}"\n'
    text = CONFIG + '[management]\nbind = "127.0.0.1:{management_port}"\n'
    for table in ("listeners.s2", "listeners.controller", "listeners.segment", "management"):
        text = text.replace(f"[{table}]\n", f"[{table}]\n{tls}")
    sections = [name.partition(":")[0] for name in EXCEPTIONS]
    with running_gateway(text) as gateway:
        yield from judging(gateway, False, "--tls", "--insecure", "--max-header-length", "14000", *sections)


@pytest.mark.parametrize("listener", LISTENERS)
def test_all_but_the_exceptions_pass(plain: Results, listener: str) -> None:
    assert plain[listener].result() == (CASES, dict.fromkeys(EXCEPTIONS, "failed"))


@needs_openssl
@pytest.mark.parametrize("listener", LISTENERS)
def test_the_exceptions_pass_where_they_apply(secured: Results, listener: str) -> None:
    assert secured[listener].result() == (5, {})
