#!/usr/bin/env python3
"""Stage 0: put a checkpoint where the other stages look for it, and check it.

    fetch_checkpoint.py OUT                       the published CosyVoice2-0.5B; without a network demo_voice/
    fetch_checkpoint.py OUT --source huggingface  or modelscope, made, or a directory of your own
    fetch_checkpoint.py OUT --family cosyvoice3   the published Fun-CosyVoice3-0.5B, or with cosyvoice300m
                                                  CosyVoice-300M and whisper's vocabulary from GitHub

A directory that already holds a checkpoint, of any family, is left alone.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
import re
import shutil
import sys
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from cosyvoice_runtime.checkpoint import Layout, verify_checkpoint
from cosyvoice_runtime.checkpoint.checksums import FILE_NAME, require_checksum, write_checksums
from cosyvoice_runtime.checkpoint.family import COSYVOICE2, COSYVOICE3, COSYVOICE_300M, FAMILIES, Family
from cosyvoice_runtime.errors import CheckpointError, CosyVoiceError

DEMO_VOICE = Path(__file__).resolve().parent.parent / "demo_voice"
NOTE = ".metadata"
SHA256 = re.compile(r"[0-9a-f]{64}")
UNUSED_FILES = ["*.zip", "*.png", "asset/*", "flow.decoder.estimator*.onnx", "llm.rl.pt"]
"""Of the published directories: exports and other weights that this runtime does not read."""


class Homes(NamedTuple):
    """Names under which a family's checkpoint is published."""

    hugging_face: str
    model_scope: str


HOMES = {
    COSYVOICE2: Homes("FunAudioLLM/CosyVoice2-0.5B", "iic/CosyVoice2-0.5B"),
    COSYVOICE3: Homes("FunAudioLLM/Fun-CosyVoice3-0.5B-2512", "FunAudioLLM/Fun-CosyVoice3-0.5B-2512"),
    COSYVOICE_300M: Homes("FunAudioLLM/CosyVoice-300M", "iic/CosyVoice-300M"),
}


class PublishedFile(NamedTuple):
    """A file that a family needs and its checkpoint does not bring."""

    url: str
    sha256: str


VOCABULARIES = {
    COSYVOICE_300M: PublishedFile(
        "https://raw.githubusercontent.com/openai/whisper/v20250625/whisper/assets/multilingual.tiktoken",
        "b34b360dbb493e781e479794586d661700670d65564001f23024971d1f2fa126",
    )
}
DOWNLOAD_TIMEOUT_S = 60


class FetchError(CosyVoiceError):
    """The checkpoint could not be had from the source."""


