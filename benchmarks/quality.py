#!/usr/bin/env python3
"""Word errors and speaker likeness of speech, as seed-tts-eval counts them.

    python benchmarks/offline_inference.py --manifest seedtts_testset/en/meta.lst --output-dir out \\
        --token2wav-path checkpoints/CosyVoice2-0.5B --sampling-strategy ras --top-k 25 --top-p 0.8 \\
        --temperature 1 --repetition-penalty 1
    python benchmarks/quality.py --manifest seedtts_testset/en/meta.lst --language en \\
        --hypotheses heard.txt --audio out --embedder checkpoints/CosyVoice2-0.5B/campplus.onnx

The first command speaks a manifest, lines of utt|prompt_text|prompt_wav|text, into a wav file for each utt,
with the published sampling. A recogniser of your choice writes what it hears into --hypotheses: a line
utt|text for every utt, in simplified characters where they are Chinese, and utt| where it hears nothing. Or
--recogniser hears the files itself.

WER counts English words, CER (--language zh) Chinese characters. Small letters and removed marks are those of
seed-tts-eval (github.com/BytedanceSpeech/seed-tts-eval), which publishes the mean of the sentences' rates,
with Whisper-large-v3 for English and Paraformer-zh for Chinese; figures of other recognisers don't compare.

SIM is the mean cosine between the embeddings of a file of --audio and of its prompt_wav. seed-tts-eval takes
WavLM-large, fine-tuned for verification; figures of --embedder, a checkpoint's campplus.onnx, don't compare
with those, and the speech was made with the same embedder: they say how versions of a server differ.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean
from typing import Any

from cosyvoice_client import ClientError
from cosyvoice_client.sound_file import decode
from measuring import recognisers
from measuring.figures import Figures
from measuring.likeness import MOST_S, SpeakerLikeness
from measuring.machine import provenance
from measuring.recognisers import recogniser
from measuring.report import table
from measuring.word_errors import LANGUAGES, error_figures, errors, require_words
from measuring.workload import Utterance, WorkloadError, read_manifest

NAMES = {"en": "WER", "zh": "CER"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = parse(arguments)
    try:
        report = measured(options, read_manifest(options.manifest))
    except (ClientError, WorkloadError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if options.json:
        text = json.dumps({"benchmark": "quality", **provenance(), **report}, ensure_ascii=False, indent=1)
        options.json.write_text(text + "\n", encoding="utf-8")
    print(quality_table(options.language, report))
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    told = "lines utt|prompt_text|prompt_wav|text"
    parser.add_argument("--manifest", type=Path, required=True, metavar="FILE", help=told)
    parser.add_argument("--language", choices=LANGUAGES, required=True, help="of the texts")
    parser.add_argument("--audio", type=Path, metavar="DIR", help="what was spoken: a file utt.wav for each")
    heard = parser.add_mutually_exclusive_group()
    heard.add_argument("--hypotheses", type=Path, metavar="FILE", help="what was heard: lines utt|text")
    heard.add_argument("--recogniser", metavar="MODULE:CLASS", help=recognisers.HELP)
    parser.add_argument("--embedder", type=Path, metavar="FILE", help="campplus.onnx of a checkpoint")
    parser.add_argument("--json", type=Path, metavar="FILE", help="gets the figures and every sentence")
    options = parser.parse_args(arguments)
    if not (options.hypotheses or options.recogniser or options.embedder):
        parser.error("give --hypotheses, --recogniser or --embedder")
    if (options.recogniser or options.embedder) and not options.audio:
        parser.error("--recogniser and --embedder need --audio DIR")
    return options


def measured(options: argparse.Namespace, utterances: Sequence[Utterance]) -> dict[str, Any]:
    """Figures over all utterances, and ``sentences``: a row for each.

    Raises:
        WorkloadError: an input can't be used.
        ClientError: a sound file can't be read.
    """
    rows: list[dict[str, Any]] = [{"utterance": each.name, "text": each.text} for each in utterances]
    figures: Figures = {"utterances": len(rows)}
    if options.hypotheses or options.recogniser:
        require_words(utterances, options.language)
        heard = heard_texts(options, utterances)
        counted = [errors(each.text, heard[each.name], options.language) for each in utterances]
        for row, found in zip(rows, counted, strict=True):
            row |= {"heard": heard[row["utterance"]], **asdict(found)}
        figures["word_errors"] = error_figures(counted)
    if options.embedder:
        speakers = SpeakerLikeness(options.embedder)
        for row, each in zip(rows, utterances, strict=True):
            row["likeness"] = round(likeness(speakers, options.audio, each), 4)
        cosines = [row["likeness"] for row in rows]
        figures["likeness"] = {"mean": round(mean(cosines), 4), "lowest": min(cosines)}
    return {**figures, "sentences": rows}


def heard_texts(options: argparse.Namespace, utterances: Sequence[Utterance]) -> dict[str, str]:
    """The text that was heard of each utterance, by its name."""
    if options.hypotheses:
        return read_hypotheses(options.hypotheses, utterances)
    recognise = recogniser(options.recogniser)
    heard = {}
    for each in utterances:
        path = spoken(options.audio, each)
        sound = decode(path, str(path), MOST_S)
        heard[each.name] = recognise(sound.samples, sound.rate)
    return heard


def read_hypotheses(path: Path, utterances: Sequence[Utterance]) -> dict[str, str]:
    """Lines ``utt|text``, one for each utterance; utt may be the path of a sound file.

    Raises:
        WorkloadError: the file can't be read, or a line is none of these, is missing, is of an utterance
            that the manifest doesn't have, or is the second of one.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise WorkloadError(f"hypotheses {path}: {error}") from error
    left, heard = {each.name for each in utterances}, {}
    for number, line in enumerate(lines, 1):
        name, bar, text = line.partition("|")
        name = Path(name.strip()).stem
        if line.strip() and not bar:
            raise WorkloadError(f"hypotheses {path}, line {number}: expected utt|text")
        if bar and name not in left:
            told = "a second time" if name in heard else "not in the manifest"
            raise WorkloadError(f"hypotheses {path}, line {number}: {name!r} is there {told}")
        if bar:
            left.remove(name)
            heard[name] = text
    if left:
        raise WorkloadError(f"hypotheses {path}: {len(left)} utterances are missing, such as {min(left)!r}")
    return heard


