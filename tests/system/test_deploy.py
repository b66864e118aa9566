"""The unit of systemd and the Kubernetes manifests: valid, and right about the service that they start."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import redis
import yaml

from harness.ports import free_port
from harness.waiting import LONGEST_WAIT_S, eventually
from shoal_service.access import secret_keys
from shoal_service.app import create_app
from shoal_service.errors import HostNotAllowedError
from shoal_service.settings import Settings
from shoal_service.wire import check_host

pytestmark = pytest.mark.system

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "systemd" / "shoal.service"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
SHOAL = Path(sys.executable).with_name("shoal")
NEWEST = kubernetes_validate.latest_version()


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def containers(path: Path) -> Iterator[dict[str, Any]]:
    for document in documents(path):
        if "template" in document["spec"]:
            yield from document["spec"]["template"]["spec"]["containers"]


def own_containers() -> list[dict[str, Any]]:
    return [one for path in MANIFESTS for one in containers(path) if one["image"].startswith("shoal")]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_manifests_are_valid_in_the_strict_schema(path: Path) -> None:
    found = documents(path)
    assert found
    for document in found:
        kubernetes_validate.validate(document, NEWEST, strict=True)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_services_find_their_pods_and_claims_their_mounts(path: Path) -> None:
    found = documents(path)
    pods = [document["spec"]["template"] for document in found if "template" in document["spec"]]
    for service in (one for one in found if one["kind"] == "Service"):
        wanted = service["spec"]["selector"].items()
        hit = [pod for pod in pods if wanted <= pod["metadata"]["labels"].items()]
        assert len(hit) == 1, service["metadata"]["name"]
        ports = {port["name"] for one in hit[0]["spec"]["containers"] for port in one["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    for document in (one for one in found if "template" in one["spec"]):
        spec = document["spec"]["template"]["spec"]
        volumes = {volume["name"] for volume in spec["volumes"]}
        volumes |= {claim["metadata"]["name"] for claim in document["spec"].get("volumeClaimTemplates", [])}
        for one in spec["containers"]:
            assert {mount["name"] for mount in one["volumeMounts"]} <= volumes


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_no_container_has_rights_that_it_does_not_need(path: Path) -> None:
    for document in (one for one in documents(path) if "template" in one["spec"]):
        spec = document["spec"]["template"]["spec"]
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False
        for one in spec["containers"]:
            context = one["securityContext"]
            assert (context["allowPrivilegeEscalation"], context["readOnlyRootFilesystem"]) == (False, True)
            assert context["capabilities"]["drop"] == ["ALL"]
            assert "memory" in one["resources"]["limits"]


def test_every_variable_is_a_setting_and_has_a_valid_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {entry["name"]: entry.get("value") for one in own_containers() for entry in one["env"]}
    in_unit = re.findall(r"^Environment=(.*)$", UNIT.read_text(), flags=re.MULTILINE)
    given |= dict(pair.split("=", 1) for line in in_unit for pair in line.split())
    fields = set(Settings.model_fields)
    for name in given:
        if name.startswith("SHOAL_") and name != "SHOAL_KERNEL_CACHE":
            assert name.removeprefix("SHOAL_").lower() in fields, name
            monkeypatch.setenv(name, given[name].replace("$(REDIS_PASSWORD)", "secret"))
    monkeypatch.setenv("SHOAL_DATA_DIR", str(tmp_path))
    assert Settings().redis_url.get_secret_value().endswith("@shoal-redis:6379/0")


def test_arguments_start_the_role_that_they_name(tmp_path: Path) -> None:
    """By the command line itself, with the container's variables: it refuses what it does not know."""
    for one in own_containers():
        given = {entry["name"]: entry["value"] for entry in one["env"] if "value" in entry}
        given["SHOAL_ADMIN_KEY_FILE"] = str(tmp_path / "admin.key")
        command = [str(SHOAL), *one["args"], "--list-settings"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=os.environ | given)
        assert done.returncode == 0, done.stderr
        role = one["args"][2] if "--role" in one["args"] else "all"
        assert f"\nrole = {role}\n" in done.stdout


