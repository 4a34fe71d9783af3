"""Architecture of the demo voice: the published model's rates and interfaces in small networks."""

from __future__ import annotations

from dataclasses import replace

from cosyvoice_runtime.checkpoint.config import ModelConfig
from making.architecture import FULL

DIGITS = 6
CODES = 3**DIGITS
"""Speech codes that the tokenizer distinguishes: six of the eight ternary digits of a token."""
PHASES = 3 ** (8 - DIGITS)
"""The other two digits count tokens from the start, so that no token recurs within nine. Repetition-aware
sampling, which punishes a recurrence within ten, then leaves held vowels and all but long pauses alone."""
TEXT_VOCABULARY = 1000
"""Byte-level BPE entries: about three letters a token, so that 2 to 20 speech tokens a text token hold."""
TEXT_ROWS = 1024

DEMO = ModelConfig(
    speech_lm=replace(
        FULL.speech_lm,
        hidden_size=256,
        intermediate_size=512,
        num_layers=6,
        num_heads=4,
        num_kv_heads=2,
        text_vocab_size=TEXT_ROWS,
        rope_theta=1e4,
        max_positions=4096,
        mix_ratio=(0, 0),  # the training has no text between speech
    ),
    flow=replace(
        FULL.flow,
        token_width=128,
        encoder=replace(
            FULL.flow.conformer, width=192, num_heads=4, feed_forward_width=512, num_layers=2, num_up_layers=2
        ),
        estimator=replace(
            FULL.flow.unet, channels=128, num_heads=4, head_dim=32, blocks_per_stage=1, num_mid_stages=4
        ),
    ),
    vocoder=replace(FULL.vocoder, base_channels=128, f0_channels=128),
)
"""14.4 + 11.9 + 2.8 MB in half precision; on two CPU cores faster than real time."""
