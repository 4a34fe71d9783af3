"""Manifests for KServe, llm-d's router and Dynamo: the chart's container, and the kinds of those projects."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from chart_render import EVERYTHING, KEDA, ROOT, Manifest, container, one, pod
from test_chart_renders import CLOSED, NEWEST, closed_schema, complaints, needs_closed, require_kubernetes_own

from cosyvoice_runtime.settings import ServerSettings, Settings

FOLDER = ROOT / "deploy" / "kubernetes"
FILES = sorted(FOLDER.glob("*.yaml"))
WITHOUT_CLAIMS = {
    "server": {"image": {"repository": "registry.example/cosyvoice2"}},
    "volumes": {name: {"persistent": False} for name in ("checkpoints", "engines", "voices")},
}


def read(name: str) -> list[Manifest]:
    return list(yaml.safe_load_all((FOLDER / name).read_text("utf-8")))


def sorted_by_name(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(entries, key=lambda entry: entry["name"])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_manifests_are_tidy_yaml(path) -> None:
    assert complaints(path.read_text("utf-8")) == []


@needs_closed
def test_inference_service_fits_the_closed_schema_of_kserve() -> None:
    [service] = read("inference_service.yaml")
    closed_schema(service).validate(service)
    service["spec"]["predictor"]["minReplica"] = service["spec"]["predictor"].pop("minReplicas")
    assert not closed_schema(service).is_valid(service)


def test_pods_of_the_inference_service_are_the_chart_s() -> None:
    [service] = read("inference_service.yaml")
    predictor = service["spec"]["predictor"]
    wanted = pod("server", WITHOUT_CLAIMS)
    assert predictor["deploymentStrategy"] == one("Deployment", "-server", WITHOUT_CLAIMS)["spec"]["strategy"]
    for key in wanted.keys() - {"containers", "volumes"}:
        assert predictor[key] == wanted[key], key
    assert sorted_by_name(predictor["volumes"]) == sorted_by_name(wanted["volumes"])


def test_container_of_the_inference_service_is_the_chart_s_with_grpc_as_its_first_port() -> None:
    [service] = read("inference_service.yaml")
    [running] = service["spec"]["predictor"]["containers"]
    wanted = container("server", WITHOUT_CLAIMS)
    assert running["name"] == "kserve-container"
    for key in wanted.keys() - {"name", "ports"}:
        assert running[key] == wanted[key], key
    ports = {port["name"]: port["containerPort"] for port in wanted["ports"]}
    assert [port["containerPort"] for port in running["ports"]] == [
        ports["grpc"],
        ports["http"],
        ports["metrics"],
    ]
    assert running["ports"][0]["name"] == "h2c"


def test_inference_service_is_scaled_by_utterances_in_progress() -> None:
    [service] = read("inference_service.yaml")
    [metric] = service["spec"]["predictor"]["autoScaling"]["metrics"]
    asked = metric["external"]["metric"]["query"]
    assert re.findall(r"cosyvoice_\w+", asked) == ["cosyvoice_inflight_utterances"]
    assert f'"{service["metadata"]["name"]}-predictor-' in asked


@needs_closed
def test_inference_pool_and_its_route_fit_the_closed_schemas() -> None:
    pool, route, _ = read("inference_pool.yaml")
    closed_schema(pool).validate(pool)
    closed_schema(route).validate(route)
    pool["spec"]["targetPort"] = pool["spec"].pop("targetPorts")
    assert not closed_schema(pool).is_valid(pool)


def test_configuration_of_the_picker_is_in_an_object_of_kubernetes() -> None:
    require_kubernetes_own(read("inference_pool.yaml")[2], NEWEST)


def test_inference_pool_finds_the_chart_s_servers_at_their_grpc_port() -> None:
    pool, route, _ = read("inference_pool.yaml")
    labels = one("Deployment", "-server")["spec"]["template"]["metadata"]["labels"]
    assert pool["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert pool["spec"]["targetPorts"] == [{"number": ServerSettings().grpc_port}]
    assert pool["spec"]["appProtocol"] == one("Service", "-server")["spec"]["ports"][0]["appProtocol"]
    [rule] = route["spec"]["rules"]
    assert rule["backendRefs"][0]["name"] == pool["metadata"]["name"]
    [grpc] = one("GRPCRoute", "-server", EVERYTHING)["spec"]["rules"]
    assert rule["filters"] == grpc["filters"]
    path = f"/{grpc['matches'][0]['method']['service']}/"
    assert rule["matches"] == [{"path": {"type": "PathPrefix", "value": path}}]


def picker() -> dict[str, Any]:
    return yaml.safe_load(read("inference_pool.yaml")[2]["data"]["picker.yaml"])


def test_picker_reads_the_gauge_of_utterances_in_progress_where_servers_have_it() -> None:
    parameters = {each["type"]: each.get("parameters", {}) for each in picker()["plugins"]}
    source, extractor = parameters["metrics-data-source"], parameters["core-metrics-extractor"]
    assert (source["port"], source["path"]) == (ServerSettings().model_metrics_port, "/metrics")
    [engine] = extractor["engineConfigs"]
    assert engine["name"] == extractor["defaultEngine"]  # of pods that have no label of an engine
    assert engine["runningRequestsSpec"] in triggers_metric()


def triggers_metric() -> str:
    """What KEDA counts as servers, from which the picker's gauge is taken."""
    query = one("ScaledObject", "-server", KEDA)["spec"]["triggers"][1]["metadata"]["query"]
    return re.sub(r'(model="\w+"), [^}]*', r"\1", query)


