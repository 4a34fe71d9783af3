from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.lm.torch.slot_draws import exponential_noise, philox
from counted_draws import philox_words

PI = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)


def words(seed: int, counter: tuple[int, int, int, int]) -> list[int]:
    c0, c1, c2, c3 = torch.tensor(counter)
    return [int(word) for word in philox(torch.tensor(seed), (c0, c1, c2, c3))]


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        (PI[0], PI[1], "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
    ids=["zeros", "pi"],
)
def test_words_are_those_that_its_authors_publish(counter, key, expected):
    """kat_vectors of the library Random123; its third has a key beyond the seeds that there are."""
    seed = key[0] + (key[1] << 32)
    assert " ".join(f"{word:08x}" for word in words(seed, counter)) == expected


@given(st.integers(0, 2**63 - 1), st.tuples(*[st.integers(0, 2**32 - 1)] * 4))
def test_words_of_any_seed_and_counter(seed, counter):
    assert words(seed, counter) == philox_words(seed, counter)


def test_noise_of_a_sequence_does_not_depend_on_the_others():
    seeds, draws = torch.tensor([3, 2**62 + 1, 3]), torch.tensor([0, 7, 1])
    together = exponential_noise(seeds, draws, 1, 10)
    for row in range(3):
        alone = exponential_noise(seeds[row : row + 1], draws[row : row + 1], 1, 10)
        assert torch.equal(together[row], alone[0])
    assert len(together.unique()) == 30


def test_noise_has_the_exponential_distribution():
    noise = exponential_noise(torch.arange(200), torch.full((200,), 5), 0, 1000).flatten()
    assert bool((noise > 0).all())
    for share in (0.01, 0.1, 0.5, 0.9, 0.99):
        above = float((noise > -torch.log(torch.tensor(share))).float().mean())
        assert above == pytest.approx(share, abs=4 * (share * (1 - share) / noise.numel()) ** 0.5)
