"""Voices from reference audio."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from cosyvoice_runtime.arrays import Array, Floats, Ids
from cosyvoice_runtime.audio.audio import EXTRACTOR_SAMPLE_RATE, Audio, check_reference
from cosyvoice_runtime.audio.mel import MelFormat, mel_spectrogram
from cosyvoice_runtime.audio.resample import resample
from cosyvoice_runtime.families import DEFAULT, Family
from cosyvoice_runtime.speakable import without_controls
from cosyvoice_runtime.voice.digest import content_hash
from cosyvoice_runtime.voice.voice import Voice

RECIPE = 1
"""Version of the features: raised when the same audio gives others, so that stored voices end with them."""

Extractor = Callable[[Floats], Array]


def voice_key(
    audio: Audio,
    transcript: str,
    checkpoint_id: str,
    mel: MelFormat = MelFormat(),  # noqa: B008 (frozen)
) -> str:
    """Key of the voice that :func:`build_voice` makes of the same arguments, without making it."""
    text, misread = _canonical(transcript), [mel.read_at] if mel.read_at else []
    return content_hash("reference", RECIPE, audio.rate, audio.samples, text, checkpoint_id, *misread)


def build_voice(
    audio: Audio,
    transcript: str,
    speech_tokenizer: Extractor,
    speaker_encoder: Extractor,
    checkpoint_id: str,
    family: Family = DEFAULT,
) -> Voice:
    """Run the three extractors, side by side, on reference audio.

    Args:
        audio: 0.5 to 30 s at 8 kHz or more. The mel is made from it at its own rate, so audio above
            16 kHz keeps the treble that the other two don't hear.
        transcript: what the audio says; may be empty.
        speech_tokenizer: 16 kHz samples [n] float32 -> speech tokens int32 at the family's rate.
        speaker_encoder: 16 kHz samples [n] float32 -> embedding [D] float32.
        checkpoint_id: the checkpoint that both belong to.
        family: of the checkpoint.

    Raises:
        InvalidInput: the audio is no usable reference.
    """
    low_rate = extractor_samples(audio)
    with ThreadPoolExecutor(max_workers=2) as pool:
        tokens_to_come = pool.submit(speech_tokenizer, low_rate)
        embedding_to_come = pool.submit(speaker_encoder, low_rate)
        mel = prompt_mel(audio, family.mel)
        tokens, embedding = tokens_to_come.result(), embedding_to_come.result()
    return assemble_voice(audio, transcript, mel, tokens, embedding, checkpoint_id, family)


def extractor_samples(audio: Audio) -> Floats:
    """The extractors' input, 16 kHz float32 ``[n]``; an InvalidInput tells that the audio is no usable
    reference."""
    check_reference(audio)
    return resample(audio.samples, audio.rate, EXTRACTOR_SAMPLE_RATE)


def prompt_mel(audio: Audio, mel: MelFormat = MelFormat()) -> Floats:  # noqa: B008 (frozen)
    """The log-mel that the flow continues, float32 ``[frames, bins]``, made from the audio's own rate."""
    return mel_spectrogram(resample(audio.samples, audio.rate, mel.read_at or mel.sample_rate), mel)


def assemble_voice(
    audio: Audio,
    transcript: str,
    mel: Floats,
    tokens: Ids,
    embedding: Floats,
    checkpoint_id: str,
    family: Family = DEFAULT,
) -> Voice:
    """The voice of what the three extractors made of a reference; its family says how mel and tokens are
    cut."""
    frames_per_token = family.prompt_frames_per_token
    if frames_per_token is not None:
        count = min(mel.shape[0] // frames_per_token, tokens.shape[0])
        mel, tokens = mel[: frames_per_token * count], tokens[:count]
    return Voice(
        key=voice_key(audio, transcript, checkpoint_id, family.mel),
        transcript=_canonical(transcript),
        speech_tokens=tokens.copy(),
        prompt_mel=mel.copy(),
        speaker_embedding=embedding,
        checkpoint_id=checkpoint_id,
    )


def _canonical(transcript: str) -> str:
    return unicodedata.normalize("NFC", without_controls(transcript).strip())
