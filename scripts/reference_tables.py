#!/usr/bin/env python3
"""Write what stands in one table of the code and is read elsewhere.

Tensors come from their schema and settings from their fields, into docs/ and into the templates of
model_repo/; the stages come from run.sh into docs/. The Helm chart's README and schema follow from its values
and the settings (``chart_reference.py``).

    reference_tables.py           write
    reference_tables.py --check   only say whether they are up to date
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import chart_reference
from cosyvoice_runtime.serving.triton.schema import SCHEMAS
from cosyvoice_runtime.serving.triton.tensor_spec import TensorSpec
from cosyvoice_runtime.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
DOCS, TEMPLATES = ROOT / "docs", ROOT / "model_repo"
MODELS = ("cosyvoice2", "tensorrt_llm", "audio_tokenizer", "speaker_embedding", "token2wav")
STAGE = re.compile(r"^ +(?P<number>\d)  (?P<name>\S.*?)  +(?P<doc>\S.*)$", re.MULTILINE)
PROGRAM = r"^stage_{}\(\)(?P<body>.*?)(?:^\}}|\}}$)"
WRITTEN = "# What follows is written by scripts/reference_tables.py.\n"
BLOCKS = re.compile(rf"^({re.escape(WRITTEN)})?input \[\n.*\Z", re.DOTALL | re.MULTILINE)
"""Inputs, outputs and parameters, which end each template."""
TENSORS = """# Tensors

Made by `scripts/reference_tables.py` from `cosyvoice_runtime/serving/triton/schema.py`. Shapes are \
without the leading batch dimension of 1; optional tensors are inputs. \
`cosyvoice2_offline` has the tensors of `cosyvoice2`, and its one \
response is the whole waveform.

