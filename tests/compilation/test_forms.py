"""Forms of kernels are found without a GPU, and are those that other processes look for."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import compile_kernels
from compile_kernels import CARDS, deployment
from cosyvoice_runtime.checkpoint.lm_rows import PROJECTIONS
from cosyvoice_runtime.checkpoint.voice_adapters import AdapterForm
from cosyvoice_runtime.compilation.captures import capture_speech_lm, find_forms
from cosyvoice_runtime.compilation.deployment import Deployment
from cosyvoice_runtime.compilation.forms import Form, collecting, compile_for
from cosyvoice_runtime.gpu.kernels.rows import ADA, read_row
from cosyvoice_runtime.lm.kernels import text_rows
from cosyvoice_runtime.lm.torch.captured_rows import WIDTHS
from making import architecture, architecture_cosyvoice3

ROOT = Path(__file__).resolve().parents[2]
SOME = "_step_gated", "_step_qkv"
LAST = "_norm_step", "_linear_step"
OF_ADAPTERS = "_adapters_down", "_adapters_up"
COMPILE = """
import queue
import sys
from compile_kernels import CARDS, deployment
from cosyvoice_runtime.compilation.captures import find_forms
from cosyvoice_runtime.compilation.compiler import ForkedCompiler
from cosyvoice_runtime.compilation.forms import compile_for
from making import architecture

card = CARDS["L4"]
compile_for(card.capability)
every = []
find_forms(deployment(architecture.TINY, card), every.append)
forms = [each for each in every if each.kernel.fn.__name__ in sys.argv[2:]]
if sys.argv[1] == "forked":
    made = []
    compiler = ForkedCompiler(2, made.append)
    for each in forms:
        compiler.take(each)
    told = queue.Queue()
    compiler.when_done(lambda: told.put(True))
    assert told.get(timeout=100)
    compiler.finish()
else:
    made = [each.compile() for each in reversed(forms)]
