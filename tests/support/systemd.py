"""A machine of its own under systemd, in Linux namespaces, on a copy of this machine's files (an overlay) that goes
with it.

Its systemd is process 1 and has a network of its own with loopback only, so that units may use any port. This Python
with all packages stands at `/opt/python` and `/opt/penstock`, the sources at `/opt/source`, since services see no home
folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from support.peers import need
from support.shipping import ROOT

__all__ = ["Machine", "machine"]

SYSTEMD: Final = Path("/lib/systemd/systemd")
SECONDS: Final = 60.0
_ENVIRONMENT: Final = {"PATH": "/opt/penstock/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
_BOOT: Final = """
overlay() { mkdir -p "$2" "$place/upper$2" "$place/work$2"
  mount -t overlay overlay -o "lowerdir=$1,upperdir=$place/upper$2,workdir=$place/work$2" "$2"; }
bind() { mkdir -p "$root/opt/$2"; mount --bind "$1" "$root/opt/$2"; }
ip link set lo up
mount -t tmpfs tmpfs "$place"
root=$place/root
overlay / "$root"
bind "$base" python
bind "$source" source
overlay "$prefix" "$root/opt/penstock"
ln -sf /opt/python/bin/python3 "$root/opt/penstock/bin/python"
sed -i 's|^home = .*|home = /opt/python/bin|' "$root/opt/penstock/pyvenv.cfg"
sed -i '1s|.*|#!/opt/penstock/bin/python|' "$root/opt/penstock/bin/penstock"
sed -i "s|^$source|/opt/source|" "$root"/opt/penstock/lib/python*/site-packages/*.pth
echo /opt/python/lib >"$root/etc/ld.so.conf.d/000-python.conf"  # where Python is linked to a library of its own
chroot "$root" ldconfig
find "$root/etc/systemd/system" -type l -delete
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount --rbind /dev "$root/dev"
for folder in run tmp sys/fs/cgroup; do mount -t tmpfs tmpfs "$root/$folder"; done
mkdir "$root/sys/fs/cgroup/systemd"
mount -t cgroup -o none,name=systemd cgroup "$root/sys/fs/cgroup/systemd"
exec chroot "$root" env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin \
  /lib/systemd/systemd --unit=basic.target --show-status=no --log-target=journal
"""
"""Makes the root, and becomes systemd."""


class Machine:
    """A machine that runs; `pid`: its systemd, as this machine numbers processes."""

    def __init__(self, pid: int) -> None:
        self._enter = ["nsenter", f"--target={pid}", "--all", "--root", "--wdns=/"]

    def is_up(self) -> bool:
        """Return True once systemd answers, and has started its basic target."""
        done = subprocess.run([*self._enter, "systemctl", "is-active", "basic.target"], capture_output=True, text=True)
        return done.stdout == "active\n"

    def run(self, *command: str, input: str | None = None, status: int = 0) -> str:
        """Run a program on the machine; return its output. Fails if it ends with another status."""
        done = subprocess.run(
            [*self._enter, *command], env=_ENVIRONMENT, input=input, capture_output=True, text=True, timeout=SECONDS
        )
        assert done.returncode == status, (command, done.stdout, done.stderr)
        return done.stdout

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a program on the machine, with a pipe for its output, which must fit into the pipe (64 KiB)."""
        return subprocess.Popen([*self._enter, *command], env=_ENVIRONMENT, stdout=subprocess.PIPE)

    def show(self, unit: str, name: str) -> str:
        """Return a property of a unit."""
        return self.run("systemctl", "show", "--value", f"--property={name}", unit).strip()


@contextmanager
def machine(place: Path) -> Iterator[Machine]:
    """Start a machine, whose files are below `place`. Skips the test where it cannot be made."""
    if not SYSTEMD.exists():
        pytest.skip("systemd is not installed: apt-get install systemd")
    if os.getuid() != 0:
        pytest.skip("namespaces with file systems of their own need root")
    values = {"place": place, "base": sys.base_prefix, "prefix": sys.prefix, "source": ROOT}
    log = place.with_suffix(".log")
    command = [need("unshare"), "--pid", "--mount", "--net", "--cgroup", "--uts", "--ipc", "--fork", "--kill-child"]
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, "bash", "-euc", _BOOT],
            env={"PATH": os.environ["PATH"], **{name: str(value) for name, value in values.items()}},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            yield _booted(process, log)
        finally:
            process.kill()  # unshare: all processes end with it
            process.wait()


def _booted(process: subprocess.Popen[bytes], log: Path) -> Machine:
    """Wait until systemd answers."""
    deadline = time.monotonic() + SECONDS
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while process.poll() is None and time.monotonic() < deadline:
        for pid in children.read_text().split():
            one = Machine(int(pid))
            if Path(f"/proc/{pid}/comm").read_text() == "systemd\n" and one.is_up():
                return one
        time.sleep(0.1)
    pytest.skip(f"systemd does not run in namespaces here: {log.read_text()[-1000:]}")
