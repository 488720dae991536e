"""The checks of `penstock doctor`.

Certificates that the configuration names: readable, and valid until when. The data directory: writable, its file
system, the time of a durable write, and which process holds it. Ports of listeners, and servers behind the gateway. The
machine: Python, TLS, descriptors, memory, the clock, and optional packages.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import os
import resource
import shutil
import socket
import sqlite3
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from cryptography import x509

from penstock.app.bootstrap import check_files
from penstock.app.config import Config, ConfigError, default_config, kind_of_back, listener_kind_of, load_config
from penstock.app.doctor.findings import Finding, fine, notable, wrong
from penstock.core.address import Address
from penstock.core.errors import CannotStart
from penstock.model.limits import MIB
from penstock.protocols.plugin import back_kinds, listener_kinds
from penstock.store.listings import undivided_with_partitions
from penstock.store.lock import LOCK_FILE, locked
from penstock.store.schema import FILE_NAME

__all__ = [
    "LOOKS",
    "about_backs",
    "about_certificates",
    "about_clock",
    "about_data",
    "about_descriptors",
    "about_extras",
    "about_memory",
    "about_ports",
    "about_versions",
    "examine",
]

SOON: Final = datetime.timedelta(days=14)
_AT_ONCE: Final = "the gateway loads a new file while it runs"
_KEYS: Final = ("tls_certificate", "tls_client_ca", "tls_ca")
SLOW_SECONDS: Final = 0.02
"""An fsync above this is reported as slow. An append waits for one; disks with a battery or flash take a tenth of
it."""
TRIES: Final = 15
LITTLE_BYTES: Final = 1024 * MIB
MOST_NAMES: Final = 10
_REMOTE: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs"})
_FORGETFUL: Final = frozenset({"tmpfs", "ramfs"})
CONNECT_SECONDS: Final = 3.0
_LISTENING: Final = "0A"
"""The LISTEN state of a socket in /proc/net/tcp."""
ENOUGH_DESCRIPTORS: Final = 65_536
"""The limit that the gateway raises its own soft limit to, if it may."""
BASE_BYTES: Final = 128 * MIB
"""Memory counted for the gateway itself: about twice what one without clients takes."""
EARLIEST: Final = 1_735_689_600
"""The beginning of 2025: an earlier clock was never set."""
OLD_OPENSSL: Final = (3, 0)
LEAST_JAVA: Final = 17
_JAVA_SECONDS: Final = 10.0


def about_certificates(
    config: Config | None, now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC)
) -> Iterator[Finding]:
    """Check each certificate file once."""
    files: dict[str, str] = {}
    for where, key, path in () if config is None else _named(config):
        files.setdefault(path, f"{where}.{key}")
    for path, about in files.items():
        yield _file(about, Path(path), now())


def _named(config: Config) -> Iterator[tuple[str, str, str]]:
    tables: dict[str, object] = {f"listeners.{label}": one for label, one in config.listeners.labelled()}
    tables |= {"management": config.management}
    tables |= {f"backs.{name}": table for name, table in config.backs.items()}
    for where, table in tables.items():
        for key in _KEYS:
            if path := getattr(table, key, None):
                yield where, key, path
        for one in getattr(table, "tls_certificates", ()):
            yield where, "tls_certificates", one.certificate


def _file(about: str, path: Path, now: datetime.datetime) -> Finding:
    try:
        certificates = x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it contains no PEM certificate"
        return wrong(about, f"{path}: {reason}", "Put a certificate at this path.")
    first = min(certificates, key=lambda certificate: certificate.not_valid_after_utc)
    until = first.not_valid_after_utc
    state = f"{path} is valid until {until:%Y-%m-%d}"
    if any(certificate.not_valid_before_utc > now for certificate in certificates):
        return wrong(about, f"{path} is not valid yet", "Check the clock, or get another certificate.")
    if until <= now:
        return wrong(about, f"{path} expired on {until:%Y-%m-%d}", f"Renew it: {_AT_ONCE}.")
    if until - now < SOON:
        return notable(about, state, f"Renew it soon: {_AT_ONCE}.")
    return fine(about, state)


def about_data(config: Config | None, mounts: Path = Path("/proc/self/mountinfo")) -> Iterator[Finding]:
    """Check the data directory; leaves nothing behind in it."""
    if config is None:
        return
    directory = Path(config.store.directory).absolute()
    parent = next(path for path in (directory, *directory.parents) if path.exists())
    if not (parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)):
        what = "is not writable" if parent == directory else f"cannot be created in {parent}"
        yield wrong("data", f"{directory} {what}", "Choose another store.directory, or change its owner.")
        return
    yield _held(directory)
    yield from _shapes(config, directory)
    yield _kind(parent, mounts)
    yield _room(parent)
    yield _speed(parent)


def _held(directory: Path) -> Finding:
    if not (directory / LOCK_FILE).exists():
        return fine("data", f"{directory} is writable" if directory.exists() else f"{directory} will be created")
    try:
        with locked(directory):
            return fine("data", f"{directory} is writable, and no other gateway uses it")
    except CannotStart as error:
        return wrong("data", str(error), "Stop that gateway, or give this one a directory of its own.")


def _shapes(config: Config, directory: Path) -> Iterator[Finding]:
    """Check for streams beside their partitions, which a listener's clients see as one object."""
    if not (directory / FILE_NAME).exists():
        return
    for label, listener in config.listeners.labelled():
        kind = listener_kinds()[listener_kind_of(label)]
        for _, basin in kind.named_basins(listener) if kind.shows_partitions else ():
            try:
                names = undivided_with_partitions(directory, basin, MOST_NAMES)
            except (sqlite3.Error, OSError) as error:
                yield notable("partitions", f"the store cannot be read: {error}", "Look again while no gateway runs.")
                continue
            if names:
                text = f"basin {basin} has streams beside partitions of their name, which they hide from clients of "
                advice = "Delete the stream or its partitions; an older gateway created both."
                yield wrong("partitions", f"{text}{kind.title}: {', '.join(names)}", advice)
            else:
                yield fine("partitions", f"no stream of basin {basin} hides partitions of its name")


