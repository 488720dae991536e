"""The dashboard and the alerts that are shipped: they speak of metrics, labels and states that there are."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.peers import need

from penstock.model.failures import FailureCode
from penstock.net.breaker import BreakerState
from penstock.observe.metrics.families import FAMILIES
from penstock.observe.metrics.series import MetricKind

ROOT = Path(__file__).parents[4]
DASHBOARD = ROOT / "config" / "grafana" / "penstock.json"
PROMETHEUS = ROOT / "config" / "prometheus"
OF_PROMETHEUS = {"up", "job", "instance", "le"}
WORDS = {"by", "sum", "rate", "increase", "histogram_quantile", "time", "or", "and", "vector", "label_values"}


def names() -> set[str]:
    """All names that a sample can have."""
    found = set()
    for family in FAMILIES:
        histogram = family.kind is MetricKind.HISTOGRAM
        found |= {family.name + suffix for suffix in (("_bucket", "_sum", "_count") if histogram else ("",))}
    return found


def dashboard() -> list[str]:
    document = json.loads(DASHBOARD.read_text())
    found = [target["expr"] for panel in document["panels"] for target in panel.get("targets", ())]
    return [*found, *(one["query"]["query"] for one in document["templating"]["list"] if one["type"] == "query")]


def alerts() -> list[str]:
    """The expressions of the rules, in one line or several."""
    text = (PROMETHEUS / "alerts.yml").read_text()
    return [" ".join(part.split()) for part in re.findall(r"expr: (?:\|\n)?(.*?)\n +(?:for|labels):", text, re.DOTALL)]


def identifiers(expression: str) -> Iterator[str]:
    """Names of metrics, labels and functions; not what stands in strings, durations or variables of the dashboard."""
    bare = re.sub(r'"[^"]*"|\[[^\]]*\]|\$\w+', " ", expression)
    yield from re.findall(r"(?<![\w.])[a-zA-Z_]\w*", bare)


@pytest.mark.parametrize("expression", [*dashboard(), *alerts()])
def test_every_name_in_an_expression_is_known(expression: str) -> None:
    labels = {label for family in FAMILIES for label in family.label_names}
    found = set(identifiers(expression))
    assert found & names() or "up{" in expression, "it is about no metric of ours"
    assert found <= names() | labels | OF_PROMETHEUS | WORDS


@pytest.mark.parametrize("expression", [*dashboard(), *alerts()])
def test_labels_belong_to_the_metric_and_values_can_be(expression: str) -> None:
    values = {
        "state": {state.value for state in BreakerState},
        "code": {code.value for code in FailureCode},
        "outcome": {"applied", "refused"},
        "level": {"debug", "info", "warning", "error"},
    }
    by_name = {name: family for family in FAMILIES for name in names() if name.startswith(family.name)}
    for name, selected in re.findall(r"(\w+)\{([^}]*)\}", expression):
        for label, value in re.findall(r'(\w+)=~?"([^"]*)"', selected):
            assert label in OF_PROMETHEUS or label in by_name[name].label_names, (name, label)
            if label in values:
                assert set(value.split("|")) <= values[label]


def test_the_dashboard_is_what_grafana_imports() -> None:
    document: dict[str, Any] = json.loads(DASHBOARD.read_text())
    panels = document["panels"]
    assert document["uid"] == "penstock" and document["schemaVersion"] >= 36
    assert len({panel["id"] for panel in panels}) == len(panels) > 20
    corners = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(corners)) == len(corners)
    assert all(panel["description"] for panel in panels if panel["type"] != "row")


def test_every_kind_of_trouble_has_an_alert() -> None:
    text = (PROMETHEUS / "alerts.yml").read_text()
    assert len(alerts()) == text.count("- alert:") == text.count("summary:") > 10


def test_every_expression_of_the_dashboard_parses(tmp_path: Path) -> None:
    """As rules, of which promtool parses the expressions; Grafana puts an interval and values for its variables."""
    bare = [re.sub(r"\$\w+", "5m", one) for one in dashboard() if not one.startswith("label_values(")]
    rules = [{"record": f"r{number}", "expr": one} for number, one in enumerate(bare)]
    file = tmp_path / "rules.json"  # which is YAML too
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = subprocess.run([need("promtool"), "check", "rules", file], capture_output=True, text=True, timeout=60)
    assert f"SUCCESS: {len(rules)} rules found" in done.stdout, done.stdout + done.stderr


def test_promtool_has_nothing_to_say() -> None:
    promtool = need("promtool")
    for command in ("rules", "alerts.yml"), ("config", "prometheus.yml"):
        done = subprocess.run(
            [promtool, "check", command[0], command[1]], cwd=PROMETHEUS, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "SUCCESS" in done.stdout + done.stderr
