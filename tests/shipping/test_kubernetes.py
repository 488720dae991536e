"""The Kubernetes manifests: objects that fit together, and a gateway in them that runs as they say.

Kubernetes itself is not at hand: its schemas judge the manifests, and the fields that matter here are looked at one by
one.
"""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from support.shipping import ROOT, serving

from penstock.app.bootstrap.access import check_closed
from penstock.app.config import Config, parse_config
from penstock.app.config.advice import advice
from penstock.app.config.references import state_back
from penstock.core.address import Address

PLACE: Final = ROOT / "config" / "kubernetes"
FILES: Final = ("sidecar.yaml", "deployment.yaml", "gateways-kafka.yaml", "gateways-pravega.yaml")
STATELESS: Final = ("gateways-kafka.yaml", "gateways-pravega.yaml")
each_file = pytest.mark.parametrize("name", FILES)

CONTAINER_KEYS: Final = {
    *("name", "image", "args", "command", "ports", "resources", "securityContext", "volumeMounts", "restartPolicy"),
    *("startupProbe", "livenessProbe", "readinessProbe"),
}
POD_KEYS: Final = {
    *("terminationGracePeriodSeconds", "automountServiceAccountToken", "securityContext"),
    *("initContainers", "containers", "volumes"),
}
KINDS: Final = {"Secret": "v1", "PersistentVolumeClaim": "v1", "Service": "v1", "Deployment": "apps/v1"}


def objects(name: str) -> dict[str, dict[str, Any]]:
    """By kind."""
    found = [one for one in yaml.safe_load_all((PLACE / name).read_text()) if one]
    assert len({one["kind"] for one in found}) == len(found)
    return {one["kind"]: one for one in found}


def pod(name: str) -> dict[str, Any]:
    return objects(name)["Deployment"]["spec"]["template"]["spec"]


def gateway(name: str) -> dict[str, Any]:
    """The gateway's container."""
    spec = pod(name)
    (found,) = (one for one in (*spec.get("initContainers", ()), *spec["containers"]) if one["name"] == "penstock")
    return found


def config_of(name: str) -> Config:
    return parse_config(text_of(name), name)


def text_of(name: str) -> str:
    return objects(name)["Secret"]["stringData"]["gateway.toml"]


def test_all_are_looked_at() -> None:
    assert sorted(FILES) == sorted(file.name for file in PLACE.iterdir())


@each_file
def test_objects_fit_together(name: str) -> None:
    found = objects(name)
    assert {kind: one["apiVersion"] for kind, one in found.items()}.items() <= KINDS.items()
    deployment = found["Deployment"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"] == labels
    if "Service" in found:
        assert found["Service"]["spec"]["selector"] == labels
        names = {port["name"] for port in gateway(name)["ports"]}
        assert {port["targetPort"] for port in found["Service"]["spec"]["ports"]} <= names
    volumes = {volume["name"]: volume for volume in pod(name)["volumes"]}
    assert {mount["name"] for mount in gateway(name)["volumeMounts"]} == set(volumes)
    assert volumes["config"]["secret"]["secretName"] == found["Secret"]["metadata"]["name"]
    if "PersistentVolumeClaim" in found:
        claim = volumes["data"]["persistentVolumeClaim"]["claimName"]
        assert claim == found["PersistentVolumeClaim"]["metadata"]["name"]


@each_file
@pytest.mark.parametrize("release", ["1.30", "1.37"])
def test_kubernetes_takes_them(name: str, release: str) -> None:
    judge = pytest.importorskip("kubernetes_validate", reason="`pip install kubernetes-validate`")
    for one in objects(name).values():
        judge.validate(one, release, strict=True)


@each_file
def test_keys_are_those_that_there_are(name: str) -> None:
    spec = pod(name)
    assert set(spec) <= POD_KEYS
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        assert set(container) <= CONTAINER_KEYS, container["name"]
        assert container["resources"].keys() == {"requests", "limits"}


@each_file
def test_containers_are_locked_up(name: str) -> None:
    spec = pod(name)
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"] is True
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
    writable = {mount["mountPath"] for mount in gateway(name)["volumeMounts"] if not mount.get("readOnly")}
    disk = set() if name in STATELESS else {config_of(name).store.directory}
    assert writable == {*disk, "/tmp"}


@each_file
def test_the_configuration_is_valid_and_closed(name: str) -> None:
    config = config_of(name)
    check_closed(config)
    assert not [remark.text for remark in advice(config) if "read, write and delete" in remark.text]
    assert config.reload.watch


@each_file
def test_probes_ask_the_management_listener(name: str) -> None:
    config, container = config_of(name), gateway(name)
    bound = Address.parse(config.management.bind)
    assert bound.host == "0.0.0.0", "probes come from outside of the pod"
    assert config.management.auth_tokens
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports["management"] == bound.port
    paths = {kind: container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
    assert {kind: get["path"] for kind, get in paths.items()} == {
        "startup": "/live",
        "liveness": "/live",
        "readiness": "/ready",
    }
    assert {get["port"] for get in paths.values()} == {"management"}
    listening = {Address.parse(listener.bind) for _, listener in config.listeners.labelled()}
    reachable = {address.port for address in listening if not address.is_loopback}
    assert reachable == set(ports.values()) - {bound.port}


@each_file
def test_it_has_time_to_drain(name: str) -> None:
    drain = config_of(name).drain
    assert pod(name)["terminationGracePeriodSeconds"] > drain.accept_seconds + drain.deadline_seconds


def test_the_sidecar_is_a_native_one() -> None:
    spec = pod("sidecar.yaml")
    (sidecar,) = spec["initContainers"]
    assert (sidecar["name"], sidecar["restartPolicy"]) == ("penstock", "Always")
    config = config_of("sidecar.yaml")
    assert all(Address.parse(listener.bind).is_loopback for _, listener in config.listeners.labelled())


def test_one_store_has_one_process() -> None:
    spec = objects("deployment.yaml")["Deployment"]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


@pytest.mark.parametrize(("name", "back"), [("gateways-kafka.yaml", "cluster"), ("gateways-pravega.yaml", "pravega")])
def test_gateways_without_a_store_have_no_volume_and_are_several(name: str, back: str) -> None:
    spec = objects(name)["Deployment"]["spec"]
    assert spec["replicas"] > 1
    assert spec["strategy"]["type"] == "RollingUpdate"
    assert {volume["name"] for volume in pod(name)["volumes"]} == {"config", "tmp"}
    assert state_back(config_of(name).backs) == back


@each_file
def test_it_runs(name: str, tmp_path: Path) -> None:
    """The gateway with the manifest's arguments and configuration, what probes ask, and the application beside it."""
    text = text_of(name).replace("accept_seconds = 5", "accept_seconds = 0")
    with serving(gateway(name)["args"], text, tmp_path / "data") as served:
        ready = ("startup", "liveness", "readiness")
        for kind in ready if name not in STATELESS else ready[:2]:  # there is no server to be ready for
            get = gateway(name)[f"{kind}Probe"]["httpGet"]
            url = f"http://127.0.0.1:{served.ports[9600]}{get['path']}"
            with urllib.request.urlopen(url) as answer:
                assert answer.status == 200
        if name == "sidecar.yaml":
            (application,) = pod(name)["containers"]
            (script,) = application["args"]
            assert '"start":{"seq_num":0' in served.first_line(script)
