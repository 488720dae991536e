"""`penstock extcap`: a running gateway's traffic as an interface of Wireshark, and as PCAP over IP."""

from __future__ import annotations

import contextlib
import io
import select
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import click

from penstock import DISTRIBUTION
from penstock.cli.admin_client import follow, management_options
from penstock.cli.output import print_lines
from penstock.cli.traffic.live import with_messages
from penstock.cli.traffic.selecting import PLURALS, parse_selection, query
from penstock.core.address import Address
from penstock.tools.extcap import INTERFACE, Argument, config, dlts, interfaces, launcher, personal_folder

__all__ = ["extcap_command"]

_SELECTION: Final = f"NAME=VALUE with spaces between them; the names are {', '.join(PLURALS)}."
_WAITING: Final = 16
"""Readers over IP that may wait to be accepted."""
_WORDS: Final = 4096
"""Bytes that are read at once from a reader over IP, which should say nothing."""


class _Gateway(NamedTuple):
    """A gateway whose traffic is shown. `selection`: as `parse_selection` returns it."""

    management: str
    token: str | None
    selection: dict[str, tuple[str, ...]]

    def copy(self, write: Callable[[bytes], object], until: Callable[[], object]) -> None:
        """Write the traffic from now on as a capture with messages, until the gateway ends, `until` returns or `write`
        raises OSError. Raises ClickException if the gateway refuses."""
        pieces = follow(self.management, self.token, f"/tail?{query(self.selection)}", until=until)
        for piece in with_messages(pieces):
            try:
                write(piece)
            except OSError:
                return  # the reader has left


@click.group("extcap", invoke_without_command=True)
@click.option("--extcap-interfaces", "asked", flag_value="interfaces", help="Print the interfaces.")
@click.option("--extcap-dlts", "asked", flag_value="dlts", help="Print the link types of an interface.")
@click.option("--extcap-config", "asked", flag_value="config", help="Print the arguments of an interface.")
@click.option("--capture", "asked", flag_value="capture", help="Write the traffic into the FIFO.")
@click.option("--extcap-interface", "interface", metavar="NAME", help=f"The interface: {INTERFACE}.")
@click.option("--extcap-version", "_wireshark", metavar="VERSION", expose_value=False, help="Wireshark's version.")
@click.option("--extcap-capture-filter", "capture_filter", metavar="SELECTION", help="As --select, and beside it.")
@click.option("--fifo", type=click.Path(path_type=Path), help="The pipe that Wireshark reads.")
@click.option("--select", "selection", metavar="SELECTION", default="", help=f"Only these connections: {_SELECTION}")
@click.option(
    "--pcap-over-ip",
    metavar="[HOST:]PORT",
    help="Listen, and write the traffic to each program that connects, such as `tshark -i TCP@127.0.0.1:PORT`. "
    "HOST is 127.0.0.1 if it is missing.",
)
@management_options
@click.pass_context
def extcap_command(
    context: click.Context,
    asked: str | None,
    interface: str | None,
    capture_filter: str | None,
    fifo: Path | None,
    selection: str,
    pcap_over_ip: str | None,
    management: str,
    token: str | None,
) -> None:
    """Show a running gateway as an interface of Wireshark, with its traffic decrypted.

    `penstock extcap install` makes Wireshark find the interface; the options are for Wireshark, except --pcap-over-ip.
    Secrets are redacted as in recordings. A reader that is too slow misses whole connections, and the capture says
    which.
    """
    if context.invoked_subcommand is not None:
        return
    if interface not in (None, INTERFACE):
        raise click.UsageError(f"--extcap-interface: {interface!r} is unknown; expected {INTERFACE}")
    if asked == "interfaces":
        print_lines(*interfaces(_version()))
    elif asked == "dlts":
        print_lines(*dlts())
    elif asked == "config":
        print_lines(*config(_arguments(management)))
    elif asked == "capture":
        if fifo is None:
            raise click.UsageError("--capture needs --fifo")
        with _opened(fifo) as pipe, _said_at_once(), contextlib.suppress(KeyboardInterrupt):
            chosen = _selected(selection, capture_filter or "")
            _Gateway(management, token or None, chosen).copy(pipe.write, partial(_until_closed, pipe.fileno()))
    elif pcap_over_ip is not None:
        with contextlib.suppress(KeyboardInterrupt):
            _serve(_Gateway(management, token or None, _selected(selection, "")), _address(pcap_over_ip))
    elif capture_filter is not None:
        _check(capture_filter)
    else:
        raise click.UsageError("--extcap-interfaces, --pcap-over-ip or the command install is missing")


