"""The files in deploy/ name what there is: commands, settings, folders."""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import get_commands

DEPLOY = Path(__file__).parents[2] / "deploy"
KUBERNETES = ("kubernetes.yaml", "kubernetes-migrate.yaml")
SETTINGS = (DEPLOY.parent / "identity_platform" / "settings.py").read_text()


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def members(value: Any) -> Iterator[dict[str, Any]]:
    """Every mapping inside, at any depth."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    for inner in value if isinstance(value, list) else []:
        yield from members(inner)


def is_setting(name: str) -> bool:
    # Most are read under their own name, limits and others by it too.
    return f'"{name}"' in SETTINGS


def test_every_command_of_the_manifests_exists() -> None:
    named = {
        command
        for name in ("compose.yaml", *KUBERNETES)
        for command in re.findall(r"manage\.py,? ([a-z_]+)", (DEPLOY / name).read_text())
    }
    assert {
        "tenant_worker",
        "deliver_events",
        "sync_directory",
        "purge_expired",
        "backup_tenants",
        "migrate_tenants",
    } <= named
    assert named <= set(get_commands())


def test_every_setting_of_the_manifests_is_one() -> None:
    compose = documents("compose.yaml")[0]["services"]["platform"]["environment"]
    config = next(one for one in documents("kubernetes.yaml") if one["kind"] == "ConfigMap")["data"]
    named = {name.removesuffix("_FILE") for name in [*compose, *config]}
    assert {"ALLOWED_HOSTS", "BASE_URL"} <= named
    assert [name for name in sorted(named) if not is_setting(name)] == []


def test_pods_run_narrow_and_by_one_image() -> None:
    pods = [one for name in KUBERNETES for one in members(documents(name)) if "containers" in one]
    assert len(pods) == 10
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True
        (container,) = pod["containers"]
        assert container["image"] == "identity-platform:1.0.0"
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.needs("kubernetes-validate")
@pytest.mark.parametrize("name", KUBERNETES)
def test_manifests_are_valid(name: str) -> None:
    # Only where it is installed.
    schemas = import_module("kubernetes_validate")
    for document in documents(name):
        for version in ("1.30", schemas.latest_version()):
            schemas.validate(document, version, strict=True)
    with pytest.raises(schemas.ValidationError):
        schemas.validate({**document, "spec": {"no_such_field": 1}}, "1.30", strict=True)


def test_selectors_meet_the_pods() -> None:
    manifests = [document for name in KUBERNETES for document in documents(name)]
    labels = {one["metadata"]["labels"]["app"] for one in members(manifests) if "labels" in one.get("metadata", {})}
    selected = [one["matchLabels"]["app"] for one in members(manifests) if "app" in one.get("matchLabels", {})]
    selected += [app for one in members(manifests) if one.get("key") == "app" for app in one["values"]]
    selected += [one["spec"]["selector"]["app"] for one in manifests if one["kind"] == "Service"]
    assert set(selected) == labels
    # Every pod is under a policy.
    (policy,) = [one for one in manifests if one["metadata"].get("name") == "identity-all"]
    assert set(policy["spec"]["podSelector"]["matchExpressions"][0]["values"]) == labels


def cluster() -> tuple[dict[str, Any], dict[str, Any]]:
    """The PostgreSQL cluster of CloudNativePG and its network policy."""
    found, policy = documents("cloudnativepg.yaml")
    return found, policy


@pytest.mark.needs("kubernetes-validate")
def test_network_policy_of_cluster_is_valid() -> None:
    # The schema of the cluster itself is the operator's.
    schemas = import_module("kubernetes_validate")
    for version in ("1.30", schemas.latest_version()):
        schemas.validate(cluster()[1], version, strict=True)


def test_cluster_and_patroni_have_equal_settings() -> None:
    postgresql = cluster()[0]["spec"]["postgresql"]
    (patroni,) = documents("patroni/patroni.yml")
    stated = patroni["bootstrap"]["dcs"]["postgresql"]["parameters"]
    equal = postgresql["parameters"].keys() & stated.keys()
    assert {"max_connections", "recovery_init_sync_method", "autovacuum_naptime", "jit", "timezone"} <= equal
    assert {name: str(stated[name]) for name in equal} == {name: postgresql["parameters"][name] for name in equal}
    # No acknowledged commit is lost with one machine.
    assert cluster()[0]["spec"]["instances"] == 3
    assert postgresql["synchronous"] == {
        "method": "any",
        "number": 1,
        "dataDurability": "required",
        "failoverQuorum": True,
    }


def test_every_pod_of_the_platform_reaches_the_cluster() -> None:
    found, policy = cluster()
    instances = {"cnpg.io/cluster": found["metadata"]["name"]}
    assert policy["spec"]["podSelector"]["matchLabels"] == instances
    (apps,) = [one["values"] for one in members(policy) if one.get("key") == "app"]
    pods = [one for name in KUBERNETES for one in members(documents(name)) if "containers" in one.get("spec", {})]
    assert set(apps) == {pod["metadata"]["labels"]["app"] for pod in pods}


def test_backups_outlive_the_containers() -> None:
    (compose,) = documents("compose.yaml")
    platform = compose["services"]["platform"]
    assert platform["read_only"] is True
    assert f"backups:{platform['environment']['BACKUP_FOLDER']}" in platform["volumes"]
    manifests = documents("kubernetes.yaml")
    (claimed,) = {one["claimName"] for one in members(manifests) if "claimName" in one}
    assert claimed in [one["metadata"]["name"] for one in manifests if one["kind"] == "PersistentVolumeClaim"]


def test_image_has_programs_of_composed_database_server() -> None:
    (compose,) = documents("compose.yaml")
    (major,) = re.findall(r"^ARG POSTGRESQL=(\d+)$", (DEPLOY / "Containerfile").read_text(), flags=re.MULTILINE)
    assert f"/postgres:{major}-" in compose["services"]["postgres"]["image"]
    assert f"/postgresql:{major}-" in cluster()[0]["spec"]["imageName"]


def test_the_image_holds_every_app() -> None:
    copied = set(re.findall(r"^COPY (\w+) \1$", (DEPLOY / "Containerfile").read_text(), flags=re.MULTILINE))
    assert copied == {"identity_platform", "tenants", "userflow", "registry", "mfa", "openid", "console", "templates"}
    assert copied <= set(
        re.findall(r"^!(\w+)$", (DEPLOY / "Containerfile.dockerignore").read_text(), flags=re.MULTILINE)
    )