assert len(made) == len(forms) > 4
assert not [each for each in made if each.failure]
assert max(each.shared for each in made) <= card.limits.shared_bytes
"""


def _forms(of: Deployment) -> list[Form]:
    forms: list[Form] = []
    find_forms(of, forms.append)
    return forms


def test_each_part_of_a_server_has_forms_and_none_comes_twice():
    compile_for(CARDS["L4"].capability)
    forms = _forms(deployment(architecture.TINY, CARDS["L4"]))
    names = {form.kernel.fn.__name__ for form in forms}
    assert names >= {
        *("_step_head", "_prefill_heads", "_slot_draw", "_text_rows"),
        *("_causal_conv", "_norm_attention", "_norm_step", "_relative_attention"),
        "_row_conv",
    }
    assert len({form.key for form in forms}) == len(forms)


def test_forms_of_the_speech_lm_come_first():
    compile_for((8, 7))  # No other test of this process finds forms for it.
    card = CARDS["L4"]._replace(capability=(8, 7))
    forms: list[Form] = []
    of_lm: list[Form] = []
    find_forms(deployment(architecture.TINY, card), forms.append, lambda: of_lm.extend(forms))
    assert {"_step_head", "_prefill_heads"} <= {form.kernel.fn.__name__ for form in of_lm}
    assert all(".lm." in form.kernel.fn.__module__ for form in of_lm)
    assert not [form for form in forms[len(of_lm) :] if ".lm." in form.kernel.fn.__module__]


def test_a_form_that_is_sent_has_tensors_of_the_same_types_and_alignment():
    compile_for((8, 8))  # No other test of this process finds forms for it.
    forms = _forms(deployment(architecture.TINY, CARDS["L4"]._replace(capability=(8, 8))))
    for form in forms:
        sent = pickle.loads(pickle.dumps(form))
        assert (sent.key, sent.kernel, sent.grid, sent.options) == (
            form.key,
            form.kernel,
            form.grid,
            form.options,
        )
        assert list(map(_as_specialised, sent.arguments)) == list(map(_as_specialised, form.arguments))
    told = [_as_specialised(each) for form in forms for each in form.arguments]
    assert {each[1] for each in told if isinstance(each, tuple)} == {True, False}


def _as_specialised(argument: object) -> object:
    """The part of an argument on which a form depends."""
    if isinstance(argument, torch.Tensor):
        return argument.dtype, argument.data_ptr() % 16 == 0
    return argument


@pytest.mark.parametrize("made", [architecture.TINY, architecture_cosyvoice3.TINY], ids=["unet", "dit"])
def test_a_distilled_flow_of_another_solver_has_its_own_form_of_the_last_step(made):
    """Its last kernel looks back at a velocity, and has no frames without guidance."""
    card = CARDS["L4"]
    compile_for(card.capability)
    usual = deployment(made, card)
    other = deployment(replace(made, flow=replace(made.flow, times=(0.0, 0.5), cfg_rate=0.0)), card)
    other = other._replace(wave=other.wave.replace(solver="adams_bashforth"))
    of_usual, of_other = ({form.key: form for form in _forms(each)} for each in (usual, other))
    new = [of_other[key] for key in of_other.keys() - of_usual.keys()]
    last = [form for form in new if form.kernel.fn.__name__ in LAST]
    assert last
    made_form = last[0].compile()
    assert not made_form.failure
    assert made_form.shared <= card.limits.shared_bytes


@pytest.mark.parametrize(
    ("card", "rank"),
    [("A100", 64), ("L4", 16), ("L4", 64), ("H100", 32), ("H100", 64), ("B200", 64), ("RTX 5090", 64)],
)
def test_adapters_have_forms_that_fit_a_card_of_each_row(card, rank, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    compile_for(CARDS[card].capability)
    adapters = AdapterForm(rank, tuple(PROJECTIONS))
    forms: list[Form] = []
    with torch.inference_mode(), collecting(forms.append):
        capture_speech_lm(deployment(architecture.FULL, CARDS[card], adapters))
    made = [form.compile() for form in forms if form.kernel.fn.__name__ in OF_ADAPTERS]
    assert {each.kernel for each in made} == set(OF_ADAPTERS)
    assert not [each for each in made if each.failure]
    assert max(each.shared for each in made) <= CARDS[card].limits.shared_bytes


@pytest.mark.parametrize("card", ["A100", "L4", "H100", "B200", "RTX 5090"])
def test_rows_of_attention_of_each_width_fit_a_card_of_each_row(card, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(text_rows._text_rows, "_found", {})  # It remembers launches of other tests.
    compile_for(CARDS[card].capability)
    forms: list[Form] = []
    with torch.inference_mode(), collecting(forms.append):
        capture_speech_lm(deployment(architecture.FULL, CARDS[card]))
    made = {form.key: form for form in forms if form.kernel.fn.__name__ == "_text_rows"}
    assert len(made) == len(WIDTHS)
    for form in made.values():
        compiled = form.compile(measured=True)
        assert not compiled.failure
        assert not compiled.spilled
        assert compiled.shared <= CARDS[card].limits.shared_bytes


def test_without_adapters_nothing_is_compiled_for_them():
    compile_for(CARDS["H100"].capability)
    none, some = (
        _forms(deployment(architecture.TINY, CARDS["H100"], form))
        for form in (AdapterForm(), AdapterForm(16, ("mlp.down",)))
    )
    assert not {form.kernel.fn.__name__ for form in none} & set(OF_ADAPTERS)
    more = {form.key for form in some} - {form.key for form in none}
    assert {key.partition(" ")[0] for key in more} == {*OF_ADAPTERS, "_step_residual"}


def test_adapters_of_some_layers_are_compiled_ahead_for_their_deployment(monkeypatch):
    compiled = []
    monkeypatch.setattr(compile_kernels, "find_forms", lambda *_: None)
    monkeypatch.setattr(compile_kernels, "note_compiled", compiled.append)
    asked = "--card L4 --family CosyVoice2 --adapter-rank 16 --adapter-modules mlp.down attention.qkv"
    monkeypatch.setattr(sys, "argv", ["compile_kernels.py", *asked.split()])
    assert compile_kernels.main() == 0
    form = AdapterForm(16, ("attention.qkv", "mlp.down"))
    assert compiled == [deployment(architecture.FULL, CARDS["L4"], form).key]


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
    _forms(deployment(architecture.TINY, CARDS[card]))


def test_the_row_of_a_card_is_written_and_nothing_compiled(tmp_path, monkeypatch):
    monkeypatch.setattr(
        sys, "argv", ["compile_kernels.py", "--card", "L4", "--write-row", str(tmp_path / "row")]
    )
    assert compile_kernels.main() == 0
    assert read_row(tmp_path / "row") == ADA
