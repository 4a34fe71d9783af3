"""A ``trtllm-build`` that knows the flags of ``build_flags.json`` and writes an engine of two small files.

The table is that of ``tensorrt_llm/commands/build.py`` and ``plugin/plugin.py`` (TensorRT-LLM 1.2): what
takes a value, and which values are accepted.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

FLAGS = json.loads(Path(__file__).with_name("build_flags.json").read_text())
KV_CACHE_TYPES = ("CONTINUOUS", "PAGED", "DISABLED")


def help_text() -> str:
    """Laid out as argparse does."""
    lines = ["usage: trtllm-build [-h] " + " ".join(f"[--{name}{_value(name)}]" for name in FLAGS), ""]
    lines += [f"  --{name}{_value(name)}\n                        about it" for name in FLAGS]
    return "\n".join(lines)


def parse(arguments: list[str]) -> dict[str, str]:
    """Values by flag; SystemExit for anything that the real one would not take."""
    values = {}
    for flag, value in zip(arguments[::2], arguments[1::2], strict=True):
        name = flag.removeprefix("--")
        accepted = FLAGS.get(name)
        if accepted is None or name == flag:
            raise SystemExit(f"trtllm-build: error: unrecognized arguments: {flag} {value}")
        if accepted == "int" and not value.isdecimal():
            raise SystemExit(f"trtllm-build: error: argument {flag}: invalid int value: '{value}'")
        if isinstance(accepted, list) and value not in accepted:
            raise SystemExit(f"trtllm-build: error: argument {flag}: invalid choice: '{value}'")
        values[name] = value
    return values


def build(values: dict[str, str]) -> None:
    checkpoint, out = Path(values["checkpoint_dir"]), Path(values["output_dir"])
    config = json.loads((checkpoint / "config.json").read_text())
    assert values.get("kv_cache_type", "paged").upper() in KV_CACHE_TYPES
    if "model_cls_file" in values:
        assert f"class {values['model_cls_name']}(" in Path(values["model_cls_file"]).read_text()
    for rank in range(config["mapping"]["world_size"]):
        assert (checkpoint / f"rank{rank}.safetensors").is_file()
        (out / f"rank{rank}.engine").write_text(json.dumps({"checkpoint": str(checkpoint)}))
    limits = {name: int(value) for name, value in values.items() if FLAGS[name] == "int"}
    (out / "config.json").write_text(json.dumps({"pretrained_config": config, "build_config": limits}))
    Path(values["output_timing_cache"]).touch()


def main() -> int:
    if os.environ.get("FAKE_BUILD_FAILS"):
        print("[TensorRT-LLM][ERROR] out of memory", file=sys.stderr)
        return 1
    if sys.argv[1:] == ["--help"]:
        print(help_text())
    else:
        build(parse(sys.argv[1:]))
    return 0


def _value(name: str) -> str:
    accepted = FLAGS[name]
    return f" {{{','.join(accepted)}}}" if isinstance(accepted, list) else f" {name.upper()}"


if __name__ == "__main__":
    sys.exit(main())
