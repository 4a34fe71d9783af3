"""What all tests share: the tiny checkpoint, hypothesis' profiles, the marks ``server``, ``slow``, ``gpu``.

``pytest`` tries every property on the same examples in every run. New examples come with

    pytest -m "hypothesis and not server" --hypothesis-profile=fresh

which a nightly run or a developer starts, as often as there is time; costly properties then try several
times as many (``examples``). A failure prints a line that reproduces it, and its example is kept in
``.hypothesis`` and tried first from then on. An example that found a fault goes into its test as
``@example``.

``./run.sh test --quick`` leaves out what is ``slow`` or starts a ``server``; ``pytest -m gpu`` needs a GPU.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# One thread for each test process and what it starts: the networks are small, and processes run side by side.
os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported

import pytest
from hypothesis import HealthCheck, settings

from cosyvoice_runtime.checkpoint import Layout
from cosyvoice_runtime.checkpoint.alignment_heads import AlignmentHeads, llm_sha256
from making import make_checkpoint

settings.register_profile(
    "suite", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "fresh", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")

MOST_WORKERS = 16
FLEET, CHART = "tests/fleet/", "tests/fleet/chart/"
SERVER_PLACES = ("deployment/test_container_start.py", "fleet/", "models/", "server/")
SERVER_FIXTURES = {"server", "serve", "serve_all"}
SLOW = (
    "alignment/test_calibration.py::test_heads_of_the_demo_voice",
    "benchmarks/test_offline_inference.py::test_batch_gives_the_same_speech_as_a_synthesizer",
    "benchmarks/test_offline_inference.py::test_cosyvoice3_speaks_what_has_no_instruction",
    "benchmarks/test_turn_operations.py",
    "check/test_check.py::test_a_made_checkpoint",
    "check/test_check.py::test_formats_of_onnx_runtime",
    "check/test_check.py::test_the_demo_voice_is_sound",
    "check/test_check.py::test_the_first_",
    "check/test_check.py::test_what_is_too_large",
    "check/test_check.py::test_without_torch",
    "checkpoint/test_making.py",
    "checkpoint/test_tensor_pickle.py::test_nothing_takes_the_hash",
    "checkpoint/test_trained_file.py",
    "checkpoint/test_trained_refusals.py",
    "client/test_client_without_answers.py::test_server_that_is_back_is_found_soon",
    "demo_voice/test_demo_voice.py",
    "deployment/test_served_family.py::test_stage_says_so",
    "engine/batches/test_failed_batch.py",
    "engine/batches/test_graphed_token2wav.py",
    "engine/batches/test_not_finite_waves.py",
    "engine/batches/test_preemption.py",
    "engine/batches/test_two_on_a_cpu.py",
    "engine/batches/test_wave_parity.py",
    "engine/test_measured_threads.py::test_networks_are_measured",
    "engine/utterance/test_streamed_text.py",
    "flow/test_coded_pages.py::test_any_batch_of_streams",
    "flow/test_cosyvoice3_stream.py::test_any_batch_of_streams_equals_whole_utterances",
    "flow/test_cosyvoice3_stream.py::test_replayed_calls_equal_whole_utterances",
    "flow/test_embedding.py::test_networks_are_loaded",
    "flow/test_flow_stream.py::test_any_batch_of_streams_equals_whole_utterances",
    "flow/test_graphed_calls.py",
    "front/test_front_command.py",
    "front/test_front_http.py::test_javas_client",
    "front/test_front_json.py::test_megabytes",
    "front/test_front_read_only.py",
    "front/test_front_retries.py::test_two_retries",
    "front/test_front_stalls.py",
    "gateway/test_hostile_bodies.py",
    "gateway/test_silent_connections.py",
    "lm/scheduler/engine_tensorrt_llm/test_trtllm_conversion.py",
    "lm/scheduler/engine_tensorrt_llm/test_trtllm_decoding.py::test_no_id_but_speech_is_ever_emitted",
    "lm/scheduler/engine_tensorrt_llm/test_trtllm_end_to_end.py",
    "lm/scheduler/engine_tensorrt_llm/test_trtllm_engine.py",
    "lm/scheduler/engine_vllm/test_vllm_end_to_end.py",
    "lm/scheduler/test_lm_engines.py::test_every_engine_and_strategy_is_measured",
    "lm/scheduler/test_own_engines.py::test_requests_that_share_few_pages",
    "lm/test_batch_decoder.py::test_tokens_do_not_depend_on_neighbours",
    "lm/test_cosyvoice300m_lm.py",
    "lm/test_cosyvoice3_lm.py::test_captured_steps_draw_the_tokens_of_eager_ones",
    "lm/test_device_steps.py::test_a_text_stream_that_leaves_while_it_waits_takes_nothing_from_the_next",
    "lm/test_device_steps.py::test_captured_steps_read_nothing_on_the_host",
    "lm/test_device_steps.py::test_streams_of_text_are_those_of_the_host",
    "lm/test_device_steps.py::test_utterances_are_those",
    "lm/test_paged_decoder.py",
    "lm/test_slot_draws.py",
    "lm/test_speech_lm_sampling.py",
    "lm/test_streamed_generation.py",
    "local/test_cli.py",
    "local/test_cosyvoice3.py",
    "local/test_cosyvoice300m.py",
    "local/test_not_finite_speech.py",
    "local/test_streamed_waveform.py",
    "metrics/test_metrics.py::test_readers_see_whole_numbers_while_another_thread_writes",
    "models/",
    "onnx/test_cpu_flow.py",
    "onnx/test_cpu_vocoder.py::test_whole_utterances",
    "onnx/test_lm_files.py::test_damaged_file",
    "onnx/test_onnx_lm.py::test_weights_of_the_demo_voice",
    "onnx/test_wave_files.py::test_damaged_graph",
    "parity/test_cosyvoice300m_token2wav.py",
    "parity/test_cosyvoice3_token2wav.py",
    "parity/test_cosyvoice3_vocoder.py",
    "parity/test_flow.py::test_incremental_equals_own",
    "parity/test_reference_streaming.py::test_last_frames",
    "parity/test_token2wav.py",
    "preflight/test_tensorrt_bindings.py::test_release_has_every_symbol",
    "scripts/test_documents.py",
    "scripts/test_fetch_checkpoint.py",
    "scripts/test_fetched_files.py",
    "scripts/test_help.py::test_help_of_the_demo_voice",
    "scripts/test_render_model_repo.py",
    "scripts/test_unusable_gpu.py",
    "serving/hosted/test_model_host.py::test_processes_of_a_cpu_server",
    "serving/speech/test_admission.py",
    "serving/speech/test_watermark.py",
    "settings/test_slots.py::test_a_second_takes",
    "settings/test_variables.py::test_file_of_settings",
    "settings/test_variables.py::test_processes_say",
    "tensorrt/test_engine_loading.py::test_cosyvoice3_on_tensorrt",
    "tensorrt/test_engine_loading.py::test_token2wav_on_tensorrt",
    "tensorrt/test_engine_parts.py::test_streamed_mel_equals_that_of_torch",
    "tensorrt/test_engine_parts.py::test_streamed_waveform",
    "tensorrt/test_onnx_vocoder.py::test_decoder_equals_torch",
    "tensorrt/test_tensorrt_engines.py::test_any_shape_of_a_profile",
    "tensorrt/test_tensorrt_engines.py::test_captured_and_other_shapes",
    "tensorrt/test_tensorrt_engines.py::test_rows_of_a_batch_that_is_too_long_run_alone",
    "tensorrt/test_tensorrt_engines.py::test_the_flow_streams_through_captured_engines_as_through_torch",
    "tensorrt/test_tensorrt_rtx.py",
    "test_without_torch.py::test_token2wav_is_converted",
    "text/test_clauses.py::test_characters_grow",
    "text/test_clauses.py::test_clauses_do_not_depend",
    "text/test_clauses.py::test_clauses_together_are_the_text",
    "text/test_text_chinese.py::test_any_chinese_text",
    "text/test_text_chinese.py::test_normalising_again",
    "text/test_text_english.py::test_any_ascii_text",
    "text/test_text_tokenizer.py::test_ids_equal_the_reference",
    "vocoder/test_causal_vocoder.py::test_captured_windows_equal_whole_utterances",
    "vocoder/test_graphed_windows.py",
    "vocoder/test_vocoder_stream.py::test_batch_row_equals_single_run_at_any_position",
    "voice/test_voice_store.py::test_processes_share_one_store_directory",
)
"""Beginnings of the names of tests that take long, with all their parameters together."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write", action="store_true", help="record tests/golden_audio.json again")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Python's garbage collector leaves modules and tests alone, which stay to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_configure() -> None:
    """Each process of the tests looks for free ports among its own: servers choose theirs side by side.

    Supervisors in processes of their own look among all.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker and find_spec("tritonclient"):
        from cosyvoice_runtime.supervisor import preflight

        preflight.FREE_PORTS = preflight.FREE_PORTS[int(worker[2:]) % MOST_WORKERS :: MOST_WORKERS]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests of the fleet go to one process, as those of a file do: a machine has room for one fleet.

    Those of the chart start none.
    """
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class OneFleet(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            in_fleet = nodeid.startswith(FLEET) and not nodeid.startswith(CHART)
            return FLEET if in_fleet else str(super()._split_scope(nodeid))

    return OneFleet(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The quick tier doesn't even import files and folders of which it runs no test."""
    if "not slow and not server" not in config.option.markexpr:
        return None
    name = str(collection_path.relative_to(Path(__file__).parent.parent))
    whole = {f"tests/{place.rstrip('/')}" for place in (*SERVER_PLACES, *SLOW, "gpu/")}
    return name in whole or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark by folder and fixture: ``server`` for what starts a real tritonserver, ``slow``, ``gpu``.

    Files with servers come first, then those with slow tests: a process of the tests that gets a long file
    last would work alone at the end.
    """
    for place in (*SERVER_PLACES, *SLOW):
        if not (Path(__file__).parent / place.partition("::")[0]).exists():
            raise pytest.UsageError(f"tests/conftest.py marks {place}, which does not exist")
    for item in items:
        name = item.nodeid.removeprefix("tests/")
        if name.startswith(SERVER_PLACES) or SERVER_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("server")
        if name.startswith("gpu/"):
            item.add_marker("gpu")
        if name.startswith(SLOW):
            item.add_marker("slow")
    marked = {
        mark: {item.path for item in items if item.get_closest_marker(mark)} for mark in ("server", "slow")
    }
    items.sort(key=lambda item: (item.path not in marked["server"], item.path not in marked["slow"]))


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """PyTorch computes each test with one thread, however many a command in a test before has asked for."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a small checkpoint with random weights, laid out like the published one."""
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny", "tiny", seed=0)


@pytest.fixture(scope="session")
def followed_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, in a directory of its own, with heads that are said to follow the text."""
    made = make_checkpoint(tmp_path_factory.mktemp("checkpoint") / "followed", "tiny", seed=0)
    (made / "SHA256SUMS").unlink()
    AlignmentHeads(((0, 1), (1, 0)), 1.25, 2.0, 1.5, llm_sha256(Layout(made))).write(made)
    return made
