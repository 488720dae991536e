"""The Helm chart, rendered by helm: objects that Kubernetes' schemas accept, and the same pod as in the manifests."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from support.real_peers import helm_program
from support.shipping import ROOT

from penstock.app.config import parse_config

pytestmark = pytest.mark.skipif(not helm_program().exists(), reason="helm is not installed: `make peers`")
CHART: Final = ROOT / "config" / "helm" / "penstock"
MANIFESTS: Final = ROOT / "config" / "kubernetes"
RELEASES: Final = ("1.30", "1.37")
EVERYTHING: Final = {
    "config": {"text": '[listeners.s2]\nbind = "0.0.0.0:8080"\n# {{ "quoted" }}\n'},
    "ports": {"s2": 8080, "s3p": 7500},
    "podDisruptionBudget": {"enabled": True},
    "serviceMonitor": {"enabled": True, "labels": {"team": "a"}, "tokenSecret": {"name": "operators", "key": "token"}},
    "networkPolicy": {"operators": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]},
    "imagePullSecrets": [{"name": "registry"}],
    "podAnnotations": {"a": "b"},
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "persistence": {"storageClassName": "fast"},
    "service": {"annotations": {"a": "b"}},
}
LEAST: Final = {
    "config": {"secretName": "mine"},
    "persistence": {"enabled": False},
    "networkPolicy": {"enabled": False},
}
STATELESS: Final = yaml.safe_load((CHART.parent / "gateways-kafka.yaml").read_text())
BEFORE_PRAVEGA: Final = yaml.safe_load((CHART.parent / "gateways-pravega.yaml").read_text())
CLOSED: Final = {
    "config": {"secretName": "mine"},
    "persistence": {"existingClaim": "disk"},
    "networkPolicy": {"clients": [], "operators": []},
}


def helm(tmp_path: Path, values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    command = [helm_program(), "template", "orders", CHART, "--values", file, "--kube-version", RELEASES[0]]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def rendered(tmp_path: Path, values: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the objects by kind and name."""
    done = helm(tmp_path, values)
    assert done.returncode == 0, done.stderr
    found = [one for one in yaml.safe_load_all(done.stdout) if one]
    objects = {(one["kind"], one["metadata"]["name"]): one for one in found}
    assert len(objects) == len(found)
    return objects


@pytest.mark.parametrize(
    "values",
    [EVERYTHING, LEAST, CLOSED, STATELESS, BEFORE_PRAVEGA],
    ids=["everything", "least", "closed", "stateless", "before-Pravega"],
)
def test_kubernetes_takes_them(values: dict[str, Any], tmp_path: Path) -> None:
    """Schemas of an older and of a new Kubernetes, strict. A ServiceMonitor is none of its own."""
    judge = pytest.importorskip("kubernetes_validate", reason="`pip install kubernetes-validate`")
    for (kind, _), one in rendered(tmp_path, values).items():
        if kind != "ServiceMonitor":
            for release in RELEASES:
                judge.validate(one, release, strict=True)


def test_what_there_is(tmp_path: Path) -> None:
    assert sorted(rendered(tmp_path, EVERYTHING)) == [
        ("Deployment", "orders"),
        ("NetworkPolicy", "orders"),
        ("PersistentVolumeClaim", "orders"),
        ("PodDisruptionBudget", "orders"),
        ("Secret", "orders"),
        ("Service", "orders"),
        ("Service", "orders-management"),
        ("ServiceMonitor", "orders"),
    ]
    assert sorted(rendered(tmp_path, LEAST)) == [
        ("Deployment", "orders"),
        ("Service", "orders"),
        ("Service", "orders-management"),
    ]
    assert sorted(rendered(tmp_path, STATELESS)) == [
        ("Deployment", "orders"),
        ("NetworkPolicy", "orders"),
        ("PodDisruptionBudget", "orders"),
        ("Service", "orders"),
        ("Service", "orders-management"),
    ]


