"""The page that `penstock serve` prints when it listens: commands to copy, with the addresses actually bound."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from penstock.app.config import Config
from penstock.core.address import Address
from penstock.protocols.controller.config import ControllerListener
from penstock.protocols.s2.config import S2Listener
from penstock.protocols.s3p.config import S3PListener

__all__ = ["banner"]

STREAM = "hello"
JSON = "-H 'content-type: application/json'"


def banner(config: Config, addresses: Mapping[str, Sequence[Address]]) -> str:
    """Return the page: one command for each thing that a client can do. `addresses` is as in `Running`."""
    lines = ["Penstock is running. Ctrl-C stops it. In another terminal:"]
    basin = _basin(config)
    shown = set()
    for label, listener in config.listeners.labelled():
        kind = label.partition(".")[0]
        address = addresses[f"listeners.{label}"][0].to_connect
        if kind in shown:  # of several listeners of a kind, show only the first one's commands
            continue
        shown.add(kind)
        if isinstance(listener, S2Listener):
            lines += _s2(listener, address, basin, _preparation(config, basin))
        elif isinstance(listener, S3PListener):
            lines += _s3p(listener, address, basin, alone=not config.listeners.s2)
        elif isinstance(listener, ControllerListener):
            lines += _pravega(listener, address, basin)
    if config.management.enabled:
        scheme = "https" if config.management.tls_certificate else "http"
        lines += ["", f"For operators, in a browser: {scheme}://{addresses['management'][0].to_connect}/"]
    return "\n".join([*lines, ""])


def _basin(config: Config) -> str:
    """Return the basin that the commands use: one that all listeners see."""
    for s3p in config.listeners.s3p[:1]:
        if s3p.names == "fixed":
            return str(s3p.basin)
    return config.store.basins[0].name if config.store.basins else "my-first-basin"


def _preparation(config: Config, basin: str) -> tuple[str, str] | None:
    """Return path and body of the request that must come first, or None if an append creates its stream."""
    found = next((one for one in config.store.basins if one.name == basin), None)
    if found is None:
        return "basins", f'{{"basin":"{basin}","config":{{"create_stream_on_append":true}}}}'
    return None if found.create_stream_on_append else ("streams", f'{{"stream":"{STREAM}"}}')


def _s2(listener: S2Listener, address: Address, basin: str, preparation: tuple[str, str] | None) -> Iterator[str]:
    url = f"{'https' if listener.tls_certificate else 'http'}://{address}/v1"
    curl = f"curl --cacert {shlex.quote(listener.tls_certificate)}" if listener.tls_certificate else "curl"
    if listener.proves_clients:
        curl += " --cert client.pem --key client-key.pem"
        yield from ("", f"  # client.pem and client-key.pem: yours, that {listener.tls_client_ca} vouches for")
    in_basin = f"-H 's2-basin: {basin}'"
    if listener.auth_tokens:
        in_basin += ' -H "authorization: Bearer $TOKEN"'
        yield from ("", "  # TOKEN is one of the listener's auth_tokens")
    if preparation is not None:
        path, body = preparation
        yield from ("", f"  # create a {path[:-1]}", f"  {curl} {url}/{path} {in_basin} {JSON} -d '{body}'")
    records = f"{url}/streams/{STREAM}/records"
    yield from (
        "",
        "  # append two records (S2, JSON)",
        f"  {curl} {records} {in_basin} {JSON} \\",
        """    -d '{"records":[{"body":"first"},{"body":"second"}]}'""",
        "",
        "  # follow the stream (S2, SSE); Ctrl-C ends it",
        f"  {curl} -N '{records}?seq_num=0' {in_basin} -H 'accept: text/event-stream'",
    )


def _s3p(listener: S3PListener, address: Address, basin: str, *, alone: bool) -> Iterator[str]:
    name = STREAM if listener.names == "fixed" else f"{basin}/{STREAM}"
    client = f"nc -w 1 {address.host} {address.port}"
    if listener.tls_certificate:
        client = f"openssl s_client -quiet -no_ign_eof -verify_quiet -CAfile {shlex.quote(listener.tls_certificate)}"
        client += " -cert client.pem -key client-key.pem" if listener.proves_clients else ""
        client = f"(cat; sleep 1) | {client} -connect {address}"
    if alone:
        create = _command("CREATE", name, [])
        append = _command("APPEND", name, [], ["first", "second"])
        yield from ("", "  # create a stream, and append two records (S3P)", f"  printf '{create}{append}' | {client}")
    yield from ("", "  # read it over S3P", f"  printf '{_command('READ', name, [])}' | {client}")


def _command(*parts: str | list[str]) -> str:
    """Return an S3P command as an argument of printf. The parts must be ASCII without characters special to printf."""
    return rf"*{len(parts)}\r\n" + "".join(
        rf"*{len(part)}\r\n" + "".join(map(_bulk, part)) if isinstance(part, list) else _bulk(part) for part in parts
    )


def _bulk(text: str) -> str:
    return rf"${len(text)}\r\n{text}\r\n"


def _pravega(listener: ControllerListener, address: Address, scope: str) -> Iterator[str]:
    """Yield a command that runs Python. Its create calls return False if scope or stream exist."""
    manager = f'StreamManager("{address}")'
    yield from ("", "  # append one in Python, with Pravega's own client (pip install pravega)")
    if listener.tls_certificate:
        host = "localhost" if address.is_loopback else address.host  # this client knows certificates by names only
        manager = f'StreamManager("tls://{Address(host, address.port)}", False, True)'
        yield f"  pravega_client_tls_cert_path={shlex.quote(listener.tls_certificate)} \\"
    yield from (
        f"  python3 -c 'from pravega_client import StreamManager; manager = {manager}; \\",
        f'    manager.create_scope("{scope}"); manager.create_stream("{scope}", "{STREAM}", 1); \\',
        f'    writer = manager.create_writer("{scope}", "{STREAM}"); writer.write_event("third"); writer.flush()\'',
    )