def from_hugging_face(out: Path, family: Family) -> None:
    """Download the published checkpoint; what was loaded before an interruption is kept."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        snapshot_download(HOMES[family].hugging_face, local_dir=out, ignore_patterns=UNUSED_FILES)
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise FetchError(f"Hugging Face can't be reached ({type(error).__name__})") from error
    add_vocabulary(out, family)
    list_checksums(out, sums_of_hugging_face(out))


def sums_of_hugging_face(out: Path) -> dict[str, str]:
    """SHA-256 of the large files as their publisher has it: the etags that the download has noted."""
    notes = out / ".cache" / "huggingface" / "download"
    sums = {}
    for note in notes.rglob(f"*{NOTE}"):
        etag = "".join(note.read_text("utf-8").splitlines()[1:2])
        if SHA256.fullmatch(etag):
            sums[note.relative_to(notes).as_posix().removesuffix(NOTE)] = etag
    return sums


def add_vocabulary(out: Path, family: Family) -> None:
    """Put the text tokenizer's vocabulary beside a checkpoint that was published without it.

    Raises:
        FetchError: it can't be had; says which file is to be put where.
    """
    path = out / family.vocabulary
    if family not in VOCABULARIES or path.exists():
        return
    url, sha256 = VOCABULARIES[family]
    try:
        with urllib.request.urlopen(url, timeout=DOWNLOAD_TIMEOUT_S) as answer:
            content = answer.read()
    except OSError as error:
        raise FetchError(f"{path}: {url} can't be had ({error}): put this file there") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise FetchError(f"{path}: {url} is another file than it was: SHA-256 {sha256} is expected")
    path.write_bytes(content)


def list_checksums(out: Path, published: Mapping[str, str]) -> None:
    """Write the list of checksums that later starts go by, unless the checkpoint brings its own."""
    if not (out / FILE_NAME).exists():
        write_checksums(out, Layout(out).names(), published)


def from_model_scope(out: Path, family: Family) -> None:
    """Download the published checkpoint from its other home."""
    try:
        from modelscope import snapshot_download
    except ImportError as error:
        raise FetchError("the package modelscope is not installed: pip install modelscope") from error
    try:
        snapshot_download(HOMES[family].model_scope, local_dir=str(out), ignore_file_pattern=UNUSED_FILES)
    except Exception as error:  # its errors have no common base
        raise FetchError(f"ModelScope can't be reached ({type(error).__name__})") from error
    add_vocabulary(out, family)
    list_checksums(out, {})


def made(out: Path, family: Family) -> None:
    """Write a small checkpoint with random weights: it runs, it does not speak."""
    try:
        from cosyvoice_runtime.checkpoint.making import make_checkpoint
    except ImportError as error:
        raise FetchError(f"making one needs torch: scripts/environment.py --torch ({error})") from error

    make_checkpoint(out, "tiny", seed=0, family=family.name)


def published_or_demo_voice(out: Path, family: Family) -> None:
    """The published checkpoint; without a network, of CosyVoice2, the small one of this repository."""
    try:
        from_hugging_face(out, family)
    except FetchError as error:
        if family is not COSYVOICE2:
            raise
        print(f"{error}: using {DEMO_VOICE}, which is small and speaks only English")
        shutil.rmtree(out, ignore_errors=True)
        link(DEMO_VOICE, out)


SOURCES: dict[str, Callable[[Path, Family], None]] = {
    "auto": published_or_demo_voice,
    "huggingface": from_hugging_face,
    "modelscope": from_model_scope,
    "made": made,
}


def link(directory: Path, out: Path) -> None:
    """Use a directory in place."""
    out.parent.mkdir(parents=True, exist_ok=True)
    os.symlink(directory.resolve(), out, target_is_directory=True)


def fetch(out: Path, source: str, family: Family = COSYVOICE2) -> None:
    """Make ``out`` a checked checkpoint of the family, unless it holds one of any.

    Raises:
        FetchError: the source has none, or what is there is damaged.
    """
    if any((out / family.config_file).exists() for family in FAMILIES):
        require_listed(out)
        print(f"{out}: a checkpoint is there, nothing to do")
        return
    if source in SOURCES:
        SOURCES[source](out, family)
    elif Path(source).is_dir():
        link(Path(source), out)
    else:
        raise FetchError(f"{source} is neither a directory nor one of {', '.join(SOURCES)}")
    problems = verify_checkpoint(out)
    if problems:
        raise FetchError("\n".join([f"{out} can't be used:", *problems]))
    print(f"{out}: complete")


def require_listed(out: Path) -> None:
    """
    Raises:
        FetchError: a file is not what the checkpoint's list of checksums says.
    """
    problems = []
    for name in Layout(out).names():
        try:
            require_checksum(out, name)
        except CheckpointError as error:
            problems.append(str(error))
    if problems:
        raise FetchError("\n".join(problems))


def main(arguments: list[str] | None = None) -> int:
    families = {family.name: family for family in FAMILIES}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="directory to make")
    parser.add_argument("--source", default="auto", help="default: %(default)s")
    parser.add_argument(
        "--family", choices=list(families), default=COSYVOICE2.name, help="default: %(default)s"
    )
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        fetch(options.out, options.source, families[options.family])
    except CosyVoiceError as error:
        print(f"fetch_checkpoint: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
