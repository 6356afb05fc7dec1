"""The Helm chart: values, templates, and deploy/kubernetes.yaml, which is what it renders."""

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from tests.machine.conftest import ROOT
from tests.machine.helm_chart import CHART, RENDER, helm, manifests, values
from tests.machine.test_deploy import members

KUBERNETES = ROOT / "deploy" / "kubernetes.yaml"
TEMPLATES = {path.name: path.read_text() for path in sorted((CHART / "templates").iterdir())}


def schema() -> Any:
    return json.loads((CHART / "values.schema.json").read_text())


def test_default_values_obey_their_schema() -> None:
    jsonschema_rs.validate(schema(), values())


@pytest.mark.parametrize(
    ("section", "wrong"),
    [
        ("server", {"replicas": 0}),
        ("server", {"replica": 3}),
        ("image", {"digest": "latest"}),
        ("backups", {"accessMode": "ReadOnlyMany"}),
        ("schedules", {"purge": {"schedule": "daily", "command": ["purge_expired"]}}),
        ("config", {"email_from": "x"}),
    ],
)
def test_schema_rejects_wrong_values(section: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(schema(), values() | {section: wrong})


def test_templates_use_every_value_and_no_other() -> None:
    used = {
        tuple(path.split(".")) for text in TEMPLATES.values() for path in re.findall(r"\.Values\.([A-Za-z.]+)", text)
    }
    # The worker and the deliverer share a template, which names them by a variable.
    used |= {(name, key) for name in ("worker", "deliverer") for key in ("replicas", "resources")}
    assert used == set(keys(values(), whole={"config", "schedules", "resources", "annotations"}))


def keys(mapping: dict[str, Any], whole: set[str], before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of each value; those named `whole` are used with all that is in them."""
    for key, value in mapping.items():
        if isinstance(value, dict) and key not in whole:
            yield from keys(value, whole, (*before, key))
        else:
            yield (*before, key)


def test_variables_of_the_chart_are_documented() -> None:
    documented = set(re.findall(r"`([A-Z][A-Z0-9_]{3,}|HOST|PORT)`", (ROOT / "docs/configuration.md").read_text()))
    stated = set(re.findall(r'^  "([A-Z_]+)" ', TEMPLATES["config.yaml"], re.MULTILINE))
    secret = set(
        re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", (CHART / "values.yaml").read_text().partition("existingSecret:")[0])
    )
    assert {"ALLOWED_HOSTS", "PROMETHEUS_MULTIPROC_DIR"} <= stated
    assert {"SECRET_KEY", "ENCRYPTION_KEYS", "METRICS_TOKEN"} <= secret
    assert stated | secret <= documented


def test_chart_has_the_release_of_the_project() -> None:
    chart = manifests(CHART / "Chart.yaml")[0]
    assert chart["appVersion"] == values()["image"]["tag"]
    assert (
        f'version = "{chart["appVersion"]}"' in (ROOT / "pyproject.toml").read_text()
        or chart["appVersion"] in (ROOT / "identity_platform/library_settings.py").read_text()
    )


def test_nginx_configuration_has_each_line_that_the_chart_replaces() -> None:
    replaced = re.findall(r'\| replace "([^"]+)"', TEMPLATES["nginx.yaml"])
    assert len(replaced) == 5
    configuration = (CHART / "files" / "nginx.conf").read_text()
    assert configuration == (ROOT / "deploy" / "nginx.conf").read_text()
    assert [line for line in replaced if line not in configuration] == []


@pytest.fixture(scope="module")
def rendered() -> str:
    return helm(*RENDER).stdout


@pytest.mark.needs("helm")
def test_chart_passes_the_linter() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART)).stdout


@pytest.mark.needs("helm")
def test_kubernetes_yaml_is_what_the_chart_renders(rendered: str) -> None:
    # {{ sed '/^---/,$d' deploy/kubernetes.yaml; helm ...; }}, as its first lines say.
    header, _, shipped = KUBERNETES.read_text().partition("---\n")
    assert all(line.startswith("#") for line in header.splitlines())
    assert shipped == rendered.partition("---\n")[2]


@pytest.mark.needs("helm")
def test_helm_rejects_unknown_values() -> None:
    rejected = helm(*RENDER, "--set", "server.replica=3", check=False)
    assert rejected.returncode != 0
    assert "replica" in rejected.stderr


@pytest.mark.needs("helm")
def test_values_reach_the_manifests() -> None:
    digest = f"sha256:{'a' * 64}"
    options = ["server.replicas=3", f"image.digest={digest}", "host=login.example.com", "config.EMAIL_FROM=a@b.example"]
    options += ["ingress.domains={login.acme.example}", "monitoring.enabled=true", "config.WEB_WORKERS=4"]
    found = manifests(helm(*RENDER, *(word for option in options for word in ("--set", option))).stdout)
    by_name = {(each["kind"], each["metadata"]["name"]): each for each in found}
    config = by_name["ConfigMap", "identity-platform"]["data"]
    assert (config["PLATFORM_HOSTS"], config["EMAIL_FROM"], config["WEB_WORKERS"]) == ("3", "a@b.example", "4")
    assert {name for kind, name in by_name if kind == "Service"} >= {f"identity-platform-{n}" for n in range(3)}
    site = by_name["ConfigMap", "identity-nginx"]["data"]["site.conf"]
    assert re.findall(r"server (identity-platform-\d:8000) max_fails=0;", site) == [
        f"identity-platform-{number}:8000" for number in range(3)
    ]
    assert [rule["host"] for rule in by_name["Ingress", "identity-platform"]["spec"]["rules"]] == [
        "login.example.com",
        "login.acme.example",
    ]
    (container,) = by_name["StatefulSet", "identity-platform"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"identity-platform@{digest}"
    assert len([kind for kind, _ in by_name if kind == "PodMonitor"]) == 3


@pytest.mark.needs("helm")
def test_certificate_of_an_authority_is_mounted_in_every_pod_of_the_platform() -> None:
    found = manifests(helm(*RENDER[:-1], "--set", "authoritySecret=identity-database-ca").stdout)
    pods = [pod for pod in members(found) if "containers" in pod and pod["containers"][0]["name"] != "nginx"]
    assert len(pods) == 11
    for pod in pods:
        mount, volume = pod["containers"][0]["volumeMounts"][-1], pod["volumes"][-1]
        assert (mount["name"], mount["mountPath"]) == (volume["name"], "/etc/identity/authorities")
        # Not the key that signs certificates.
        secret = {"secretName": "identity-database-ca", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
        assert volume["secret"] == secret


@pytest.mark.needs("helm")
def test_upgrade_migrates_first() -> None:
    (job,) = [each for each in manifests(helm(*RENDER[:-1]).stdout) if each["kind"] == "Job"]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-upgrade"
    shipped = manifests(ROOT / "deploy" / "kubernetes-migrate.yaml")[0]
    (by_hook,), (by_hand,) = (each["spec"]["template"]["spec"]["containers"] for each in (job, shipped))
    assert by_hook["command"] == by_hand["command"]
