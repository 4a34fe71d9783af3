"""Wrong values are refused before anything is rendered, and the message says where they stand."""

from __future__ import annotations

import re

import pytest
from chart_render import (
    EVERYTHING,
    RELEASES,
    Values,
    chart,
    defaults,
    helm,
    manifests,
    merged,
    nested,
    schema,
)

WRONG = [
    ("colour", "red", "'': .*colour"),
    ("listen", "127.0.0.1", "/listen"),
    ("fullnameOverride", "Speech", "/fullnameOverride"),
    ("imagePullSecrets", ["registry"], "/imagePullSecrets/0"),
    ("server.replica", 2, "'/server': .*replica"),
    ("server.replicas", "two", "/server/replicas"),
    ("server.replicas", -1, "/server/replicas"),
    ("server.image.repository", "", "/server/image/repository"),
    ("server.image.tag", "a tag", "/server/image/tag"),
    ("server.image.pullPolicy", "Sometimes", "/server/image/pullPolicy"),
    ("server.gpu.enabled", "yes", "/server/gpu/enabled"),
    ("server.gpu.count", 2, "'/server/gpu': .*count"),
    ("server.resources.limits", {"memory": "32 GB"}, "/server/resources/limits/memory"),
    ("server.sharedMemory", "much", "/server/sharedMemory"),
    ("server.family", "cosyvoice4", "/server/family"),
    ("server.checkpoint", "/weights", "/server/checkpoint"),
    ("server.drainSeconds", "1m", "/server/drainSeconds"),
    ("server.update", "recreate", "/server/update"),
    ("server.env", [{"value": "a"}], "'/server/env/0': .*name"),
    ("server.settings.token2wav.page_forma", "int8", "'/server/settings/token2wav': .*page_forma"),
    ("server.settings.token2wav.page_format", "int9", "/server/settings/token2wav/page_format"),
    ("server.settings.tensorrt_llm.max_slots", 0, "/server/settings/tensorrt_llm/max_slots"),
    ("server.settings.tensorrt_llm.max_slots", "many", "/server/settings/tensorrt_llm/max_slots"),
    ("server.settings.server.drain_timeout_s", 30, "'/server/settings/server': .*drain_timeout_s"),
    ("server.settings.front", {}, "'/server/settings': .*front"),
    ("server.autoscaling.kind", "vpa", "/server/autoscaling/kind"),
    ("server.autoscaling.planned", 0, "/server/autoscaling/planned"),
    ("server.autoscaling.prometheus", "prometheus:9090", "/server/autoscaling/prometheus"),
    ("volumes.checkpoints.size", "20", "/volumes/checkpoints/size"),
    ("volumes.voices.accessMode", "ReadOnlyMany", "/volumes/voices/accessMode"),
    ("volumes.cache", {}, "'/volumes': .*cache"),
    ("bucket.url", "https://speech.example/voices", "/bucket/url"),
    ("bucket.endpoint", "s3.example.org", "/bucket/endpoint"),
    ("bucket.key", "AKIA", "'/bucket': .*key"),
    ("traces.endpoint", "collector:4317", "/traces/endpoint"),
    ("traces.protocol", "grpc", "'/traces': .*protocol"),
    ("server.settings.cosyvoice2.voices_url", "s3://a/b", "'/server/settings/cosyvoice2': .*voices_url"),
    ("front.keys.secret", "", "/front/keys/secret"),
    ("front.keys.file", "a/b", "/front/keys/file"),
    ("front.redis.secret", "redis://a:6379", "/front/redis/secret"),
    ("front.settings.limits_url", "redis://a:6379", "'/front/settings': .*limits_url"),
    ("networkPolicy.redis.port", "redis", "/networkPolicy/redis/port"),
    ("front.settings.host", "0.0.0.0", "'/front/settings': .*host"),
    ("front.settings.max_streams", 0, "/front/settings/max_streams"),
    ("front.autoscaling.cpu", 101, "/front/autoscaling/cpu"),
    ("outside.httpRoute.enabled", True, "/outside.*gateways"),
    ("outside.grpcRoute.enabled", True, "/outside.*gateways"),
    ("outside.httpRoute.hostnames", ["https://a.example"], "/outside/httpRoute/hostnames/0"),
    ("outside.ingress.enabled", True, "/outside/ingress/host"),
    ("monitoring.intervalSeconds", "15s", "/monitoring/intervalSeconds"),
    ("networkPolicy.prometheus", [], "/networkPolicy/prometheus"),
    ("networkPolicy.dns", [], "/networkPolicy/dns"),
]


def refusal(values: Values) -> str:
    with pytest.raises(helm.HelmValuesError) as refused:
        chart().validate_schema(merged(defaults(), values))
    return str(refused.value)


@pytest.mark.parametrize(("path", "value", "place"), WRONG, ids=lambda part: str(part)[:40])
def test_wrong_value_is_refused_with_its_path(path: str, value: object, place: str) -> None:
    assert re.search(place, refusal(nested(path, value)), re.DOTALL)


@pytest.mark.parametrize("name", RELEASES)
def test_right_values_are_taken(name: str) -> None:
    chart().validate_schema(merged(defaults(), RELEASES[name]))


def test_route_to_fronts_that_are_not_there_is_refused() -> None:
    values = merged(EVERYTHING, nested("front.enabled", False))
    assert "/outside/httpRoute/enabled" in refusal(values)


@pytest.mark.parametrize("kind", ["keda", "hpa"])
def test_fewest_pods_above_the_most_are_refused(kind: str) -> None:
    values = nested("server.autoscaling", {"kind": kind, "min": 5, "max": 4})
    with pytest.raises(helm.HelmRenderError, match=r"server\.autoscaling\.min: 5 is more than .*max: 4"):
        manifests(values)


def test_fewest_fronts_above_the_most_are_refused() -> None:
    values = nested("front.autoscaling", {"enabled": True, "min": 5, "max": 4})
    with pytest.raises(helm.HelmRenderError, match=r"front\.autoscaling\.min: 5 is more than .*max: 4"):
        manifests(values)


def open_places(rule: Values, path: str = "") -> list[str]:
    """Objects with named properties that take others as well."""
    found = [path] if "properties" in rule and rule.get("additionalProperties") is not False else []
    for key, below in rule.get("properties", {}).items():
        found += open_places(below, f"{path}/{key}")
    return found + (open_places(rule["items"], f"{path}/*") if "items" in rule else [])


def test_no_part_of_the_schema_takes_unknown_values() -> None:
    assert open_places(schema()) == []
    assert [name for name, rule in schema()["definitions"].items() if open_places(rule)] == []


def test_schema_knows_each_value_and_no_other() -> None:
    """A value that the schema knows and values.yaml does not would have no line in the README."""

    def paths(values: Values, rule: Values, path: str) -> None:
        if "$ref" in rule:
            rule = schema()["definitions"][rule["$ref"].rpartition("/")[2]]
        if path.endswith(".settings") or "properties" not in rule or not isinstance(values, dict):
            return
        assert values.keys() == rule["properties"].keys() - {"global"}, path
        for key, value in values.items():
            paths(value, rule["properties"][key], f"{path}.{key}")

    paths(defaults(), schema(), "")
