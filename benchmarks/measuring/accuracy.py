"""How many of the tests' cases are read right, by language, source and class of forms, by some versions.

A report has, for each version's name, its commit and ``right``: for each file a 1 or a 0 for each case.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import cosyvoice_runtime
from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.text.frontend import TextFrontEnd
from cosyvoice_runtime.text.normalise import Normaliser
from measuring.machine import ROOT, commit_of
from measuring.report import table

TESTS = ROOT / "tests" / "text"
SOURCES = {("own",): "own", ("nemo", "wetext"): "NeMo's, WeTextProcessing's", ("users",): "users'"}
MARKUP, USERS, OTHER = "markup", "what users report", "all others"
CLASSES = {
    "numbers": "cardinal number decimal ordinal roman fraction two said",
    "dates, years": "date year days",
    "times, durations": "time duration clock",
    "amounts of money": "money finance receipt",
    "units": "measure unit units",
    "ranges, scores, hyphens": "range rating score sports hyphen",
    "telephones, addresses": "telephone phone address electronic net",
    "codes, machines": "code serial tech hardware",
    "formulae": "formula math algebra science",
    "what looks like a form and is none": "not",
    "whole sentences of many kinds": "sentence chat life final answers mixed",
}
Case = tuple[str, str, str]
"""File, language and kind."""
Right = dict[str, str]


def measure(name: str, output: Path) -> None:
    """Add this version's figures to a report, and print the tables of all that it has."""
    versions: dict[str, Any] = json.loads(output.read_text(encoding="utf-8")) if output.exists() else {}
    checkout = Path(cosyvoice_runtime.__file__).parents[1]
    versions[name] = {"commit": commit_of(checkout), "right": right()}
    output.write_text(json.dumps(versions, indent=1) + "\n", encoding="utf-8")
    print(tables({each: version["right"] for each, version in versions.items()}))


def right() -> Right:
    """For each file of cases a 1 or a 0 for each case, by the rules of the tests."""
    rules, normalise, front_end = _rules(), Normaliser(), TextFrontEnd(_counter())
    found = {}
    for file in _files():
        read: Callable[[str, str], str] = normalise
        if file.endswith(MARKUP):
            read = lambda text, language: "".join(front_end.segments(text, language))  # noqa: E731
        marks = []
        for language, _, written, spoken in rules.cases(file):
            try:
                said = read(written, language)
            except CosyVoiceError:
                said = ""
            marks.append(str(int(rules.is_right(spoken, said, language, file.startswith("users")))))
        found[file] = "".join(marks)
    return found


def tables(versions: dict[str, Right]) -> str:
    """Percent of the cases that each version reads right: by language and source, by class, and by file."""
    cases = [(file, *case[:2]) for file in _files() for case in _rules().cases(file)]
    languages = sorted({language for _, language, _ in cases})

    def row(name: str, *groups: list[bool]) -> list[str]:
        return [name, *(_share(group, versions) for group in groups)]

    by_language = [
        row(each, *([of == each and file.startswith(starts) for file, of, _ in cases] for starts in SOURCES))
        for each in languages
    ]
    by_class = [
        row(name, *([case[1] == each and _class(case) == name for case in cases] for each in ("en", "zh")))
        for name in (*CLASSES, MARKUP, USERS, OTHER)
    ]
    by_file = [row(each, [file == each for file, _, _ in cases]) for each in _files()]
    shown = f"cases: {', '.join(versions)}, %"
    return "\n\n".join(
        (
            shown,
            table(("language", *SOURCES.values()), by_language),
            table(("class", "English", "Chinese"), by_class),
            table(("file", "all"), by_file),
        )
    )


def _share(group: list[bool], versions: dict[str, Right]) -> str:
    """Count of the cases of a group, and what percentage of them each version reads right."""
    count = sum(group)
    shares = []
    for marks in versions.values():
        every = "".join(marks[file] for file in _files())
        if len(every) != len(group):
            raise SystemExit("the cases have changed: measure each version again")
        read = sum(wanted and mark == "1" for wanted, mark in zip(group, every, strict=True))
        shares.append(f"{100 * read / max(count, 1):.0f}")
    return f"{count}: {', '.join(shares)}" if count else ""


def _class(case: Case) -> str:
    file, _, kind = case
    if file.endswith(MARKUP):
        return MARKUP
    if file.startswith("users"):
        return USERS
    return next((name for name, kinds in CLASSES.items() if kind in kinds.split()), OTHER)


def _files() -> list[str]:
    return sorted(path.stem for path in (TESTS / "cases").glob("*.tsv"))


def _rules() -> Any:
    """The module of the tests, which says what counts as equal."""
    if str(TESTS) not in sys.path:
        sys.path.append(str(TESTS))
    return import_module("test_cases")


def _counter() -> Any:
    return import_module("small_tokenizer").WordCounter()
