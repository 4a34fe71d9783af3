"""Turns in lanes of their own, on parts of a GPU, at the same time."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from test_token2wav_graphs import PAGES, ROWS, assert_equal, prompt, speech

from cosyvoice_runtime.engine.runtimes.runtime import WaveRuntime
from cosyvoice_runtime.engine.runtimes.torch_runtime import open_runtime
from cosyvoice_runtime.gpu.partitions.partition import GpuParts, GpuPartsError, divide
from cosyvoice_runtime.settings import Machine, Token2WavSettings

FIRST, LATER, CHUNKS, UTTERANCES = 28, 25, 4, 8
PROMPT = 40


@pytest.fixture(scope="module")
def parts() -> GpuParts:
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    try:
        return divide(torch.device("cuda", 0), share=0.25)
    except GpuPartsError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def runtime(checkpoint: Path, parts: GpuParts) -> WaveRuntime:
    settings = Token2WavSettings(
        checkpoint_dir=checkpoint, device="cuda", dtype="float32", max_batch=ROWS, max_flow_pages=PAGES
    )
    return open_runtime(settings.resolved(Machine(cores=1, gpu=True)), parts)


@torch.inference_mode()
def test_first_chunks_beside_turns_change_nothing(runtime):
    main, [beside] = runtime.token2wav, runtime.concurrent
    assert beside.urgent
    count = FIRST + (CHUNKS - 1) * LATER
    with runtime.at_work():
        alone = [spoken_alone(main, seed, count) for seed in range(UTTERANCES)]
        states: list = []
        waves: list[list[torch.Tensor]] = [[] for _ in range(UTTERANCES)]
        done = [0] * UTTERANCES
        for _ in range(UTTERANCES + CHUNKS):  # in each round one begins, and those before go on
            active = [row for row in range(len(states)) if done[row] < count]
            for row in active:
                main.push(
                    states[row],
                    speech(count, row)[done[row] : done[row] + LATER],
                    last=done[row] + LATER == count,
                )
                done[row] += LATER
            going_on = [states[row] for row in active]
            with main.all_or_nothing(going_on) as held:  # what the turn reads, until it has ended
                turn = main.launch(going_on) if active else None
            opened = opening = None
            if len(states) < UTTERANCES:
                row = len(states)
                with beside.at_launch():
                    states.append(main.open(prompt(main, PROMPT, row), row))
                    main.push(states[row], speech(count, row)[:FIRST])
                    with beside.token2wav.all_or_nothing([states[row]]) as opening:
                        opened = beside.token2wav.launch([states[row]])
                done[row] = FIRST
            if opened is not None:
                waves[row].append(torch.from_numpy(opened()[0]))
                with beside.at_launch():  # the first chunk has no samples, and is done even so
                    assert torch.cuda.current_stream().query()
            if turn is not None:
                for active_row, wave in zip(active, turn(), strict=True):
                    waves[active_row].append(torch.from_numpy(wave))
            del held, opening
        for state in states:
            main.close(state)
    assert all(len(each) == CHUNKS for each in waves)
    assert_equal([torch.cat(each) for each in waves], alone)


@torch.inference_mode()
def test_utterances_that_change_lanes_with_every_chunk_sound_as_alone(runtime):
    """Turns of both lanes are under way together, each of half of the utterances."""
    main, other = runtime.token2wav, runtime.concurrent[0]
    count = FIRST + (CHUNKS - 1) * LATER
    edges = [0, *(FIRST + LATER * chunk for chunk in range(CHUNKS - 1)), count]
    with runtime.at_work():
        alone = [spoken_alone(main, seed, count) for seed in range(UTTERANCES)]
        states = [main.open(prompt(main, PROMPT, row), row) for row in range(UTTERANCES)]
        torch.cuda.synchronize()  # voices that lane 0 computed are there
        waves: list[list[torch.Tensor]] = [[] for _ in range(UTTERANCES)]
        for chunk, (start, end) in enumerate(pairwise(edges)):
            turns = []
            for half, (networks, context) in enumerate(
                ((main, nullcontext()), (other.token2wav, other.at_launch()))
            ):
                rows = [row for row in range(UTTERANCES) if (row + chunk) % 2 == half]
                with context:
                    for row in rows:
                        main.push(states[row], speech(count, row)[start:end], last=end == count)
                    with networks.all_or_nothing([states[row] for row in rows]) as held:
                        turns.append((rows, networks.launch([states[row] for row in rows]), held))
            for rows, turn, _ in turns:
                for row, wave in zip(rows, turn(), strict=True):
                    waves[row].append(torch.from_numpy(wave))
        for state in states:
            main.close(state)
    assert_equal([torch.cat(each) for each in waves], alone)


def spoken_alone(token2wav, seed: int, count: int) -> torch.Tensor:
    """The same utterance by turns of its own."""
    edges = [FIRST + LATER * chunk for chunk in range(CHUNKS - 1)]
    state = token2wav.open(prompt(token2wav, PROMPT, seed), seed)
    tokens, pieces = speech(count, seed), []
    for start, end in zip([0, *edges], [*edges, count], strict=True):
        token2wav.push(state, tokens[start:end], last=end == count)
        pieces.append(torch.from_numpy(token2wav.advance([state])[0]))
    token2wav.close(state)
    return torch.cat(pieces)
