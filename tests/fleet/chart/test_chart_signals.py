"""What Prometheus is told and asked: one source of alerts, sums over both entry models, known metrics."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart_render import (
    CHART,
    EVERYTHING,
    HPA,
    KEDA,
    NAMESPACE,
    ROOT,
    Manifest,
    Values,
    manifests,
    merged,
    nested,
    one,
)

ALERTS = ROOT / "deploy" / "alerts.yml"
SPEECH = "cosyvoice_requests_total"


def promtool() -> str:
    path = shutil.which("promtool")
    if path is None:
        pytest.skip("needs promtool: apt install prometheus")
    return path


def triggers() -> dict[str, Manifest]:
    return {each["name"]: each for each in one("ScaledObject", "-server", KEDA)["spec"]["triggers"]}


def test_rules_are_those_of_the_other_deployments() -> None:
    assert one("PrometheusRule", "", EVERYTHING)["spec"] == yaml.safe_load(ALERTS.read_text("utf-8"))
    assert (CHART / "files" / "alerts.yml").resolve() == ALERTS


@pytest.mark.parametrize(("component", "known_as"), [("server", "cosyvoice2"), ("front", "cosyvoice_front")])
def test_pods_have_the_labels_by_which_the_alerts_know_them(component: str, known_as: str) -> None:
    """A job of a PodMonitor is otherwise its own name, and an instance an address that changes."""
    [read] = one("PodMonitor", f"-{component}", EVERYTHING)["spec"]["podMetricsEndpoints"]
    job, instance = read["relabelings"]
    assert job == {"targetLabel": "job", "replacement": known_as}
    assert instance == {"sourceLabels": ["__meta_kubernetes_pod_name"], "targetLabel": "instance"}
    scraped = yaml.safe_load((ROOT / "deploy" / "prometheus.yml").read_text("utf-8"))["scrape_configs"]
    jobs = set(re.findall(r'job="(\w+)"', ALERTS.read_text("utf-8")))
    assert jobs == {each["job_name"] for each in scraped}
    assert job["replacement"] in jobs
    assert (read["path"], read["interval"]) == ("/metrics", "15s")


def test_autoscaling_is_one_of_two() -> None:
    def kinds(values: Values) -> set[str]:
        found = [each for each in manifests(values) if each["metadata"]["name"].endswith("-server")]
        return {each["kind"] for each in found} & {"ScaledObject", "HorizontalPodAutoscaler"}

    assert kinds({}) == set()
    assert kinds(KEDA) == {"ScaledObject"}
    assert kinds(HPA) == {"HorizontalPodAutoscaler"}


def test_pods_come_fast_and_go_slowly() -> None:
    keda = one("ScaledObject", "-server", KEDA)["spec"]["advanced"]["horizontalPodAutoscalerConfig"][
        "behavior"
    ]
    assert one("HorizontalPodAutoscaler", "-server", HPA)["spec"]["behavior"] == keda
    up, down = keda["scaleUp"], keda["scaleDown"]
    assert (up["stabilizationWindowSeconds"], down["stabilizationWindowSeconds"]) == (0, 600)
    assert max(each["periodSeconds"] for each in up["policies"]) < min(
        each["periodSeconds"] for each in down["policies"]
    )


def test_limit_that_is_learned_is_no_signal() -> None:
    """It grows with the load, so that a busy server would seem to have room."""
    for values in (KEDA, HPA):
        asked = [each for each in manifests(values) if "scaleTargetRef" in each["spec"]]
        assert "max_inflight" not in yaml.safe_dump(asked)


def test_pods_stay_while_prometheus_can_not_be_read() -> None:
    spec = one("ScaledObject", "-server", KEDA)["spec"]
    assert spec["fallback"]["behavior"] == "currentReplicasIfHigher"
    assert (
        triggers()["utterances"]["metadata"]["ignoreNullValues"] == "false"
    )  # or no answer would be no load


def series(name: str, pods: dict[str, str], **labels: str) -> list[dict[str, str]]:
    written = "".join(f', {key}="{value}"' for key, value in labels.items())
    return [
        {"series": f'{name}{{namespace="{NAMESPACE}", pod="{pod}"{written}}}', "values": values}
        for pod, values in pods.items()
    ]


A, B = "speech-cosyvoice-server-7d9-a", "speech-cosyvoice-server-7d9-b"
IN_PROGRESS = [
    *series("cosyvoice_inflight_utterances", {A: "12x20", B: "20x20"}, model="cosyvoice2"),
    *series("cosyvoice_inflight_utterances", {A: "3x20", B: "0x20"}, model="cosyvoice2_offline"),
    *series("cosyvoice_inflight_utterances", {"other-cosyvoice-server-a": "9x20"}, model="cosyvoice2"),
]
LIMITS = [
    *series("cosyvoice_max_inflight_utterances", {A: "20x20", B: "30x20"}, model="cosyvoice2"),
    *series("cosyvoice_max_inflight_utterances", {A: "20x20", B: "30x20"}, model="cosyvoice2_offline"),
]


def refused(values: str, pod: str = A) -> list[dict[str, str]]:
    return series(SPEECH, {pod: values}, model="cosyvoice2", ending="refused")


def check(tmp_path: Path, *cases: tuple[list[dict[str, str]], str, list[dict[str, Any]]]) -> None:
    """Have promtool evaluate queries after five minutes of these series.

    Args:
        cases: series, a query, and the samples that it gives.
    """
    tests = [
        {
            "interval": "15s",
            "input_series": given,
            "promql_expr_test": [{"expr": query, "eval_time": "5m", "exp_samples": samples}],
        }
        for given, query, samples in cases
    ]
    written = tmp_path / "cases.yml"
    written.write_text(
        yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "15s", "tests": tests}),
        encoding="utf-8",
    )
    done = subprocess.run([promtool(), "test", "rules", str(written)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_load_of_the_fleet_is_what_both_models_of_its_own_servers_speak(tmp_path) -> None:
    query = triggers()["utterances"]["metadata"]["query"]
    check(tmp_path, (IN_PROGRESS, query, [{"labels": "{}", "value": 35}]))
    assert triggers()["utterances"]["metadata"]["threshold"] == "20"


def test_more_pods_are_wanted_than_kubernetes_ignores(tmp_path) -> None:
    """The HPA does nothing while the wanted number is within a tenth of the present one."""
    query = triggers()["refusals"]["metadata"]["query"]
    for count in (1, 9, 20):
        pods = [f"speech-cosyvoice-server-7d9-{number}" for number in range(count)]
        given = series("cosyvoice_inflight_utterances", dict.fromkeys(pods, "9x20"), model="cosyvoice2")
        wanted = math.ceil(count * 1.25)
        assert wanted / count > 1.1
        check(tmp_path, (given + refused("0x15 1x5", pods[0]), query, [{"labels": "{}", "value": wanted}]))


@pytest.mark.parametrize(
    ("refusals", "pods"),
    [
        (refused("0x20"), 0),
        (refused("0x15 1x5"), 3),
        (refused("0x18 1x2", "other-cosyvoice-server-a"), 0),
        ([], 0),
    ],
    ids=["none", "one", "of another release", "not counted yet"],
)
def test_more_pods_are_wanted_while_requests_are_refused(tmp_path, refusals, pods: int) -> None:
    trigger = triggers()["refusals"]
    assert (trigger["metricType"], trigger["metadata"]["threshold"]) == ("AverageValue", "1")
    check(tmp_path, (IN_PROGRESS + refusals, trigger["metadata"]["query"], [{"labels": "{}", "value": pods}]))


def of(name: str, pod: str) -> str:
    return f'{name}{{namespace="{NAMESPACE}", pod="{pod}"}}'


def test_recording_rules_add_up_what_is_in_progress_and_count_the_limit_once(tmp_path) -> None:
    given = [each for each in IN_PROGRESS if "other" not in each["series"]] + LIMITS
    spoken, places = "cosyvoice:inflight_utterances:sum", "cosyvoice:places:max"
    used = f'cosyvoice:places_used:ratio{{namespace="{NAMESPACE}"}}'
    check(
        tmp_path,
        (given, spoken, [{"labels": of(spoken, A), "value": 15}, {"labels": of(spoken, B), "value": 20}]),
        (given, places, [{"labels": of(places, A), "value": 20}, {"labels": of(places, B), "value": 30}]),
        (given, "cosyvoice:places_used:ratio", [{"labels": used, "value": 0.7}]),
    )


def test_first_audio_of_the_fleet_is_of_all_its_servers(tmp_path) -> None:
    name, bounds = "cosyvoice_first_audio_seconds_bucket", {"0.5": 18, "1.0": 20, "+Inf": 20}
    given = [
        each
        for bound, count in bounds.items()
        for each in series(name, {A: f"0+{count}x20", B: f"0+{count}x20"}, model="cosyvoice2", le=bound)
    ]
    recorded = "cosyvoice:first_audio_seconds:p95"
    labels = f'{recorded}{{namespace="{NAMESPACE}"}}'
    check(tmp_path, (given, recorded, [{"labels": labels, "value": 0.75}]))


def adapter_rules() -> list[dict[str, Any]]:
    """Those of prometheus-adapter in the chart's README."""
    [block] = re.findall(r"```yaml\n(rules:\n.*?)```", (CHART / "README.md").read_text("utf-8"), re.DOTALL)
    return yaml.safe_load(block)["rules"]


