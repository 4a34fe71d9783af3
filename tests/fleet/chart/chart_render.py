"""The chart as Helm renders it, with any of its values, and what is asked of everything that it renders."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

REASON = "needs {}: pip install --no-deps --require-hashes -r requirements/fleet.txt"
helm = pytest.importorskip("helm_python", reason=REASON.format("helm-python-sdk"))

ROOT = Path(__file__).parents[3]
CHART = ROOT / "deploy" / "helm" / "cosyvoice"
EXAMPLES = {path.stem: path for path in sorted((CHART / "examples").glob("*.yaml"))}
RELEASE, NAMESPACE = "speech", "voices"

Manifest = dict[str, Any]
Values = dict[str, Any]


@cache
def chart() -> Any:
    """The chart, read once."""
    return helm.Chart.load(CHART)


def texts(values: Mapping[str, Any] | None = None) -> dict[str, str]:
    """The text of each template by its path, without those that give nothing."""
    return dict(_rendered(json.dumps(values or {})))


@cache
def _rendered(values: str) -> dict[str, str]:
    rendered = chart().render(json.loads(values), name=RELEASE, namespace=NAMESPACE)
    return {path: text for path, text in rendered.items() if text.strip()}


def notes(values: Mapping[str, Any] | None = None) -> str:
    return texts(values)["cosyvoice/templates/NOTES.txt"]


def manifests(values: Mapping[str, Any] | None = None) -> list[Manifest]:
    """Every object of a release with these values."""
    return copy.deepcopy(_manifests(json.dumps(values or {})))


@cache
def _manifests(values: str) -> list[Manifest]:
    templates = [text for path, text in _rendered(values).items() if path.endswith(".yaml")]
    documents = (yaml.load_all(text, Loader=yaml.CSafeLoader) for text in templates)
    return [manifest for each in documents for manifest in each if manifest]


def one(kind: str, name: str, values: Mapping[str, Any] | None = None) -> Manifest:
    """The object of a kind whose name has this ending."""
    [found] = [
        each for each in manifests(values) if each["kind"] == kind and each["metadata"]["name"].endswith(name)
    ]
    return found


def pod(component: str, values: Mapping[str, Any] | None = None) -> Manifest:
    """Specification of the pods of ``server`` or ``front``."""
    return one("Deployment", f"-{component}", values)["spec"]["template"]["spec"]


def container(component: str, values: Mapping[str, Any] | None = None) -> Manifest:
    [found] = pod(component, values)["containers"]
    return found


def environment(component: str, values: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Variables of a container that have their value in the manifest; each variable stands there once."""
    variables = container(component, values)["env"]
    assert len({each["name"] for each in variables}) == len(variables)
    return {each["name"]: each["value"] for each in variables if "value" in each}


def example(name: str) -> Values:
    return yaml.safe_load(EXAMPLES[name].read_text("utf-8"))


def defaults() -> Values:
    return yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))


def schema() -> Values:
    return json.loads((CHART / "values.schema.json").read_text("utf-8"))


def nested(path: str, value: Any) -> Values:
    """``a.b`` and 1 become {"a": {"b": 1}}."""
    for key in reversed(path.split(".")):
        value = {key: value}
    return value


def merged(*several: Mapping[str, Any]) -> Values:
    """Values of which later ones win, as Helm merges its files."""
    result: Values = {}
    for values in several:
        for key, value in copy.deepcopy(dict(values)).items():
            both = isinstance(value, dict) and isinstance(result.get(key), dict)
            result[key] = merged(result[key], value) if both else value
    return result


