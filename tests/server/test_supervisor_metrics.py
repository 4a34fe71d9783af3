"""The supervisor's own numbers: what computes where, how much room is left, what was started again."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosyvoice_runtime.supervisor import metrics as metrics_of_supervisor
from cosyvoice_runtime.supervisor.metrics import SupervisorMetrics


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}\n'


def repository(folder: Path, **parameters: tuple[str, str]) -> Path:
    """A rendered repository of models with one parameter each."""
    for model, (key, value) in parameters.items():
        (folder / model).mkdir()
        (folder / model / "config.pbtxt").write_text(parameter(key, value), encoding="utf-8")
    return folder


def numbers(metrics: SupervisorMetrics, name: str) -> dict[str, float]:
    """The samples of a metric by the value of their label."""
    lines = [line for line in metrics.page().splitlines() if line.startswith(name + "{")]
    return {line.split('"')[1]: float(line.rpartition(" ")[2]) for line in lines}


@pytest.mark.parametrize(
    ("driver", "lm", "token2wav", "shown"),
    [
        (True, "cpu", "cpu,cpu", {"tensorrt_llm": 1, "token2wav": 1}),
        (True, "cuda:0", "cpu", {"tensorrt_llm": 0, "token2wav": 1}),
        (True, "cuda:0", "cuda:0", {"tensorrt_llm": 0, "token2wav": 0}),
        (False, "cpu", "cpu", {"tensorrt_llm": 0, "token2wav": 0}),
    ],
)
def test_cpu_is_a_fallback_where_the_driver_of_a_gpu_is(driver, lm, token2wav, shown, tmp_path, monkeypatch):
    monkeypatch.setattr(metrics_of_supervisor, "has_driver", lambda: driver)
    models = repository(tmp_path, tensorrt_llm=("device", lm), token2wav=("device", token2wav))
    metrics = SupervisorMetrics(models, ("tensorrt_llm", "token2wav"), tmp_path)
    assert numbers(metrics, "cosyvoice_cpu_fallback") == shown


def test_room_is_shown_of_each_place_also_before_it_is_made(tmp_path):
    models = repository(tmp_path, cosyvoice2=("voices_dir", str(tmp_path / "voices")))
    metrics = SupervisorMetrics(models, ("cosyvoice2",), tmp_path / "logs")
    room = numbers(metrics, "cosyvoice_disk_free_bytes")
    assert room.keys() == {"log", "voices", "shared_memory"}
    assert all(free > 0 for free in room.values())


def test_what_is_started_again_is_counted_from_zero(tmp_path):
    metrics = SupervisorMetrics(tmp_path, ("a", "b"), tmp_path)
    before = {"tritonserver": 0, "a": 0, "b": 0}
    assert numbers(metrics, "cosyvoice_restarts_total") == before
    metrics.restarts.labels("a").inc()
    assert numbers(metrics, "cosyvoice_restarts_total") == before | {"a": 1}
    assert "_created" not in metrics.page()


def test_page_tells_when_the_supervisor_itself_was_started(tmp_path):
    assert "\nprocess_start_time_seconds " in SupervisorMetrics(tmp_path, (), tmp_path).page()
