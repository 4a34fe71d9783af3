"""Forms of kernels are found without a GPU, and are those that other processes look for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import compile_kernels
from compile_kernels import CARDS, deployment
from cosyvoice_runtime.checkpoint.lm_rows import PROJECTIONS
from cosyvoice_runtime.checkpoint.voice_adapters import AdapterForm
from cosyvoice_runtime.compilation.captures import capture_speech_lm, forms_of
from cosyvoice_runtime.compilation.forms import collected, compile_for
from cosyvoice_runtime.gpu.kernels.rows import ADA, read_row
from making import architecture

ROOT = Path(__file__).resolve().parents[2]
SOME = "_step_gated", "_step_qkv"
OF_ADAPTERS = "_adapters_down", "_adapters_up"
COMPILE = """
import sys
from compile_kernels import CARDS, deployment
from cosyvoice_runtime.compilation.captures import forms_of
from cosyvoice_runtime.compilation.compiler import compile_forms
from cosyvoice_runtime.compilation.forms import compile_for
from making import architecture

card = CARDS["L4"]
compile_for(card.capability)
every = forms_of(deployment(architecture.TINY, card))
forms = [each for each in every if each.kernel.fn.__name__ in sys.argv[2:]]
if sys.argv[1] == "forked":
    made = list(compile_forms(forms, 2))
else:
    made = [each.compile() for each in reversed(forms)]
assert len(made) == len(forms) > 4
assert not [each for each in made if each.failure]
assert max(each.shared for each in made) <= card.limits.shared_bytes
"""


def test_each_part_of_a_server_has_forms_and_none_comes_twice():
    compile_for(CARDS["L4"].capability)
    forms = forms_of(deployment(architecture.TINY, CARDS["L4"]))
    names = {form.kernel.fn.__name__ for form in forms}
    assert names >= {
        *("_step_head", "_prefill_heads", "_slot_draw"),
        *("_causal_conv", "_norm_attention", "_guided_euler", "_relative_attention"),
        "_row_conv",
    }
    assert len({form.key for form in forms}) == len(forms)


@pytest.mark.parametrize(
    ("card", "rank"),
    [("A100", 64), ("L4", 16), ("L4", 64), ("H100", 32), ("H100", 64), ("B200", 64), ("RTX 5090", 64)],
)
def test_adapters_have_forms_that_fit_a_card_of_each_row(card, rank, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    compile_for(CARDS[card].capability)
    adapters = AdapterForm(rank, tuple(PROJECTIONS))
    with torch.inference_mode(), collected() as forms:
        capture_speech_lm(deployment(architecture.FULL, CARDS[card], adapters))
    made = [form.compile() for form in forms if form.kernel.fn.__name__ in OF_ADAPTERS]
    assert {each.kernel for each in made} == set(OF_ADAPTERS)
    assert not [each for each in made if each.failure]
    assert max(each.shared for each in made) <= CARDS[card].limits.shared_bytes


def test_without_adapters_nothing_is_compiled_for_them():
    compile_for(CARDS["H100"].capability)
    none, some = (
        forms_of(deployment(architecture.TINY, CARDS["H100"], form))
        for form in (AdapterForm(), AdapterForm(16, ("mlp.down",)))
    )
    assert not {form.kernel.fn.__name__ for form in none} & set(OF_ADAPTERS)
    more = {form.key for form in some} - {form.key for form in none}
    assert {key.partition(" ")[0] for key in more} == {*OF_ADAPTERS, "_step_residual"}


def test_another_process_finds_what_was_compiled_in_any_order(tmp_path):
    variables = {
        **os.environ,
        "TRITON_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "scripts"), *sys.path]),
    }
    counts = []
    for way in ("forked", "backwards"):
        subprocess.run([sys.executable, "-c", COMPILE, way, *SOME], env=variables, check=True)
        counts.append(len(list(tmp_path.glob("*/*.cubin"))))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("card", list(CARDS))
def test_forms_of_every_card_are_found(card):
    compile_for(CARDS[card].capability)
    forms_of(deployment(architecture.TINY, CARDS[card]))


def test_the_row_of_a_card_is_written_and_nothing_compiled(tmp_path, monkeypatch):
    monkeypatch.setattr(
        sys, "argv", ["compile_kernels.py", "--card", "L4", "--write-row", str(tmp_path / "row")]
    )
    assert compile_kernels.main() == 0
    assert read_row(tmp_path / "row") == ADA
