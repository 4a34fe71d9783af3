"""Pods are denied what they don't need, end after their utterances, and are found by what looks for them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import Any

import chart_image
import pytest
import yaml
from chart_render import (
    BUCKET,
    CHART,
    EVERYTHING,
    EXAMPLES,
    RELEASES,
    ROOT,
    TRACES,
    Manifest,
    Values,
    chart,
    container,
    environment,
    helm,
    manifests,
    merged,
    nested,
    notes,
    one,
    pod,
)

from cosyvoice_runtime.settings import ServerSettings

WITH_PODS = ("Deployment", "Job")
[UNFINISHED] = re.findall(
    '^UNFINISHED = "(.+)"$', (ROOT / "scripts" / "fetch_checkpoint.py").read_text("utf-8"), re.M
)
"""A file that is there while a download goes on."""


def templates(values: Values) -> list[Manifest]:
    """Of all pods that a release makes."""
    return [each["spec"]["template"] for each in manifests(values) if each["kind"] in WITH_PODS]


def containers(spec: Manifest) -> list[Manifest]:
    return spec["containers"] + spec.get("initContainers", [])


@pytest.mark.parametrize("name", ["defaults", "everything", *EXAMPLES])
def test_pods_are_denied_what_they_do_not_need(name: str) -> None:
    for template in templates(RELEASES[name]):
        spec = template["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False  # or addresses of Services would be taken for settings
        security = spec["securityContext"]
        assert security["runAsNonRoot"] is True
        assert {security[key] for key in ("runAsUser", "runAsGroup", "fsGroup")} == {
            chart_image.user(component) for component in ("server", "front")
        }
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        for each in containers(spec):
            assert each["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert each["resources"]["requests"].keys() >= {"cpu", "memory"}
            assert "memory" in each["resources"]["limits"]


@pytest.mark.parametrize("drain", [0, 60, 600])
def test_times_of_an_end_follow_from_one_number(drain: int) -> None:
    values = nested("server.drainSeconds", drain)
    told = environment("server", values)
    leave = container("server", values)["lifecycle"]["preStop"]["sleep"]["seconds"]
    exit_s = int(told["COSYVOICE_SERVER__EXIT_TIMEOUT_S"])
    assert (leave, int(told["COSYVOICE_SERVER__DRAIN_TIMEOUT_S"])) == (10, drain)
    assert pod("server", values)["terminationGracePeriodSeconds"] == leave + drain + exit_s + 15


@pytest.mark.parametrize("drain", [0, 60, 600])
def test_front_has_time_to_end_its_utterances(drain: int) -> None:
    values = nested("front.drainSeconds", drain)
    told = environment("front", values)
    leave = int(told["COSYVOICE_FRONT__LEAVE_S"])  # it waits by itself for balancers, so that no hook has to
    assert "lifecycle" not in container("front", values)
    assert (leave, int(told["COSYVOICE_FRONT__DRAIN_TIMEOUT_S"])) == (10, drain)
    assert pod("front", values)["terminationGracePeriodSeconds"] == leave + drain + 15


def test_pods_leave_the_service_before_the_server_refuses() -> None:
    """Two readings of a probe, and some time for balancers to hear of it."""
    for component in ("server", "front"):
        probe = container(component)["readinessProbe"]
        assert probe["periodSeconds"] * probe["failureThreshold"] <= 10


def test_start_of_a_server_has_two_hours_and_its_update_as_well() -> None:
    probe = container("server")["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == 2 * 3600
    assert one("Deployment", "-server")["spec"]["progressDeadlineSeconds"] > 2 * 3600


def test_server_that_restarts_its_processes_by_itself_is_not_killed_for_it() -> None:
    probe = container("server")["livenessProbe"]
    speaks_again = 30 + 60  # the longest wait before a process is started again, and its start
    assert probe["periodSeconds"] * probe["failureThreshold"] > speaks_again
    assert ServerSettings().max_restarts > 0


def test_new_servers_get_their_share_of_connections_that_are_there_already() -> None:
    assert 0 < int(environment("server")["COSYVOICE_SERVER__MAX_CONNECTION_AGE_S"]) <= 600


@pytest.mark.parametrize(
    ("update", "strategy"),
    [("surge", {"maxUnavailable": 0, "maxSurge": 1}), ("replace", {"maxUnavailable": 1, "maxSurge": 0})],
)
def test_update_starts_a_pod_first_or_ends_one_first(update: str, strategy: Values) -> None:
    deployment = one("Deployment", "-server", nested("server.update", update))
    assert deployment["spec"]["strategy"] == {"type": "RollingUpdate", "rollingUpdate": strategy}


@pytest.mark.parametrize(("kind", "replicas"), [("none", 3), ("keda", None), ("hpa", None)])
def test_number_of_servers_has_one_master(kind: str, replicas: int | None) -> None:
    values = nested("server", {"replicas": 3, "autoscaling": {"kind": kind}})
    assert one("Deployment", "-server", values)["spec"].get("replicas") == replicas
    masters = [
        each
        for each in manifests(values)
        if each["kind"] in ("ScaledObject", "HorizontalPodAutoscaler")
        and each["spec"]["scaleTargetRef"]["name"].endswith("-server")
    ]
    assert len(masters) == (kind != "none")


def test_engines_of_another_model_of_gpu_have_another_volume() -> None:
    def claim(model: str) -> str:
        spec = pod("server", nested("server.gpu.model", model))
        [volume] = [each for each in spec["volumes"] if each["name"] == "engines"]
        return volume["persistentVolumeClaim"]["claimName"]

    assert claim("NVIDIA-H100-80GB-HBM3") == "speech-cosyvoice-engines-nvidia-h100-80gb-hbm3"
    assert claim("NVIDIA-L40S") != claim("NVIDIA-H100-80GB-HBM3")
    assert claim("") == "speech-cosyvoice-engines"
    spec = pod("server", nested("server.gpu.model", "NVIDIA-L40S"))
    assert spec["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-L40S"}


def test_claims_that_are_there_are_used_and_none_is_made() -> None:
    values = {
        "volumes": {name: {"existingClaim": f"my-{name}"} for name in ("checkpoints", "engines", "voices")}
    }
    assert not [each for each in manifests(values) if each["kind"] == "PersistentVolumeClaim"]
    claims = [
        each.get("persistentVolumeClaim", {}).get("claimName") for each in pod("server", values)["volumes"]
    ]
    assert {each for each in claims if each} == {"my-checkpoints", "my-engines", "my-voices"}


def test_voices_stay_when_the_release_goes() -> None:
    claim = one("PersistentVolumeClaim", "-voices")
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_servers_wait_until_the_download_of_the_job_has_ended(tmp_path) -> None:
    """Run as the container would run it, with a sleep that ends the wait."""
    [waiting] = pod("server")["initContainers"]
    program, option, script, _ = waiting["command"]
    (tmp_path / "sleep").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "sleep").chmod(0o755)
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()

    def waits() -> bool:
        command = [program, "-e", option, script, str(checkpoint)]
        environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        return subprocess.run(command, env=environment, capture_output=True).returncode != 0

    assert waits()
    unfinished = checkpoint / UNFINISHED
    unfinished.touch()
    (checkpoint / "cosyvoice2.yaml").touch()
    assert waits()
    unfinished.unlink()
    assert not waits()


def test_pods_stay_when_the_chart_alone_has_another_version(tmp_path) -> None:
    shutil.copytree(CHART, tmp_path / "cosyvoice")
    described = tmp_path / "cosyvoice" / "Chart.yaml"
    described.write_text(
        described.read_text("utf-8").replace("\nversion: ", "\nversion: 9"), encoding="utf-8"
    )
    with helm.Chart.load(tmp_path / "cosyvoice") as other:
        for kind in ("server/deployment", "front/deployment", "server/fetch"):
            rendered = [
                yaml.safe_load(
                    each.render({}, name="speech", namespace="a")[f"cosyvoice/templates/{kind}.yaml"]
                )
                for each in (chart(), other)
            ]
            ours, theirs = (each["spec"]["template"] for each in rendered)
            assert ours == theirs
            assert rendered[0]["metadata"]["labels"] != rendered[1]["metadata"]["labels"]


def selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return selector.items() <= labels.items()


def found_by(selector: dict[str, str], values: Values) -> list[Manifest]:
    """Pods that a selector finds."""
    return [each for each in templates(values) if selects(selector, each["metadata"]["labels"])]


def ports_of(template: Manifest) -> dict[str, int]:
    return {
        port["name"]: port["containerPort"]
        for each in template["spec"]["containers"]
        for port in each["ports"]
    }


@pytest.mark.parametrize("name", ["defaults", "everything", *EXAMPLES])
def test_selectors_find_the_pods_of_one_component(name: str) -> None:
    values = RELEASES[name]
    for each in manifests(values):
        spec: Any = each["spec"]
        selector = spec.get("selector") or spec.get("podSelector")
        if selector:
            labels = selector.get("matchLabels", selector)
            found = found_by(labels, values)
            assert len(found) == 1, each["metadata"]["name"]
            component = found[0]["metadata"]["labels"]["app.kubernetes.io/component"]
            assert each["metadata"]["name"].endswith(f"-{component}")


@pytest.mark.parametrize("name", ["defaults", "everything", *EXAMPLES])
def test_services_and_monitors_name_ports_of_their_pods(name: str) -> None:
    values = RELEASES[name]
    for each in manifests(values):
        if each["kind"] == "Service":
            [template] = found_by(each["spec"]["selector"], values)
            for port in each["spec"]["ports"]:
                assert port["targetPort"] in ports_of(template)
        if each["kind"] == "PodMonitor":
            [template] = found_by(each["spec"]["selector"]["matchLabels"], values)
            assert {entry["port"] for entry in each["spec"]["podMetricsEndpoints"]} <= ports_of(
                template
            ).keys()


def test_servers_are_found_one_by_one() -> None:
    assert one("Service", "-server")["spec"]["clusterIP"] == "None"
    assert one("Service", "-front")["spec"].get("clusterIP") is None


@pytest.mark.parametrize("name", ["everything", *EXAMPLES])
def test_routes_lead_to_ports_of_services(name: str) -> None:
    values = RELEASES[name]
    services = {
        (each["metadata"]["name"], port["port"])
        for each in manifests(values)
        if each["kind"] == "Service"
        for port in each["spec"]["ports"]
    }
    for each in manifests(values):
        if each["kind"] in ("HTTPRoute", "GRPCRoute"):
            for rule in each["spec"]["rules"]:
                assert {(end["name"], end["port"]) for end in rule["backendRefs"]} <= services
        if each["kind"] == "Ingress":
            [rule] = each["spec"]["rules"]
            [path] = rule["http"]["paths"]
            service = path["backend"]["service"]
            [ports] = [
                other["spec"]["ports"]
                for other in manifests(values)
                if other["kind"] == "Service" and other["metadata"]["name"] == service["name"]
            ]
            assert service["port"]["name"] in [port["name"] for port in ports]


def test_streams_and_websockets_have_no_timeout_of_a_route() -> None:
    [rule] = one("HTTPRoute", "-front", EVERYTHING)["spec"]["rules"]
    assert rule["timeouts"] == {"request": "0s", "backendRequest": "0s"}


def test_grpc_route_knows_the_services_of_the_server_and_removes_a_made_up_name() -> None:
    from tritonclient.grpc import service_pb2

    [rule] = one("GRPCRoute", "-server", EVERYTHING)["spec"]["rules"]
    [inference] = service_pb2.DESCRIPTOR.services_by_name.values()
    services = {match["method"]["service"] for match in rule["matches"]}
    assert services == {inference.full_name, "grpc.health.v1.Health"}
    [filtered] = rule["filters"]
    assert filtered["requestHeaderModifier"] == {"remove": ["x-client-id"]}


def policy(component: str, values: Values = EVERYTHING) -> Manifest:
    return one("NetworkPolicy", f"-{component}", values)["spec"]


def ports(rules: list[Manifest]) -> set[int]:
    return {port["port"] for rule in rules for port in rule["ports"]}


def test_network_policies_let_through_what_is_needed_and_nothing_else() -> None:
    values = merged(EVERYTHING, nested("networkPolicy", {"serverEgress": [], "frontEgress": []}))
    server, front, fetch = (policy(name, values) for name in ("server", "front", "fetch"))
    for each in (server, front, fetch):
        assert each["policyTypes"] == ["Ingress", "Egress"]
    listening = ports_of(found_by(server["podSelector"]["matchLabels"], values)[0])
    assert ports(server["ingress"]) == {listening["grpc"], listening["metrics"]}
    assert ports(server["egress"]) == {53}
    heard = ports_of(found_by(front["podSelector"]["matchLabels"], values)[0])
    assert ports(front["ingress"]) == {heard["http"], heard["metrics"]}
    [calls] = [rule for rule in front["ingress"] if ports([rule]) == {heard["http"]}]
    assert calls["from"] == EVERYTHING["networkPolicy"]["clients"]
    assert ports(front["egress"]) == {53, listening["grpc"], 6379}
    [redis] = [rule for rule in front["egress"] if ports([rule]) == {6379}]
    assert redis["to"] == EVERYTHING["networkPolicy"]["redis"]["peers"]
    alone = policy("front", merged(values, nested("front.redis.secret", "")))
    assert ports(alone["egress"]) == {53, listening["grpc"]}
    assert "ingress" not in fetch
    assert ports(fetch["egress"]) == {53, 443}


def test_servers_and_fronts_reach_the_bucket_where_there_is_one() -> None:
    for component in ("server", "front"):
        [rule] = [each for each in policy(component, BUCKET)["egress"] if ports([each]) == {443}]
        assert rule["to"] == BUCKET["networkPolicy"]["bucket"]["peers"]
        without = merged(BUCKET, nested("bucket.url", ""))
        assert 443 not in ports(policy(component, without)["egress"])


def test_servers_and_fronts_reach_the_receiver_of_spans_where_there_is_one() -> None:
    for component in ("server", "front"):
        [rule] = [each for each in policy(component, TRACES)["egress"] if ports([each]) == {4317}]
        assert rule["to"] == TRACES["networkPolicy"]["traces"]["peers"]
        without = merged(TRACES, nested("traces.endpoint", ""))
        assert 4317 not in ports(policy(component, without)["egress"])


def test_servers_take_calls_of_fronts_and_metrics_of_prometheus() -> None:
    calls, metrics = policy("server")["ingress"]
    [fronts, gateway] = calls["from"]
    assert found_by(fronts["podSelector"]["matchLabels"], EVERYTHING)[0]["spec"] == pod("front", EVERYTHING)
    assert [gateway] == EVERYTHING["networkPolicy"]["grpcClients"]
    [prometheus] = metrics["from"]
    assert prometheus["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "monitoring"}


def test_servers_without_a_volume_reach_the_hub_themselves() -> None:
    values = {"networkPolicy": {"enabled": True}, "volumes": {"checkpoints": {"persistent": False}}}
    assert ports(policy("server", values)["egress"]) == {53, 443}
    assert not [each for each in manifests(values) if each["metadata"]["name"].endswith("-fetch")]


def test_notes_say_what_has_to_be_done() -> None:
    assert "create secret generic cosyvoice-keys --from-file=keys.txt" in notes()
    assert "logs --follow" in notes()
    assert "logs --follow" not in notes(nested("volumes.checkpoints.persistent", False))
    assert "keys" not in notes(nested("front.enabled", False))
    assert "a GPU has to be free" in notes()
    assert "a GPU has to be free" not in notes(nested("server.update", "replace"))
    blocked = merged(EVERYTHING, nested("networkPolicy.grpcClients", []))
    assert "can't reach the servers" in notes(blocked)
    assert "WARNING" not in notes(EVERYTHING)


def test_names_stay_short_and_begin_as_asked() -> None:
    for name, wanted in (
        ("cosyvoice", "cosyvoice-front"),
        ("a" * 53, "a" * 40 + "-front"),
        ("x", "x-cosyvoice-front"),
    ):
        rendered = chart().render({}, name=name, namespace="a")
        assert f"name: {wanted}\n" in rendered["cosyvoice/templates/front/service.yaml"]
    assert one("Service", "-front", {"fullnameOverride": "voice"})["metadata"]["name"] == "voice-front"
