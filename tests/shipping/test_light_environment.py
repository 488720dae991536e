"""With the group `test` alone, the tests of codecs, captures and the store are collected; others say what they lack."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from support.needs import PACKAGES
from support.shipping import ROOT

STANDING_ALONE = ("tests/gateway/model", "tests/gateway/wire", "tests/gateway/capture", "tests/gateway/store")
LACKING = (
    "tests/pipeline/sink/test_columns.py",
    "tests/peers/test_s2_sdk_python.py",
    "tests/gateway/observe/test_tracing.py",
)


def test_files_whose_packages_are_missing_are_skipped_and_say_how_to_install_them() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "--numprocesses", "0"]
    options = ["-p", "support.without_packages", "-p", "no:cacheprovider", *STANDING_ALONE, *LACKING]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), *sys.path])}
    done = subprocess.run(
        [*command, *options], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    skipped = dict(re.findall(r"^SKIPPED \[1\] (\S+?):0: (.*)$", done.stdout, re.MULTILINE))
    assert skipped.keys() == set(LACKING)
    for file, reason in skipped.items():
        package = reason.partition(" ")[0]
        assert package in PACKAGES and reason == f"{package} is not installed: {PACKAGES[package].how}", file
    assert done.stdout.count("tests/gateway/wire/") > 100 and done.stdout.count("tests/gateway/store/") > 100
