"""The monitoring profile: what is asked for is what is there."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import docker_image
import pytest
import yaml
from alert_rules import ALL
from compose_file import PROFILES, ROOT, server, services

from cosyvoice_runtime.settings import FrontSettings, ServerSettings

DEPLOY = ROOT / "deploy"
DASHBOARDS = sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))
TRITON_METRICS = {
    "nv_gpu_utilization",
    "nv_gpu_memory_used_bytes",
    "nv_gpu_memory_total_bytes",
    "nv_inference_pending_request_count",
    "nv_inference_request_duration_us",
    "nv_inference_request_success",
}
"""Of those in Triton's documentation (``docs/user_guide/metrics.md``)."""
SUBJECTS = {
    "cosyvoice_first_audio_seconds",
    "cosyvoice_real_time_factor",
    "cosyvoice_underruns_total",
    "cosyvoice_requests_total",
    "cosyvoice_inflight_utterances",
    "cosyvoice_token2wav_turn_rows",
    "cosyvoice_token2wav_waiting",
    "cosyvoice_lm_waiting_requests",
    "cosyvoice_voice_lookups_total",
    "nv_gpu_utilization",
}


def targets(dashboard: Path) -> Iterator[dict[str, Any]]:
    for panel in json.loads(dashboard.read_text("utf-8"))["panels"]:
        yield from panel["targets"]


def names_in(queries: Iterable[str]) -> set[str]:
    """Names of metrics that queries ask for; ``job="..."`` is none."""
    found = re.findall(r'\b(?<!")(?:cosyvoice|nv)_\w+', " ".join(queries))
    return {re.sub("_(bucket|sum|count)$", "", name) for name in found if name not in TRITON_METRICS} | (
        TRITON_METRICS & set(found)
    )


def names_asked_for() -> set[str]:
    return names_in(target["expr"] for dashboard in DASHBOARDS for target in targets(dashboard))


def names_in_the_code() -> set[str]:
    """Texts that are names of metrics; to a counter's prometheus_client adds its ending."""
    folders = ("cosyvoice_runtime/**/*.py", "cosyvoice_front/**/*.py", "model_repo/*/1/model.py")
    sources = [path for folder in folders for path in ROOT.glob(folder)]
    nodes = (node for path in sources for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    names = {text for text in texts if re.fullmatch(r"cosyvoice_(?!runtime)[a-z0-9_]+", text)}
    return names | {f"{name}_total" for name in names}


def test_dashboard_asks_for_metrics_that_exist():
    assert names_asked_for() <= names_in_the_code() | TRITON_METRICS


def test_alerts_ask_for_metrics_that_exist():
    asked = names_in(rule["expr"] for rule in ALL)
    assert asked
    assert asked <= names_in_the_code()


def test_dashboard_shows_what_is_to_be_watched():
    assert names_asked_for() >= SUBJECTS


def test_counters_end_in_total_and_other_metrics_do_not():
    for path in [*ROOT.glob("cosyvoice_runtime/**/*.py"), *ROOT.glob("model_repo/*/1/model.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                kind = getattr(node.func, "attr", getattr(node.func, "id", ""))
                name = str(node.args[0].value)
                if kind in ("counter", "gauge", "histogram") and name.startswith("cosyvoice_"):
                    assert name.endswith("_total") == (kind == "counter"), f"{path}: {name}"


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda path: path.name)
def test_panels_have_ids_places_and_the_provisioned_datasource(dashboard):
    content = json.loads(dashboard.read_text("utf-8"))
    [source] = yaml.safe_load((DEPLOY / "grafana" / "datasource.yml").read_text("utf-8"))["datasources"]
    assert {panel["datasource"]["uid"] for panel in content["panels"]} == {source["uid"]}
    assert len({panel["id"] for panel in content["panels"]}) == len(content["panels"])
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in content["panels"]}
    assert len(places) == len(content["panels"])
    for query in (target["expr"] for target in targets(dashboard)):
        assert query.count("(") == query.count(")"), query
        assert query.count("{") == query.count("}"), query
        assert "_bucket" not in query or "by (le)" in query, query


def test_prometheus_reads_the_page_of_the_server():
    content = yaml.safe_load((DEPLOY / "prometheus.yml").read_text("utf-8"))
    assert content.keys() == {"global", "rule_files", "scrape_configs"}
    job, _ = content["scrape_configs"]
    [entry] = job["static_configs"]
    [address] = entry["targets"]
    host, port = address.split(":")
    assert int(port) == ServerSettings().model_metrics_port
    assert port in docker_image.final("EXPOSE").values
    assert all(host in server(profile)["networks"]["default"]["aliases"] for profile in PROFILES)


def test_prometheus_finds_the_alert_rules_beside_its_configuration():
    files = yaml.safe_load((DEPLOY / "prometheus.yml").read_text("utf-8"))["rule_files"]
    mounts = [volume.split(":") for volume in services("monitoring")["prometheus"]["volumes"]]
    mounted = {source: Path(target) for source, target, *_ in mounts}
    [folder] = {mounted["./deploy/prometheus.yml"].parent}
    assert [mounted[f"./deploy/{file}"] for file in files] == [folder / file for file in files]


def test_prometheus_reads_the_page_of_each_front_with_a_key_of_its_own():
    content = yaml.safe_load((DEPLOY / "prometheus.yml").read_text("utf-8"))
    _, job = content["scrape_configs"]
    [found] = job["dns_sd_configs"]
    [front] = services("front")
    assert (found["names"], found["port"]) == ([front], FrontSettings().port)
    key = f"/etc/prometheus/{job['authorization']['credentials_file']}:ro"
    assert f"/dev/null:{key}" in services("monitoring")["prometheus"]["volumes"]
    given = services("monitoring", {"FRONT_METRICS_KEY": "./key"})["prometheus"]["volumes"]
    assert f"./key:{key}" in given


def test_grafana_finds_prometheus_and_its_dashboards():
    [source] = yaml.safe_load((DEPLOY / "grafana" / "datasource.yml").read_text("utf-8"))["datasources"]
    assert source["url"] == "http://prometheus:9090"
    [provider] = yaml.safe_load((DEPLOY / "grafana" / "provider.yml").read_text("utf-8"))["providers"]
    service = services("monitoring")["grafana"]
    mounts = dict(volume.removesuffix(":ro").split(":") for volume in service["volumes"])
    assert mounts["./deploy/grafana/dashboards"] == provider["options"]["path"]
    home = Path(service["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert home.name in [path.name for path in DASHBOARDS]
    assert str(home.parent) == provider["options"]["path"]