Tensors have the names and shapes of [FunAudioLLM's repository](https://github.com/FunAudioLLM/CosyVoice), \
so its clients work unchanged: `client_grpc.py --mode streaming`, \
`client_grpc.py --mode offline` and `client_http.py`, with `--model-name cosyvoice2`. With \
`--use-spk2info-cache True` the default voice speaks. A reference needs its `--reference-text`.

`cosyvoice2` answers a stream of gRPC and `/generate_stream` with chunks. To a unary call (`ModelInfer`, \
`/infer`, `/generate`) it answers once, with the whole: the gateway hands the request to \
`cosyvoice2_offline`. The reference's `DECOUPLED_MODE` is the setting `cosyvoice2.decoupled` here, which \
only a server without gateways needs.
"""
SETTINGS = """# Settings

Made by `scripts/reference_tables.py` from `cosyvoice_runtime/settings/`. A heading names the sections that \
have the settings below it; section `cosyvoice2` configures `cosyvoice2_offline` as well.

Each layer wins over the one before it: the defaults below, the TOML file that `COSYVOICE_SETTINGS` names, \
variables `COSYVOICE_KEY` or `COSYVOICE_SECTION__KEY`, and `KEY=VALUE` or `SECTION.KEY=VALUE` on a command \
line. A key without a section sets it in every section that has it. Unknown keys and values out of range are \
errors, apart from the addresses that Kubernetes sets for a Service named `cosyvoice` or `cosyvoice-front`. \
`auto` is chosen for the machine when the model repository is rendered (stage 2), and the choice is logged.
"""
STAGES = re.compile(
    r"(?<=<!-- stages, by scripts/reference_tables.py -->\n).*?(?=<!-- end of stages -->)", re.DOTALL
)


def tensors() -> str:
    """Inputs and outputs of each model."""
    return TENSORS + "".join(f"\n## {model}\n\n{_tensor_table(model)}\n" for model in MODELS)


def settings() -> str:
    """Every setting, its default and its limit; a row that several sections share stands in one table."""
    sections: dict[str, list[str]] = {}
    for name, section in Settings().sections().items():
        for row in section.describe():
            text = f"| `{row.name}` | {row.default} | {_accepted(row.limit)} | {row.doc} |"
            sections.setdefault(text, []).append(name)
    tables: dict[str, list[str]] = {}
    for text, names in sections.items():
        tables.setdefault(", ".join(names), []).append(text)
    page = SETTINGS
    for title in sorted(tables, key=lambda names: (-names.count(","), list(tables).index(names))):
        header = ["| setting | default | accepted | meaning |", "|---|---|---|---|"]
        page += "\n".join([f"\n## {title}", "", *header, *tables[title], ""])
    return page


def _accepted(limit: str) -> str:
    """A limit as a cell of a table has it: a range or a list alone."""
    return limit.removeprefix("a whole number from ").removeprefix("a number from ").removeprefix("one of ")


def environment() -> str:
    """The page of the environment, with what each stage of run.sh does, needs and starts."""
    script = (ROOT / "run.sh").read_text(encoding="utf-8")
    rows = ["| stage | | what it does | starts |", "|---|---|---|---|"]
    for match in STAGE.finditer(script):
        body = re.search(PROGRAM.format(match["number"]), script, re.DOTALL | re.MULTILINE)
        if body is None:
            raise SystemExit(f"run.sh has no stage_{match['number']}")
        programs = re.findall(r"[\w/]+\.py|-m [\w.]+", body["body"])
        started = ", ".join(f"`{program.replace('-m ', 'python -m ')}`" for program in programs)
        rows.append(f"| {match['number']} | {match['name']} | {match['doc']} | {started} |")
    table = "\n".join(rows) + "\n"
    return STAGES.sub(lambda _: table, (DOCS / "environment.md").read_text(encoding="utf-8"))


def configuration(model: str) -> str:
    """The template of a model's configuration, with the tensors and the settings that the model has."""
    template = (TEMPLATES / model / "config.pbtxt").read_text(encoding="utf-8")
    schema = SCHEMAS[model]
    parameters = [
        f'parameters {{ key: "{name}" value: {{ string_value: "${{{name}}}" }} }}\n'
        for name in Settings().parameters_of(model)
    ]
    blocks = f"{WRITTEN}input [\n{_ports(schema.inputs)}\n]\noutput [\n{_ports(schema.outputs)}\n]\n\n"
    return BLOCKS.sub(lambda _: blocks + "".join(parameters), template)


def _ports(specs: Sequence[TensorSpec]) -> str:
    return ",\n".join(f"  # {spec.meaning}\n  {{ {_port(spec)} }}" for spec in specs)


def _port(spec: TensorSpec) -> str:
    dims = ", ".join(map(str, spec.dims))
    ragged = " allow_ragged_batch: true" if spec.ragged else ""
    optional = " optional: true" if spec.optional else ""
    return f'name: "{spec.name}" data_type: TYPE_{spec.type} dims: [ {dims} ]{ragged}{optional}'


def _tensor_table(model: str) -> str:
    rows = ["| tensor | | type | shape | meaning |", "|---|---|---|---|---|"]
    rows += _rows(SCHEMAS[model].inputs, "in")
    rows += _rows(SCHEMAS[model].outputs, "out")
    return "\n".join(rows)


def _rows(specs: Sequence[TensorSpec], direction: str) -> Iterator[str]:
    for spec in specs:
        use = "optional" if spec.optional else direction
        dims = ",".join(map(str, spec.dims))
        yield f"| `{spec.name}` | {use} | {spec.type} | [{dims}] | {spec.meaning} |"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    files = {
        DOCS / "tensors.md": tensors(),
        DOCS / "settings.md": settings(),
        DOCS / "environment.md": environment(),
        chart_reference.README: chart_reference.readme(),
        chart_reference.SCHEMA: chart_reference.schema(),
        **{TEMPLATES / model / "config.pbtxt": configuration(model) for model in SCHEMAS},
    }
    stale = {path.relative_to(ROOT): text for path, text in files.items() if not _holds(path, text)}
    names = ", ".join(map(str, stale))
    if stale and options.check:
        print(f"out of date: {names}; run scripts/reference_tables.py", file=sys.stderr)
        return 1
    for path, text in stale.items():
        (ROOT / path).write_text(text, encoding="utf-8")
    print(f"written: {names}" if stale else "up to date")
    return 0


def _holds(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
