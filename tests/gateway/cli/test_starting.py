"""Help and completion import only what they need: slow imports are counted, not timed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import EntryPoint

import pytest
from click.testing import CliRunner

from penstock.cli import main
from penstock.cli.listing import listed
from penstock.cli.main import COMMANDS

HEAVY = {
    *("cryptography", "google.protobuf", "h11", "h2", "jwt", "matplotlib", "msgspec", "opentelemetry", "orjson"),
    *("penstock.app.config", "penstock.wire", "prometheus_client", "pyarrow", "pyspark", "sqlite3", "structlog"),
    *("trio", "zstandard"),
}
WORK = HEAVY - {"google.protobuf", "h11", "h2", "msgspec", "orjson", "penstock.wire", "sqlite3", "zstandard"}
"""Modules that a command needs to work, but not to list its options."""
IMPORTED = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "


def imports(code: str, **environment: str) -> tuple[str, set[str]]:
    """Run code that ends the interpreter; return what it printed, and the modules that were imported."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED + code],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        check=True,
    )
    return done.stdout, set(done.stderr.split())


def test_help_imports_no_command() -> None:
    printed, modules = imports("from penstock.cli import main; main(['--help'], prog_name='penstock')")
    assert all(f"\n  {name} " in printed for name in (*COMMANDS, "pipeline"))
    assert modules & HEAVY == set()
    assert {name for name in modules if name.startswith(("penstock.", "penstock_"))} <= {
        "penstock.cli",
        "penstock.cli.listing",
        "penstock.cli.main",
        "penstock.cli.output",
    }


def test_help_of_the_pipeline_imports_none_of_its_commands() -> None:
    code = "from penstock.cli import main; main(['pipeline', '--help'], prog_name='penstock')"
    printed, modules = imports(code)
    assert "\n  ingest " in printed and modules & HEAVY == set()


@pytest.mark.parametrize(("typed", "wanted"), [("penstock ", "serve"), ("penstock pip", "pipeline")])
def test_completion_of_commands_imports_none(typed: str, wanted: str) -> None:
    code = "from penstock.cli import main; main(prog_name='penstock')"
    words = {"_PENSTOCK_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": "1"}
    printed, modules = imports(code, **words)
    assert f"plain,{wanted}\n" in printed
    assert modules & HEAVY == set()


def test_help_of_a_command_imports_nothing_that_it_works_with() -> None:
    names = [[name] for name in COMMANDS]
    names += [["pipeline", name] for name in ("audit", "backfill", "ingest", "quality", "run")]
    code = (
        "from click.testing import CliRunner; from penstock.cli import main\n"
        f"for name in {names!r}: assert CliRunner().invoke(main, [*name, '--help']).exit_code == 0, name"
    )
    _, modules = imports(code)
    assert modules & WORK == set()


def test_a_gateway_without_tls_and_ciphers_imports_no_cryptography() -> None:
    code = "from penstock.cli import main; main(['check'], prog_name='penstock')"
    _, modules = imports(code)
    assert "penstock.app.config" in modules and "penstock.store.encryption" in modules
    assert modules & {"aeg", "cryptography"} == set()


OF_A_SERVER = {
    *("h11", "penstock.app.bootstrap", "penstock.app.config", "penstock.app.management", "penstock.backends.byte_view"),
    *("penstock.net.accepting", "penstock.net.http.front_server", "penstock.recorder.recordings", "tomllib"),
}
"""Modules of a gateway that serves."""
STORE = {"penstock.store.store", "sqlite3"}
PACKAGES = {
    "durable": "penstock_durable",
    "kafka": "penstock_kafka",
    "s2": "penstock_s2",
    "s3p": "penstock_s3p",
    "segment": "penstock_pravega.segment",
    "pravega": "penstock_pravega.segment",
}
"""The package of the plug-in for each scheme of servers; the codec's is `codec` in the protocol's folder."""


def codecs(packages: Iterable[str]) -> set[str]:
    return {f"{package.partition('.')[0]}.codec" for package in packages}


@pytest.mark.parametrize("scheme", PACKAGES)
def test_a_command_on_a_server_imports_only_the_way_there(scheme: str) -> None:
    """Neither a gateway that serves nor another protocol's client or plug-in; the store only for servers that do not
    number records themselves."""
    code = f"""from penstock.cli import main
try: main(["read", "{scheme}://127.0.0.1:1/testbasin/stream"], prog_name="penstock")
except SystemExit as end: assert end.code == 1"""
    _, modules = imports(code)
    own = PACKAGES[scheme]
    assert f"{own}.back_opening" in modules
    assert modules & OF_A_SERVER == set()
    assert scheme != "s2" or modules & STORE == set()
    others = set(PACKAGES.values()) - {own}
    assert {f"{other}.{part}" for other in others for part in ("plugin", "back_opening")}.isdisjoint(modules)
    assert {f"{codec}.conversation" for codec in codecs(others)}.isdisjoint(modules)


def test_a_name_without_a_server_imports_no_codec_of_another_protocol() -> None:
    """The usual server is that of the plug-in that names it, so that plug-ins are loaded, but nothing behind them."""
    printed, modules = imports("from penstock.tools.target.naming import parse_name; print(parse_name('testbasin/s'))")
    assert printed.startswith("s2://127.0.0.1:")
    assert modules & (OF_A_SERVER | STORE) == set()
    assert modules & codecs(set(PACKAGES.values()) - {"penstock_s2"}) == set()


def test_every_line_fits_in_a_narrow_terminal() -> None:
    for arguments in ([], ["pipeline"]):
        lines = CliRunner().invoke(main, [*arguments, "--help"]).output.partition("Commands:\n")[2].splitlines()
        assert lines and all(len(line) <= 80 and line.endswith(".") and "..." not in line for line in lines)


def test_commands_of_other_distributions_are_listed_by_their_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an import, also if they could not be imported."""
    module = sys.modules["penstock.cli.main"]  # the package has the group of this name
    found = [EntryPoint("frobnicate", "not_there.cli:command", module.ENTRY_POINT_GROUP)]
    monkeypatch.setattr(module, "entry_points", lambda **_: found)
    commands = listed(module._all_commands())
    assert commands["frobnicate"].get_short_help_str() == "(from not_there.cli)"
    assert commands["serve"].get_short_help_str() == COMMANDS["serve"][1]
