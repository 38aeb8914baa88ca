"""The manifests are ones that Kubernetes takes, and they agree with each other, the image and the broker."""

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from penstock.server.http.routing import Router
from penstock.server.http.table import ROUTES
from penstock.server.settings_sources import read_settings

DEPLOY = Path(__file__).parents[2] / "deploy"
VERSIONS = ("1.29", kubernetes_validate.latest_version())


def manifests() -> list[dict[str, Any]]:
    files = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    return [one for file in files for one in yaml.safe_load_all(file.read_text(encoding="utf-8"))]


def the(kind: str, name: str = "penstock") -> dict[str, Any]:
    (found,) = [
        one for one in manifests() if (one["kind"], one["metadata"]["name"]) == (kind, name)
    ]
    return found


@pytest.fixture(scope="module")
def pod() -> dict[str, Any]:
    return the("StatefulSet")["spec"]["template"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "manifest", manifests(), ids=lambda one: f"{one['kind']}-{one['metadata']['name']}"
)
def test_kubernetes_takes_it(manifest: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(manifest, version, strict=True)


def test_a_manifest_with_a_mistake_is_refused() -> None:
    wrong = the("StatefulSet")
    wrong["spec"]["replica"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_all_select_the_pods_of_the_broker(pod: dict[str, Any]) -> None:
    labels = pod["metadata"]["labels"].items()
    for name in ("penstock", "penstock-pods"):
        assert the("Service", name)["spec"]["selector"].items() <= labels
    assert the("PodDisruptionBudget")["spec"]["selector"]["matchLabels"].items() <= labels
    spec = the("StatefulSet")["spec"]
    assert spec["selector"]["matchLabels"].items() <= labels
    assert spec["serviceName"] == the("Service", "penstock-pods")["metadata"]["name"]
    assert spec["replicas"] == 1


def test_ports_and_probes_are_those_of_the_broker(pod: dict[str, Any]) -> None:
    (container,) = pod["spec"]["containers"]
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert ports == {"https": 8080, "binary": 9092}
    for name in ("penstock", "penstock-pods"):
        assert {one["targetPort"] for one in the("Service", name)["spec"]["ports"]} == set(ports)
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container[probe]["httpGet"]
        assert asked["port"] in ports
        assert Router(ROUTES).find("GET", asked["path"])[0].is_open


def test_settings_are_good_and_files_are_mounted(pod: dict[str, Any]) -> None:
    (container,) = pod["spec"]["containers"]
    environment = {one["name"]: one["value"] for one in container["env"]}
    assert read_settings("", environment=environment).tls.cert_file == "/tls/tls.crt"
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    claims = the("StatefulSet")["spec"]["volumeClaimTemplates"]
    volumes = {one["name"]: one for one in pod["spec"]["volumes"]}
    assert set(mounts) == set(volumes) | {one["metadata"]["name"] for one in claims}
    secret = the("Secret", volumes["tls"]["secret"]["secretName"])
    for name in ("PENSTOCK_TLS__CERT_FILE", "PENSTOCK_TLS__KEY_FILE"):
        folder, _, file = environment[name].rpartition("/")
        assert folder == mounts["tls"]
        assert file in secret["stringData"]
    # The broker refuses a private key that others can read.
    assert volumes["tls"]["secret"]["defaultMode"] & 0o007 == 0
    assert mounts["data"] == "/data"


def test_it_runs_as_the_user_of_the_image_and_never_as_root(pod: dict[str, Any]) -> None:
    (user,) = re.findall(r"^USER (\d+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    context = pod["spec"]["securityContext"]
    assert (context["runAsUser"], context["runAsNonRoot"]) == (int(user), True)
    (container,) = pod["spec"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert not container["securityContext"]["allowPrivilegeEscalation"]
