"""A process that may hold encryption keys leaves no dumps of its memory."""

import ctypes
import resource
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from penstock.core.dumps import forbid_dumps

_CONFIGURED = """
import msgspec, trio
from penstock.app.bootstrap import open_store
from penstock.app.config import BasinTable, StoreTable, default_config

async def main():
    basins = (BasinTable(name="basin-secret", stream_cipher=sys.argv[1]),)
    store = StoreTable(directory=sys.argv[2], basins=basins)
    async with open_store(msgspec.structs.replace(default_config(), store=store)):
        pass

trio.run(main)
"""
_PRESENTED = "from penstock.core.encryption import EncryptionKey; EncryptionKey('a key')"
_STATE = """
import ctypes, pathlib, resource
assert list(pathlib.Path("/proc/self/fd").iterdir()), "the metrics count them"
print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), *resource.getrlimit(resource.RLIMIT_CORE))
"""


@pytest.mark.parametrize(
    ("script", "cipher", "is_forbidden"),
    [(_CONFIGURED, "aes-256-gcm", True), (_CONFIGURED, "none", False), (_PRESENTED, "", True)],
    ids=["configured", "not configured", "presented"],
)
def test_no_dumps_once_keys_may_come(tmp_path: Path, script: str, cipher: str, is_forbidden: bool) -> None:
    command = [sys.executable, "-c", "import sys\n" + script + _STATE, cipher, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    dumpable, *limits = map(int, done.stdout.split()[-3:])
    assert dumpable == (0 if is_forbidden else 1)
    if is_forbidden:
        assert limits == [0, 0]


def test_a_refusal_is_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("not permitted")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: SimpleNamespace())
    forbid_dumps.cache_clear()
    with capture_logs() as logs:
        forbid_dumps()
        forbid_dumps()
    forbid_dumps.cache_clear()
    reason = "RLIMIT_CORE: not permitted; PR_SET_DUMPABLE: this system has no prctl"
    assert logs == [{"event": "memory_dumps_possible", "log_level": "warning", "reason": reason}]
