"""Special tokens of whisper's multilingual tokenizer, in the order of their ids, and its vocabulary file.

CosyVoice-300M reads text as whisper (github.com/openai/whisper, ``multilingual.tiktoken``) writes it:
languages are told by tags such as ``<|en|>``; ``<|endofprompt|>``, ``[laughter]`` and so on are words to it.
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path

from cosyvoice_runtime.errors import CheckpointError

LANGUAGES = [
    "en", "zh", "de", "es", "ru", "ko", "fr", "ja", "pt", "tr", "pl", "ca", "nl", "ar", "sv", "it", "id",
    "hi", "fi", "vi", "he", "uk", "el", "ms", "cs", "ro", "da", "hu", "ta", "no", "th", "ur", "hr", "bg",
    "lt", "la", "mi", "ml", "cy", "sk", "te", "fa", "lv", "bn", "sr", "az", "sl", "kn", "et", "mk", "br",
    "eu", "is", "hy", "ne", "mn", "bs", "kk", "sq", "sw", "gl", "mr", "pa", "si", "km", "sn", "yo", "so",
    "af", "oc", "ka", "be", "tg", "sd", "gu", "am", "yi", "lo", "uz", "fo", "ht", "ps", "tk", "nn", "mt",
    "sa", "lb", "my", "bo", "tl", "mg", "as", "tt", "haw", "ln", "ha", "ba", "jw", "su", "yue",
]  # fmt: skip
"""Codes of the 100 languages."""
TASKS = ("translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps")
EMPTY = "="
"""The published file's spelling of its token without bytes."""
MOMENTS = 1501
"""Number of time stamps, 0.02 s apart."""
LANGUAGE_TAGS = tuple(f"<|{code}|>" for code in LANGUAGES)
WHISPER_TOKENS = (
    "<|endoftext|>",
    "<|startoftranscript|>",
    *LANGUAGE_TAGS,
    *(f"<|{task}|>" for task in TASKS),
    *(f"<|{0.02 * moment:.2f}|>" for moment in range(MOMENTS)),
)


def read_ranks(path: Path) -> dict[bytes, int]:
    """Bytes of each token and its id, its rank in merging; a CheckpointError for a damaged file."""
    try:
        lines = path.read_text("ascii").splitlines()
        return {_bytes(token): int(rank) for token, rank in (line.split() for line in lines if line)}
    except (UnicodeDecodeError, ValueError, binascii.Error) as error:
        raise CheckpointError(f"{path}: not a vocabulary of tiktoken's form: {error}") from error


def write_ranks(path: Path, ranks: dict[bytes, int]) -> None:
    """A file for :func:`read_ranks`."""
    lines = [f"{base64.b64encode(token).decode() or EMPTY} {rank}" for token, rank in ranks.items()]
    path.write_text("\n".join([*lines, ""]), "ascii")


def _bytes(encoded: str) -> bytes:
    return b"" if encoded == EMPTY else base64.b64decode(encoded, validate=True)


def byte_signs() -> list[str]:
    """The sign that stands for each byte in a byte-level vocabulary (GPT-2): itself where it can be seen."""
    visible = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    hidden = [byte for byte in range(256) if byte not in visible]
    return [chr(byte) if byte in visible else chr(256 + hidden.index(byte)) for byte in range(256)]