def test_readme_has_the_rules_of_the_adapter_for_each_metric_of_the_hpa() -> None:
    asked = {
        each["pods"]["metric"]["name"]: each["pods"]["target"]["averageValue"]
        for each in one("HorizontalPodAutoscaler", "-server", HPA)["spec"]["metrics"]
    }
    given = {
        rule.get("name", {}).get("as") or rule["seriesQuery"].partition("{")[0]: rule
        for rule in adapter_rules()
    }
    assert asked == {"cosyvoice_inflight_utterances": "20", "cosyvoice_requests_refused": "5m"}
    assert given.keys() == asked.keys()


@pytest.mark.parametrize(
    ("metric", "value"), [("cosyvoice_inflight_utterances", 15), ("cosyvoice_requests_refused", 0.5)]
)
def test_rules_of_the_adapter_give_a_number_for_each_pod(tmp_path, metric: str, value: float) -> None:
    [rule] = [
        each
        for each in adapter_rules()
        if metric in (each.get("name", {}).get("as"), each["seriesQuery"].partition("{")[0])
    ]
    query = rule["metricsQuery"]
    for place, words in (
        ("<<.Series>>", rule["seriesQuery"].partition("{")[0]),
        ("<<.LabelMatchers>>", f'namespace="{NAMESPACE}",pod="{A}"'),
        ("<<.GroupBy>>", "pod"),
    ):
        query = query.replace(place, words)
    given = IN_PROGRESS + refused("0+7.5x20")
    check(tmp_path, (given, query, [{"labels": f'{{pod="{A}"}}', "value": value}]))


def test_queries_ask_for_metrics_that_a_server_has() -> None:
    """Names are looked for in the code, as the dashboard's are."""
    sources = [
        path for folder in ("cosyvoice_runtime", "cosyvoice_front") for path in (ROOT / folder).rglob("*.py")
    ]
    code = "\n".join(path.read_text("utf-8") for path in sources)
    queries = [each["metadata"]["query"] for each in triggers().values()] + [
        text for rule in adapter_rules() for text in (rule["seriesQuery"],)
    ]
    names = set(re.findall(r"\bcosyvoice_\w+", " ".join(queries)))
    assert names == {"cosyvoice_inflight_utterances", SPEECH}
    assert [name for name in names if f'"{name}"' not in code] == []


def test_rules_are_written_for_one_release_only_where_asked() -> None:
    off = merged(EVERYTHING, nested("monitoring.rules", False))
    assert "PrometheusRule" not in {each["kind"] for each in manifests(off)}