def _kind(parent: Path, mounts: Path) -> Finding:
    """Check the file system: SQLite needs working locks and durable writes."""
    kind = _file_system(parent, mounts)
    if kind in _REMOTE:
        advice = "Use a local disk: without reliable locks, acknowledged records may be lost and the store damaged."
        return wrong("file system", f"{parent} is on {kind}, a network file system", advice)
    if kind in _FORGETFUL:
        return notable(
            "file system",
            f"{parent} is on {kind}",
            "Use a disk if records must survive a restart of the machine.",
        )
    return fine("file system", f"{kind or 'unknown'}")


def _file_system(parent: Path, mounts: Path) -> str:
    """Return the type of the file system that a path is on, from the longest mount point above it; "" if unknown."""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return ""
    kinds: dict[str, str] = {}
    for line in lines:
        before, _, after = line.partition(" - ")
        kinds[before.split()[4]] = after.split()[0]
    resolved = parent.resolve()
    return next((kinds[str(path)] for path in (resolved, *resolved.parents) if str(path) in kinds), "")


def _room(parent: Path) -> Finding:
    free = shutil.disk_usage(parent).free
    state = f"{free // MIB} MiB are free"
    return (
        fine("space", state)
        if free >= LITTLE_BYTES
        else notable("space", state, "Free some space, or shorten retention.")
    )


def _speed(parent: Path) -> Finding:
    """Measure the time until a small write is on disk."""
    taken = []
    try:
        with tempfile.TemporaryFile(dir=parent) as file:
            for _ in range(TRIES):
                begin = time.perf_counter()
                file.write(b"\0" * 4096)
                file.flush()
                os.fsync(file.fileno())
                taken.append(time.perf_counter() - begin)
    except OSError as error:
        return wrong("fsync", f"a write to {parent} failed: {error.strerror}", "Check the disk.")
    middle = statistics.median(taken)
    state = f"{middle * 1000:.1f} ms (median of {TRIES}), at most {max(taken) * 1000:.1f} ms"
    if middle > SLOW_SECONDS:
        return notable("fsync", state, "Use a faster disk: each group of appends waits this long for its sync.")
    return fine("fsync", state)


