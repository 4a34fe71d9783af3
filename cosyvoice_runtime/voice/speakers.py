"""Voices out of upstream's ``spk2info.pt``."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import numpy as np

from cosyvoice_runtime.arrays import Array, Floats, Ids
from cosyvoice_runtime.audio.mel import MelFormat
from cosyvoice_runtime.errors import CheckpointError, InvalidInput
from cosyvoice_runtime.process.exclusive_lock import exclusive_lock
from cosyvoice_runtime.voice.digest import content_hash
from cosyvoice_runtime.voice.files import replace_file
from cosyvoice_runtime.voice.voice import FLOW_FRAMES_PER_TOKEN, Voice

logger = logging.getLogger(__name__)

Speaker = Mapping[str, Array]
Decode = Callable[[list[int]], str]
LIST = "speakers.json"
LOCK_WAIT_S = 5.0
"""Longest wait for another process that writes them; a start waits for that."""
EMBEDDINGS = ("flow_embedding", "embedding", "llm_embedding")


def import_speakers(
    speakers: Mapping[str, Speaker],
    decode: Decode,
    checkpoint_id: str,
    frames_per_token: int | None = FLOW_FRAMES_PER_TOKEN,
) -> dict[str, Voice]:
    """Voices by speaker name.

    A speaker saved from a zero-shot prompt becomes a full voice. One that only has an embedding, as
    for the SFT mode, becomes a voice with an empty transcript and a prompt of length zero.

    Args:
        speakers: content of ``spk2info.pt``: speaker -> tensors by upstream's names.
        decode: text of the tokenizer's ids (``prompt_text`` holds ids).
        checkpoint_id: the checkpoint that the file belongs to.
        frames_per_token: to which mel and tokens are cut; None leaves them as they are.

    Raises:
        CheckpointError: naming the speaker and the tensor that is missing or of another shape.
    """
    return {
        name: _voice(name, entry, decode, checkpoint_id, frames_per_token) for name, entry in speakers.items()
    }


def list_speakers(directory: Path, names: Collection[str]) -> None:
    """Leave the checkpoint's speakers beside the stored voices, for whoever lists the voices of a server.

    A directory that can't be written is no reason not to speak: the log says it.
    """
    try:
        with exclusive_lock(directory / f"{LIST}.lock", wait_s=LOCK_WAIT_S):
            replace_file(directory / LIST, json.dumps(sorted(names), ensure_ascii=False).encode())
    except OSError as error:
        logger.warning("%s: the checkpoint's speakers are not listed there: %s", directory, error)


def listed_speakers(directory: Path) -> list[str]:
    """List that :func:`list_speakers` has left; nothing when no server has been there."""
    try:
        return list(map(str, json.loads((directory / LIST).read_bytes())))
    except FileNotFoundError:
        return []


def _voice(
    name: str, entry: Speaker, decode: Decode, checkpoint_id: str, frames_per_token: int | None
) -> Voice:
    try:
        tokens, mel = _prompt(entry, frames_per_token)
        embedding = _embedding(entry)
        text_ids = entry["prompt_text"].flatten().tolist() if "prompt_text" in entry else []
        transcript = decode(text_ids)
        key = content_hash("speaker", transcript, tokens, mel, embedding, checkpoint_id)
        return Voice(key, transcript, tokens, mel, embedding, checkpoint_id)
    except KeyError as error:
        raise CheckpointError(f"spk2info: speaker {name!r} lacks the tensor {error}") from error
    except (InvalidInput, IndexError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise CheckpointError(f"spk2info: speaker {name!r}: {error}") from error


def _prompt(entry: Speaker, frames_per_token: int | None) -> tuple[Ids, Floats]:
    if "flow_prompt_speech_token" not in entry and "prompt_speech_feat" not in entry:
        return np.zeros(0, np.int32), np.zeros((0, MelFormat().bins), np.float32)
    tokens = entry["flow_prompt_speech_token"].flatten().astype(np.int32)
    mel = entry["prompt_speech_feat"].astype(np.float32)
    mel = mel.reshape(-1, mel.shape[-1])
    if frames_per_token is None:
        return tokens.copy(), mel.copy()
    count = min(mel.shape[0] // frames_per_token, tokens.shape[0])
    return tokens[:count].copy(), mel[: frames_per_token * count].copy()


def _embedding(entry: Speaker) -> Floats:
    name = next((name for name in EMBEDDINGS if name in entry), EMBEDDINGS[0])
    return entry[name].flatten().astype(np.float32)
