"""CosyVoice3's vocoder against the reference, stage by stage and from mel to waveform.

Calls that are not the last of an utterance (``..._part``) hold back eight frames in the reference, and five
here: what both give is compared.
"""

from __future__ import annotations

from functools import cache

import pytest
import torch
from goldens import COSYVOICE3, Case, Compare

from cosyvoice_runtime.vocoder.torch import HiFT, context
from cosyvoice_runtime.vocoder.torch.causal import uniform_noise
from vocoder_calls import open_state, stream

CONFIG = COSYVOICE3.config().vocoder
CASES = COSYVOICE3.cases("hift")
WITH_F0 = [case for case in CASES if "f0" in case]
WITH_SOURCE = [case for case in CASES if "s" in case and case.settings.get("finalize", True)]
WITH_STAGES = [case for case in WITH_SOURCE if "intermediates" in case.settings]
GROWING = [case for case in CASES if "frames_given" in case.settings]
WAVE = 1e-3
PARTS = 1e-4


@cache
def hift(dtype: torch.dtype = torch.float32) -> HiFT:
    return HiFT.from_tensors(CONFIG, COSYVOICE3.tensors("tiny_hift"), dtype=dtype)


def merged_noise(case: Case) -> torch.Tensor | None:
    noise = case.tensors.get("sine_noise")
    return None if noise is None else hift().m_source.merge_noise(noise)


def pieces(case: Case, ends: list[int], vocoder: HiFT, *, finished: bool) -> torch.Tensor:
    """The mel vocoded in pieces that end at these frames."""
    mel, state = case["mel"][0], open_state(CONFIG)
    waves = [stream(vocoder, [state], [mel[:, a:b]], [False])[0] for a, b in zip([0, *ends], ends)]  # noqa: B905
    if finished:
        waves += stream(vocoder, [state], [mel[:, max(ends, default=0) :]], [True])
    return torch.cat(waves)


@pytest.mark.parametrize("case", WITH_F0, ids=str)
def test_f0(case: Case, compare: Compare) -> None:
    compare("f0", hift().f0(case["mel"]), case["f0"], PARTS)


@pytest.mark.parametrize("case", [case for case in WITH_F0 if "s" in case], ids=str)
def test_source_of_given_f0(case: Case, compare: Compare) -> None:
    compare("s", hift().source(case["f0"].double(), merged_noise(case)), case["s"][:, 0], WAVE)


@pytest.mark.parametrize("case", WITH_SOURCE, ids=str)
def test_decode_of_given_source(case: Case, compare: Compare) -> None:
    compare("wav", hift().decode(case["mel"], case["s"][:, 0]), case["wav"], PARTS)


@pytest.mark.parametrize("case", WITH_F0, ids=str)
def test_mel_to_waveform(case: Case, compare: Compare) -> None:
    compare("wav", hift()(case["mel"], merged_noise(case)), case["wav"], WAVE)


@pytest.mark.parametrize("case", [case for case in CASES if "wav_part" in case], ids=str)
def test_samples_before_the_end_is_known(case: Case, compare: Compare) -> None:
    wave = pieces(case, [case["mel"].shape[2]], hift(), finished=False)
    known = case["wav_part"].shape[1]
    assert len(wave) == CONFIG.hop * (case["mel"].shape[2] - context(CONFIG).lookahead) > known
    compare("wav_part", wave[None, :known], case["wav_part"], WAVE)


@pytest.mark.parametrize("case", GROWING, ids=str)
def test_growing_prefixes(case: Case, compare: Compare) -> None:
    wave = pieces(case, case.settings["frames_given"], hift(), finished=True)
    compare("wav", wave[None], case["wav"], WAVE)
    for index, (first, end) in enumerate(case.settings["samples"]):
        compare(f"wav_{index}", wave[None, first:end], case[f"wav_{index}"], WAVE)


@pytest.mark.parametrize("size", [1, 7, 20])
@pytest.mark.parametrize("case", WITH_F0, ids=str)
def test_streamed_equals_whole(case: Case, size: int, compare: Compare) -> None:
    exact, frames = hift(torch.float64), case["mel"].shape[2]
    wave = pieces(case, list(range(size, frames, size)), exact, finished=True)
    compare("wav", wave, exact(case["mel"])[0], 1e-5)


@pytest.mark.parametrize("case", WITH_STAGES, ids=str)
def test_stages_of_the_decoder(case: Case, compare: Compare) -> None:
    decoder, outputs = hift().decoder, {}
    lists = {"ups": decoder.ups, "sdown": decoder.source_downs, "sres": decoder.source_resblocks}
    hooks = []
    for name in case.settings["intermediates"]:
        kind = name.rstrip("0123456789")
        layers = lists.get(kind, decoder.resblocks)
        layer = decoder.get_submodule(name) if kind == name else layers[int(name.removeprefix(kind))]
        hooks.append(
            layer.register_forward_hook(lambda _, __, output, name=name: outputs.update({name: output}))
        )
    hift().decode(case["mel"], case["s"][:, 0])
    for hook in hooks:
        hook.remove()
    for name, output in outputs.items():
        compare(name, output, case[f"mid_{name}"], PARTS * case[f"mid_{name}"].abs().max().item())


def test_noise_of_the_published_configuration() -> None:
    expected = COSYVOICE3.tensors("source_noise")
    first, last = expected["sine_noise_first"][0], expected["sine_noise_last"][0]
    rows, step = 0, 480_000
    for table in uniform_noise(first.shape[1], step):
        if rows == 0:
            assert torch.equal(table[: len(first)], first)
        rows += step
        if rows == 7_200_000:
            assert torch.equal(table[-len(last) :], last)
            return


def test_an_utterance_hears_that_noise_however_it_is_asked_for() -> None:
    first = COSYVOICE3.tensors("source_noise")["sine_noise_first"][0]
    expected = hift().m_source.merge_noise(first)
    for seed, sizes in ((1, [4]), (2, [1, 3]), (3, [3, 0, 1])):
        noise, drawn = hift().utterance_noise(seed), []
        for size in sizes:
            drawn.append(torch.from_numpy(noise.peek(size)))
            noise.skip(size)
        torch.testing.assert_close(torch.cat(drawn), expected)
