"""The flow against the reference: encoder, estimator, solver, whole utterances and growing prefixes."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from goldens import Case, cases, config, tensors

from cosyvoice_runtime.flow.torch.encoder import relative_positions
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.flow.torch.layers import NoPast, visible_keys
from cosyvoice_runtime.flow.torch.solver import Conditions, FlowSolver, start_noise, time_steps
from cosyvoice_runtime.flow.torch.stream import FlowStream
from cosyvoice_runtime.flow.voice_flow import FlowPrompt
from prompts import prompt_of_tensors

TOLERANCE = 1e-4
INCREMENTAL_TOLERANCE = 1e-5


@cache
def flow() -> Flow:
    return Flow.from_tensors(config().flow, tensors("tiny_flow"))


def prompt_of(case: Case) -> FlowPrompt:
    return prompt_of_tensors(case["prompt_token"][0], case["prompt_feat"][0], case["embedding"][0])


def channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2)


@pytest.mark.parametrize("case", cases("flow_encoder", "c") + cases("flow_encoder", "dbg"), ids=str)
@torch.inference_mode()
def test_encoder(case, compare):
    encoder, settings = flow().network.encoder, config().flow
    rate, chunk = settings.frames_per_token, settings.encoder.chunk_tokens
    xs, lookahead = case["xs"], settings.lookahead_tokens
    batch, length, width = xs.shape
    context = case["context"] if "context" in case else torch.zeros(batch, lookahead, width)
    present = torch.ones(batch, length + lookahead, dtype=torch.bool)
    present[:, length:] = "context" in case
    recorded_lengths = case.tensors.get("xs_lens", torch.full((batch,), length))
    lengths = recorded_lengths.clamp(max=length).tolist()  # recorded with the look-ahead counted in
    streaming = case.settings["streaming"]
    hidden = encoder(
        torch.cat([xs, context], dim=1),
        present,
        visible_keys(lengths, chunk if streaming else None, xs.device),
        visible_keys([rate * n for n in lengths], rate * chunk if streaming else None, xs.device),
        NoPast(),
        NoPast(),
    )
    valid = torch.arange(rate * length) < torch.tensor(lengths)[:, None] * rate
    compare("h", hidden[valid], case["h"][valid], TOLERANCE)


@pytest.mark.parametrize("case", cases("flow_encoder", "posenc"), ids=str)
def test_relative_positions(case, compare):
    length, width = case["xs"].shape[1:]
    compare("pos_emb", relative_positions(length, length, width)[None], case["pos_emb"], TOLERANCE)


@pytest.mark.parametrize("case", cases("estimator"), ids=str)
@torch.inference_mode()
def test_estimator(case, compare):
    estimator, mask = flow().network.estimator, case["mask"]
    lengths = mask.sum(dim=(1, 2)).long().tolist()
    chunk = config().flow.estimator.chunk_frames if case.settings["streaming"] else None
    velocity = estimator(
        channels_last(case["x"]),
        channels_last(case["mu"]),
        case["spks"],
        channels_last(case["cond"]),
        estimator.time_biases(case["t"]),
        visible_keys(lengths, chunk, mask.device),
        NoPast(),
    )
    compare("out", channels_last(velocity) * mask, case["out"] * mask, TOLERANCE)


@pytest.mark.parametrize("case", cases("cfm"), ids=str)
@torch.inference_mode()
def test_solver(case, compare):
    settings = config().flow
    steps, frames = case.settings["n_timesteps"], case["mu"].shape[2]
    solver = FlowSolver(flow().network.estimator, settings.cfg_rate, steps)
    compare("t_span", time_steps(steps), case["t_span"], 1e-6)
    compare("step_t", solver.times, case["step_t"], 1e-6)
    noise = start_noise(settings.mel_bins)[None, :frames]
    compare("noise", noise[0].T, case["step_x"][0], 0)
    chunk = settings.estimator.chunk_frames if case.settings["streaming"] else None
    conditions = Conditions(channels_last(case["mu"]), case["spks"], channels_last(case["cond"]))
    mel = solver.solve(noise, conditions, visible_keys([frames], chunk, noise.device))
    compare("out", channels_last(mel), case["out"], TOLERANCE)


def test_start_noise(compare):
    recorded = tensors("rand_noise")["rand_noise"]
    drawn = start_noise(config().flow.mel_bins).T[None, :, : recorded.shape[2]]
    compare("rand_noise", drawn, recorded, 0)


@pytest.mark.parametrize("case", cases("flow_inference", "off"), ids=str)
def test_whole_utterance(case, compare):
    [mel] = flow().generate(
        [prompt_of(case)],
        [case["token"][0].tolist()],
        streaming=case.settings["streaming"],
        finalize=case.settings["finalize"],
    )
    compare("mel", mel[None], case["mel"], TOLERANCE)


@pytest.mark.parametrize("case", cases("flow_inference", "str"), ids=str)
def test_incremental_equals_growing_prefixes(case, compare):
    tokens = case["token"][0].tolist()
    prompt = prompt_of(case)
    num_pages = -(-(len(prompt.tokens) + len(tokens)) // config().flow.encoder.chunk_tokens)
    stream = FlowStream(flow(), num_pages)
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


@pytest.mark.parametrize("case", cases("flow_inference", "str"), ids=str)
def test_incremental_equals_own_recomputation(case, compare):
    prompt, tokens = prompt_of(case), case["token"][0].tolist()
    stream = FlowStream(flow(), num_pages=2 * (len(prompt.tokens) + len(tokens)) // 25 + 2)
    state = stream.open(prompt)
    state.push(tokens, last=True)
    [mel] = stream.advance([state])
    pieces = []
    state = stream.open(prompt)
    for start in range(0, len(tokens), 7):
        state.push(tokens[start : start + 7], last=start + 7 >= len(tokens))
        pieces += stream.advance([state])
    [whole] = flow().generate([prompt], [tokens])
    compare("at once", mel, whole, INCREMENTAL_TOLERANCE)
    compare("in sevens", torch.cat(pieces, dim=1), whole, INCREMENTAL_TOLERANCE)


@pytest.mark.parametrize("case", cases("flow_inference", "str"), ids=str)
def test_full_attention_final_call(case, compare):
    [mel] = flow().generate([prompt_of(case)], [case["token"][0].tolist()], streaming=False)
    compare("mel_final_nonstream", mel[None], case["mel_final_nonstream"], TOLERANCE)
