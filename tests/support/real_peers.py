"""Paths and versions of the programs that `make peers` installs and tests drive.

Standard library only: the installer imports it before anything is set up.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

__all__ = [
    "CHROMIUM_PACKAGE",
    "CHROMIUM_VERSION",
    "H2SPEC_MODULE",
    "H2SPEC_REQUIRES",
    "H2SPEC_VERSION",
    "HELM_MODULE",
    "HELM_VERSION",
    "KAFKA_VERSION",
    "PRAVEGA_VERSION",
    "S2_VERSION",
    "S3P_ADDRESS_VARIABLE",
    "S3P_COMMIT",
    "S3P_MODULE",
    "chromium_program",
    "h2spec_program",
    "helm_program",
    "home",
    "kafka_library",
    "pravega_library",
    "s2_program",
    "s3p_program",
]

S2_VERSION = "0.43.4"
"""Of the crate `s2-cli`, whose program `s2` has the server as `s2 lite`."""
PRAVEGA_VERSION = "0.13.0"
"""Of Maven's `io.pravega`; tests/peers/real/pravega.xml says it too."""
KAFKA_VERSION = "4.1.2"
"""Of Maven's `org.apache.kafka`; tests/peers/real/kafka.xml says it too."""
S3P_MODULE = "github.com/hastyy/murakami"
"""The reference server of S3P, a Go module without versions."""
S3P_COMMIT = "f52a89be0a7cbdebcb473422029f9db9e892e344"
S3P_ADDRESS_VARIABLE = "S3P_LISTEN"
"""Environment variable with HOST:PORT, the address that the server built here listens at."""


H2SPEC_MODULE = "github.com/summerwind/h2spec"
"""Tests that servers of HTTP/2 keep to the specification."""
H2SPEC_VERSION = "v2.2.1+incompatible"
H2SPEC_REQUIRES = {
    "github.com/fatih/color": "v1.19.0",
    "github.com/spf13/cobra": "v1.10.2",
    "golang.org/x/net": "v0.62.0",
}
"""Modules that it is built with: it has no list of its own."""

HELM_MODULE = "helm.sh/helm/v3"
HELM_VERSION = "v3.22.0"

CHROMIUM_PACKAGE = "@sparticuz/chromium"
"""An npm package that has a whole browser in it, without windows."""
CHROMIUM_VERSION = "153.0.0"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
"""Names of browsers that may be installed already."""


def home() -> Path:
    """The folder of all of them, which clones of the repository share."""
    found = os.environ.get("PENSTOCK_PEERS")
    return Path(found) if found else Path.home() / ".cache" / "penstock" / "peers"


def s2_program(*, optimized: bool = False) -> Path:
    """`s2`, whether it is there or not; `optimized`: built as its authors do, for the benchmark."""
    return home() / ("s2-optimized" if optimized else "s2") / "bin" / "s2"


def pravega_library() -> Path:
    """Return the folder of jars of Pravega standalone; it is there only if it is complete."""
    return home() / f"pravega-{PRAVEGA_VERSION}"


def kafka_library() -> Path:
    """Return the folder of jars of Apache Kafka; it is there only if it is complete."""
    return home() / f"kafka-{KAFKA_VERSION}"


def s3p_program() -> Path:
    """The reference server of S3P."""
    return home() / f"s3p-{S3P_COMMIT[:12]}" / "server"


def h2spec_program() -> Path:
    """`h2spec`."""
    return home() / f"h2spec-{H2SPEC_VERSION.partition('+')[0]}" / "h2spec"


def helm_program() -> Path:
    """Helm: the system's where it has one."""
    found = shutil.which("helm")
    return Path(found) if found else home() / f"helm-{HELM_VERSION}" / "helm"


def chromium_program() -> Path:
    """A browser: the system's where it has one, else the one from npm, which need not be there."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    return Path(found) if found else home() / f"chromium-{CHROMIUM_VERSION}" / "chromium"
