"""Asks programs of others to judge a running gateway, and writes docs/judges.md (`make judges`).

A judge's function returns one `Verdict` for each subject. A finding that `EXCEPTIONS` names is listed on the page with
its reason; any other one makes the command fail, as does a judge that cannot be asked.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from support.access import closed_gateway
from support.browser import Browser
from support.h2spec import EXCEPTIONS as H2SPEC_EXCEPTIONS
from support.h2spec import FEWER_STREAMS, LISTENERS, run_h2spec
from support.page_views import AXE, busy_gateway, show, views_of, violations
from support.process import CONFIG, GatewayProcess
from support.real_peers import H2SPEC_VERSION, chromium_program, h2spec_program
from support.s2.client import S2Client
from support.tls.certificates import self_signed

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "judges.md"
OPENAPI: Final = ROOT / "docs" / "protocols" / "s2-openapi.yaml"
NODE_MODULES: Final = Path(__file__).with_name("node_modules")
TLS_LISTENERS: Final = ("s2", "controller", "segment", "management")

EXCEPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "h2spec": H2SPEC_EXCEPTIONS,
    "sslyze": {
        "tls_1_3_early_data: BUG_IN_SSLYZE": "it sends a request of HTTP, which the segment protocol is not",
    },
    "testssl": {
        "cert_": "the certificate is the test's own: signed by itself, for one day",
        "cipherlist_": "a name of a group of ciphers that has those of TLS 1.2 in it; the ciphers are judged by name",
        "HSTS": "a header for browsers and public names; the listener's certificate decides who connects",
        "DNS_CAArecord": "loopback has no DNS",
    },
    "MCP conformance": {
        "missing tool": "it calls a tool of its own example server, which does something that no tool here does",
        "missing method": "the endpoint has tools only: no resources, prompts, completions or log levels",
        "missing x-mcp-header": "no argument of a tool is copied into a header",
        "missing requests to the client": "no tool asks its client for anything",
    },
}
"""By judge: the beginnings of findings that do not count, and why."""


@dataclass(frozen=True)
class Verdict:
    """The result of one judge for one subject. `checks`: their number, as the judge counts. `found`: its findings."""

    judge: str
    version: str
    subject: str
    checks: str
    found: tuple[str, ...] = ()

    @property
    def excepted(self) -> dict[str, str]:
        """The findings that do not count, with their reasons."""
        known = EXCEPTIONS.get(self.judge, {})
        return {one: why for one in self.found for start, why in known.items() if one.startswith(start)}

    @property
    def counting(self) -> tuple[str, ...]:
        """The findings that count."""
        return tuple(one for one in self.found if one not in self.excepted)


class CannotAsk(Exception):
    """A judge is not installed; says how to install it."""


def program(name: str, how: str) -> str:
    """Return the path of a judge's program. Raises CannotAsk."""
    own = Path(sys.executable).parents[1] / "judges" / "bin" / name
    found = str(own) if own.exists() else shutil.which(name)
    if found is None:
        raise CannotAsk(f"{name} is not installed: {how}")
    return found


def asked(*command: str | Path, given: bytes = b"", cwd: Path | None = None, **environment: str) -> str:
    """Run a judge to its end and return what it printed, without colours, whatever its exit code."""
    words = [str(part) for part in command]
    done = subprocess.run(
        words, input=given, capture_output=True, timeout=900, check=False, cwd=cwd, env={**os.environ, **environment}
    )
    return re.sub(r"\x1b\[[\d;]*m", "", (done.stdout + done.stderr).decode(errors="replace"))


def python_version(package: str) -> str:
    """Return the version of a judge from `requirements.txt`."""
    pinned = dict(line.split("==") for line in Path(__file__).with_name("requirements.txt").read_text().split())
    return pinned[package]


def debian_version(package: str) -> str:
    """Return the version of a judge that Debian packages, or of the program itself elsewhere."""
    found = asked("dpkg-query", "-W", "-f", "${Version}", package) if shutil.which("dpkg-query") else ""
    return found if re.fullmatch(r"\d\S*", found) else "unknown"


