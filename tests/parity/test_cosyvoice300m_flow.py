"""CosyVoice-300M's flow against the reference: encoder, length regulator, estimator, solver, utterances."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from goldens import COSYVOICE_300M, Case

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.flow.torch.layers import NoPast
from cosyvoice_runtime.flow.torch.regulated_flow import RegulatedFlow
from cosyvoice_runtime.flow.torch.resampling_estimator import ResamplingEstimator
from cosyvoice_runtime.flow.torch.solver import Conditions
from cosyvoice_runtime.flow.voice_flow import FlowPrompt

TOLERANCE = 1e-4
CONFIG = COSYVOICE_300M.config().flow
ESTIMATED = [case for case in COSYVOICE_300M.cases("estimator") if "lengths" not in case.settings]


@cache
def flow() -> RegulatedFlow:
    return RegulatedFlow.from_tensors(CONFIG, COSYVOICE_300M.tensors("tiny_flow"))


def estimator() -> ResamplingEstimator:
    return flow().network.estimator


def prompt_of(case: Case) -> FlowPrompt:
    return FlowPrompt(
        case["prompt_token"][0].long().numpy(), case["prompt_feat"][0].numpy(), case["embedding"][0].numpy()
    )


def channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2)


@pytest.mark.parametrize("case", COSYVOICE_300M.cases("flow_encoder"), ids=str)
@torch.inference_mode()
def test_encoder(case, compare):
    network = flow().network
    compare("encoded", network.encoder(network.token_embedding(case["token"])), case["encoded"], TOLERANCE)
    compare("out", network.encode(case["token"]), case["out"], TOLERANCE)


@pytest.mark.parametrize("case", COSYVOICE_300M.cases("length_regulator"), ids=str)
@torch.inference_mode()
def test_length_regulator(case, compare):
    prompt_frames, frames = case.settings["mel_len1"], case.settings["mel_len2"]
    regulated = flow().network.regulator(case["x1"], case["x2"], prompt_frames, frames)
    compare("out", regulated, case["out"], TOLERANCE)
    assert CONFIG.frames(case.settings["N"]) == frames


def velocity_of(case: Case, rows: slice = slice(None), frames: int | None = None) -> torch.Tensor:
    parts = (case[name][rows, :, :frames] for name in ("x", "mu", "cond"))
    x, mu, condition = (channels_last(part) for part in parts)
    biases = estimator().time_biases(case["t"][rows])
    return channels_last(estimator()(x, mu, case["spks"][rows], condition, biases, None, NoPast()))


@pytest.mark.parametrize("case", ESTIMATED, ids=str)
@torch.inference_mode()
def test_estimator(case, compare):
    compare("out", velocity_of(case), case["out"], TOLERANCE)


@torch.inference_mode()
def test_row_of_its_own_length_is_not_that_of_a_padded_batch(compare):
    """Padding would reach the norms, so that rows of other lengths are computed apart."""
    [case] = [case for case in COSYVOICE_300M.cases("estimator") if "lengths" in case.settings]
    lengths = case.settings["lengths"]
    assert len(set(lengths)) > 1
    for row, length in enumerate(lengths):
        alone, padded = velocity_of(case, slice(row, row + 1), length), case["out"][row : row + 1, :, :length]
        if length == max(lengths):
            compare(f"row {row}", alone, padded, TOLERANCE)
        else:
            assert (alone - padded).abs().max() > 10 * TOLERANCE


@torch.inference_mode()
def test_stages_of_the_estimator(compare):
    [case] = [case for case in ESTIMATED if case.name == "dbg"]
    network, outputs = estimator(), {}
    watched = {
        "down0_resnet": network.down[0].resnet,
        "down0_tb": network.down[0].blocks[0],
        "down0_conv": network.down[0].conv,
        "down1_resnet": network.down[1].resnet,
        "down1_conv": network.down[1].conv,
        "up0_resnet": network.up[0].resnet,
        "up0_conv": network.up[0].conv,
        "up1_resnet": network.up[1].resnet,
        "up1_conv": network.up[1].conv,
        "final_block": network.final,
    }
    hooks = [
        module.register_forward_hook(lambda _, __, output, name=name: outputs.update({name: output}))
        for name, module in watched.items()
    ]
    velocity_of(case)
    for hook in hooks:
        hook.remove()
    for name, output in outputs.items():
        expected = case[f"mid_{name}"]
        compare(name, output if name.endswith("tb") else channels_last(output), expected, TOLERANCE)
    assert outputs.keys() == watched.keys()


@pytest.mark.parametrize("case", COSYVOICE_300M.cases("cfm"), ids=str)
@torch.inference_mode()
def test_solver(case, compare):
    mu, noise = channels_last(case["mu"]), channels_last(case["z"])
    if "cache_in" in case:
        known = case["cache_in"].shape[2]
        noise = torch.cat([channels_last(case["cache_in"][..., 0]), noise[:, known:]], dim=1)
        mu = torch.cat([channels_last(case["cache_in"][..., 1]), mu[:, known:]], dim=1)
    conditions = Conditions(mu, case["spks"], channels_last(case["cond"]))
    compare("out", channels_last(flow().solver.solve(noise, conditions)), case["out"], TOLERANCE)


@pytest.mark.parametrize("case", COSYVOICE_300M.cases("flow_inference"), ids=str)
def test_whole_utterance(case, compare):
    mel, overlap = flow().generate(prompt_of(case), case["token"][0].tolist(), case["z"][0].T)
    compare("mel", mel[None], case["mel"], TOLERANCE)
    compare("noise", overlap.noise.T, case["cache_out"][0, ..., 0], 0)
    compare("mu", overlap.mu.T, case["cache_out"][0, ..., 1], TOLERANCE)


@pytest.mark.parametrize("tokens", [[], [CONFIG.token_vocab_size], [-1]])
def test_what_is_no_token_is_refused(tokens):
    no_mel, speaker = np.zeros((0, CONFIG.mel_bins), np.float32), np.ones(CONFIG.speaker_dim, np.float32)
    prompt = FlowPrompt(np.zeros(0, np.int64), no_mel, speaker)
    with pytest.raises(InvalidInput, match="speech_tokens"):
        flow().generate(prompt, tokens, torch.zeros(1, CONFIG.mel_bins))
