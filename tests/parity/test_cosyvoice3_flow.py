"""CosyVoice3's flow against the reference: look-ahead, estimator, solver, utterances, growing prefixes."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from goldens import COSYVOICE3, Case

from cosyvoice_runtime.flow.torch.dit import DiT, Rotation
from cosyvoice_runtime.flow.torch.estimator import time_sinusoid
from cosyvoice_runtime.flow.torch.flow import Flow, FlowNetwork, state_dict
from cosyvoice_runtime.flow.torch.layers import NoPast, visible_keys
from cosyvoice_runtime.flow.torch.solver import Conditions, start_noise, time_steps
from cosyvoice_runtime.flow.torch.stream import FlowStream
from cosyvoice_runtime.flow.voice_flow import FlowPrompt
from prompts import prompt_of_tensors

TOLERANCE = 1e-4
INCREMENTAL_TOLERANCE = 1e-5
CONFIG = COSYVOICE3.config().flow
BLOCK = CONFIG.encoder.chunk_tokens


@cache
def flow(steps: int = 10) -> Flow:
    return Flow.from_tensors(CONFIG, COSYVOICE3.tensors("tiny_flow"), num_steps=steps)


@cache
def estimator() -> DiT:
    """One that still knows all times."""
    network = FlowNetwork(CONFIG)
    network.load_state_dict(state_dict(CONFIG, COSYVOICE3.tensors("tiny_flow")))
    return network.estimator.eval().requires_grad_(False)


def prompt_of(case: Case) -> FlowPrompt:
    return prompt_of_tensors(case["prompt_token"][0], case["prompt_feat"][0], case["embedding"][0])


def channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2)


@pytest.mark.parametrize("case", COSYVOICE3.cases("lookahead"), ids=str)
@torch.inference_mode()
def test_look_ahead(case, compare):
    xs, encoder = case["xs"], flow().network.encoder
    batch, length, width = xs.shape
    context = case["context"] if "context" in case else torch.zeros(batch, CONFIG.lookahead_tokens, width)
    present = torch.ones(batch, length + CONFIG.lookahead_tokens, dtype=torch.bool)
    present[:, length:] = "context" in case
    mixed = encoder(torch.cat([xs, context], dim=1), present, None, None, NoPast(), NoPast())
    rate = CONFIG.frames_per_token
    for frame in range(rate):
        compare(f"h, frame {frame}", mixed[:, frame::rate], case["h"], TOLERANCE)


@pytest.mark.parametrize("case", COSYVOICE3.cases("estimator"), ids=str)
@torch.inference_mode()
def test_estimator(case, compare):
    if "mask" not in case:  # shares the inputs of the case that its name begins with
        inputs = next(other for other in COSYVOICE3.cases("estimator") if other.name == "dbg")
    else:
        inputs = case
    mask = inputs["mask"]
    lengths = mask.sum(dim=(1, 2)).long().tolist()
    chunk = CONFIG.estimator.chunk_frames if case.settings["streaming"] else None
    velocity = estimator()(
        channels_last(inputs["x"]),
        channels_last(inputs["mu"]),
        inputs["spks"],
        channels_last(inputs["cond"]),
        estimator().time_biases(inputs["t"]),
        visible_keys(lengths, chunk, mask.device),
        NoPast(),
    )
    compare("out", channels_last(velocity) * mask, case["out"] * mask, TOLERANCE)


@torch.inference_mode()
def test_stages_of_the_estimator(compare):
    [case] = [case for case in COSYVOICE3.cases("estimator") if case.name == "dbg"]
    network, outputs = estimator(), {}
    watched = {
        "mid_input_proj": network.input,
        "mid_block0": network.blocks[0],
        "mid_block_last": network.blocks[-1],
        "mid_time_mlp": network.time.second,
    }
    hooks = [
        module.register_forward_hook(lambda _, __, output, name=name: outputs.update({name: output}))
        for name, module in watched.items()
    ]
    test_estimator.__wrapped__(case, compare)
    for hook in hooks:
        hook.remove()
    assert outputs.keys() == watched.keys()
    for name, output in outputs.items():
        compare(name, output, case[name], TOLERANCE)
    compare("sinusoid", time_sinusoid(case["t"], 256), case["mid_time_sin"], TOLERANCE)


def test_only_the_first_head_is_turned(compare):
    [case] = [case for case in COSYVOICE3.cases("estimator") if case.name == "dbg"]
    queries = case["mid_block0_q"].unflatten(-1, (CONFIG.estimator.num_heads, -1)).clone()
    frames = torch.arange(queries.shape[1])[None]
    Rotation.of(frames, CONFIG.estimator.head_dim).rotate_(queries[:, :, :1])
    compare("q", queries.flatten(2), case["block0_q_rotated"], TOLERANCE)


@pytest.mark.parametrize("case", COSYVOICE3.cases("cfm"), ids=str)
@torch.inference_mode()
def test_solver(case, compare):
    steps, frames = case.settings["n_timesteps"], case["mu"].shape[2]
    solver = flow(steps).solver
    compare("t_span", time_steps(steps), case["t_span"], 1e-6)
    compare("step_t", solver.times, case["step_t"], 1e-6)
    noise = start_noise(CONFIG.mel_bins)[None, :frames]
    compare("noise", noise[0].T, case["step_x"][0], 0)
    chunk = CONFIG.estimator.chunk_frames if case.settings["streaming"] else None
    conditions = Conditions(channels_last(case["mu"]), case["spks"], channels_last(case["cond"]))
    mel = solver.solve(noise, conditions, visible_keys([frames], chunk, noise.device))
    compare("out", channels_last(mel), case["out"], TOLERANCE)


@pytest.mark.parametrize("case", COSYVOICE3.cases("flow_inference", "off"), ids=str)
def test_whole_utterance(case, compare):
    [mel] = flow().generate(
        [prompt_of(case)],
        [case["token"][0].tolist()],
        streaming=case.settings["streaming"],
        finalize=case.settings["finalize"],
    )
    compare("mel", mel[None], case["mel"], TOLERANCE)


@pytest.mark.parametrize("case", COSYVOICE3.cases("flow_inference", "str"), ids=str)
def test_incremental_equals_growing_prefixes(case, compare):
    tokens, prompt = case["token"][0].tolist(), prompt_of(case)
    stream = FlowStream(flow(), num_pages=-(-(len(prompt.tokens) + len(tokens)) // BLOCK))
    state = stream.open(prompt)
    pieces, given = [], 0
    for index, hop in enumerate(case.settings["schedule"]):
        state.push(tokens[given : hop["tokens_given"]])
        given = hop["tokens_given"]
        pieces += stream.advance([state])
        compare(f"mel_{index}", torch.cat(pieces, dim=1)[None], case[f"mel_{index}"], TOLERANCE)
    state.push(tokens[given:], last=True)
    pieces += stream.advance([state])
    compare("mel_final_stream", torch.cat(pieces, dim=1)[None], case["mel_final_stream"], TOLERANCE)
    stream.close(state)
    assert stream.recomputing == 0


@pytest.mark.parametrize("case", COSYVOICE3.cases("flow_inference", "str"), ids=str)
def test_incremental_equals_own_recomputation(case, compare):
    prompt, tokens = prompt_of(case), case["token"][0].tolist()
    stream = FlowStream(flow(), num_pages=(len(prompt.tokens) + len(tokens)) // BLOCK + 2)
    state, pieces = stream.open(prompt), []
    for start in range(0, len(tokens), 7):
        state.push(tokens[start : start + 7], last=start + 7 >= len(tokens))
        pieces += stream.advance([state])
    [whole] = flow().generate([prompt], [tokens])
    compare("in sevens", torch.cat(pieces, dim=1), whole, INCREMENTAL_TOLERANCE)


@pytest.mark.parametrize("case", COSYVOICE3.cases("flow_inference", "str"), ids=str)
def test_full_attention_final_call(case, compare):
    [mel] = flow().generate([prompt_of(case)], [case["token"][0].tolist()], streaming=False)
    compare("mel_final_nonstream", mel[None], case["mel_final_nonstream"], TOLERANCE)