@extcap_command.command("install")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Wireshark's extcap folder, as `tshark -G folders` prints it (default: the user's own).",
)
def _install(directory: Path | None) -> None:
    """Write the program that Wireshark starts into its extcap folder."""
    try:
        path = launcher(directory or personal_folder(), sys.executable)
    except OSError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"wrote {path}; Wireshark lists the interface as {INTERFACE} when it starts")
    if directory is None:
        click.echo("Wireshark 4.0 and older do not look there: set WIRESHARK_EXTCAP_DIR to the folder, or --directory.")


def _version() -> str:
    from importlib.metadata import version

    return version(DISTRIBUTION)


def _arguments(management: str) -> list[Argument]:
    return [
        Argument("--management", "Management listener", "HOST:PORT or https://HOST:PORT", default=management),
        Argument("--token", "Token", "If the listener takes one; else PENSTOCK_MANAGEMENT_TOKEN is sent", "password"),
        Argument("--select", "Connections", _SELECTION, placeholder="stream=penstock/orders* route=orders"),
        *(
            Argument(f"--management-{name}", title, "For https", "fileselect")
            for name, title in (("ca", "Authorities"), ("certificate", "Client certificate"), ("key", "Its key"))
        ),
    ]


# ---- selections ------------------------------------------------------------------------------------------------------


def _selected(selection: str, capture_filter: str) -> dict[str, tuple[str, ...]]:
    """Return what both select. Raises UsageError."""
    try:
        one, other = parse_selection(selection), parse_selection(capture_filter)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if both := one.keys() & other.keys():
        raise click.UsageError(f"{', '.join(sorted(both))}: selected by --select and by the capture filter")
    return one | other


def _check(capture_filter: str) -> None:
    """Print what is wrong with a capture filter; Wireshark takes silence for a valid one."""
    try:
        parse_selection(capture_filter)
    except ValueError as error:
        print_lines(str(error))


# ---- readers ---------------------------------------------------------------------------------------------------------


def _opened(fifo: Path) -> io.FileIO:
    """Open the pipe, which waits for its reader. It blocks, so that each `write` takes all bytes."""
    try:
        return fifo.open("wb", buffering=0)
    except OSError as error:
        raise click.ClickException(f"{fifo}: {error.strerror}") from None


@contextlib.contextmanager
def _said_at_once() -> Iterator[None]:
    """Print an error while the pipe is still open: Wireshark shows it only then, and waits for the pipe before."""
    try:
        yield
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)


def _until_closed(file: int) -> None:
    """Block until a pipe has no reader."""
    poll = select.poll()
    poll.register(file, 0)  # errors are always reported
    poll.poll()


def _address(text: str) -> Address:
    try:
        return Address.parse(text if ":" in text else f"127.0.0.1:{text}")
    except ValueError as error:
        raise click.UsageError(f"--pcap-over-ip: {error}") from None


def _serve(gateway: _Gateway, address: Address) -> None:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        server = socket.create_server(address, family=family, backlog=_WAITING)
    except OSError as error:
        raise click.ClickException(f"--pcap-over-ip: {address}: {error.strerror}") from None
    with server:
        bound = Address(*server.getsockname()[:2])
        if not bound.is_loopback:
            click.echo(f"everyone who can reach {bound} can read this traffic, without a token", err=True)
        click.echo(f"listening on {bound}: read it with `wireshark -k -i TCP@{bound}`", err=True)
        while True:
            reader, _ = server.accept()
            threading.Thread(target=_feed, args=(click.get_current_context(), gateway, reader), daemon=True).start()


def _feed(context: click.Context, gateway: _Gateway, reader: socket.socket) -> None:
    """Write the traffic to one reader over IP."""
    with context.scope(cleanup=False), reader:  # `follow` finds the options for TLS in the context
        try:
            gateway.copy(reader.sendall, partial(_until_left, reader))
        except click.ClickException as error:
            click.echo(f"Error: {error.format_message()}", err=True)


def _until_left(reader: socket.socket) -> None:
    """Block until a reader over IP closes its side."""
    try:
        while reader.recv(_WORDS):
            pass
    except OSError:
        return
