"""What watches shoal: the rules and the dashboard, on a real Prometheus that scrapes real services."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from harness.prometheus_server import Prometheus, running_prometheus
from harness.redis_server import running_redis
from harness.running_service import RunningService
from harness.waiting import eventually
from harness.web import WEB

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "shoal.rules.yml"
CONFIGURATION = ROOT / "deploy" / "prometheus" / "prometheus.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "dashboards" / "shoal.json"
RULE_TESTS = ROOT / "tests" / "data" / "prometheus" / "shoal_rules_test.yml"
COMPOSE = ROOT / "docker-compose.yml"
NAME = re.compile(r"\b(?:shoal|process)_[a-z_]+\b")
RANGES = {"$__rate_interval": "5s", "$stream": ".*"}
"""What Grafana puts in the place of its variables."""
SPARSE = {"Time of a refinement", "Time of a checkpoint"}
"""Panels of quotients that have no value while nothing was refined or saved."""

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="no prometheus on PATH; on Debian, as root: apt-get install prometheus",
)


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def panels() -> list[tuple[str, str]]:
    """(title, expression) of every query of the dashboard."""
    found = json.loads(DASHBOARD.read_text())["panels"]
    return [(panel["title"], target["expr"]) for panel in found for target in panel.get("targets", [])]


def exposed(service: RunningService, key: str = "") -> set[str]:
    """The names of the samples in /metrics."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    text = WEB.get(f"{service.url}/metrics", headers=headers).raise_for_status().text
    return {re.split(r"[{ ]", line)[0] for line in text.splitlines() if line and not line.startswith("#")}


