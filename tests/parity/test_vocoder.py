"""The vocoder against the reference, stage by stage and from mel to waveform.

Each stage, and all that follows F0, is compared on the reference's own input to it, within the plain
tolerance. The chain as a whole is compared within what it makes of rounding in F0 (rounding.py): random
weights magnify a change of the source a hundredfold, so that the reference moved to another machine would not
meet the plain tolerance either.
"""

from __future__ import annotations

from functools import cache

import goldens
import pytest
import torch
from goldens import Compare
from reference_streaming import single_precision_source, vocode
from rounding import F0_ROUNDING, compare_waves, rounded, rounding_effect
from torch import Tensor

from cosyvoice_runtime.vocoder.torch import HiFT
from cosyvoice_runtime.vocoder.torch.source import Rows
from vocoder_calls import open_state, stream

WAVE = 1e-3
CASES = goldens.cases("hift")
WITH_F0 = [case for case in CASES if "f0" in case]
WITH_CACHE = [case for case in CASES if "cache_source" in case]
WITH_STAGES = [case for case in CASES if "intermediates" in case.settings]


@cache
def hift(dtype: torch.dtype = torch.float32) -> HiFT:
    return HiFT.from_tensors(goldens.config().vocoder, goldens.tensors("tiny_hift"), dtype=dtype)


def wave_of_f0(case: goldens.Case, f0: Tensor) -> Tensor:
    return hift().decode(case["mel"], single_precision_source(hift(), f0, case.tensors.get("sine_noise")))


def effect(case: goldens.Case) -> float:
    """How far rounding in F0 moves the waveform."""
    return rounding_effect(
        wave_of_f0(case, case["f0"]), lambda seed: wave_of_f0(case, rounded(case["f0"], seed))
    )


@pytest.mark.parametrize("case", WITH_F0, ids=str)
def test_f0(case: goldens.Case, compare: Compare) -> None:
    compare("f0", hift().f0(case["mel"]), case["f0"], 2 * F0_ROUNDING * case["f0"].max().item())


@pytest.mark.parametrize("case", WITH_F0, ids=str)
def test_source_of_given_f0(case: goldens.Case, compare: Compare) -> None:
    noise = case.tensors.get("sine_noise")
    merged = None if noise is None else hift().m_source.merge_noise(noise)
    compare("float64 phase", hift().source(case["f0"].double(), merged), case["s"][:, 0], WAVE)
    compare("float32 phase", single_precision_source(hift(), case["f0"], noise), case["s"][:, 0], 1e-6)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_decode_of_given_source(case: goldens.Case, compare: Compare) -> None:
    compare("wave", hift().decode(case["mel"], case["s"][:, 0]), case["wav"], WAVE)


@pytest.mark.parametrize("case", WITH_F0, ids=str)
def test_mel_to_waveform(case: goldens.Case, compare: Compare) -> None:
    wave, _ = vocode(hift(), case["mel"], case.tensors.get("sine_noise"))
    compare_waves(compare, "wave", wave, case["wav"], effect(case), WAVE)
    compare("wave of given F0", wave_of_f0(case, case["f0"]), case["wav"], WAVE)


@pytest.mark.parametrize("case", WITH_CACHE, ids=str)
def test_cached_source_overwrites_the_first_samples(case: goldens.Case, compare: Compare) -> None:
    wave, source = vocode(hift(), case["mel"], cached_source=case["cache_source"][:, 0])
    compare("source", source, case["s_c"][:, 0], WAVE)
    compare_waves(compare, "wave", wave, case["wav_c"], effect(case), WAVE)
    compare("wave of given source", hift().decode(case["mel"], case["s_c"][:, 0]), case["wav_c"], WAVE)


@pytest.mark.parametrize("case", WITH_STAGES, ids=str)
def test_stages_of_the_decoder(case: goldens.Case, compare: Compare) -> None:
    for name, found in layer_outputs(case, case.settings["intermediates"]).items():
        expected = case[f"mid_{name}"]
        compare(name, found, expected, 1e-4 * expected.abs().max().item())


def layer_outputs(case: goldens.Case, names: list[str]) -> dict[str, Tensor]:
    """Outputs of the decoder's layers under the reference's names."""
    outputs: dict[str, Tensor] = {}
    hooks = [
        layer(name).register_forward_hook(lambda _, __, output, name=name: outputs.update({name: output}))
        for name in names
    ]
    hift().decode(case["mel"], case["s"][:, 0])
    for hook in hooks:
        hook.remove()
    return outputs


def layer(name: str) -> torch.nn.Module:
    decoder = hift().decoder
    lists = {"ups": decoder.ups, "sdown": decoder.source_downs, "sres": decoder.source_resblocks}
    kind = name.rstrip("0123456789")
    if kind == name:
        return decoder.get_submodule(name)
    return lists.get(kind, decoder.resblocks)[int(name.removeprefix(kind))]


@pytest.mark.parametrize("case", WITH_STAGES, ids=str)
def test_source_spectrum(case: goldens.Case, compare: Compare) -> None:
    decoder = hift().decoder
    rows = Rows.of([case["mel"].shape[-1]], hift().device)
    spectrum = decoder.fourier.transform(case["s"][:, 0], rows, decoder.spectral_rate)
    expected = torch.cat([case["stft_real"], case["stft_imag"]], dim=1)
    compare("spectrum", spectrum, expected, 1e-4)


@pytest.mark.parametrize("size", [7, 20])
@pytest.mark.parametrize("case", WITH_F0, ids=str)
def test_streamed_equals_whole(case: goldens.Case, size: int, compare: Compare) -> None:
    exact = hift(torch.float64)
    mel = case["mel"][0]
    state = open_state(exact.config)
    waves = [stream(exact, [state], [chunk], [False])[0] for chunk in mel.split(size, dim=1)]
    waves += stream(exact, [state], [mel[:, :0]], [True])
    compare("wave", torch.cat(waves), exact(mel[None])[0], 1e-4)