# ---- the judges ------------------------------------------------------------------------------------------------------


def h2spec(_scratch: Path) -> Iterator[Verdict]:
    """Every section of RFC 9113 and RFC 7541, against every listener that speaks HTTP/2."""
    if not h2spec_program().exists():
        raise CannotAsk("h2spec is not installed: make peers ARGS='--only h2spec'")
    with GatewayProcess(CONFIG + FEWER_STREAMS) as gateway:
        for listener, path in LISTENERS.items():
            told = run_h2spec(getattr(gateway, f"{listener}_port"), "--path", path)
            yield Verdict("h2spec", H2SPEC_VERSION, f"listener {listener}", f"{told.count} cases", tuple(told.others))


def schemathesis(scratch: Path) -> Iterator[Verdict]:
    """Requests made from the OpenAPI document, right and wrong ones, and chains of them."""
    found = program("schemathesis", "make judges installs it")
    with closed_gateway(scratch) as (gateway, tokens):
        config = Path(__file__).with_name("schemathesis.toml")
        said = asked(
            *(found, "--config-file", config, "run", OPENAPI, "--url", gateway.s2_url, "--no-color", "--checks", "all"),
            *("--max-examples", "50", "--seed", "1", "--suppress-health-check", "all"),
            *("--exclude-operation-id", "revokeAccessToken"),  # it would lose its own
            cwd=scratch,
            TOKEN=tokens.issue("judge"),
        )
    cases = re.search(r"(\d+) generated", said)
    if cases is None:
        raise CannotAsk(f"schemathesis did not finish: {said[-500:]}")
    kinds = re.findall(r"^- (?:ST\d+ )?(.*)$", said, re.MULTILINE)
    if kinds:
        print(said)
    version = python_version("schemathesis")
    yield Verdict(
        "schemathesis", version, "S2 API by docs/protocols/s2-openapi.yaml", f"{cases[1]} requests", tuple(kinds)
    )


def with_tls(scratch: Path) -> str:
    """Return a configuration with TLS on all listeners."""
    certificate, key = self_signed(scratch)
    tls = f'tls_certificate = "{certificate}"\ntls_key = "{key}"\n'
    text = CONFIG + '[management]\nbind = "127.0.0.1:{management_port}"\n'
    for name in TLS_LISTENERS:
        table = "management" if name == "management" else f"listeners.{name}"
        text = text.replace(f"[{table}]\n", f"[{table}]\n{tls}")
    return text


SSLYZE_PARTS: Final = (
    ("sslv2", "sslv3", "tlsv1"),
    ("tlsv1_1", "elliptic_curves"),
    ("tlsv1_2",),
    ("tlsv1_3", "compression", "ems", "fallback", "heartbleed", "openssl_ccs", "reneg", "robot", "early_data"),
)
"""Scans that a fresh gateway answers together: hundreds of failed handshakes within seconds slow the client."""
_SOUND: Final = re.compile(r"TLS_(ECDHE_(ECDSA|RSA)_WITH_)?(AES_\d+_GCM|CHACHA20_POLY1305)_SHA\d+")


def sslyze(scratch: Path) -> Iterator[Verdict]:
    """Protocols, ciphers and known attacks, against every listener with TLS."""
    found = program("sslyze", "make judges installs it")
    report = scratch / "sslyze.json"
    for name in TLS_LISTENERS:
        results: dict[str, Any] = {}
        problems: list[str] = []
        for part in SSLYZE_PARTS:
            with GatewayProcess(with_tls(scratch)) as gateway:
                flags = [f"--{scan}" for scan in part]
                address = f"127.0.0.1:{getattr(gateway, f'{name}_port')}"
                said = asked(found, *flags, "--mozilla_config=disable", "--json_out", report, address)
            scanned = json.loads(report.read_text())["server_scan_results"][0]["scan_result"]
            results |= {scan: result["result"] for scan, result in scanned.items() if result and result["result"]}
            problems += [" ".join(line.split()) for line in re.findall(r".*\bVULNERABLE - .*", said)]
            problems += [
                f"{scan}: {each['error_reason']}" for scan, each in scanned.items() if each["status"] == "ERROR"
            ]
        for scan, result in results.items():
            suites = [each["cipher_suite"]["name"] for each in result.get("accepted_cipher_suites", ())]
            if (scan in ("tls_1_2_cipher_suites", "tls_1_3_cipher_suites")) != bool(suites) and scan.endswith("suites"):
                problems.append(f"{scan}: {', '.join(suites) or 'none accepted'}")
            problems += [f"{scan}: {suite}" for suite in suites if not _SOUND.fullmatch(suite)]
        yield Verdict("sslyze", python_version("sslyze"), f"listener {name}", f"{len(results)} scans", tuple(problems))


