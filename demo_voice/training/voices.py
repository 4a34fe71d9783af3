"""Voices that the exported checkpoint brings, and a recording to clone one from."""

from __future__ import annotations

from pathlib import Path

import soundfile
import torch
from torch import Tensor

from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.text import TextTokenizer
from cosyvoice_runtime.voice import Voice
from cosyvoice_runtime.voice.extractors import Extractors
from demo_voice.training.data import recording
from demo_voice.training.speakers import RATE, TRAINING

REFERENCES = {
    "slt": "The boat sailed across the lake at night.",
    "rms": "They sat by the fire and told each other stories.",
    "awb": "She opened the window and listened to the rain.",
    "kal16": "She opened the window and listened to the rain.",
}
"""What the natural voices say; the first is the default one. No script of any seed holds these sentences.

Their lengths leave 18 to 20 of 25 tokens free in the flow's last block, so that first audio comes early.
"""


def add_voices(directory: Path) -> None:
    """Write ``spk2info.pt``, and the default voice's ``reference.flac`` and ``reference.txt``."""
    extractors = Extractors(Layout(directory))
    tokenizer = TextTokenizer(Layout(directory).vocabulary.parent)
    by_name = {speaker.name: speaker for speaker in TRAINING}
    recordings = {name: recording(by_name[name], text)[0] for name, text in REFERENCES.items()}
    speakers = {
        name: registered(
            extractors.voice(Audio(recordings[name].numpy(), RATE), text), tokenizer.encode(text)
        )
        for name, text in REFERENCES.items()
    }
    torch.save(speakers, directory / "spk2info.pt")
    default, text = next(iter(REFERENCES.items()))
    soundfile.write(directory / "reference.flac", recordings[default].numpy(), RATE)
    (directory / "reference.txt").write_text(f"{text}\n", encoding="utf-8")


def registered(voice: Voice, text_ids: list[int]) -> dict[str, Tensor]:
    """A zero-shot prompt under the names that CosyVoice2's ``add_zero_shot_spk`` saves."""
    tokens, embedding = torch.from_numpy(voice.speech_tokens)[None], torch.from_numpy(voice.speaker_embedding)
    mel = torch.from_numpy(voice.prompt_mel)[None].half()
    return {
        "prompt_text": torch.tensor([text_ids], dtype=torch.int32),
        "llm_prompt_speech_token": tokens,
        "flow_prompt_speech_token": tokens,
        "prompt_speech_feat": mel,
        "llm_embedding": embedding[None],
        "flow_embedding": embedding[None],
    }
