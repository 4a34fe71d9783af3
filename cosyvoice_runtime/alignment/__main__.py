"""Find which attention heads of a checkpoint's speech LM follow the text, and store them beside it.

    python -m cosyvoice_runtime.alignment calibrate CHECKPOINT [--voice NAME | --reference FILE]

Writes ``alignment_heads.json``, by which words are timed. It needs no true times: it speaks sentences and
looks when a change of a word changes what is drawn.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from cosyvoice_runtime.alignment.calibration import Sentence, calibrate
from cosyvoice_runtime.alignment.sentences import SENTENCES
from cosyvoice_runtime.audio.read import read_audio
from cosyvoice_runtime.checkpoint import Layout
from cosyvoice_runtime.checkpoint.alignment_heads import llm_sha256
from cosyvoice_runtime.checkpoint.checksums import read_checksums
from cosyvoice_runtime.engine.utterance.layout import lm_prompts
from cosyvoice_runtime.engine.utterance.request import SpeechRequest
from cosyvoice_runtime.errors import CosyVoiceError, InvalidInput
from cosyvoice_runtime.lm import SamplingOptions
from cosyvoice_runtime.lm.torch.decoder import generate
from cosyvoice_runtime.local import Synthesizer
from cosyvoice_runtime.voice import Voice

MOST_VOICES = 8
"""Voices of different paces tell how far the heads look ahead at each."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        Layout(options.checkpoint).require_qwen2("a calibration")
        texts = _texts(options.texts) if options.texts else SENTENCES
        synthesizer = Synthesizer.from_checkpoint(options.checkpoint, device=options.device)
        utterances = list(_spoken(synthesizer, _voices(options, synthesizer), texts, options.seed))
        checksum = llm_sha256(Layout(options.checkpoint))
        found = calibrate(synthesizer.lm, utterances, checksum, options.seed)
        path = found.heads.write(options.checkpoint)
    except (CosyVoiceError, OSError) as error:
        print(f"alignment: {error}", file=sys.stderr)
        return 1
    heads = ", ".join(f"layer {layer} head {head}" for layer, head in found.heads.heads)
    print(f"{heads}: {found.heads.lead_rows:.2f} speech tokens ahead of the speech")
    print(
        f"beginnings of {found.words} words against those that the draws depend on: median "
        f"{1000 * found.median_s:.0f} ms, 95th percentile {1000 * found.p95_s:.0f} ms off"
    )
    print(f"written to {path}")
    if read_checksums(options.checkpoint):
        print(f"list it: python -m cosyvoice_runtime.checkpoint --write-checksums {options.checkpoint}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cosyvoice_runtime.alignment",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("calibrate", help="find the heads and write alignment_heads.json")
    command.add_argument("checkpoint", type=Path, help="directory of the checkpoint, which is written to")
    command.add_argument("--voice", help="speaker of the checkpoint (default: its first eight)")
    command.add_argument("--reference", type=Path, help="recording of the voice, 0.5 to 30 s")
    command.add_argument("--reference-text", default="", help="what the reference says")
    command.add_argument("--texts", type=Path, help="sentences to speak, one a line (default: English)")
    command.add_argument("--device", default="cpu", help="cpu or cuda (default %(default)s)")
    command.add_argument("--seed", type=int, default=1, help="of what is drawn (default %(default)s)")
    return parser


def _texts(path: Path) -> list[str]:
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    found = [line for line in lines if line]
    if len(found) < 2:
        raise InvalidInput("texts", str(path), "two lines or more: each is compared with the others")
    return found


def _voices(options: argparse.Namespace, synthesizer: Synthesizer) -> list[Voice]:
    if options.reference is not None:
        words = options.reference_text
        audio = read_audio(options.reference, "reference", wordless=not words.strip())
        return [synthesizer.voice(audio, words)]
    speakers = synthesizer.speakers
    if options.voice is None and speakers:
        return list(speakers.values())[:MOST_VOICES]
    if options.voice not in speakers:
        known = ", ".join(speakers) or "the checkpoint has none, give --reference"
        raise InvalidInput("voice", options.voice, f"a speaker of the checkpoint: {known}")
    return [speakers[options.voice]]


def _spoken(
    synthesizer: Synthesizer, voices: Sequence[Voice], texts: Sequence[str], seed: int
) -> Iterator[Sentence]:
    """The first segment of each text, spoken as published by one voice after the other."""
    tokenizer = synthesizer.tokenizer
    for number, text in enumerate(texts):
        request = SpeechRequest(text, voices[number % len(voices)])
        prompt, *_ = lm_prompts(request, synthesizer.front_end, tokenizer)
        tokens, _ = generate(synthesizer.lm, prompt, SamplingOptions(seed=seed + number))
        yield Sentence(prompt, [tokenizer.decode([id_]) for id_ in prompt.text], tokens)


if __name__ == "__main__":
    sys.exit(main())