def test_probes_are_answered_though_they_call_a_pod_by_its_address() -> None:
    """With the address as host they would be refused. The manifests give them a host that is allowed."""
    hosts = next(entry["value"] for entry in own_containers()[0]["env"] if entry["name"] == "SHOAL_ALLOWED_HOSTS")
    allowed = Settings(store="memory", host="0.0.0.0", allowed_hosts=hosts, insecure=True).hosts_allowed
    with pytest.raises(HostNotAllowedError):
        check_host("10.1.2.3:8000", allowed)
    paths = {route.path for route in create_app(Settings(store="memory")).routes if hasattr(route, "path")}
    for one in own_containers():
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            probe = one[kind]["httpGet"]
            check_host({header["name"]: header["value"] for header in probe["httpHeaders"]}["Host"], allowed)
            assert probe["path"] in paths


def test_the_key_that_the_manifest_makes_is_accepted(tmp_path: Path) -> None:
    command = re.search(r'--from-literal=admin.key="(.*)"$', MANIFESTS[0].read_text(), flags=re.MULTILINE)
    assert command is not None
    made = subprocess.run(["sh", "-c", f'printf %s "{command[1]}"'], capture_output=True, text=True, check=True).stdout
    (tmp_path / "admin.key").write_text(made)
    assert secret_keys.admin_key_of(Settings(admin_key_file=tmp_path / "admin.key")) == made
    assert len(made) == len(secret_keys.new_secret())


def test_redis_of_the_manifest_starts_with_its_password(tmp_path: Path, redis_binary: str) -> None:
    """The shell line of the container, on folders and a port of this machine."""
    spec = next(one for path in MANIFESTS for one in containers(path) if one["name"] == "redis")
    (tmp_path / "data").mkdir()
    port = free_port()
    line = spec["args"][0].replace("/run/redis", str(tmp_path)).replace("/data", f"{tmp_path}/data")
    line = line.replace("exec redis-server", f"exec {redis_binary}") + f" --bind 127.0.0.1 --port {port}"
    process = subprocess.Popen(
        ["sh", "-c", line], env=os.environ | {"REDIS_PASSWORD": "secret"}, stdout=subprocess.DEVNULL
    )
    try:
        with redis.Redis(port=port, password="secret", retry=None) as client:
            eventually(lambda: _answers(client), "redis-server does not answer")
            assert client.config_get("appendfsync") == {"appendfsync": "always"}
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        with redis.Redis(port=port, retry=None) as stranger, pytest.raises(redis.exceptions.AuthenticationError):
            stranger.ping()
    finally:
        process.terminate()
        process.wait(LONGEST_WAIT_S)


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.exceptions.ConnectionError:
        return False


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not on PATH")
def test_the_unit_passes_the_checks_of_systemd(tmp_path: Path) -> None:
    unit = tmp_path / "shoal.service"
    unit.write_text(UNIT.read_text().replace("/opt/shoal/bin/shoal", str(SHOAL)))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    rated = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--threshold=20", str(unit)], capture_output=True, text=True
    )
    assert rated.returncode == 0, rated.stdout


def test_the_unit_leaves_memory_executable() -> None:
    """Kernels are compiled while the service runs, which memory that may not be executed would prevent."""
    assert "MemoryDenyWriteExecute" not in UNIT.read_text()


def requirement(text: str) -> tuple[str, str]:
    """Name and bound of a requirement of pyproject.toml or of the recipe."""
    found = re.match(r"([\w-]+)(?:\[\w+\])?\s*(>=[\d.]+)?", text)
    assert found, text
    return found[1].lower(), found[2] or ""


def test_the_conda_recipe_requires_what_the_package_requires() -> None:
    recipe = yaml.safe_load((DEPLOY / "conda" / "recipe.yaml").read_text())
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    library, service = recipe["outputs"]
    flat = [one["then"] if isinstance(one, dict) else one for one in service["requirements"]["run"]]
    other_name = {"redis": "redis-py", "prometheus-client": "prometheus_client"}
    extra = {requirement(one) for one in project["optional-dependencies"]["service"]}
    due = {(other_name.get(name, name), bound) for name, bound in extra} | {("hiredis", "")}
    assert {requirement(one) for one in flat if "pin_subpackage" not in one} == due
    assert {requirement(one) for one in library["requirements"]["run"][1:]} == set(
        map(requirement, project["dependencies"])
    )
    assert recipe["context"]["version"] == project["version"]
    assert f">={recipe['context']['python_min']}" == project["requires-python"]
    entries = [f"{name} = {at}" for name, at in project["scripts"].items()]
    assert library["build"]["python"]["entry_points"] == entries
    assert recipe["about"]["summary"] == project["description"]
    assert (DEPLOY.parent / recipe["about"]["license_file"]).is_file()
