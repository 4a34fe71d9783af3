from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.engine.utterance.hop import HopPolicy
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.settings import CosyVoice2Settings
from cosyvoice_runtime.voice import Voice
from making.architecture import TINY
from making.architecture_cosyvoice300m import TINY as FIXED

CONFIG = TINY.flow
POLICY = HopPolicy(25, 3, 10, 25, 100, 25)
prompts = st.integers(0, 500)


@given(prompts, st.integers(0, 400), st.integers(0, 400), st.floats(0, 60))
def test_chunks_end_at_block_boundaries_that_are_known(prompt, blocks_before, received, cushion):
    previous = blocks_before * 25 - prompt % 25 if blocks_before else 0
    end = POLICY.chunk_end(prompt, max(previous, 0), received, cushion)
    if end is not None:
        assert (prompt + end) % 25 == 0
        assert previous < end <= received - POLICY.lookahead_tokens


@given(prompts)
def test_first_chunk_goes_out_at_the_first_boundary_that_is_far_enough(prompt):
    needed = next(n for n in range(1, 100) if POLICY.chunk_end(prompt, 0, n, 0.0) is not None)
    assert POLICY.first_tokens(prompt) == needed
    first = needed - POLICY.lookahead_tokens
    assert POLICY.min_first_tokens <= first < POLICY.min_first_tokens + 25


@given(prompts, st.integers(1, 4), st.integers(1, 60), st.integers(20, 60), st.booleans(), st.floats(0, 60))
def test_chunks_go_out_at_the_first_tokens_and_whole_blocks_after_them(
    prompt, chunks, first, least, fixed, cushion
):
    """At no other number of tokens, so that these may come in groups of a block."""
    hop = HopPolicy(25, 3, first, least, 100, 25, fixed_chunks=fixed)
    end, begun = 0, hop.first_tokens(prompt)
    for _ in range(chunks):
        received = next(n for n in range(end, 1000) if hop.chunk_end(prompt, end, n, cushion) is not None)
        end = hop.chunk_end(prompt, end, received, cushion)
        assert (received - begun) % hop.block_tokens == 0


@pytest.mark.parametrize(
    ("cut", "tokens", "left"),
    [
        ({}, 62, 57), ({}, 130, 107), ({}, 30, 30), ({}, 82, 82), ({"most_cut": 1.0}, 30, 7),
        ({"most_cut": 1.0}, 7, 7), ({"most_cut": 0.0}, 300, 300),
    ],
)  # fmt: skip
def test_references_are_cut_by_a_fifth_at_most_for_an_early_first_chunk(cut, tokens, left):
    hop = HopPolicy.of(CONFIG, CosyVoice2Settings(first_hop_tokens=18))
    hop = dataclasses.replace(hop, **cut)
    mel, embedding = np.zeros((2 * tokens, 80), np.float32), np.ones(4, np.float32)
    voice = Voice("0" * 64, "", np.zeros(tokens, np.int32), mel, embedding, "c" * 64)
    flow_voice = hop.flow_voice(voice)
    assert len(flow_voice.speech_tokens) == left
    assert left == tokens or hop.first_tokens(left) == 18 + hop.lookahead_tokens


@pytest.mark.parametrize("tokens", [0, -1])
def test_first_chunk_without_tokens_is_refused(tokens):
    with pytest.raises(InvalidInput, match=f"first_hop: {tokens} is not accepted; at least 1 token"):
        dataclasses.replace(POLICY, min_first_tokens=tokens)


def test_chunks_that_do_not_depend_on_the_prompt_leave_it_whole():
    assert not HopPolicy.of(FIXED.flow, CosyVoice2Settings()).most_cut


def test_client_about_to_run_dry_gets_the_next_block():
    assert POLICY.chunk_end(0, 25, 52, cushion_s=0.1) is None
    assert POLICY.chunk_end(0, 25, 53, cushion_s=0.1) == 50


def test_client_with_a_cushion_waits_for_a_longer_chunk():
    assert POLICY.chunk_end(0, 25, 99, cushion_s=6.0) is None
    assert POLICY.chunk_end(0, 25, 103, cushion_s=6.0) == 100
    assert POLICY.chunk_end(0, 25, 127, cushion_s=60.0) is None
    assert POLICY.chunk_end(0, 25, 128, cushion_s=60.0) == 125


def test_client_about_to_run_dry_gets_the_next_block_only_however_many_tokens_are_there():
    assert POLICY.chunk_end(0, 0, 600, cushion_s=0.0) == 25
    assert POLICY.chunk_end(0, 25, 600, cushion_s=0.0) == 50
    assert POLICY.chunk_end(13, 12, 600, cushion_s=1.9) == 37
    assert POLICY.chunk_end(13, 12, 600, cushion_s=60.0) == 112


def test_hop_between_two_boundaries_goes_to_the_second():
    assert HopPolicy(25, 3, 10, 30, 100, 25).chunk_end(0, 25, 600, cushion_s=0.0) == 75


@pytest.mark.parametrize(("growth", "end"), [(0.5, 40), (1.0, 65), (2.0, 115), (10.0, 115)])
def test_chunk_grows_with_what_the_listener_has_to_play_up_to_the_longest(growth, end):
    hop = dataclasses.replace(POLICY, growth=growth)
    assert hop.chunk_end(10, 15, 600, cushion_s=2.0) == end


def test_first_chunk_waits_for_its_tokens_and_a_block_for_its_own():
    assert POLICY.wait_s(10, 0, 600, 0.0) is None
    assert POLICY.wait_s(10, 15, 15 + 25 + 2, 1.0) is None


@given(st.floats(0.1, 8), st.integers(1, 5), st.floats(0, 30))
def test_held_tokens_go_out_when_the_listener_has_less_left(growth, blocks, cushion_s):
    hop = dataclasses.replace(POLICY, growth=growth, max_hop_tokens=1000)
    received = 15 + 25 * blocks + 3
    wait_s = hop.wait_s(10, 15, received, cushion_s)
    assert wait_s is not None
    assert hop.chunk_end(10, 15, received, max(cushion_s - wait_s, 0.0)) is not None
    if wait_s > 0.01:
        assert hop.chunk_end(10, 15, received, cushion_s - wait_s + 0.01) is None