EVERYTHING: Values = {
    "imagePullSecrets": [{"name": "registry"}],
    "server": {
        "gpu": {"model": "NVIDIA-H100-80GB-HBM3"},
        "autoscaling": {"kind": "keda"},
        "nodeSelector": {"pool": "gpu"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "zone", "labelSelector": {"matchLabels": {"team": "voices"}}}]}},
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
        ],
        "runtimeClassName": "nvidia",
        "priorityClassName": "speech",
        "podLabels": {"team": "voices"},
        "podAnnotations": {"note": "a"},
        "settings": {"token2wav": {"page_format": "int8"}},
        "env": [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}],
    },
    "front": {
        "nodeSelector": {"pool": "cpu"},
        "tolerations": [{"key": "cpu", "operator": "Exists"}],
        "podLabels": {"team": "voices"},
        "podAnnotations": {"note": "a"},
        "settings": {"requests_per_minute": 60},
        "redis": {"secret": "redis"},
        "env": [{"name": "FORWARDED_ALLOW_IPS", "value": "*"}],
    },
    "fetch": {"nodeSelector": {"pool": "cpu"}, "tolerations": [{"key": "cpu", "operator": "Exists"}]},
    "volumes": {name: {"storageClassName": "shared"} for name in ("checkpoints", "engines", "voices")},
    "outside": {
        "gateways": [{"name": "public", "namespace": "gateways"}],
        "httpRoute": {"enabled": True, "hostnames": ["speech.example.com"]},
        "grpcRoute": {"enabled": True, "hostnames": ["grpc.example.com"]},
        "ingress": {
            "enabled": True, "className": "nginx", "host": "speech.example.com", "tlsSecret": "speech",
            "annotations": {"proxy-buffering": "off"},
        },
    },
    "monitoring": {"podMonitor": True, "rules": True, "labels": {"release": "prometheus"}},
    "networkPolicy": {
        "enabled": True,
        "clients": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
        "grpcClients": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "gateways"}}}],
        "redis": {"peers": [{"podSelector": {"matchLabels": {"app": "redis"}}}]},
        "serverEgress": [{"ports": [{"port": 443}]}],
        "frontEgress": [{"ports": [{"port": 443}]}],
    },
}  # fmt: skip
"""Every part of the chart, and every value that adds one."""
KEDA = {"server": {"autoscaling": {"kind": "keda", "planned": 20}}}
HPA = {"server": {"autoscaling": {"kind": "hpa", "planned": 20}}}
FOLLOWS = {
    "front.enabled=False": {"outside": {"httpRoute": {"enabled": False}, "ingress": {"enabled": False}}},
    "outside.httpRoute.enabled=True": {"outside": {"gateways": [{"name": "public"}]}},
    "outside.grpcRoute.enabled=True": {"outside": {"gateways": [{"name": "public"}]}},
    "outside.ingress.enabled=True": {"outside": {"ingress": {"host": "speech.example.com"}}},
}
"""The values that have to change with a switch."""


def switches(
    values: Values | None = None, rule: Values | None = None, path: str = ""
) -> Iterator[tuple[str, Any]]:
    """Paths of all values that are true, false or one of a few words, with every value that each may have."""
    values, rule = values or defaults(), rule or schema()
    for key, value in values.items():
        place = f"{path}.{key}".lstrip(".")
        below = rule["properties"][key]
        if "$ref" in below:
            below = schema()["definitions"][below["$ref"].rpartition("/")[2]]
        if isinstance(value, dict) and value and "properties" in below:
            yield from switches(value, below, place)
        elif isinstance(value, bool):
            yield from ((place, each) for each in (True, False))
        elif "enum" in below:
            yield from ((place, each) for each in below["enum"])


SWITCHED = {
    f"{path}={value}{beside}": merged(base, nested(path, value), FOLLOWS.get(f"{path}={value}", {}))
    for path, value in switches()
    for beside, base in (("", {}), (" beside everything", EVERYTHING))
}
"""Values by what they switch: each switch on and off, alone and beside everything that can be on."""
BUCKET: Values = {
    "bucket": {
        "url": "s3://speech/voices",
        "endpoint": "https://s3.example.org",
        "region": "eu-central-1",
        "secret": "bucket",
    },
    "networkPolicy": {"enabled": True, "bucket": {"peers": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]}},
}
"""Voices in a bucket in place of a volume."""
TRACES: Values = {
    "traces": {
        "endpoint": "http://collector.observability.svc:4317",
        "env": [{"name": "OTEL_TRACES_SAMPLER", "value": "parentbased_always_off"}],
    },
    "networkPolicy": {
        "enabled": True,
        "traces": {"peers": [{"namespaceSelector": {"matchLabels": {"team": "observability"}}}]},
    },
}
"""Spans that go to a receiver."""
RELEASES: dict[str, Values] = {
    "defaults": {},
    "bucket": BUCKET,
    "traces": TRACES,
    "everything": EVERYTHING,
    **SWITCHED,
    **{name: example(name) for name in EXAMPLES},
}
"""Values of all releases that are looked at, by name."""
