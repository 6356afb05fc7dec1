"""The files in deploy/ name what there is: commands, settings, folders."""

import re
import subprocess
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
    return [document for document in yaml.safe_load_all((DEPLOY / name).read_text()) if document]


def named_manifest(kind: str, name: str) -> dict[str, Any]:
    """Return a manifest of deploy/kubernetes.yaml."""
    (found,) = [one for one in documents("kubernetes.yaml") if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


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
        for command in re.findall(r'(?:manage\.py"?,? ?"?|\brun )([a-z]+_[a-z_]+)', (DEPLOY / name).read_text())
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
    config = named_manifest("ConfigMap", "identity-platform")["data"]
    named = {name.removesuffix("_FILE") for name in [*compose, *config]}
    assert {"ALLOWED_HOSTS", "BASE_URL"} <= named
    assert [name for name in sorted(named) if not is_setting(name)] == []


def test_pods_run_narrow_and_by_one_image() -> None:
    pods = [one for name in KUBERNETES for one in members(documents(name)) if "containers" in one]
    assert len(pods) == 12
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True
        (container,) = pod["containers"]
        assert container["image"] in ("identity-platform:1.3.0", "docker.io/library/nginx:1.28.0-alpine")
        assert container["resources"]["limits"].keys() == {"cpu", "memory"}
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


def scheduled_by_kubernetes() -> dict[str, str]:
    """Return the command of each CronJob and its schedule."""
    jobs = [one["spec"] for one in documents("kubernetes.yaml") if one["kind"] == "CronJob"]
    return {
        next(each for each in members(job) if "containers" in each)["containers"][0]["command"][2]: job["schedule"]
        for job in jobs
    }


def scheduled_by_helm() -> dict[str, str]:
    values = documents("helm/identity-platform/values.yaml")[0]
    return {job["command"][0]: job["schedule"] for job in values["schedules"].values()}


def scheduled_by_documentation() -> dict[str, str]:
    """Return the crontab of the documentation."""
    page = (DEPLOY.parent / "docs" / "running-in-production.md").read_text()
    lines = re.findall(r"^([*0-9]\S*(?: +[*0-9]\S*){4}) +bin/manage ([a-z_]+)", page, re.MULTILINE)
    return {command: " ".join(schedule.split()) for schedule, command in lines}


def test_every_way_schedules_the_same_commands() -> None:
    units = {
        re.findall(r"manage\.py ([a-z_]+)", (DEPLOY / "systemd" / f"{timer.stem}.service").read_text())[0]
        for timer in (DEPLOY / "systemd").glob("*.timer")
    }
    assert scheduled_by_kubernetes() == scheduled_by_helm() == scheduled_by_documentation()
    assert units == scheduled_by_helm().keys()
    assert units == scheduled_by_compose()


def scheduled_by_compose() -> set[str]:
    """Return the commands of the service `schedule`, and those that the options of tenant_worker stand for."""
    services = documents("compose.yaml")[0]["services"]
    options = {"--directories-every": "sync_directory", "--purge-every": "purge_expired"}
    by_worker = {command for option, command in options.items() if option in services["worker"]["command"]}
    return by_worker | set(re.findall(r"run ([a-z_]+)", services["schedule"]["command"][-1]))


# Stand-ins for the programs of the image: the clock of each minute, and what runs.
DATE = """#!/bin/sh
case $2 in
  +%s) echo 59 ;;
  *) exec /bin/date -u -d "$(cat "$MINUTE")" "$2" ;;
esac
"""
SLEEP = """#!/bin/sh
[ "$1" = 1 ] && [ -s "$MINUTES" ] || exit 1
head -n 1 "$MINUTES" > "$MINUTE" && sed -i 1d "$MINUTES"
"""
PYTHON = """#!/bin/sh
echo "$(cat "$MINUTE") $*" >> "$RAN"
exit 3
"""


def test_compose_runs_each_command_when_it_is_due(tmp_path: Path) -> None:
    for name, text in {"date": DATE, "sleep": SLEEP, "python": PYTHON}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    minutes = ["2026-04-01T02:06", "2026-04-01T02:07", "2026-04-01T03:27", "2026-04-01T03:47", "2026-05-01T03:47"]
    minutes += ["2026-04-04T03:37", "2026-04-05T03:37", "2026-04-05T04:37"]  # Saturday, Sunday
    (tmp_path / "minutes").write_text("\n".join(minutes) + "\n")
    environment = {name.upper(): str(tmp_path / name) for name in ("minute", "minutes", "ran")}
    script = documents("compose.yaml")[0]["services"]["schedule"]["command"][-1].replace("$$", "$")
    # One after the other here, so that the order is known.
    ended = subprocess.run(
        ["sh", "-c", script.replace(" & ;;", " ;;")],
        env=environment | {"PATH": f"{tmp_path}:/bin:/usr/bin"},
        capture_output=True,
        text=True,
    )
    assert (tmp_path / "ran").read_text().splitlines() == [
        "2026-04-01T02:07 manage.py backup_tenants --keep 14",
        "2026-04-01T03:27 manage.py check_tenants",
        "2026-04-01T03:47 manage.py rotate_signing_keys",
        "2026-04-05T03:37 manage.py verify_audit",
        "2026-04-05T04:37 manage.py check_consistency",
    ]
    assert "verify_audit needs attention: exit code 3" in ended.stderr


def test_images_of_others_are_of_exact_versions() -> None:
    services = documents("compose.yaml")[0]["services"].values()
    images = [one["image"] for one in services if one["image"] != "identity-platform"]
    images += re.findall(r"^ARG PYTHON_IMAGE=(.+)$", (DEPLOY / "Containerfile").read_text(), re.MULTILINE)
    images += [documents("helm/identity-platform/values.yaml")[0]["nginx"]["image"]]
    assert len(images) == 5
    assert [image for image in images if not re.search(r":\d+\.\d+(\.\d+)?-", image)] == []
    # Those of the manifests are the same.
    assert images[-1] in services_images(images)
    assert re.findall(r"^FROM (\S+)", (DEPLOY / "Containerfile").read_text(), re.MULTILINE) == [
        "$PYTHON_IMAGE",
        "build",
        "$PYTHON_IMAGE",
    ]


def services_images(images: list[str]) -> set[str]:
    """Return the images without the variables of compose that can replace them."""
    return {re.sub(r"^\$\{\w+:-(.+)\}$", r"\1", image) for image in images}


def test_examples_check_the_certificate_of_the_database() -> None:
    files = [*DEPLOY.rglob("*.*"), *(DEPLOY.parent / "docs").glob("*.md")]
    modes = [mode for file in files if file.is_file() for mode in re.findall(r"sslmode=([a-z-]+)", file.read_text())]
    assert len(modes) > 4
    assert set(modes) == {"verify-full"}


def test_selectors_meet_the_pods() -> None:
    manifests = [document for name in KUBERNETES for document in documents(name)]
    labels = {
        one["metadata"]["labels"]["app"]
        for one in members(manifests)
        if "spec" in one and "app" in one.get("metadata", {}).get("labels", {})
    }
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
    assert set(apps) == {pod["metadata"]["labels"]["app"] for pod in pods} - {"identity-nginx"}


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
    assert f"/postgres:{major}." in compose["services"]["postgres"]["image"]
    assert f"/postgresql:{major}-" in cluster()[0]["spec"]["imageName"]


def test_the_image_holds_every_app() -> None:
    copied = set(re.findall(r"^COPY (\w+) \1$", (DEPLOY / "Containerfile").read_text(), flags=re.MULTILINE))
    # The folder of the requirements is there too.
    assert copied - {"requirements"} == {
        "identity_platform",
        "tenants",
        "userflow",
        "registry",
        "mfa",
        "openid",
        "console",
        "templates",
    }
    assert copied <= set(
        re.findall(r"^!(\w+)$", (DEPLOY / "Containerfile.dockerignore").read_text(), flags=re.MULTILINE)
    )
