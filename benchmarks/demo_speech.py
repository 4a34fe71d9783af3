"""How well the demo voice speaks: what a recogniser hears, whose voice it is, joins and ends, and speed.

Needs ``pip install pocketsphinx`` and flite and espeak-ng (``SYNTHESIZERS``: where they are unpacked).
From the repository's root: ``python benchmarks/demo_speech.py``, 15 minutes on two cores. A quick look:
``--sentences 20 --likeness 0``. In parts: ``--rows FILE`` keeps what was measured and sums up all of it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # of demo_voice, which is not installed

from demo_voice.training.speakers import HELD_OUT, TRAINING
from measuring.machine import provenance
from spoken_trial import LIKENESS, PLACES, SENTENCE, Row, Task, Trial

FEWEST_WORDS = 5
LONGEST_FACTOR = 1.5
SENTENCES_A_TASK = 5
PICTURED = 3
SHOWN = ("speaker", "text", "teacher_heard", "streamed_heard")

_trial: Trial | None = None


def main() -> None:
    """Speak, measure, and write the figures, every sentence and a picture."""
    options = parse()
    texts = [text for text in json.loads(options.script.read_text("utf-8")) if _long(text)]
    if len(texts) < max(options.sentences, options.likeness):
        raise SystemExit(
            f"{options.script} holds only {len(texts)} sentences of {FEWEST_WORDS} words or more"
        )
    rows = kept(options.rows) + list(spoken(options, list(tasks(options, texts))))
    if options.rows:
        options.rows.write_text(json.dumps(rows), encoding="utf-8")
    heard = [{key: row[key] for key in SHOWN} for row in rows if row["kind"] == SENTENCE]
    report: Row = {**provenance(), "ode_steps": options.ode_steps, **summary(rows), "sentences": heard}
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "demo_voice.json").write_text(json.dumps(report, indent=1), encoding="utf-8")
    print(json.dumps({key: report[key] for key in report if key != "sentences"}, indent=1))
    if options.picture:
        from measuring.spectrograms import draw

        pairs = Trial(options.checkpoint, options.ode_steps).pairs(options.speakers[0], texts[:PICTURED])
        draw(texts[:PICTURED], pairs, options.output / "demo_voice.png")


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, default=Path("demo_voice"))
    parser.add_argument("--script", type=Path, default=Path("demo_voice/held_out.json"))
    parser.add_argument("--speakers", nargs="+", default=["slt", "rms", "awb", "kal16"])
    parser.add_argument("--sentences", type=int, default=100, help="each read by half of the speakers")
    parser.add_argument("--first", type=int, default=0, help="sentences that an earlier part has read")
    parser.add_argument("--likeness", type=int, default=3, help="sentences of each of all speakers")
    parser.add_argument("--ode-steps", type=int, default=10, help="of the flow")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rows", type=Path, help="read from and added to")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--picture", action=argparse.BooleanOptionalAction, default=True)
    return parser.parse_args()


def kept(path: Path | None) -> list[Row]:
    """Rows of earlier parts."""
    rows: list[Row] = json.loads(path.read_text("utf-8")) if path and path.exists() else []
    return rows


def _long(text: str) -> bool:
    return len(text.split()) >= FEWEST_WORDS


def tasks(options: argparse.Namespace, texts: Sequence[str]) -> Iterator[Task]:
    """Sentences for every second of the speakers in turn, then a few for everybody."""
    for start in range(options.first, options.sentences, SENTENCES_A_TASK):
        part = texts[start : min(start + SENTENCES_A_TASK, options.sentences)]
        for name in options.speakers[start // SENTENCES_A_TASK % 2 :: 2]:
            yield SENTENCE, name, part
    if options.likeness:
        for speaker in (*TRAINING, *HELD_OUT):
            yield LIKENESS, speaker.name, texts[-options.likeness :]


def spoken(options: argparse.Namespace, work: Sequence[Task]) -> Iterator[Row]:
    """A row for each sentence, in processes that load the checkpoint once."""
    start = multiprocessing.get_context("spawn")
    with start.Pool(options.processes, _begin, (options.checkpoint, options.ode_steps)) as pool:
        for number, rows in enumerate(pool.imap(_speak, work), 1):
            print(f"{number}/{len(work)}: {rows[0]['kind']} {rows[0]['speaker']}", flush=True)
            yield from rows


def _begin(checkpoint: Path, ode_steps: int) -> None:
    global _trial
    torch.set_num_threads(1)
    _trial = Trial(checkpoint, ode_steps)


def _speak(task: Task) -> list[Row]:
    assert _trial is not None
    return _trial.rows(task)


def summary(rows: Sequence[Row]) -> Row:
    """Figures over all rows."""
    sentences = [row for row in rows if row["kind"] == SENTENCE]
    return (sentence_figures(sentences) if sentences else {}) | {
        "right_speaker": {
            title: likeness([row for row in rows if row["kind"] == LIKENESS and row["speaker"] in members])
            for title, members in (
                ("training_speakers", {speaker.name for speaker in TRAINING}),
                ("speakers_never_heard", {speaker.name for speaker in HELD_OUT}),
            )
        },
    }


def sentence_figures(sentences: Sequence[Row]) -> Row:
    """Figures over sentences, and word errors by speaker."""
    names = list(dict.fromkeys(row["speaker"] for row in sentences))
    by_speaker = {name: word_errors([row for row in sentences if row["speaker"] == name]) for name in names}
    return {
        "spoken": len(sentences),
        "word_errors": {**word_errors(sentences), "by_speaker": by_speaker},
        "tokens": {
            "other_code_rate": total(sentences, "token_errors") / total(sentences, "tokens"),
            "other_digit_rate": total(sentences, "digit_errors") / total(sentences, "digits"),
        },
        "streaming": streaming(sentences),
        "end": {
            "off_the_teachers_duration": sum(not _fitting(row["duration_ratio"]) for row in sentences),
            "not_stopped": sum(row["finish_reason"] != "stop" for row in sentences),
            "loudest_last_40_ms_db": max(row["end_db"] for row in sentences),
        },
        "processor_seconds_per_second": total(sentences, "processor_s") / total(sentences, "seconds"),
    }


def word_errors(rows: Sequence[Row]) -> dict[str, float]:
    """Word error rates of the teacher and of both ways of the product."""
    ways = ("teacher", "streamed", "offline")
    return {way: total(rows, f"{way}_errors") / total(rows, "words") for way in ways}


def streaming(rows: Sequence[Row]) -> dict[str, float]:
    """Joins against all other places; changes are log-mel distances, spikes are in dB."""
    figures = {"largest_difference_from_offline": max(row["offline_difference"] for row in rows)}
    for measure in ("changes", "spikes"):
        for place in PLACES:
            values = torch.tensor([value for row in rows for value in row[f"{measure}_{place}"]])
            figures[f"mean_{measure}_{place}"] = values.mean().item()
            figures[f"p95_{measure}_{place}"] = values.quantile(0.95).item()
    return figures


def likeness(rows: Sequence[Row]) -> dict[str, float]:
    """How often each measure finds the right speaker, in the product's and in the teacher's audio."""
    kinds = ("encoder", "timbre", "teacher_encoder", "teacher_timbre")
    if not rows:
        return {"trials": 0}
    found = {kind: sum(row[kind] == row["speaker"] for row in rows) / len(rows) for kind in kinds}
    return {"trials": len(rows), **found}


def total(rows: Sequence[Row], key: str) -> float:
    """Sum of a column."""
    return sum(row[key] for row in rows)


def _fitting(ratio: float) -> bool:
    return 1 / LONGEST_FACTOR <= ratio <= LONGEST_FACTOR


if __name__ == "__main__":
    main()
