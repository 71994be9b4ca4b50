"""The Kubernetes manifests: what they must contain, and whether names, ports, secrets and times fit together."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any, get_type_hints
from urllib.parse import urlsplit

import pytest
import yaml

from deploy.command_lines import DEPLOY, MARGIN, documents, option, parsed
from dibs.client.stats import QueueStats
from dibs.runtime.environment import VARIABLES
from dibs.server.settings import ServerSettings

Manifest = dict[str, Any]

FOLDER = DEPLOY / "kubernetes"
EXAMPLE = FOLDER / "secrets.example.yaml"
[KUSTOMIZATION] = documents(FOLDER / "kustomization.yaml")
OBJECTS = [each for name in KUSTOMIZATION["resources"] for each in documents(FOLDER / name)]
SECRETS = {each["metadata"]["name"]: each["stringData"] for each in documents(EXAMPLE)}
DEPLOYMENTS = ["dibs-server", "dibs-worker"]


def one(kind: str, name: str) -> Manifest:
    [found] = [each for each in OBJECTS if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def pod(name: str) -> Manifest:
    spec: Manifest = one("Deployment", name)["spec"]["template"]["spec"]
    return spec


def container(name: str) -> Manifest:
    [found] = pod(name)["containers"]
    assert isinstance(found, dict)
    return found


def labels(name: str) -> dict[str, str]:
    found: dict[str, str] = one("Deployment", name)["spec"]["template"]["metadata"]["labels"]
    return found


def test_every_file_is_used() -> None:
    files = {file.name for file in FOLDER.glob("*.yaml")}
    assert files == {*KUSTOMIZATION["resources"], "kustomization.yaml", EXAMPLE.name}


def test_selectors_choose_the_pods_of_one_deployment() -> None:
    assert labels("dibs-server") != labels("dibs-worker")
    for name in DEPLOYMENTS:
        assert one("Deployment", name)["spec"]["selector"]["matchLabels"] == labels(name)
    assert one("Service", "dibs-server")["spec"]["selector"] == labels("dibs-server")
    assert one("PodDisruptionBudget", "dibs-server")["spec"]["selector"]["matchLabels"] == labels("dibs-server")


def test_a_server_is_always_there() -> None:
    spec = one("Deployment", "dibs-server")["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert one("PodDisruptionBudget", "dibs-server")["spec"]["minAvailable"] < spec["replicas"]


def test_the_probes_ask_the_server_where_it_listens() -> None:
    server = container("dibs-server")
    [port] = server["ports"]
    assert port["containerPort"] == ServerSettings().port
    assert [str(port["containerPort"])] == option(server["args"], "port")
    [of_service] = one("Service", "dibs-server")["spec"]["ports"]
    assert of_service["targetPort"] == port["name"]
    for probe, path in {"startupProbe": "/health", "livenessProbe": "/health", "readinessProbe": "/ready"}.items():
        asked = server[probe]["httpGet"]
        assert (asked["path"], asked["port"]) == (path, port["name"])
        assert {each["value"] for each in asked["httpHeaders"]} <= set(option(server["args"], "allow-host"))


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_command_line_exists_and_has_time_to_stop(name: str) -> None:
    context = parsed(container(name)["args"])
    before = container(name).get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["sleep", "0"])
    assert before[0] == "sleep"
    needed = float(before[1]) + context.params["shutdown_timeout"] + MARGIN
    assert pod(name)["terminationGracePeriodSeconds"] >= needed


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_container_may_do_nothing_that_it_need_not(name: str) -> None:
    assert pod(name)["automountServiceAccountToken"] is False
    assert pod(name)["securityContext"]["runAsNonRoot"] is True
    assert pod(name)["securityContext"]["runAsUser"] > 0
    assert pod(name)["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(name)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"requests", "limits"} <= set(container(name)["resources"])
    assert {each["name"] for each in container(name)["volumeMounts"]} == {each["name"] for each in pod(name)["volumes"]}


def secrets_used() -> Iterator[tuple[str, str]]:
    """The name and the key of each Secret that something reads."""
    for name in DEPLOYMENTS:
        for variable in container(name)["env"]:
            if "valueFrom" in variable:
                reference = variable["valueFrom"]["secretKeyRef"]
                yield reference["name"], reference["key"]
    for reference in one("TriggerAuthentication", "dibs-scaler")["spec"]["secretTargetRef"]:
        yield reference["name"], reference["key"]
    [tokens] = option(container("dibs-server")["args"], "tokens")
    [volume] = [each for each in pod("dibs-server")["volumes"] if "secret" in each]
    [mount] = [each for each in container("dibs-server")["volumeMounts"] if each["name"] == volume["name"]]
    assert mount["mountPath"] == str(PurePosixPath(tokens).parent)
    assert "subPath" not in mount
    yield volume["secret"]["secretName"], PurePosixPath(tokens).name


def test_the_secrets_that_are_used_are_in_the_example() -> None:
    assert set(secrets_used()) == {(name, key) for name, values in SECRETS.items() for key in values}


def test_the_example_has_no_secret_and_is_not_applied() -> None:
    assert EXAMPLE.name not in KUSTOMIZATION["resources"]
    values = [value for name, values in SECRETS.items() for value in values.values() if name != "dibs-tokens"]
    assert all("REPLACE-ME" in value for value in values)
    assert "dibs_" not in EXAMPLE.read_text()  # how tokens begin


def test_variables_exist() -> None:
    for name in DEPLOYMENTS:
        assert {variable["name"] for variable in container(name)["env"]} <= set(VARIABLES)


def test_workers_find_the_server() -> None:
    [url] = [each["value"] for each in container("dibs-worker")["env"] if each["name"] == "DIBS_URL"]
    found = urlsplit(url)
    [port] = one("Service", "dibs-server")["spec"]["ports"]
    assert (found.hostname, found.port) == ("dibs-server", port["port"])
    assert found.hostname in option(container("dibs-server")["args"], "allow-host")


def test_scaling_by_desired_slots() -> None:
    spec = one("ScaledObject", "dibs-worker")["spec"]
    assert spec["scaleTargetRef"] == {"name": "dibs-worker"}
    assert "replicas" not in one("Deployment", "dibs-worker")["spec"]
    assert 1 <= spec["minReplicaCount"] <= spec["fallback"]["replicas"] <= spec["maxReplicaCount"]
    [trigger] = spec["triggers"]
    assert (trigger["type"], trigger["metricType"]) == ("metrics-api", "AverageValue")
    metadata = trigger["metadata"]
    worker = parsed(container("dibs-worker")["args"]).params
    assert metadata["targetValue"] == str(worker["concurrency"] * worker["processes"])
    assert get_type_hints(QueueStats)[metadata["valueLocation"]] is int
    assert metadata["authMode"] == "bearer"
    authentication = one("TriggerAuthentication", trigger["authenticationRef"]["name"])
    assert [each["parameter"] for each in authentication["spec"]["secretTargetRef"]] == ["token"]


def test_the_scaler_asks_the_server() -> None:
    [trigger] = one("ScaledObject", "dibs-worker")["spec"]["triggers"]
    url = urlsplit(trigger["metadata"]["url"])
    [port] = one("Service", "dibs-server")["spec"]["ports"]
    assert (url.port, url.path, url.query) == (port["port"], "/api/v1/stats", "window=600")
    assert url.hostname == f"dibs-server.{KUSTOMIZATION['namespace']}.svc.cluster.local"
    assert url.hostname in option(container("dibs-server")["args"], "allow-host")


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
def test_kustomize_builds_it() -> None:
    """Offline: no cluster is asked."""
    ended = subprocess.run(
        ["kubectl", "kustomize", str(FOLDER)], capture_output=True, text=True, timeout=60, check=True
    )
    built = list(yaml.safe_load_all(ended.stdout))
    assert len(built) == len(OBJECTS)
    assert {each["metadata"].get("namespace", "dibs") for each in built} == {"dibs"}
    images = [
        each["spec"]["template"]["spec"]["containers"][0]["image"] for each in built if each["kind"] == "Deployment"
    ]
    assert all(image.startswith("registry.example.org/") for image in images)
