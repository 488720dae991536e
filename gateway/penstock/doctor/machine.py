"""The machine: Python, TLS, descriptors, memory, the clock, and what else is installed."""

from __future__ import annotations

import resource
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from penstock.config import Config
from penstock.doctor.findings import Finding, fine, notable, wrong
from penstock_codecs.limits import MIB

__all__ = ["about_clock", "about_descriptors", "about_extras", "about_memory", "about_versions"]

ENOUGH_DESCRIPTORS: Final = 65_536
"""What the gateway raises its own limit to, where it may."""
BASE_BYTES: Final = 128 * MIB
"""A gateway without clients takes about half of this."""
EARLIEST: Final = 1_735_689_600
"""The beginning of 2025: a clock before it was never set."""
OLD_OPENSSL: Final = (3, 0)
LEAST_JAVA: Final = 17
_JAVA_SECONDS: Final = 10.0


def about_versions(_config: Config | None) -> Iterator[Finding]:
    """Python's, and that of the library which does TLS."""
    yield fine("python", f"{sys.version.split()[0]}, {sys.executable}")
    if ssl.OPENSSL_VERSION_INFO[:2] < OLD_OPENSSL:
        yield notable("tls", f"{ssl.OPENSSL_VERSION} gets no security fixes any more", "Use a Python with OpenSSL 3.")
    else:
        yield fine("tls", ssl.OPENSSL_VERSION)


def about_descriptors(_config: Config | None) -> Iterator[Finding]:
    """How many connections and files there may be."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < ENOUGH_DESCRIPTORS:
        how = "ulimit -Hn, LimitNOFILE= of a unit, --ulimit nofile= of a container"
        yield notable(
            "descriptors",
            f"at most {hard} connections and files at once",
            f"Raise the hard limit to {ENOUGH_DESCRIPTORS}, if there may be so many clients: {how}.",
        )
    else:
        yield fine("descriptors", f"{'any number' if hard == resource.RLIM_INFINITY else hard} of them")


def about_memory(
    config: Config | None, meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup/memory.max")
) -> Iterator[Finding]:
    """What there is, and what the configuration lets the gateway hold."""
    available, where = _available(meminfo, cgroup)
    if available is None:
        return
    store = None if config is None else config.store
    wanted = BASE_BYTES + (0 if store is None else store.append_inflight_bytes + store.tail_cache_bytes)
    said = f"{available // MIB} MiB {where}; the gateway and its buffers may take {wanted // MIB} MiB"
    if available < wanted:
        advice = "Give it more, or lower store.append_inflight_bytes and store.tail_cache_bytes."
        yield notable("memory", said, advice)
    else:
        yield fine("memory", said)


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
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return (int(found[0]) * 1024, "are free") if found else (None, "")


def about_clock(config: Config | None) -> Iterator[Finding]:
    """Records are stamped by it, and it must not go back."""
    now = time.time()
    newest = max(_times(config), default=0.0)
    said = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if now < EARLIEST:
        yield wrong("clock", f"{said} cannot be right", "Set it: records would be stamped with it.")
    elif newest > now + 1:
        ahead = f"{newest - now:.0f} s"
        advice = "Look which is wrong; records are stamped with the last one's time until the clock has caught up."
        yield notable("clock", f"{said}, but the store was written {ahead} later", advice)
    else:
        yield fine("clock", said)


def _times(config: Config | None) -> Iterator[float]:
    if config is not None:
        try:
            for file in Path(config.store.directory).iterdir():
                yield file.stat().st_mtime
        except OSError:
            return


def about_extras(_config: Config | None) -> Iterator[Finding]:
    """What is optional. Not to have it is no fault."""
    traces = find_spec("opentelemetry") is not None
    yield fine("extra otel", "is installed" if traces else "is not installed: there are no traces of OpenTelemetry")
    if find_spec("pyspark") is None:
        yield fine("extra spark", "is not installed: `penstock pipeline` runs nothing")
        return
    java = _java()
    if java is None or java < LEAST_JAVA:
        said = "no Java is found" if java is None else f"Java is of version {java}"
        yield notable("extra spark", f"is installed, but {said}", f"Install Java {LEAST_JAVA} or newer for Spark.")
    else:
        yield fine("extra spark", f"is installed, with Java {java}")


def _java() -> int | None:
    """Its major version; None where there is none that works."""
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
