"""The offline benchmark on a small checkpoint with random weights."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import soundfile

import offline_inference
from cosyvoice_runtime.audio.read import read_audio
from cosyvoice_runtime.lm import FinishReason, Prompt, SamplingOptions
from cosyvoice_runtime.lm.scheduler.request import Request
from cosyvoice_runtime.local import SpeechRequest, Synthesizer
from making import make_checkpoint
from measuring.batches import SpeechReader, speak_tokens

TEXTS = {"one": "Hello there.", "two": "Good morning, everyone."}
FEW_STEPS = 2
"""Steps of the flow's solver."""
TIMES = (
    "data_load",
    "audio_processing",
    "speech_tokenization",
    "text_tokenization",
    "llm",
    "llm_post_processing",
    "token2wav",
    "audio_save",
    "pipeline",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("offline")
    time = np.arange(16000) / 16000
    soundfile.write(folder / "voice.wav", 0.3 * np.sin(2 * np.pi * 200 * time * (1 + time)), 16000)
    lines = [f"{name}|a voice|voice.wav|{text}" for name, text in TEXTS.items()]
    (folder / "set.txt").write_text("\n".join(lines))
    return folder


def run(folder, checkpoint, *more):
    out = folder / f"out{len(list(folder.iterdir()))}"
    arguments = [
        "--manifest",
        str(folder / "set.txt"),
        "--output-dir",
        str(out),
        "--token2wav-path",
        str(checkpoint),
    ]
    arguments += ["--batch-size", "2", "--token2wav-batch-size", "2", "--sampling-strategy", "greedy", *more]
    arguments += ["--threads", "1", f"token2wav.ode_steps={FEW_STEPS}"]
    assert offline_inference.main(arguments) == 0
    audio = {name: soundfile.read(out / f"{name}.wav")[0] for name in TEXTS}
    return audio, json.loads((out / "log.txt").read_text())


@pytest.fixture(scope="module")
def in_turn(folder, tiny_checkpoint):
    """Speech and log of the two stages, one after the other."""
    return run(folder, tiny_checkpoint)


def test_cosyvoice3_speaks_what_has_no_instruction(folder, tmp_path):
    checkpoint = make_checkpoint(tmp_path / "tiny", "tiny", seed=0, family="cosyvoice3")
    audio, log = run(folder, checkpoint)
    assert all(map(len, audio.values()))
    assert sum(log["finish_reasons"].values()) == len(TEXTS)


def test_batch_gives_the_same_speech_as_a_synthesizer(in_turn, folder, tiny_checkpoint):
    audio, log = in_turn
    synthesizer = Synthesizer.from_checkpoint(tiny_checkpoint, ode_steps=FEW_STEPS)
    voice = synthesizer.voice(read_audio(folder / "voice.wav"), "a voice")
    sampling = SamplingOptions("greedy", 50, 0.95, 0.8, 1.1)
    for name, text in TEXTS.items():
        request = SpeechRequest(text, voice, seed=0, sampling=sampling, streaming=False)
        expected = np.concatenate([chunk.samples for chunk in synthesizer.synthesize(request)])
        assert audio[name].shape == expected.shape
        assert np.abs(audio[name] - expected).max() < 1e-3
    assert log["args"]["batch_size"] == 2
    assert log["total_audio_duration_seconds"] == sum(map(len, audio.values())) / 24000
    assert log["speech_tokens"] == sum(map(len, audio.values())) / 960
    times = {
        name: log[f"{name}_time{'_in_collator' if name in TIMES[1:4] else ''}_seconds"] for name in TIMES
    }
    assert times["llm"] + times["token2wav"] < times["pipeline"]
    assert log["llm_rtf"] == times["llm"] / log["total_audio_duration_seconds"]


def test_both_stages_at_once_give_the_same_speech(in_turn, folder, tiny_checkpoint):
    expected, before = in_turn
    audio, log = run(folder, tiny_checkpoint, "--together")
    for name, samples in expected.items():
        assert audio[name].shape == samples.shape
        assert np.abs(audio[name] - samples).max() < 1e-3
    assert log["speech_tokens"] == before["speech_tokens"]
    assert log["llm_time_seconds"] < log["token2wav_time_seconds"] < log["pipeline_time_seconds"]


def test_longest_texts_are_spoken_first_and_answers_keep_their_order():
    class Speaker:
        def __init__(self) -> None:
            self.spoken: list[list[int]] = []

        def submit(self, request: Request, reader: SpeechReader) -> None:
            self.spoken.append(list(request.prompt.text))
            reader.send(request.prompt.text, FinishReason.STOP)
            reader.finish(None)

    speaker, done = Speaker(), []
    texts = [[1], [2, 2, 2], [3, 3]]
    prompts = [(Prompt(text), SamplingOptions()) for text in texts]
    speech = speak_tokens(speaker, prompts, lambda: done.append(None))
    assert speaker.spoken == [texts[1], texts[2], texts[0]]
    assert [each.tokens for each in speech] == texts
    assert len(done) == len(texts)


def test_nobody_who_waits_for_a_first_chunk_has_a_part_of_a_gpu(tiny_checkpoint):
    settings = offline_inference.settings_of(offline_inference.parse(["--checkpoint", str(tiny_checkpoint)]))
    assert not settings.token2wav.first_chunks_beside


def test_copies_of_a_text_are_spoken_with_seeds_of_their_own(folder, tiny_checkpoint):
    out = folder / "copies"
    line = ["--manifest", str(folder / "set.txt"), "--output-dir", str(out), "--copies", "2"]
    line += ["--token2wav-path", str(tiny_checkpoint), "--sampling-strategy", "ras", "token2wav.ode_steps=1"]
    assert offline_inference.main(line) == 0
    audio = {path.stem: soundfile.read(path)[0] for path in out.glob("*.wav")}
    assert sorted(audio) == ["one", "one@1", "two", "two@1"]
    assert not np.array_equal(audio["one"], audio["one@1"])


@pytest.mark.parametrize("backend", ["hf", "trtllm-serve"])
def test_engine_that_there_is_not_is_refused_with_those_there_are(folder, tiny_checkpoint, capsys, backend):
    arguments = ["--token2wav-path", str(tiny_checkpoint), "--backend", backend]
    assert offline_inference.main([*arguments, "--output-dir", str(folder / "none")]) == 1
    accepted = "one of torch, onnx, tensorrt_llm, vllm or auto"
    assert f"tensorrt_llm.engine: {backend!r} is not accepted; {accepted}" in capsys.readouterr().err
    assert not (folder / "none").exists()


def test_engine_that_is_not_installed_is_refused(folder, tiny_checkpoint, capsys):
    arguments = ["--token2wav-path", str(tiny_checkpoint), "--backend", "vllm", "device=cuda"]
    assert offline_inference.main([*arguments, "--output-dir", str(folder / "none")]) == 1
    assert "vllm" in capsys.readouterr().err
    assert not (folder / "none").exists()


def test_setting_on_the_command_line_wins(folder, tiny_checkpoint):
    options = offline_inference.parse(
        ["--checkpoint", str(tiny_checkpoint), "--batch-size", "4", "tensorrt_llm.max_slots=8", "device=cpu"]
    )
    settings = offline_inference.settings_of(options)
    assert settings.tensorrt_llm.max_slots == 8
    assert settings.token2wav.max_batch == 1
    assert settings.token2wav.device == "cpu"


def test_texts_without_any_voice_are_refused(folder, tiny_checkpoint, capsys):
    checkpoint = shutil.copytree(tiny_checkpoint, folder / "no_speakers")
    (checkpoint / "spk2info.pt").unlink(missing_ok=True)
    arguments = ["--output-dir", str(folder / "none"), "--token2wav-path", str(checkpoint)]
    arguments += ["token2wav.ode_steps=1"]
    assert offline_inference.main(arguments) == 1
    assert "prompt_speech_path" in capsys.readouterr().err