def testssl(scratch: Path) -> Iterator[Verdict]:
    """Protocols, ciphers, forward secrecy and vulnerabilities, against a listener of HTTP and another one."""
    found = program("testssl", "apt-get install testssl.sh")
    version = debian_version("testssl.sh")
    with GatewayProcess(with_tls(scratch)) as gateway:
        for name in ("management", "segment"):
            report = scratch / f"testssl-{name}.json"
            flags = ("--quiet", "--color", "0", "--warnings", "batch", "--jsonfile", report)
            parts = ("--protocols", "--std", "--fs", "--server-defaults", "--vulnerable")
            asked(found, *flags, *parts, f"127.0.0.1:{getattr(gateway, f'{name}_port')}")
            said = json.loads(report.read_text())
            problems = [one for one in said if one["severity"] not in ("OK", "INFO", "DEBUG")]
            problems += [
                one for one in said if one["id"] in ("TLS1_2", "TLS1_3") and not one["finding"].startswith("offered")
            ]
            found_here = tuple(f"{one['id']}: {one['finding']}" for one in problems)
            yield Verdict("testssl", version, f"listener {name}", f"{len(said)} results", found_here)


SLOW_MODES: Final = {"-H": "slow heads", "-B": "slow bodies", "-X": "slow reads"}


def slowhttptest(_scratch: Path) -> Iterator[Verdict]:
    """Three hundred connections that are slow, while a probe asks for an ordinary answer."""
    found = program("slowhttptest", "apt-get install slowhttptest")
    version = debian_version("slowhttptest")
    with GatewayProcess(CONFIG) as gateway:
        for mode, what in SLOW_MODES.items():
            said = asked(
                *(found, mode, "-c", "300", "-r", "100", "-i", "2", "-l", "20", "-p", "3", "-x", "24", "-k", "3"),
                *("-u", f"{gateway.s2_url}/v1/basins"),
            )
            answered = re.findall(r"service available: *(YES|NO)", said)
            if not answered:
                raise CannotAsk(f"slowhttptest did not finish: {said[-500:]}")
            found_here = ("the probe got no answer within 3 s",) if "NO" in answered else ()
            yield Verdict("slowhttptest", version, f"listener s2, {what}", f"{len(answered)} probes", found_here)


def promtool(_scratch: Path) -> Iterator[Verdict]:
    """The metrics of a gateway with traffic, and the shipped alerts."""
    found = program("promtool", "apt-get install prometheus")
    version = debian_version("prometheus")
    with GatewayProcess(CONFIG) as gateway:
        S2Client(("127.0.0.1", gateway.s2_port), "penstock").append("one", "body")
        metrics = asked("curl", "-s", f"http://127.0.0.1:{gateway.management_port}/metrics").encode()
    families = metrics.count(b"# TYPE ")
    said = asked(found, "check", "metrics", given=metrics)
    yield Verdict("promtool", version, "/metrics", f"{families} families", tuple(said.split("\n")[:-1]))
    rules = ROOT / "config" / "prometheus" / "alerts.yml"
    said = asked(found, "check", "rules", rules)
    passed = re.search(r"SUCCESS: (\d+) rules found", said)
    yield Verdict(
        *("promtool", version, "config/prometheus/alerts.yml"),
        *((f"{passed[1]} rules", ()) if passed else ("none", tuple(said.splitlines()))),
    )


KUBERNETES: Final = ("1.30", "1.37")


