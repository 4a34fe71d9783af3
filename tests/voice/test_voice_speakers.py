from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.checkpoint.pt_file import read_pt
from cosyvoice_runtime.errors import CheckpointError
from cosyvoice_runtime.voice import Voice
from cosyvoice_runtime.voice.speakers import import_speakers, list_speakers, listed_speakers
from fake_voices import CHECKPOINT


def decode(ids: list[int]) -> str:
    return "".join(chr(97 + number) for number in ids)


def zero_shot_entry(tokens: int = 10, frames: int = 20) -> dict[str, Array]:
    """What upstream saves of a zero-shot prompt."""
    return {
        "prompt_text": np.array([[7, 8]], np.int32),
        "prompt_text_len": np.array([2], np.int32),
        "llm_prompt_speech_token": np.arange(tokens, dtype=np.int32)[None],
        "flow_prompt_speech_token": np.arange(tokens, dtype=np.int32)[None],
        "prompt_speech_feat": np.random.default_rng(0).standard_normal((1, frames, 80), np.float32),
        "llm_embedding": np.zeros((1, 192), np.float32),
        "flow_embedding": np.arange(192, dtype=np.float32)[None],
    }


def one(entry: dict[str, Array]) -> Voice:
    return import_speakers({"ann": entry}, decode, CHECKPOINT)["ann"]


def test_zero_shot_speaker_is_a_whole_voice() -> None:
    entry = zero_shot_entry()
    voice = one(entry)
    assert voice.transcript == "hi"
    assert np.array_equal(voice.speech_tokens, entry["flow_prompt_speech_token"][0])
    assert np.array_equal(voice.prompt_mel, entry["prompt_speech_feat"][0])
    assert np.array_equal(voice.speaker_embedding, entry["flow_embedding"][0])
    assert voice.checkpoint_id == CHECKPOINT


@pytest.mark.parametrize(("tokens", "frames", "count"), [(10, 17, 8), (8, 20, 8), (0, 20, 0)])
def test_prompt_is_cut_to_what_tokens_and_mel_share(tokens: int, frames: int, count: int) -> None:
    voice = one(zero_shot_entry(tokens, frames))
    assert voice.speech_tokens.shape == (count,)
    assert voice.prompt_mel.shape == (2 * count, 80)


def test_speaker_with_an_embedding_alone_has_no_prompt() -> None:
    voice = one({"embedding": np.arange(192, dtype=np.float32)[None]})
    assert (voice.transcript, voice.speech_tokens.shape, voice.prompt_mel.shape) == ("", (0,), (0, 80))
    assert np.array_equal(voice.speaker_embedding, np.arange(192, dtype=np.float32))


def test_file_read_as_plain_tensors_gives_every_speaker(tmp_path: Path) -> None:
    ann = {name: torch.from_numpy(array) for name, array in zero_shot_entry().items()}
    torch.save({"中文女": {"embedding": torch.ones(1, 192)}, "ann": ann}, tmp_path / "spk2info.pt")
    speakers = read_pt(tmp_path / "spk2info.pt")
    voices = import_speakers(speakers, decode, CHECKPOINT)
    assert list(voices) == ["中文女", "ann"]
    assert voices["中文女"].key != voices["ann"].key


def test_same_speaker_has_one_key_and_another_checkpoint_another() -> None:
    entry = zero_shot_entry()
    assert one(entry).key == one(entry).key
    assert one(entry).key != import_speakers({"ann": entry}, decode, "checkpoint-b")["ann"].key


@pytest.mark.parametrize(
    "missing", [("flow_embedding", "llm_embedding"), ("prompt_speech_feat",), ("flow_prompt_speech_token",)]
)
def test_missing_tensor_is_named_with_its_speaker(missing: tuple[str, ...]) -> None:
    entry = {name: tensor for name, tensor in zero_shot_entry().items() if name not in missing}
    with pytest.raises(CheckpointError, match=f"'ann' lacks the tensor '{missing[0]}'"):
        one(entry)


def test_value_that_no_voice_can_hold_is_named() -> None:
    entry = zero_shot_entry() | {"flow_embedding": np.full((1, 192), np.nan, np.float32)}
    with pytest.raises(CheckpointError, match=r"'ann': speaker_embedding"):
        one(entry)


def test_speakers_are_listed_where_a_server_has_been(tmp_path: Path) -> None:
    assert listed_speakers(tmp_path) == []
    list_speakers(tmp_path, ["slt", "中文女"])
    list_speakers(tmp_path, ["ann"])
    assert listed_speakers(tmp_path) == ["ann"]


def test_directory_that_is_gone_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    list_speakers(tmp_path / "gone", ["ann"])
    assert "the checkpoint's speakers are not listed there" in caplog.text