def likeness(speakers: SpeakerLikeness, folder: Path, utterance: Utterance) -> float:
    """The cosine between what was spoken and the utterance's reference.

    Raises:
        WorkloadError: it has none.
    """
    if utterance.reference is None or not isinstance(utterance.reference.audio, Path):
        raise WorkloadError(f"utterance {utterance.name}: it has no prompt_wav to compare its speaker with")
    return float(speakers.of_file(spoken(folder, utterance)) @ speakers.of_file(utterance.reference.audio))


def spoken(folder: Path, utterance: Utterance) -> Path:
    """The file of an utterance, under the name that the benchmarks and seed-tts-eval give it."""
    return folder / f"{utterance.name}.wav"


def quality_table(language: str, report: dict[str, Any]) -> str:
    """The figures for people."""
    columns, cells = ["utterances"], [f"{report['utterances']}"]
    if "word_errors" in report:
        found, name = report["word_errors"], NAMES[language]
        margin = "" if found["standard_error"] is None else f" ± {found['standard_error']:.2f}"
        columns += [f"{name} %, mean of sentences", f"{name} %, of all"]
        cells += [f"{found['mean']:.2f}{margin}", f"{found['corpus']:.2f}"]
    if "likeness" in report:
        columns += ["SIM", "lowest"]
        cells += [f"{report['likeness']['mean']:.3f}", f"{report['likeness']['lowest']:.3f}"]
    return table(columns, [cells])


if __name__ == "__main__":
    sys.exit(main())
