import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.vocoder.state import SourceNoise
from cosyvoice_runtime.vocoder.torch import source_noise


def draw(noise: SourceNoise, frames: int) -> Floats:
    drawn = noise.peek(frames)
    noise.skip(frames)
    return drawn


@given(
    hop=st.sampled_from([1, 24, 480]), sizes=st.lists(st.integers(0, 40), max_size=12), seed=st.integers(0, 9)
)
def test_any_draws_draw_the_same_sequence(hop: int, sizes: list[int], seed: int) -> None:
    noise = source_noise(seed, hop)
    draws = [draw(noise, size) for size in sizes]
    at_once = draw(source_noise(seed, hop), sum(sizes))
    assert np.array_equal(np.concatenate([at_once[:0], *draws]), at_once)


def test_peeking_uses_nothing_up() -> None:
    noise = source_noise(0, 480)
    peeked = noise.peek(7)
    assert np.array_equal(noise.peek(3), peeked[: 3 * 480])
    assert np.array_equal(draw(noise, 7), peeked)
    assert noise.nbytes == 0


def test_global_generator_is_untouched() -> None:
    before = torch.get_rng_state()
    draw(source_noise(0, 480), 10)
    assert torch.equal(torch.get_rng_state(), before)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 9), st.booleans()), max_size=12))
def test_what_comes_after_a_mark_can_be_had_again(tries: list[tuple[int, int, bool]]) -> None:
    hop, noise, used = 24, source_noise(3, 24), 0
    everything = source_noise(3, hop).peek(400)
    for peeked, skipped, fails in tries:
        mark = noise.mark()
        for _ in range(2):  # windows of a batch
            start = hop * used
            assert np.array_equal(noise.peek(peeked), everything[start : start + hop * peeked])
            noise.skip(skipped)
            used += skipped
        if fails:
            noise.rewind(mark)
            used -= 2 * skipped