def test_picker_takes_the_least_busy_server_by_plugins_that_it_declares() -> None:
    config = picker()
    declared = {each["type"] for each in config["plugins"]}
    [profile] = config["schedulingProfiles"]
    referred = [each["pluginRef"] for each in profile["plugins"] + config["requestHandler"]["parsers"]]
    assert set(referred) <= declared
    assert referred == ["running-requests-size-scorer", "max-score-picker", "passthrough-parser"]


DYNAMO = "dynamo_graph_deployment.yaml"


def dynamo_components() -> dict[str, dict[str, Any]]:
    [deployment] = read(DYNAMO)
    return {component["name"]: component for component in deployment["spec"]["components"]}


@pytest.mark.skipif(
    not (CLOSED / "nvidia.com_v1beta1_DynamoGraphDeployment.json").exists(),
    reason="needs the closed schema of DynamoGraphDeployment in ../shared/crds",
)
def test_dynamo_graph_deployment_fits_its_closed_schema() -> None:
    [deployment] = read(DYNAMO)
    closed_schema(deployment).validate(deployment)


@pytest.mark.parametrize("component", ["frontend", "speech"])
def test_pods_of_dynamo_fit_kubernetes_own_schema(component: str) -> None:
    template = dynamo_components()[component]["podTemplate"]
    require_kubernetes_own(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": component}, **template}, NEWEST
    )


def test_server_of_dynamo_s_pod_is_the_chart_s_and_so_is_its_pod() -> None:
    running, wanted = dynamo_components()["speech"]["podTemplate"]["spec"], pod("server", WITHOUT_CLAIMS)
    [_, server] = running["containers"]
    assert server == container("server", WITHOUT_CLAIMS)
    assert sorted_by_name(running["volumes"]) == sorted_by_name(wanted["volumes"])
    # Dynamo's operator names an account that may look for others, whose token is needed.
    for key in wanted.keys() - {
        "containers",
        "volumes",
        "automountServiceAccountToken",
        "serviceAccountName",
    }:
        assert running[key] == wanted[key], key


def variables(running: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in running["env"]}


def test_worker_of_dynamo_s_pod_asks_its_server_and_drains_no_longer_than_it() -> None:
    spec = dynamo_components()["speech"]["podTemplate"]["spec"]
    main, server = spec["containers"]
    front = Settings.read(environment=variables(main)).front
    assert front.grpc_url == f"127.0.0.1:{ServerSettings().grpc_port}"
    assert front.drain_timeout_s <= float(variables(server)["COSYVOICE_SERVER__DRAIN_TIMEOUT_S"])
    assert front.leave_s < server["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert front.leave_s + front.drain_timeout_s < spec["terminationGracePeriodSeconds"]
    assert main["command"][1:] == ["-m", "cosyvoice_dynamo"]
