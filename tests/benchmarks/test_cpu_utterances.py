"""benchmarks/cpu_utterances.py over a small checkpoint."""

from __future__ import annotations

import json

import pytest

import cpu_utterances


def test_every_variant_speaks_as_many_seconds_as_were_asked_for(tiny_checkpoint, tmp_path, capsys):
    file = tmp_path / "figures.json"
    variants = [
        "onnx:tensorrt_llm.engine=onnx,token2wav.backend=onnx",
        "torch:engine=torch,token2wav.ode_steps=6",
    ]
    given = ["--checkpoint", str(tiny_checkpoint), "--seconds", "1.2", "--rounds", "1", "--utterances", "1,2"]
    assert (
        cpu_utterances.main([*given, *(f"--variant={each}" for each in variants), "--json", str(file)]) == 0
    )
    figures = json.loads(file.read_text())["figures"]
    for one in figures.values():
        single, two = one["levels"]["1"], one["levels"]["2"]
        assert single["audio s a minute"] == pytest.approx(60 / single["RTF"], rel=0.05)
        assert two["first audio ms"] > 0
        assert one["peak_mib"] > 50
    assert figures["onnx"]["settings"]["token2wav"]["backend"] == "onnx"
    assert figures["torch"]["settings"]["token2wav"]["ode_steps"] == 6
    assert "|  | onnx | torch |" in capsys.readouterr().out
