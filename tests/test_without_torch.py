"""What a machine without torch runs, in a process in which torch can't be imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from cosyvoice_runtime.checkpoint import Layout
from cosyvoice_runtime.voice.extractors import SpeakerEncoder, SpeechTokenizer
from making import make_checkpoint

ROOT = Path(__file__).resolve().parents[1]
DEMO_VOICE = ROOT / "demo_voice"
BEGIN = """
import sys
from pathlib import Path
sys.modules["torch"] = None  # whoever imports it gets an ImportError
import numpy as np
"""


def run_without_torch(program: str, folder: Path) -> None:
    """Run a program in a folder; what it writes there is what it says."""
    places = [".", "client", "scripts", "tests/fakes"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / place) for place in places)}
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo voice's reference at 16 kHz, float32."""
    samples, rate = soundfile.read(DEMO_VOICE / "reference.flac", dtype="float32")
    assert rate == 16_000
    path = tmp_path_factory.mktemp("reference") / "reference.npy"
    np.save(path, samples)
    return path


def test_an_unimportable_torch_is_one(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="import of torch halted"):
        run_without_torch("import torch", tmp_path)


@pytest.mark.parametrize(
    ("model", "output", "library"),
    [
        ("AudioTokenizer", "prompt_speech_tokens", lambda layout: SpeechTokenizer(layout.speech_tokenizer)),
        ("SpeakerEmbedding", "prompt_spk_embedding", lambda layout: SpeakerEncoder(layout.speaker_encoder)),
    ],
)
def test_extractors_answer(tmp_path: Path, reference: Path, model: str, output: str, library) -> None:
    program = f"""
from triton_python_backend_utils import InferenceRequest
from cosyvoice_runtime.serving.hosted import extractors
from cosyvoice_runtime.settings import AudioTokenizerSettings, SpeakerEmbeddingSettings
model = extractors.{model}({model}Settings(checkpoint_dir={str(DEMO_VOICE)!r}, threads=1))
request = InferenceRequest({{"reference_wav": np.load({str(reference)!r})[None]}})
[response] = model.execute([request])
assert response.error() is None, response.error()
[tensor] = response.output_tensors()
assert tensor.name() == {output!r}
np.save("output.npy", tensor.as_numpy())
"""
    run_without_torch(program, tmp_path)
    expected = library(Layout(DEMO_VOICE))(np.load(reference))
    np.testing.assert_array_equal(np.load(tmp_path / "output.npy")[0], expected)


SPEAK = """
import asyncio
from coded_stages import CodedStages
from triton_python_backend_utils import InferenceRequest
from cosyvoice_runtime.lm import FinishReason
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.engine.utterance.utterance import TokenGroup
from cosyvoice_runtime.serving.speech.speech_inputs import WholeListener
from cosyvoice_runtime.serving.speech.model import load_speech_service, open_admission
from cosyvoice_runtime.serving.speech.speech_metrics import SpeechMetrics
from cosyvoice_runtime.serving.triton.request import Inputs, Reply
from cosyvoice_runtime.settings import Machine, Settings

class Stages(CodedStages):
    async def speech_tokens(self, samples):
        return np.zeros(len(samples) // 640, np.int32)

    async def speaker_embedding(self, samples):
        return np.ones(192, np.float32)

async def answered(**inputs):
    groups = [*(TokenGroup([token]) for token in range(60)), TokenGroup([], FinishReason.STOP)]
    stages, metrics = Stages(groups), SpeechMetrics(Metrics("cosyvoice2", Path(".")))
    given = [f"checkpoint_dir={VOICE}", "cosyvoice2.voices_dir=voices"]
    settings = Settings.read(given).resolved(Machine(cores=2, gpu=False)).cosyvoice2
    service = load_speech_service(settings, stages, metrics, open_admission(settings))
    request = InferenceRequest({"target_text": np.array([[b"Hello there."]], np.object_), **inputs})
    reply = Reply(request, "cosyvoice2", False)
    await service.answer(Inputs(request), WholeListener(reply, service.token_rate))
    [response] = request.sender.responses
    assert response.error() is None, response.error()
    outputs = {tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()}
    assert outputs["waveform"].reshape(-1)[::960].tolist() == list(range(60))
    return stages.voices[0]

voice = asyncio.run(answered())
assert voice.speech_tokens.dtype == np.int32 and len(voice.speech_tokens)
said = np.array([[b"What the reference says."]], np.object_)
cloned = asyncio.run(answered(reference_wav=np.load(REFERENCE)[None], reference_text=said))
np.save("mel.npy", cloned.prompt_mel)
"""


def test_cosyvoice2_speaks_with_a_voice_of_the_checkpoint_and_of_a_reference(
    tmp_path: Path, reference: Path
) -> None:
    """Text, voices of ``spk2info.pt``, resampling, mel and the answer; the networks are stand-ins."""
    run_without_torch(f"VOICE, REFERENCE = {str(DEMO_VOICE)!r}, {str(reference)!r}\n{SPEAK}", tmp_path)
    mel = np.load(tmp_path / "mel.npy")
    assert mel.shape[1] == 80
    assert np.isfinite(mel).all()


def test_weights_are_read_and_the_checkpoint_is_verified(tmp_path: Path) -> None:
    program = f"""
from cosyvoice_runtime.checkpoint import Layout, load_config, load_tensors, verify_checkpoint
assert verify_checkpoint({str(DEMO_VOICE)!r}) == []
layout = Layout({str(DEMO_VOICE)!r})
for part in ("llm", "flow", "hift"):
    assert load_tensors(layout, part, load_config(layout.directory))
"""
    run_without_torch(program, tmp_path)