def test_the_configuration_arrives_as_it_is(tmp_path: Path) -> None:
    text = rendered(tmp_path, EVERYTHING)["Secret", "orders"]["stringData"]["gateway.toml"]
    assert text == EVERYTHING["config"]["text"]
    parse_config(text)


@pytest.mark.parametrize(
    ("manifest", "values"),
    [
        ("deployment", {"config": {"secretName": "penstock"}}),
        ("gateways-kafka", STATELESS),
        ("gateways-pravega", BEFORE_PRAVEGA),
    ],
    ids=["one", "stateless", "before-Pravega"],
)
def test_the_pod_is_that_of_the_manifest(manifest: str, values: dict[str, Any], tmp_path: Path) -> None:
    """Security, probes, resources and volumes, but for names."""
    text = (MANIFESTS / f"{manifest}.yaml").read_text()
    (deployment,) = (one for one in yaml.safe_load_all(text) if one["kind"] == "Deployment")
    wanted = deployment["spec"]
    found = rendered(tmp_path, values)["Deployment", "orders"]["spec"]
    assert (found["replicas"], found["strategy"]) == (wanted["replicas"], wanted["strategy"])
    (container,), (model,) = found["template"]["spec"].pop("containers"), wanted["template"]["spec"].pop("containers")
    assert container == {**model, "imagePullPolicy": "IfNotPresent"}
    volumes = found["template"]["spec"].pop("volumes")
    for one, other in zip(volumes, wanted["template"]["spec"].pop("volumes"), strict=True):
        assert one["name"] == other["name"] and one.keys() == other.keys()
    assert found["template"]["spec"] == wanted["template"]["spec"]


def test_objects_find_each_other(tmp_path: Path) -> None:
    objects = rendered(tmp_path, EVERYTHING)
    labels = objects["Deployment", "orders"]["spec"]["template"]["metadata"]["labels"].items()
    selectors = [
        objects["Deployment", "orders"]["spec"]["selector"]["matchLabels"],
        objects["Service", "orders"]["spec"]["selector"],
        objects["Service", "orders-management"]["spec"]["selector"],
        objects["NetworkPolicy", "orders"]["spec"]["podSelector"]["matchLabels"],
        objects["PodDisruptionBudget", "orders"]["spec"]["selector"]["matchLabels"],
    ]
    assert all(selector.items() <= labels for selector in selectors)
    monitor = objects["ServiceMonitor", "orders"]["spec"]
    watched = [
        name
        for (kind, name), one in objects.items()
        if kind == "Service" and monitor["selector"]["matchLabels"].items() <= one["metadata"]["labels"].items()
    ]
    assert watched == ["orders-management"]
    (endpoint,) = monitor["endpoints"]
    (port,) = objects["Service", "orders-management"]["spec"]["ports"]
    assert endpoint["port"] == port["name"]
    assert endpoint["authorization"]["credentials"] == {"name": "operators", "key": "token"}
    clients, operators = objects["NetworkPolicy", "orders"]["spec"]["ingress"]
    assert sorted(one["port"] for one in clients["ports"]) == [7500, 8080]
    assert [one["port"] for one in operators["ports"]] == [9600]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "give the gateway's configuration"),
        ({"config": {"txt": "x"}}, "txt"),
        ({**LEAST, "replicas": 2}, "replicas"),
        ({**STATELESS, "stateless": False}, "replicas"),
        ({**STATELESS, "replicas": 0}, "replicas"),
        ({**LEAST, "ports": {"s2": "8080"}}, "s2"),
        ({**LEAST, "ports": {"management": 9601}}, "management"),
        ({**LEAST, "persistence": {"size": "much"}}, "size"),
    ],
)
def test_wrong_values_are_refused(values: dict[str, Any], said: str, tmp_path: Path) -> None:
    done = helm(tmp_path, values)
    assert done.returncode != 0 and said in done.stderr


def test_it_passes_its_own_check(tmp_path: Path) -> None:
    command = [
        helm_program(),
        "lint",
        "--strict",
        CHART,
        "--set",
        "config.secretName=mine",
        "--kube-version",
        RELEASES[0],
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout
