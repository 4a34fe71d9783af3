import torch
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.vocoder import SourceNoise


@given(
    hop=st.sampled_from([1, 24, 480]), sizes=st.lists(st.integers(0, 40), max_size=12), seed=st.integers(0, 9)
)
def test_any_draws_draw_the_same_sequence(hop: int, sizes: list[int], seed: int) -> None:
    noise = SourceNoise(seed, hop)
    draws = [noise.draw(size) for size in sizes]
    at_once = SourceNoise(seed, hop).draw(sum(sizes))
    assert torch.equal(torch.cat([at_once[:0], *draws]), at_once)


def test_peeking_uses_nothing_up() -> None:
    noise = SourceNoise(0, 480)
    peeked = noise.peek(7)
    assert torch.equal(noise.peek(3), peeked[: 3 * 480])
    assert torch.equal(noise.draw(7), peeked)
    assert noise.nbytes == 0


def test_global_generator_is_untouched() -> None:
    before = torch.get_rng_state()
    SourceNoise(0, 480).draw(10)
    assert torch.equal(torch.get_rng_state(), before)
