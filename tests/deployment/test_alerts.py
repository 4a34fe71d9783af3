"""The alert rules: complete, of metrics and settings that exist, and loud at the right numbers alone."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from alert_rules import ALL, FILE, RECORDED, RULES
from compose_file import ROOT

from cosyvoice_runtime.settings import Settings

ON_GPU = {'cosyvoice_token2wav_backend{instance="a", device="cuda:0"}': "1x60"}
FIRING = 'count(ALERTS{alertname="%s", alertstate="firing"}) or vector(0)'
SETTING = re.compile(r"\b(cosyvoice2|tensorrt_llm|token2wav|server|front)\.(\w+)")

Series = dict[str, str]


class Case(NamedTuple):
    """Numbers every 30 s for half an hour, as promtool writes them, and how many alerts they make then."""

    alert: str
    series: Series
    firing: int


def first_audio(below_500_ms: int, below_3_s: int) -> Series:
    """A hundred requests each half minute."""
    name = 'cosyvoice_first_audio_seconds_bucket{instance="a", model="cosyvoice2", le="%s"}'
    counts = {"0.5": below_500_ms, "3.0": below_3_s, "5.0": 100, "+Inf": 100}
    return {name % bound: f"0+{count}x60" for bound, count in counts.items()}


def requests(**endings: int) -> Series:
    return {
        f'cosyvoice_requests_total{{instance="a", ending="{ending}"}}': f"0+{count}x60"
        for ending, count in endings.items()
    }


def underruns(each: float) -> Series:
    """Speech of 30 minutes each half minute."""
    return {
        'cosyvoice_underruns_total{instance="a"}': f"0+{each}x60",
        'cosyvoice_audio_seconds_total{instance="a"}': "0+1800x60",
    }


def one(name: str, labels: str, values: str) -> Series:
    return {f'{name}{{instance="a", {labels}}}': values}


def up(values: str) -> Series:
    return one("up", 'job="cosyvoice2"', values)


def started(values: str) -> Series:
    return one("process_start_time_seconds", 'job="cosyvoice2"', values)


def front(name: str, labels: str, values: str) -> Series:
    return {f'{name}{{instance="f", {labels}}}': values}


def front_endings(**endings: int) -> Series:
    return {
        f'cosyvoice_front_utterances_total{{instance="f", ending="{ending}"}}': f"0+{count}x60"
        for ending, count in endings.items()
    }


def places(**in_progress: int) -> Series:
    """Servers with 20 places each, of which both entry models tell."""
    series: Series = {}
    for instance, count in in_progress.items():
        for model, spoken in (("cosyvoice2", count - 1), ("cosyvoice2_offline", 1)):
            labels = f'{{instance="{instance}", model="{model}"}}'
            series[f"cosyvoice_inflight_utterances{labels}"] = f"{spoken}x60"
            series[f"cosyvoice_max_inflight_utterances{labels}"] = "20x60"
    return series


def disk(place: str, values: str) -> Series:
    return one("cosyvoice_disk_free_bytes", f'place="{place}"', values)


CASES = [
    Case("FirstAudioLate", ON_GPU | first_audio(94, 100), 1),
    Case("FirstAudioLate", ON_GPU | first_audio(96, 100), 0),
    Case("FirstAudioLate", first_audio(0, 100), 0),  # of a CPU
    Case("FirstAudioLateOnCpu", first_audio(0, 94), 1),
    Case("FirstAudioLateOnCpu", first_audio(0, 96), 0),
    Case("FirstAudioLateOnCpu", ON_GPU | first_audio(0, 94), 0),
    Case("Underruns", underruns(16), 1),
    Case("Underruns", underruns(14), 0),
    Case("RequestsRefused", requests(completed=94, refused=6), 1),
    Case("RequestsRefused", requests(completed=96, refused=4), 0),
    Case("RequestsFailed", requests(completed=1000, failed=1), 1),
    Case("RequestsFailed", one("cosyvoice_requests_total", 'ending="failed"', "0x30 2x30"), 0),
    Case("RequestsFailed", requests(completed=94, refused=6, invalid=9, cancelled=9), 0),
    Case("NotFinite", one("cosyvoice_not_finite_total", 'stage="flow"', "0x50 1x10"), 1),
    Case("NotFinite", one("cosyvoice_not_finite_total", 'stage="flow"', "0x60"), 0),
    Case("SpeechLmPagesComputedAgain", one("cosyvoice_lm_evictions_total", 'model="b"', "0+1x60"), 1),
    Case("SpeechLmPagesComputedAgain", one("cosyvoice_lm_evictions_total", 'model="b"', "7x60"), 0),
    Case("FlowPagesComputedAgain", one("cosyvoice_token2wav_recomputes_total", 'model="b"', "0+1x60"), 1),
    Case("FlowPagesComputedAgain", one("cosyvoice_token2wav_recomputes_total", 'model="b"', "7x60"), 0),
    Case("ServerAway", up("1x50 0x10"), 1),
    Case("ServerAway", up("1x57 0x3"), 0),  # a restart
    Case("ProcessStartedAgain", one("cosyvoice_restarts_total", 'process="tritonserver"', "0x50 1x10"), 1),
    Case("ProcessStartedAgain", one("cosyvoice_restarts_total", 'process="tritonserver"', "3x60"), 0),
    Case("SupervisorStartedAgain", started("1x30 2x10 3x10 4x10"), 1),
    Case("SupervisorStartedAgain", started("1x40 2x20"), 0),  # an upgrade
    Case("ProbesFailing", one("cosyvoice_failed_probes_total", 'model="b"', "0x50 1x2 2x2 3x6"), 1),
    Case("ProbesFailing", one("cosyvoice_failed_probes_total", 'model="b"', "0x55 1x5"), 0),
    Case("CpuFallback", one("cosyvoice_cpu_fallback", 'model="b"', "1x60"), 1),
    Case("CpuFallback", one("cosyvoice_cpu_fallback", 'model="b"', "0x60"), 0),
    Case("DiskNearlyFull", disk("log", "9e8x60") | disk("voices", "9e8x60"), 2),
    Case("DiskNearlyFull", disk("log", "2e9x60") | disk("shared_memory", "9e8x60"), 0),
    Case("SharedMemoryNearlyFull", disk("shared_memory", "6e7x60"), 1),
    Case("SharedMemoryNearlyFull", disk("shared_memory", "9e8x60"), 0),
    Case("PlacesUsed", places(a=20, b=18), 1),
    Case("PlacesUsed", places(a=20, b=10), 0),
    Case("FrontAway", front("up", 'job="cosyvoice_front"', "1x50 0x10"), 1),
    Case("FrontAway", front("up", 'job="cosyvoice_front"', "1x40 _x20"), 1),  # its name has gone
    Case("FrontAway", front("up", 'job="cosyvoice_front"', "1x60"), 0),
    Case("FrontAway", front("up", 'job="cosyvoice_front"', "0x60"), 0),  # without a key it was never read
    Case("FrontAway", up("1x50 0x10"), 0),
    Case("FrontRefusals", front_endings(spoken=94, refused=6), 1),
    Case("FrontRefusals", front_endings(spoken=96, refused=4, cancelled=20), 0),
    Case("ServersLost", front("cosyvoice_front_resumes_total", 'ending="resumed"', "0x50 2x2 4x8"), 1),
    Case("ServersLost", front("cosyvoice_front_resumes_total", 'ending="resumed"', "0x50 1x10"), 0),
    Case("FrontsCountAlone", {'cosyvoice_front_counted_alone_total{instance="f"}': "0+1x60"}, 1),
    Case("FrontsCountAlone", {'cosyvoice_front_counted_alone_total{instance="f"}': "0x20 9x40"}, 0),
    Case("FrontFailures", front_endings(spoken=1000, failed=1), 1),
    Case("FrontFailures", front_endings(spoken=94, refused=6, cancelled=9), 0),
]


def written_for_promtool(cases: list[Case]) -> dict[str, Any]:
    """What ``promtool test rules`` reads."""
    return {
        "rule_files": [str(FILE)],
        "evaluation_interval": "30s",
        "tests": [
            {
                "name": f"{case.alert} of {case.series}",
                "interval": "30s",
                "input_series": [{"series": name, "values": each} for name, each in case.series.items()],
                "promql_expr_test": [
                    {
                        "expr": FIRING % case.alert,
                        "eval_time": "30m",
                        "exp_samples": [{"labels": "{}", "value": case.firing}],
                    }
                ],
            }
            for case in cases
        ],
    }


@pytest.fixture
def promtool() -> str:
    path = shutil.which("promtool")
    if path is None:
        pytest.skip("needs promtool: apt install prometheus")
    return path


def ran(*command: str) -> str:
    """What a command says; it must succeed."""
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_alerts_fire_at_the_right_numbers_alone(promtool, tmp_path):
    written = tmp_path / "cases.yml"
    written.write_text(yaml.safe_dump(written_for_promtool(CASES)), encoding="utf-8")
    ran(promtool, "test", "rules", str(written))


def test_prometheus_takes_its_configuration_and_the_rules(promtool):
    assert f"{len(ALL)} rules found" in ran(promtool, "check", "rules", str(FILE))
    ran(promtool, "check", "config", "--syntax-only", str(FILE.with_name("prometheus.yml")))


def test_each_alert_has_a_case_that_fires_and_one_that_does_not():
    for firing in (True, False):
        assert {case.alert for case in CASES if bool(case.firing) == firing} == RULES.keys()


def test_names_of_alerts_are_used_once():
    assert len(RULES) + len(RECORDED) == len(ALL)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_alert_waits_and_says_how_bad_it_is_what_is_wrong_and_what_to_do(rule):
    assert re.fullmatch(r"\d+[sm]", rule["for"])
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"].keys() == {"summary", "runbook"}
    assert all(text.endswith(".") for text in rule["annotations"].values())


def test_settings_and_pages_that_the_runbooks_name_exist():
    texts = " ".join(rule["annotations"]["runbook"] for rule in RULES.values())
    sections = Settings().sections()
    named = SETTING.findall(texts)
    assert named
    assert [each for each in named if each[1] not in sections[each[0]].field_names()] == []
    assert [page for page in re.findall(r"docs/\w+\.md", texts) if not Path(ROOT, page).is_file()] == []
