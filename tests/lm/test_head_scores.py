"""What chosen heads look at."""

from __future__ import annotations

import torch

from cosyvoice_runtime.lm.torch.head_scores import HeadScores
from cosyvoice_runtime.lm.torch.kv_cache import KVCache
from cosyvoice_runtime.lm.torch.network import SpeechLM

HEADS = [(2, 5), (0, 1), (2, 0)]
PROMPT, TOKENS = 11, (3, 9, 4, 7)


def random_prompt(lm: SpeechLM) -> torch.Tensor:
    return torch.randn(PROMPT, lm.config.hidden_size, generator=torch.Generator().manual_seed(0))


def whole_pass(lm: SpeechLM, scores: HeadScores) -> torch.Tensor:
    """Shares of all rows when prompt and tokens are fed at once."""
    lm.scores = scores
    embeddings = torch.cat([random_prompt(lm), lm.speech_embedding(torch.tensor(TOKENS))])
    lm.prefill(embeddings, 0, KVCache(lm.config, 1, 40).view(0, 1))
    lm.scores = None
    return scores.shares(slice(2, 9))[0]


@torch.inference_mode()
def test_rows_of_steps_equal_those_of_one_pass(lm: SpeechLM) -> None:
    expected = whole_pass(lm, HeadScores(HEADS, rows=1 + len(TOKENS)))
    view, scores = KVCache(lm.config, 1, 40).view(0, 1), HeadScores(HEADS)
    lm.scores = scores
    lm.prefill(random_prompt(lm), 0, view)
    rows = [scores.shares(slice(2, 9))[0]]
    for place, token in enumerate(TOKENS):
        lm.decode_step(torch.tensor([token]), torch.tensor([PROMPT + place]), view, 40)
        rows.append(scores.shares(slice(2, 9))[0])
    lm.scores = None
    torch.testing.assert_close(torch.cat(rows, dim=1), expected, rtol=0, atol=1e-5)


@torch.inference_mode()
def test_shares_are_the_attention_among_these_positions(lm: SpeechLM) -> None:
    """The network's own attention, found by values that name their positions."""
    config, view = lm.config, KVCache(lm.config, 1, 40).view(0, 1)
    scores = HeadScores([(1, 4)])
    seen = {}
    attention = lm.layers[1].attention
    cached = attention._cached

    def noted(queries, keys, values, mask):
        positions = torch.eye(keys.shape[2])[:, : config.head_dim].expand_as(values)
        seen["weights"] = cached(queries, keys, positions, mask)
        return cached(queries, keys, values, mask)

    attention._cached = noted
    lm.scores = scores
    lm.prefill(random_prompt(lm)[: config.head_dim], 0, view)
    lm.scores = None
    del attention._cached
    weights = seen["weights"].reshape(-1, config.num_heads, config.head_dim)[-1, 4, 1:6]
    expected = weights / weights.sum()
    torch.testing.assert_close(scores.shares(slice(1, 6))[0, 0, 0], expected, rtol=0, atol=1e-5)


@torch.inference_mode()
def test_a_look_changes_no_logits(lm: SpeechLM) -> None:
    view, looked = KVCache(lm.config, 1, 40).view(0, 1), KVCache(lm.config, 1, 40).view(0, 1)
    expected = lm.prefill(random_prompt(lm), 0, view)
    lm.scores = HeadScores(HEADS)
    logits = lm.prefill(random_prompt(lm), 0, looked)
    lm.scores = None
    assert torch.equal(logits, expected)
