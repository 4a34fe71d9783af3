#!/usr/bin/env python3
"""Rewrite the generated tables of README.md: tensors from model_repo/, settings from their definitions.

readme_tables.py           rewrite
readme_tables.py --check   only say whether they are up to date
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from cosyvoice_runtime.settings import (
    AudioTokenizerSettings,
    CosyVoice2Settings,
    ServerSettings,
    SpeakerEmbeddingSettings,
    TensorrtLlmSettings,
    Token2WavSettings,
)
from cosyvoice_runtime.settings.section import Section

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
MODELS = ("cosyvoice2", "tensorrt_llm", "audio_tokenizer", "speaker_embedding", "token2wav")
SECTIONS: tuple[type[Section], ...] = (
    CosyVoice2Settings,
    TensorrtLlmSettings,
    AudioTokenizerSettings,
    SpeakerEmbeddingSettings,
    Token2WavSettings,
    ServerSettings,
)
TENSOR = re.compile(
    r"(?:#\s*(?P<doc>[^\n]*)\n)?\s*\{\s*name:\s*\"(?P<name>\w+)\"\s+data_type:\s*TYPE_(?P<type>\w+)"
    r"\s+dims:\s*\[(?P<dims>[^]]*)\](?P<rest>[^}]*)\}"
)


def tensors() -> str:
    """Inputs and outputs of each model."""
    return "\n\n".join(f"**{model}**\n\n{_tensor_table(model)}" for model in MODELS)


def settings() -> str:
    """Every setting, its default and its limit."""
    parts = []
    for section in SECTIONS:
        rows = [f"| `{row.name}` | {row.default} | {row.limit} | {row.doc} |" for row in section.describe()]
        header = ["| setting | default | accepted | meaning |", "|---|---|---|---|"]
        parts.append("\n".join([f"**{section.name}**", "", *header, *rows]))
    return "\n\n".join(parts)


def _tensor_table(model: str) -> str:
    text = (ROOT / "model_repo" / model / "config.pbtxt").read_text(encoding="utf-8")
    inputs, _, outputs = text.partition("\noutput [")
    rows = ["| tensor | | type | shape | meaning |", "|---|---|---|---|---|"]
    rows += _rows(inputs, "in")
    rows += _rows(outputs, "out")
    return "\n".join(rows)


def _rows(text: str, direction: str) -> Iterator[str]:
    for match in TENSOR.finditer(text):
        optional = ", optional" if "optional: true" in match["rest"] else ""
        dims = match["dims"].replace(" ", "")
        doc = (match["doc"] or "").strip()
        yield f"| `{match['name']}` | {direction}{optional} | {match['type']} | [{dims}] | {doc} |"


GENERATED = {"tensors": tensors, "settings": settings}


def rewritten(text: str) -> str:
    """The README with its generated parts made anew."""
    for name, generate in GENERATED.items():
        pattern = re.compile(rf"(<!-- {name}:start -->\n).*?(<!-- {name}:end -->)", re.DOTALL)
        part = f"{generate()}\n"
        text, count = pattern.subn(lambda match, part=part: match[1] + part + match[2], text)
        if count != 1:
            raise SystemExit(f"README.md has no place for {name}")
    return text


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    old = README.read_text(encoding="utf-8")
    new = rewritten(old)
    if old == new:
        print("README.md is up to date")
        return 0
    if options.check:
        print("README.md is out of date: run scripts/readme_tables.py", file=sys.stderr)
        return 1
    README.write_text(new, encoding="utf-8")
    print("README.md rewritten")
    return 0


if __name__ == "__main__":
    sys.exit(main())
