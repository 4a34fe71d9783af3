"""CosyVoice3 in the two sizes that are made, and the published form of its configuration."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from cosyvoice_runtime.checkpoint.config import CausalVocoderConfig, ModelConfig
from cosyvoice_runtime.checkpoint.config_flow import DiTConfig, FlowConfig, LookAheadConfig
from cosyvoice_runtime.checkpoint.config_lm import OneTableSpeechLMConfig
from cosyvoice_runtime.checkpoint.hyperpyyaml import Tagged, YamlReference
from making import architecture as cosyvoice2

FULL = ModelConfig(
    speech_lm=OneTableSpeechLMConfig(**asdict(cosyvoice2.FULL.speech_lm)),
    flow=replace(
        cosyvoice2.FULL.flow,
        token_width=80,
        encoder=LookAheadConfig(channels=1024, chunk_tokens=25),
        estimator=DiTConfig(
            width=1024, depth=22, num_heads=16, head_dim=64, feed_forward_factor=2, chunk_frames=50
        ),
    ),
    vocoder=CausalVocoderConfig(**asdict(cosyvoice2.FULL.vocoder), lookahead_frames=4),
)
"""The published Fun-CosyVoice3-0.5B."""

TINY = ModelConfig(
    speech_lm=OneTableSpeechLMConfig(**asdict(replace(cosyvoice2.TINY.speech_lm, text_vocab_size=1344))),
    flow=replace(
        FULL.flow,
        encoder=LookAheadConfig(channels=64, chunk_tokens=25),
        estimator=DiTConfig(
            width=64, depth=3, num_heads=4, head_dim=16, feed_forward_factor=2, chunk_frames=50
        ),
    ),
    vocoder=CausalVocoderConfig(**asdict(cosyvoice2.TINY.vocoder), lookahead_frames=4),
)
"""All rates, the speech vocabulary and the speaker dimension of the published model, in small networks."""


def yaml_tree(config: ModelConfig) -> dict[str, Any]:
    """Content of ``cosyvoice3.yaml`` for an architecture of this family, tagged like the published file."""
    return {
        **cosyvoice2.rates_and_sizes(config),
        "llm": cosyvoice2.llm_section(config.speech_lm, "CosyVoice3LM"),
        "flow": _flow(config.flow),
        "hift": cosyvoice2.hift_section(
            config.vocoder,
            "CausalHiFTGenerator",
            "CausalConvRNNF0Predictor",
            conv_pre_look_right=config.vocoder.first_kernel - 1,
        ),
    }


def _flow(config: FlowConfig) -> Tagged:
    look_ahead = {
        "in_channels": config.token_width,
        "channels": asdict(config.encoder)["channels"],
        "pre_lookahead_len": config.lookahead_tokens,
    }
    decoder = cosyvoice2.decoder_section(config, _estimator(config))
    decoder.arguments["n_spks"] = 1
    return Tagged(
        "!new:cosyvoice.flow.flow.CausalMaskedDiffWithDiT",
        {
            **cosyvoice2.flow_arguments(config),
            "only_mask_loss": True,
            "pre_lookahead_layer": Tagged(
                "!new:cosyvoice.transformer.upsample_encoder.PreLookaheadLayer", look_ahead
            ),
            "decoder": decoder,
        },
    )


def _estimator(config: FlowConfig) -> Tagged:
    sizes = asdict(config.estimator)
    return Tagged(
        "!new:cosyvoice.flow.DiT.dit.DiT",
        {
            "dim": sizes["width"],
            "depth": sizes["depth"],
            "heads": sizes["num_heads"],
            "dim_head": sizes["head_dim"],
            "ff_mult": sizes["feed_forward_factor"],
            **dict.fromkeys(("mel_dim", "mu_dim", "spk_dim", "out_channels"), config.mel_bins),
            "static_chunk_size": YamlReference("<chunk_size> * <token_mel_ratio>"),
            "num_decoding_left_chunks": -1,
        },
    )