def about_ports(config: Config | None, proc: Path = Path("/proc")) -> Iterator[Finding]:
    """Check that each listener can bind, and find the process that has its port if it cannot."""
    if config is None:
        return
    wanted = {f"listeners.{label}": listener.bind for label, listener in config.listeners.labelled()}
    if config.management.enabled:
        wanted["management"] = config.management.bind
    for name, bind in wanted.items():
        yield _port(name, Address.parse(bind), proc)


def _port(name: str, address: Address, proc: Path) -> Finding:
    try:
        family, kind, protocol, _, socket_address = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(socket_address)
            listener.listen(1)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            owner = owner_of(address.port, proc)
            advice = "Stop that process, or give the listener another port. Ignore this if it is the gateway itself."
            return wrong(name, f"{address} is in use by {owner}", advice)
        return wrong(name, f"{address} cannot be bound: {error.strerror}", "Choose an address of this machine.")
    return fine(name, f"{address} is free")


def owner_of(port: int, proc: Path) -> str:
    """Return the name and process number of the port's listener, as far as we may read them."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port, proc)}
    for process in proc.iterdir():
        if process.name.isdigit() and sockets:
            with contextlib.suppress(OSError):  # another user's process, or one that has ended
                if any(str(path.readlink()) in sockets for path in (process / "fd").iterdir()):
                    return f"{(process / 'comm').read_text().strip()} (process {process.name})"
    return "another process"


def _inodes(port: int, proc: Path) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (proc / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9]


def about_backs(config: Config | None) -> Iterator[Finding]:
    """Check that each server's address accepts connections."""
    if config is None:
        return
    wanted: dict[str, str] = {}
    for name, table in config.backs.items():
        for what, address in back_kinds()[kind_of_back(table)].addresses(table).items():
            wanted[f"backs.{name} ({what})" if what else f"backs.{name}"] = address
    with ThreadPoolExecutor(max(1, len(wanted))) as pool:
        yield from pool.map(_server, wanted, wanted.values())


def _server(name: str, text: str) -> Finding:
    address = Address.parse(text)
    try:
        with socket.create_connection((address.host, address.port), timeout=CONNECT_SECONDS):
            return fine(name, f"{address} accepts connections")
    except OSError as error:
        reason = "does not answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        return wrong(
            name, f"{address}: {reason}", "Start the server, or correct the address; the gateway retries by itself."
        )


def about_versions(_config: Config | None) -> Iterator[Finding]:
    """Report the versions of Python and of its TLS library."""
    yield fine("python", f"{sys.version.split()[0]}, {sys.executable}")
    if ssl.OPENSSL_VERSION_INFO[:2] < OLD_OPENSSL:
        yield notable("tls", f"{ssl.OPENSSL_VERSION} no longer gets security fixes", "Use a Python with OpenSSL 3.")
    else:
        yield fine("tls", ssl.OPENSSL_VERSION)