def kubernetes_validate(_scratch: Path) -> Iterator[Verdict]:
    """The shipped manifests against the schemas of an older and a new Kubernetes, without properties that they lack."""
    found = program("kubernetes-validate", "make judges installs it")
    for path in sorted((ROOT / "config" / "kubernetes").glob("*.yaml")):
        for release in KUBERNETES:
            said = asked(found, "--strict", "-k", release, path).splitlines()
            passed = [line for line in said if line.startswith("INFO ")]
            wrong = tuple(line for line in said if line not in passed)
            subject = f"{path.relative_to(ROOT)}, Kubernetes {release}"
            version = python_version("kubernetes-validate")
            yield Verdict("kubernetes-validate", version, subject, f"{len(passed)} objects", wrong)


def grafana(scratch: Path) -> Iterator[Verdict]:
    """The shipped dashboard against the types of Grafana's own schema, without keys that they lack."""
    schema, compiler = NODE_MODULES / "@grafana" / "schema", NODE_MODULES / ".bin" / "tsc"
    if not schema.is_dir() or not compiler.exists():
        raise CannotAsk("Grafana's schema is not installed: npm ci --prefix tests/judges")
    path = ROOT / "config" / "grafana" / "penstock.json"
    (scratch / "node_modules").symlink_to(NODE_MODULES)
    program = scratch / "dashboard.ts"
    document = path.read_text()
    program.write_text(
        f"import type {{ Dashboard }} from '@grafana/schema';\nexport const it: Dashboard = {document};\n"
    )
    options = ("--noEmit", "--strict", "--skipLibCheck", "--module", "esnext", "--moduleResolution", "bundler")
    said = asked(compiler, *options, program.name, cwd=scratch)
    version = json.loads((schema / "package.json").read_text())["version"]
    panels = len(json.loads(document)["panels"])
    subject = str(path.relative_to(ROOT))
    yield Verdict("Grafana's schema", version, subject, f"{panels} panels", tuple(said.splitlines()))


def axe(_scratch: Path) -> Iterator[Verdict]:
    """WCAG 2.2 A and AA and the judge's best practices, on each view of the management page, light and dark."""
    if not (AXE / "axe.min.js").exists():
        raise CannotAsk("axe-core is not installed: npm ci --prefix tests/judges")
    if not chromium_program().exists():
        raise CannotAsk("chromium is not installed: make peers ARGS='--only Chromium'")
    version = json.loads((AXE / "package.json").read_text())["version"]
    with busy_gateway() as gateway, Browser(chromium_program()) as browser:
        tab = browser.tab("about:blank")
        for dark in (False, True):
            tab.dark(dark)
            checks, found = 0, []
            for view in views_of(gateway):
                show(tab, gateway, view)
                rules, broken = violations(tab)
                checks += rules
                found += [f"{view.name}: {one}" for one in broken]
            subject = f"management page, {'dark' if dark else 'light'}"
            yield Verdict("axe", version, subject, f"{checks} rules", tuple(found))


_MCP_SKIPPED: Final = ("tasks-",)
"""Scenarios of an extension that the endpoint does not announce; the judge does not score them either."""
_MCP_MISSING: Final = {
    r"unknown tool: |diagnostic tool '|Tool '\w+' not found": "missing tool",
    r"method '[\w/]+' is not offered": "missing method",
    "exposes no tool with x-mcp-header": "missing x-mcp-header",
    "InputRequiredResult": "missing requests to the client",
}
"""Features that the endpoint lacks on purpose, by the judge's words."""