@pytest.fixture(scope="module")
def services(redis_binary: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One service over SQLite, with access keys, and one over Redis. Both have learned 1,200 points.
    A stream of the second one has a source.
    """
    folder = tmp_path_factory.mktemp("watched")
    admin = folder / "admin.key"
    with running_redis(redis_binary, folder) as server:
        alone = RunningService(folder / "alone", {"admin_key_file": admin})
        reading = {"source_allow_private": True}
        shared = RunningService(folder / "shared", {"store": "redis", "redis_url": server.url, **reading})
        try:
            for service in (alone, shared):
                service.start()
            points = np.random.default_rng(0).normal(size=(1_200, 2)).tolist()
            key = {"Authorization": f"Bearer {admin.read_text().strip()}"}
            for url, headers in ((alone.url, key), (shared.url, {})):
                for part in (points[:600], points[600:]):
                    path = "/ingest?wait=applied&timeout=60"
                    reply = WEB.post(url + path, json={"points": part}, headers=headers)
                    reply.raise_for_status()
            with server.client() as client:
                client.xadd("readings", {"data": "[0, 0]"})
            body = {"kind": "redis-stream", "redis_url": server.url, "keys": ["readings"]}
            WEB.put(f"{shared.url}/streams/default/sources/readings", json=body).raise_for_status()
            eventually(lambda: "shoal_source_lag_records" in exposed(shared), shared.tail)
            yield alone, shared, admin
        finally:
            for service in (alone, shared):
                service.kill()


def test_every_metric_that_is_watched_exists(services: Any) -> None:
    alone, shared, admin = services
    known = exposed(alone, admin.read_text().strip()) | exposed(shared)
    asked = [*(rule["expr"] for rule in rules()), *(expression for _, expression in panels())]
    asked += [json.loads(DASHBOARD.read_text())["templating"]["list"][1]["definition"]]
    named = {name for expression in asked for name in NAME.findall(expression)}
    assert named - known == set()
    assert len(named) > 25
    topics = ("lag", "request_seconds", "leases_lost", "novelty", "refinements_failed", "disk_free", "source_state")
    for topic in topics:
        for where in (asked[: len(rules())], asked[len(rules()) :]):
            assert any(topic in expression for expression in where), topic


@needs_prometheus
def test_the_rules_are_valid_and_each_alert_has_a_test_in_which_it_fires() -> None:
    for command in (["check", "rules", str(RULES)], ["test", "rules", str(RULE_TESTS)]):
        done = subprocess.run(["promtool", *command], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    tested = RULE_TESTS.read_text()
    for rule in rules():
        assert f'"{rule["alert"]}"' in tested or f"alertname: {rule['alert']}\n" in tested, rule["alert"]


@needs_prometheus
@pytest.mark.parametrize("with_key", [True, False])
def test_the_configuration_of_the_page_is_valid_beside_the_rules_with_a_key_and_without(
    with_key: bool, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "grafana.md").read_text()
    (block,) = re.findall(r"^ *```yaml\n(.*?)^ *```$", page, re.MULTILINE | re.DOTALL)
    configuration = yaml.safe_load(block)
    (job,) = configuration["scrape_configs"]
    assert job["job_name"] == "shoal"
    if with_key:
        (tmp_path / job["authorization"]["credentials_file"]).write_text("a-key")
    else:
        del job["authorization"]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    shutil.copy(RULES, tmp_path)
    command = ["promtool", "check", "config", "prometheus.yml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules())} rules found" in done.stdout


def key_for_prometheus(service: RunningService, admin: Path, folder: Path) -> Path:
    """Make the key as the service `metrics-key` of the compose file does, twice: the second time changes nothing."""
    file = folder / "watch" / "metrics.key"
    file.parent.mkdir()
    command = ["sh", str(ROOT / "docker" / "metrics_key.sh"), str(admin), str(file)]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for _ in range(2):
        subprocess.run(command, env=os.environ | {"PATH": path, "SHOAL_URL": service.url}, check=True)
    return file


@needs_prometheus
def test_prometheus_reads_the_services_evaluates_every_rule_and_answers_every_panel(
    services: Any, tmp_path: Path
) -> None:
    alone, shared, admin = services
    key = key_for_prometheus(alone, admin, tmp_path)
    listed = WEB.get(f"{alone.url}/keys", headers={"Authorization": f"Bearer {admin.read_text().strip()}"}).json()
    assert [(one["name"], one["scope"]) for one in listed["keys"][1:]] == [("prometheus", "read")]
    configuration = yaml.safe_load(CONFIGURATION.read_text())
    configuration["global"] = {"scrape_interval": "250ms", "scrape_timeout": "250ms", "evaluation_interval": "250ms"}
    configuration["rule_files"] = [str(RULES)]
    (job,) = configuration["scrape_configs"]
    del job["dns_sd_configs"]
    job["static_configs"] = [{"targets": [service.url.removeprefix("http://") for service in (alone, shared)]}]
    job["authorization"]["credentials_file"] = str(key)
    with running_prometheus(str(shutil.which("prometheus")), tmp_path, configuration) as server:
        eventually(lambda: [one["value"][1] for one in server.query('up{job="shoal"}')] == ["1", "1"])
        eventually(lambda: len(server.query("rate(shoal_points_applied_total[5s])")) == 2)
        check_rules(server)
        check_panels(server)
        alone.kill()
        eventually(lambda: server.query('ALERTS{alertname="ShoalDown", alertstate="pending"}'))
        (down,) = server.query('ALERTS{alertname="ShoalDown"}')
        assert down["metric"]["instance"] == alone.url.removeprefix("http://")


def check_rules(server: Prometheus) -> None:
    def evaluated() -> list[dict[str, Any]]:
        found = [rule for group in server.ask("rules")["groups"] for rule in group["rules"]]
        return found if all(rule["health"] != "unknown" for rule in found) else []

    found = eventually(evaluated)
    assert [rule["name"] for rule in found] == [rule["alert"] for rule in rules()]
    for rule in found:
        assert (rule["health"], rule.get("lastError", "")) == ("ok", ""), rule["name"]
        assert rule["alerts"] == [], "nothing is wrong with these services"


def check_panels(server: Prometheus) -> None:
    for title, expression in panels():
        for variable, value in RANGES.items():
            expression = expression.replace(variable, value)
        assert server.query(expression) or title in SPARSE, f"{title}: {expression}"


def test_the_profile_mounts_files_that_exist_and_publishes_on_loopback_alone() -> None:
    compose = yaml.safe_load(COMPOSE.read_text())
    watch = {name: one for name, one in compose["services"].items() if one.get("profiles") == ["watch"]}
    assert watch.keys() == {"metrics-key", "prometheus", "grafana"}
    mounted = 0
    for one in watch.values():
        for volume in one["volumes"]:
            source = volume.split(":")[0]
            mounted += source.startswith(".")
            assert (ROOT / source).exists() if source.startswith(".") else source in compose["volumes"], volume
        assert all(port.startswith("127.0.0.1:") for port in one.get("ports", []))
        assert "back" not in one["networks"] or not one.get("ports"), "what sees Redis is not published"
        assert one["cap_drop"] == ["ALL"]
        assert one["read_only"]
        assert "mem_limit" in one
    assert mounted == 4
    (provider,) = yaml.safe_load(
        (ROOT / "deploy" / "grafana" / "provisioning" / "dashboards" / "shoal.yml").read_text()
    )["providers"]
    assert f"{DASHBOARD.parent.relative_to(ROOT)}:{provider['options']['path']}:ro" in "".join(
        watch["grafana"]["volumes"]
    )
    configuration = yaml.safe_load(CONFIGURATION.read_text())["scrape_configs"][0]
    key = configuration["authorization"]["credentials_file"]
    assert any(volume.startswith(f"metrics-key:{Path(key).parent}") for volume in watch["prometheus"]["volumes"])
    assert watch["metrics-key"]["command"][1].endswith(f"/{Path(key).name}")
    names = {*(target.split(":")[0] for one in configuration["static_configs"] for target in one["targets"])}
    names |= {name for one in configuration["dns_sd_configs"] for name in one["names"]}
    assert names == {"api", "learner", "refiner"} <= compose["services"].keys()
    assert "api" in compose["services"]["api"]["environment"]["SHOAL_ALLOWED_HOSTS"].split(",")


def test_every_panel_has_a_title_a_description_and_room_of_its_own() -> None:
    board = json.loads(DASHBOARD.read_text())
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        assert panel["title"]
        assert panel["type"] == "row" or panel["description"], panel["title"]
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)


def test_every_query_goes_to_the_source_that_is_provisioned() -> None:
    (source,) = yaml.safe_load((ROOT / "deploy/grafana/provisioning/datasources/prometheus.yml").read_text())[
        "datasources"
    ]
    assert source["isDefault"], "the variable of the dashboard begins with the default"
    host, port = source["url"].removeprefix("http://").split(":")
    assert host in yaml.safe_load(COMPOSE.read_text())["services"]
    assert port == "9090", "where Prometheus listens without a flag"
    board = json.loads(DASHBOARD.read_text())
    (choice,) = [one for one in board["templating"]["list"] if one["type"] == "datasource"]
    assert choice["query"] == source["type"]
    asked = [panel for panel in board["panels"] if panel["type"] != "row"]
    asked += [target for panel in asked for target in panel["targets"]]
    asked += [one for one in board["templating"]["list"] if one["type"] == "query"]
    assert len(asked) > 60
    for one in asked:
        assert one["datasource"] == {"type": source["type"], "uid": "${" + choice["name"] + "}"}


def test_a_variable_has_a_whole_choice_or_none() -> None:
    variables = json.loads(DASHBOARD.read_text())["templating"]["list"]
    chosen = [one["current"] for one in variables if "current" in one]
    assert [set(one) for one in chosen] == [{"text", "value"}]  # Grafana's schema asks for both