def about_descriptors(_config: Config | None) -> Iterator[Finding]:
    """Check the limit on open connections and files."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < ENOUGH_DESCRIPTORS:
        how = "ulimit -Hn, LimitNOFILE= of a unit, --ulimit nofile= of a container"
        yield notable(
            "descriptors",
            f"the limit is {hard} open connections and files",
            f"Raise the hard limit to {ENOUGH_DESCRIPTORS} if you expect as many clients: {how}.",
        )
    else:
        yield fine("descriptors", f"{'any number' if hard == resource.RLIM_INFINITY else hard} of them")


def about_memory(
    config: Config | None, meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup/memory.max")
) -> Iterator[Finding]:
    """Compare the available memory with what the configuration lets the gateway use."""
    available, where = _available(meminfo, cgroup)
    if available is None:
        return
    store = None if config is None else config.store
    wanted = BASE_BYTES + (0 if store is None else store.append_inflight_bytes + store.tail_cache_bytes)
    state = f"{available // MIB} MiB {where}; the gateway and its buffers may use {wanted // MIB} MiB"
    if available < wanted:
        advice = "Provide more memory, or lower store.append_inflight_bytes and store.tail_cache_bytes."
        yield notable("memory", state, advice)
    else:
        yield fine("memory", state)


def _available(meminfo: Path, cgroup: Path) -> tuple[int | None, str]:
    try:
        limit = cgroup.read_text().strip()
        if limit.isdigit():
            return int(limit), "is this container's limit"
    except OSError:
        pass
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return None, ""
    numbers = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return (int(numbers[0]) * 1024, "are free") if numbers else (None, "")


def about_clock(config: Config | None) -> Iterator[Finding]:
    """Check the clock: records are stamped with it, and it must not go back."""
    now = time.time()
    newest = max(_times(config), default=0.0)
    state = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if now < EARLIEST:
        yield wrong("clock", f"{state}: the clock is wrong", "Set the clock: records get their timestamps from it.")
    elif newest > now + 1:
        ahead = f"{newest - now:.0f} s"
        advice = "Check the clock; until it catches up, new records get the timestamp of the last one."
        yield notable("clock", f"{state}, but the store's newest file is {ahead} ahead", advice)
    else:
        yield fine("clock", state)


def _times(config: Config | None) -> Iterator[float]:
    if config is not None:
        try:
            for file in Path(config.store.directory).iterdir():
                yield file.stat().st_mtime
        except OSError:
            return


def about_extras(_config: Config | None) -> Iterator[Finding]:
    """Report the optional packages; a missing one is no fault."""
    install = "To use it, install the extra: pip install 'penstock-gateway[{}]'."
    if find_spec("opentelemetry") is None:
        yield notable("extra otel", "is not installed: OpenTelemetry traces are unavailable", install.format("otel"))
    else:
        yield fine("extra otel", "is installed")
    if find_spec("pyspark") is None:
        yield notable("extra spark", "is not installed: `penstock pipeline` is unavailable", install.format("spark"))
        return
    java = _java()
    if java is None or java < LEAST_JAVA:
        state = "no Java was found" if java is None else f"Java has version {java}"
        yield notable("extra spark", f"is installed, but {state}", f"Install Java {LEAST_JAVA} or newer for Spark.")
    else:
        yield fine("extra spark", f"is installed, with Java {java}")


def _java() -> int | None:
    """Return the major version of Java, or None if no working one is found."""
    program = shutil.which("java")
    if program is None:
        return None
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=_JAVA_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    _, quote, version = done.stderr.partition('"')
    major = version.partition(".")[0].partition('"')[0]
    return int(major) if quote and major.isdigit() else None


LOOKS: Final[tuple[Callable[[Config | None], Iterable[Finding]], ...]] = (
    about_versions,
    about_descriptors,
    about_memory,
    about_clock,
    about_data,
    about_ports,
    about_certificates,
    about_backs,
    about_extras,
)
"""The checks. Each takes the configuration (None if it cannot be used) and yields its findings."""


def examine(path: Path | None) -> Iterator[Finding]:
    """Run all checks. `path`: of the configuration; None: the built-in one."""
    config, finding = _configuration(path)
    yield finding
    for look in LOOKS:
        yield from look(config)


def _configuration(path: Path | None) -> tuple[Config | None, Finding]:
    called = "the built-in configuration" if path is None else str(path)
    try:
        config = default_config() if path is None else load_config(path)
    except ConfigError as error:
        state = " ".join(str(error).split())
        return None, wrong("configuration", state, "`penstock check` shows the whole message.")
    try:
        check_files(config)
    except (CannotStart, ValueError) as error:
        return config, wrong("configuration", str(error), "Correct the files and keys that it names.")
    return config, fine("configuration", f"{called} is valid")