def mcp_conformance(scratch: Path) -> Iterator[Verdict]:
    """The public conformance runner of the Model Context Protocol: all that it requires of a server, both revisions."""
    runner, node = NODE_MODULES / "@modelcontextprotocol" / "conformance", NODE_MODULES / ".bin" / "node"
    if not (runner / "package.json").exists() or not node.exists():
        raise CannotAsk("@modelcontextprotocol/conformance is not installed: npm ci --prefix tests/judges")
    version = json.loads((runner / "package.json").read_text())["version"]
    with GatewayProcess(CONFIG + '[management]\nbind = "127.0.0.1:{management_port}"\nmcp = true\n') as gateway:
        for revision in ("2026-07-28", "2025-11-25"):
            results = scratch / f"mcp-{revision}"
            url = f"http://127.0.0.1:{gateway.management_port}/mcp"
            command = (node, runner / "dist" / "index.js", "server", "--url", url, "--requirements", revision)
            said = asked(*command, "--output-dir", results)
            reports = sorted(results.glob("server-*/checks.json"))
            if not reports:
                raise CannotAsk(f"MCP conformance did not finish: {said[-500:]}")
            wanted = [one for one in reports if not one.parent.name.removeprefix("server-").startswith(_MCP_SKIPPED)]
            checks = [check for report in wanted for check in json.loads(report.read_text())]
            failed = [check for check in checks if check["status"] == "FAILURE"]
            passed = sum(check["status"] == "SUCCESS" for check in checks)
            yield Verdict(
                *("MCP conformance", version, f"/mcp, revision {revision}", f"{passed + len(failed)} checks"),
                tuple(_mcp_finding(check) for check in failed),
            )


def _mcp_finding(check: Mapping[str, Any]) -> str:
    said = " ".join(str(check.get("errorMessage")).split())
    kinds = [kind for pattern, kind in _MCP_MISSING.items() if re.search(pattern, said)]
    return f"{kinds[0] if kinds else check['id']}: {check['id']}: {said}"


JUDGES: Final[Mapping[str, Callable[[Path], Iterator[Verdict]]]] = {
    "h2spec": h2spec,
    "schemathesis": schemathesis,
    "sslyze": sslyze,
    "testssl": testssl,
    "slowhttptest": slowhttptest,
    "promtool": promtool,
    "kubernetes-validate": kubernetes_validate,
    "grafana": grafana,
    "axe": axe,
    "mcp": mcp_conformance,
}


# ---- the page --------------------------------------------------------------------------------------------------------


def page(verdicts: list[Verdict]) -> str:
    """Return the text of docs/judges.md."""
    lines = [
        "# Outside judges",
        "",
        "To have programs of others judge a running gateway, run `make judges`. It installs those that come from PyPI",
        "and npm, says how to install the others, asks them all, and writes this page. It fails if a judge finds",
        "anything that the second table does not explain.",
        "",
        f"Last run: {datetime.now(UTC):%Y-%m-%d}.",
        "",
        "| judge | version | judged | checks | findings | explained |",
        "| --- | --- | --- | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {one.judge} | {one.version} | {one.subject} | {one.checks} | {len(one.found)} | {len(one.excepted)} |"
        for one in verdicts
    ]
    reasons: dict[tuple[str, str], str] = {}
    for verdict in verdicts:
        for finding, why in verdict.excepted.items():
            short = finding if verdict.judge == "h2spec" else finding.partition(": ")[0]
            reasons.setdefault((verdict.judge, short), why)
    lines += ["", "| judge | finding | explanation |", "| --- | --- | --- |"]
    lines += [f"| {judge} | {finding} | {why} |" for (judge, finding), why in sorted(reasons.items())]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Ask the judges; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default=",".join(JUDGES), help="judges to ask; the page is written if all are")
    options = parser.parse_args()
    names = options.only.split(",")
    verdicts: list[Verdict] = []
    missing: list[str] = []
    with tempfile.TemporaryDirectory(prefix="penstock-judges-") as scratch:
        for name in names:
            try:
                for verdict in JUDGES[name](Path(scratch)):
                    verdicts.append(verdict)
                    counting = len(verdict.counting)
                    print(f"{verdict.judge}, {verdict.subject}: {verdict.checks}, {counting} count", flush=True)
                    for finding in verdict.counting:
                        print(f"  {finding}", flush=True)
            except CannotAsk as error:
                missing.append(str(error))
                print(f"{name}: {error}", flush=True)
    if len(names) == len(JUDGES) and not missing:
        PAGE.write_text(page(verdicts))
        print(f"wrote {os.path.relpath(PAGE)}")
    return 1 if missing or any(verdict.counting for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