def test_the_server_is_set_up_for_a_machine_without_a_gpu(tmp_path: Path) -> None:
    """What renders the model repository, supervises the server and forwards its clients."""
    program = """
from cosyvoice_runtime.gateway import grpc_gateway, http_gateway
from cosyvoice_runtime.settings import Machine, Settings
from cosyvoice_runtime.supervisor import Server
assert not Machine.here().gpu
settings = Settings.read([]).resolved(Machine.here())
assert settings.token2wav.device.startswith("cpu")
assert (settings.tensorrt_llm.engine, settings.token2wav.backend) == ("onnx", "onnx")
"""
    run_without_torch(program, tmp_path)


@pytest.mark.parametrize(
    "script",
    [
        "scripts/fetch_checkpoint.py", "scripts/build_engines.py", "scripts/render_model_repo.py",
        "scripts/health.py", "scripts/demo.py", "client/grpc_client.py", "client/http_client.py",
    ],
)  # fmt: skip
def test_programs_of_the_stages_start(tmp_path: Path, script: str) -> None:
    program = f"""
import runpy
sys.argv = [{script!r}, "--help"]
try:
    runpy.run_path({str(ROOT / script)!r}, run_name="__main__")
except SystemExit as end:
    assert not end.code
"""
    run_without_torch(program, tmp_path)


def test_the_speech_lm_for_onnx_runtime_is_made(tmp_path: Path) -> None:
    program = f"""
import runpy
settings = ["checkpoint_dir={DEMO_VOICE}", "device=cpu", "engine=onnx", "token2wav.backend=onnx"]
settings.append("tensorrt_llm.engine_dir=lm")
sys.argv = ["build_engines.py", "--only", "tensorrt_llm", *settings]
try:
    runpy.run_path({str(ROOT / "scripts" / "build_engines.py")!r}, run_name="__main__")
except SystemExit as end:
    assert not end.code
"""
    run_without_torch(program, tmp_path)
    assert list((tmp_path / "lm").glob("*.onnx"))


@pytest.mark.parametrize("field", ["tensorrt_llm.engine", "token2wav.backend"])
def test_what_runs_on_torch_is_refused_by_its_setting(tmp_path: Path, field: str) -> None:
    program = f"""
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.settings.served_family import require_runs
from cosyvoice_runtime.settings import Settings
settings = Settings.read(["checkpoint_dir={DEMO_VOICE}", "{field}=torch", "device=cpu"])
try:
    require_runs(settings.tensorrt_llm if "engine" in "{field}" else settings.token2wav)
except InvalidInput as error:
    assert error.field == "{field}" and "without torch" in error.limit, error
else:
    raise AssertionError
"""
    run_without_torch(program, tmp_path)


EXPORT = """
from cosyvoice_runtime.token2wav.onnx_export import export_wave
from cosyvoice_runtime.onnx.session import EstimatorFormats

assert export_wave(Path(VOICE), Path("networks"), EstimatorFormats())
"""
TOKEN2WAV = """
sys.modules["onnx"] = None  # 10 MiB that only those who write graphs need
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.metrics.page import read_samples
from cosyvoice_runtime.engine.batches import PromptTensors, WaveChunk, open_router
from cosyvoice_runtime.settings import Machine, Token2WavSettings
from queue import Queue

given = Token2WavSettings(checkpoint_dir=Path(VOICE), backend="auto", backend_dir=Path("networks"), threads=1)
settings = given.resolved(Machine(cores=1, gpu=False))
service = open_router(settings, Metrics("token2wav", Path(".")))
prompt = PromptTensors(np.zeros(30, np.int32), np.full((60, 80), -6, np.float32), np.ones(192, np.float32))
outcomes = Queue()
for start, end in ((0, 30), (30, 40)):
    chunk = WaveChunk("a", list(range(start, end)), start, end == 40, "voice", 7, prompt=prompt)
    service.submit(chunk, outcomes.put)
waves = [outcomes.get(timeout=300) for _ in range(2)]
[backend] = [each for each in read_samples(Path(".")) if each.name == "cosyvoice_token2wav_backend"]
assert backend.labels["backend"] == "onnx"
service.close()
np.save("wave.npy", np.concatenate(waves))
"""


@pytest.mark.parametrize("family", ["cosyvoice2", "cosyvoice3"])
def test_token2wav_is_converted_and_speaks(tmp_path: Path, family: str) -> None:
    voice = DEMO_VOICE
    if family == "cosyvoice3":
        voice = make_checkpoint(tmp_path / "tiny", "tiny", seed=0, family=family)
    for program in (EXPORT, TOKEN2WAV):
        run_without_torch(f"VOICE = {str(voice)!r}\n{program}", tmp_path)
    wave = np.load(tmp_path / "wave.npy")
    assert wave.shape == (40 * 960,)
    assert wave.std() > 1e-3


SPEAK_ALONE = """
from cosyvoice_runtime.local import networks, synthesizer
from cosyvoice_runtime.local.cli import main
exported = Path("networks")
synthesizer.Synthesizer.from_checkpoint.__func__.__kwdefaults__["exported"] = exported
words = ["speak", "Hello there.", "--checkpoint", VOICE, "--seed", "1", "-o", "spoken.wav"]
assert main(words) == 1
assert main([*words, "--runtime", "onnx"]) == 0
assert list(exported.rglob("*.onnx"))
"""


def test_the_library_speaks_from_the_command_line(tmp_path: Path) -> None:
    """With graphs that are made at the first start; without a runtime that is there it says so."""
    run_without_torch(f"VOICE = {str(DEMO_VOICE)!r}\n{SPEAK_ALONE}", tmp_path)
    samples, rate = soundfile.read(tmp_path / "spoken.wav")
    assert rate == 24_000
    assert 0.3 < len(samples) / rate < 5
    assert samples.std() > 1e-3
