"""Threads of one operation: measured once, kept beside the networks, told in the log."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from cosyvoice_runtime.engine import measured_threads
from cosyvoice_runtime.engine.measured_threads import (
    FILE,
    Trial,
    counts,
    cpu_model,
    fewest,
    measured,
    with_measured_threads,
)
from cosyvoice_runtime.errors import CheckpointError, EngineFileError
from cosyvoice_runtime.lm.onnx.export import export_lm
from cosyvoice_runtime.onnx.session import EstimatorFormats
from cosyvoice_runtime.settings import Machine, Settings, Token2WavSettings
from cosyvoice_runtime.token2wav.onnx_export import export_wave

FOUR = Machine(4, gpu=False)
DEMO_VOICE = Path(__file__).parents[2] / "demo_voice"
TIMES = {1: 8.0, 2: 5.0, 4: 4.8}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of threads that were measured, each of which takes what ``TIMES`` says."""
    found: list[int] = []

    def milliseconds(_: Trial, threads: int) -> float:
        found.append(threads)
        return TIMES[threads]

    monkeypatch.setattr(measured_threads, "_milliseconds", milliseconds)
    return found


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(Token2WavSettings(), tmp_path, 4, 2, lambda _: lambda: None, lambda: None)


@pytest.mark.parametrize(
    ("most", "tried"), [(1, [1]), (2, [1, 2]), (4, [1, 2, 4]), (6, [1, 2, 4, 6]), (9, [1, 2, 4, 8, 9])]
)
def test_powers_of_two_are_tried_and_the_most(most: int, tried: list[int]) -> None:
    assert counts(most) == tried


@pytest.mark.parametrize(
    ("times", "threads"),
    [
        ({1: 10.0}, 1),
        ({1: 10.0, 2: 9.5}, 1),
        ({1: 10.0, 2: 6.0, 4: 5.8}, 2),
        ({1: 10.0, 2: 11.0, 4: 5.0}, 4),
        ({1: 10.0, 2: 8.0, 4: 7.0, 8: 6.9}, 4),
    ],
)
def test_more_threads_are_taken_where_they_pay(times: dict[int, float], threads: int) -> None:
    assert fewest(times) == threads


def test_measurement_is_kept_and_told(
    trial: Trial, opened: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        assert [measured(trial, FOUR), measured(trial, FOUR)] == [2, 2]
    assert opened == [1, 2, 4]
    told = (
        f"token2wav.threads: measured, with 1 8 ms, with 2 5 ms, with 4 4.8 ms: 2 ({trial.directory / FILE})"
    )
    assert caplog.messages == [told, told]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file: file.write_text("{"),
        lambda file: file.write_text("[]"),
        lambda file: file.write_text('{"ms": {"one": 1}}'),
        lambda file: file.write_text(json.dumps(json.loads(file.read_text()) | {"cpu": "another"})),
        lambda file: file.write_text(json.dumps(json.loads(file.read_text()) | {"cores": 8})),
        *(
            lambda file, ms=ms: file.write_text(json.dumps(json.loads(file.read_text()) | {"ms": ms}))
            for ms in ({}, {"0": 1}, {"1": 5, "4096": 1}, {"1": 5, "2": 4})
        ),
        lambda file: file.unlink(),
    ],
)
def test_what_is_damaged_or_of_another_machine_is_measured_anew(
    spoil: Callable[[Path], object], trial: Trial, opened: list[int]
) -> None:
    measured(trial, FOUR)
    spoil(trial.directory / FILE)
    assert measured(trial, FOUR) == 2
    assert opened == [1, 2, 4] * 2


@pytest.mark.parametrize("kind", [EngineFileError, CheckpointError])
def test_files_of_another_checkpoint_or_of_none_are_not_measured(
    kind: type[Exception], trial: Trial, opened: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> None:
        raise kind("made from another checkpoint; stage 1 makes it")

    assert measured(trial._replace(require=refuse), FOUR) is None
    assert opened == []
    assert "made from another checkpoint" in caplog.text


def test_a_folder_that_cannot_be_written_is_no_obstacle(
    trial: Trial, opened: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    assert measured(trial._replace(directory=trial.directory / "absent"), FOUR) == 2
    assert "not written" in caplog.text


def test_files_that_are_no_use_leave_the_choice_to_the_settings(
    trial: Trial, caplog: pytest.LogCaptureFixture
) -> None:
    def work(_: int) -> Callable[[], object]:
        raise EngineFileError("model.onnx is missing")

    assert measured(trial._replace(work=work), FOUR) is None
    assert "model.onnx is missing" in caplog.text


def test_model_of_a_cpu() -> None:
    assert cpu_model("processor\t: 0\nmodel name\t: Two Fast\nmodel name\t: Two Fast\n") == "Two Fast"
    assert cpu_model("processor\t: 0\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the demo voice's files."""
    made = tmp_path_factory.mktemp("demo")
    export_lm(DEMO_VOICE, made / "lm", "float32")
    export_wave(DEMO_VOICE, made / "networks", EstimatorFormats())
    return made


def settings(folder: Path, *given: str) -> Settings:
    places = f"tensorrt_llm.engine_dir={folder / 'lm'}", f"token2wav.backend_dir={folder / 'networks'}"
    return Settings.read([f"checkpoint_dir={DEMO_VOICE}", *places, *given])


def test_networks_are_measured_where_threads_are_auto(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_measured_threads(settings(folder), FOUR)
    kept = [json.loads((folder / place / FILE).read_text()) for place in ("lm", "networks/onnx_cpu")]
    assert [list(each["ms"]) for each in kept] == [["1", "2"], ["1", "2", "4"]]
    assert [each["at_once"] for each in kept] == [1, 2]
    assert all(ms > 0 for each in kept for ms in each["ms"].values())
    times = {"1": 9, "2": 5, "4": 2}
    (folder / "networks/onnx_cpu" / FILE).write_text(json.dumps(kept[1] | {"ms": times}))
    monkeypatch.setattr(measured_threads, "_milliseconds", None)
    chosen = with_measured_threads(settings(folder), FOUR)
    assert chosen.token2wav.threads == 4
    assert chosen.tensorrt_llm.threads in (1, 2)
    assert chosen == chosen.resolved(FOUR)


@pytest.mark.parametrize(
    ("given", "machine"),
    [
        (("threads=3",), FOUR),
        ((), Machine(1, gpu=False)),
        (("tensorrt_llm.engine=torch", "token2wav.backend=torch"), FOUR),
        (("tensorrt_llm.engine_dir=absent", "token2wav.backend_dir=absent"), FOUR),
    ],
)
def test_nothing_is_measured_where_nothing_is_open(
    given: tuple[str, ...], machine: Machine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured_threads, "measured", None)
    found = settings(folder, *given)
    assert with_measured_threads(found, machine) == found.resolved(machine)
