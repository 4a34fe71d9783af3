"""Decode steps of the speech LM, replayed, against the same network launched kernel by kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosyvoice_runtime.lm import Prompt, SamplingOptions
from cosyvoice_runtime.lm.engines.engine import LmEngine, TextEngine, prepare_engine
from cosyvoice_runtime.lm.torch import speech_decoder
from cosyvoice_runtime.settings import Machine, TensorrtLlmSettings
from counted_draws import counted_sample_batch

SLOTS = 6
POSITIONS = 512
CACHES = {"own slots": SLOTS * POSITIONS, "pages": SLOTS * POSITIONS - 1, "few pages": POSITIONS}
"""Positions of the cache: a slot for each, as many in pages, and pages for the longest request alone."""


def open_engine(checkpoint: Path, cuda_graphs: bool, cache: str = "own slots") -> LmEngine:
    settings = TensorrtLlmSettings(
        checkpoint_dir=checkpoint,
        engine="torch",
        device="cuda",
        dtype="float32",
        cuda_graphs=cuda_graphs,
        max_slots=SLOTS,
        max_tokens=200,
        max_sequence_tokens=POSITIONS,
        kv_cache_tokens=CACHES[cache],
    )
    return prepare_engine(settings.resolved(Machine(cores=1, gpu=True)))()


@pytest.fixture(scope="module")
def eager(checkpoint: Path) -> LmEngine:
    return open_engine(checkpoint, cuda_graphs=False)


@pytest.fixture(autouse=True)
def _same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eager steps draw on the host what captured steps draw on the GPU."""
    monkeypatch.setattr(speech_decoder, "sample_batch", counted_sample_batch)


@pytest.fixture(scope="module", params=CACHES)
def graphed(request: pytest.FixtureRequest, checkpoint: Path) -> LmEngine:
    return open_engine(checkpoint, cuda_graphs=True, cache=request.param)


def decoded(engine: LmEngine, prompts: list[int], strategy: str, joins: int = 0) -> list[list[int]]:
    """Tokens of utterances with these numbers of text tokens; the last one joins after ``joins`` steps."""
    found: dict[object, list[int]] = {}
    waiting = list(enumerate(prompts))
    running = 0
    steps = 0
    while waiting or running:
        while waiting and (len(waiting) > 1 or steps >= joins):
            seed, length = waiting.pop(0)
            options = SamplingOptions(strategy, min_tokens=50, max_tokens=50 + 10 * seed, seed=seed)
            found[engine.add(Prompt(list(range(1, length + 1))), options)] = []
            running += 1
        for progress in engine.step():
            found[progress.handle] += progress.tokens
            assert progress.error is None
            running -= progress.finish_reason is not None
        steps += 1
    return list(found.values())


@pytest.mark.parametrize("strategy", ["greedy", "ras"])
@pytest.mark.parametrize("prompts", [[9], [5, 200], [3, 8, 250, 40, 17, 90]], ids=len)
def test_replayed_steps_give_the_tokens_of_eager_steps(eager, graphed, prompts, strategy, replays):
    expected = decoded(eager, prompts, strategy)
    assert not replays
    actual = decoded(graphed, prompts, strategy)
    assert len(replays) >= 49
    assert actual == expected


def test_sequence_that_joins_later_gets_its_own_tokens(eager, graphed):
    assert decoded(graphed, [30, 7, 60], "ras", joins=20) == decoded(eager, [30, 7, 60], "ras")


def spoken_in_pieces(engine: TextEngine, seed: int) -> list[int]:
    """Tokens of a text of 44 ids that comes in pieces, each when the one before is spoken."""
    options = SamplingOptions(seed=seed, min_tokens=60, max_tokens=130)
    handle = engine.add_open(Prompt([1], prompt_text=range(3), prompt_speech=range(20)), options)
    tokens: list[int] = []
    reasons = []
    for piece in ([*range(5, 12)], [*range(12, 40)], [*range(40, 49)], None):
        engine.end_text(handle) if piece is None else engine.push_text(handle, piece)
        while not (reasons or engine.waits_for_text(handle)):
            for progress in engine.step():
                assert progress.error is None
                tokens += progress.tokens
                reasons += [progress.finish_reason] if progress.finish_reason else []
    return tokens


@pytest.mark.parametrize("seed", [1, 2])
def test_replayed_texts_that_arrive_give_the_tokens_of_eager_ones(eager, graphed, replays, seed):
    expected = spoken_in_pieces(eager, seed)
    assert not replays
    assert spoken_in_pieces(graphed, seed) == expected
    assert len(expected) >= 60
    assert len(replays) > len(expected)
