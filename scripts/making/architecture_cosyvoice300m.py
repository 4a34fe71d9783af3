"""CosyVoice-300M in the two sizes that are made, and the published form of its configuration."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cosyvoice_runtime.checkpoint.config import ModelConfig, SampledPhaseVocoderConfig
from cosyvoice_runtime.checkpoint.config_flow import (
    RegulatedEncoderConfig,
    RegulatedFlowConfig,
    ResamplingEstimatorConfig,
)
from cosyvoice_runtime.checkpoint.config_lm import (
    LAYER_NORM_EPS,
    WHOLE_TEXTS,
    RelativeEncoderConfig,
    TransformerLMConfig,
)
from cosyvoice_runtime.checkpoint.hyperpyyaml import Tagged, YamlReference
from cosyvoice_runtime.checkpoint.sections_cosyvoice300m import (
    CHUNK_TOKENS,
    MOST_POSITIONS,
    OVERLAP_TOKENS,
    SINUSOID_BASE,
)
from making.architecture import hift_section

SPEECH_LM = TransformerLMConfig(
    hidden_size=1024,
    intermediate_size=4096,
    num_layers=14,
    num_heads=16,
    num_kv_heads=16,
    text_vocab_size=51866,
    speech_tokens=4096,
    rope_theta=SINUSOID_BASE,
    rms_norm_eps=LAYER_NORM_EPS,
    max_positions=MOST_POSITIONS,
    mix_ratio=WHOLE_TEXTS,
    input_width=1024,
    text_width=512,
    speaker_dim=192,
    text_encoder=RelativeEncoderConfig(
        width_in=512, width=1024, num_heads=16, feed_forward_width=4096, num_layers=6
    ),
)
FLOW = RegulatedFlowConfig(
    token_vocab_size=4096,
    token_width=512,
    mel_bins=80,
    speaker_dim=192,
    lookahead_tokens=OVERLAP_TOKENS,
    frames_per_token=1,
    token_rate=50,
    cfg_rate=0.7,
    encoder=RegulatedEncoderConfig(
        width_in=512,
        width=512,
        num_heads=8,
        feed_forward_width=2048,
        num_layers=6,
        chunk_tokens=CHUNK_TOKENS,
    ),
    estimator=ResamplingEstimatorConfig(
        in_channels=320,
        channels=(256, 256),
        num_heads=8,
        head_dim=64,
        blocks_per_stage=4,
        num_mid_stages=12,
    ),
    sample_rate=22050,
    mel_hop=256,
)
VOCODER = SampledPhaseVocoderConfig(
    mel_bins=80,
    base_channels=512,
    num_harmonics=8,
    sample_rate=22050,
    sine_amplitude=0.1,
    noise_std=0.003,
    voiced_threshold_hz=10.0,
    upsample_rates=(8, 8),
    upsample_kernels=(16, 16),
    istft_size=16,
    istft_hop=4,
    resblock_kernels=(3, 7, 11),
    resblock_dilations=((1, 3, 5),) * 3,
    source_kernels=(7, 11),
    source_dilations=((1, 3, 5),) * 2,
    leaky_slope=0.1,
    audio_limit=0.99,
    f0_channels=512,
)
FULL = ModelConfig(speech_lm=SPEECH_LM, flow=FLOW, vocoder=VOCODER)
"""The published CosyVoice-300M, -SFT and -Instruct."""

TINY = ModelConfig(
    speech_lm=replace(
        SPEECH_LM,
        hidden_size=64,
        intermediate_size=128,
        num_layers=2,
        num_heads=4,
        num_kv_heads=4,
        text_vocab_size=2624,
        input_width=64,
        text_width=48,
        text_encoder=RelativeEncoderConfig(
            width_in=48, width=64, num_heads=4, feed_forward_width=128, num_layers=2
        ),
    ),
    flow=replace(
        FLOW,
        token_width=64,
        encoder=replace(
            FLOW.whole_encoder, width_in=64, width=64, num_heads=4, feed_forward_width=128, num_layers=2
        ),
        estimator=replace(
            FLOW.resampling_unet,
            channels=(64, 64),
            num_heads=4,
            head_dim=16,
            blocks_per_stage=1,
            num_mid_stages=2,
        ),
    ),
    vocoder=replace(VOCODER, base_channels=32, f0_channels=32),
)
"""All rates, the speech vocabulary and the speaker dimension of the published model, in small networks."""


def yaml_tree(config: ModelConfig) -> dict[str, Any]:
    """Content of ``cosyvoice.yaml`` for an architecture of this family, tagged like the published file.

    Raises:
        TypeError: an architecture of another family.
    """
    speech_lm, flow = config.speech_lm, config.flow
    if not isinstance(speech_lm, TransformerLMConfig) or not isinstance(flow, RegulatedFlowConfig):
        raise TypeError(f"{type(speech_lm).__name__} and {type(flow).__name__} are of another family")
    return {
        "sample_rate": config.vocoder.sample_rate,
        "text_encoder_input_size": speech_lm.text_width,
        "llm_input_size": speech_lm.input_width,
        "llm_output_size": speech_lm.hidden_size,
        "spk_embed_dim": flow.speaker_dim,
        "llm": _llm(speech_lm),
        "flow": _flow(flow),
        "hift": hift_section(config.vocoder, "HiFTGenerator", "ConvRNNF0Predictor"),
    }


def _llm(config: TransformerLMConfig) -> Tagged:
    text, decoder = config.text_encoder, config.decoder
    return Tagged(
        "!new:cosyvoice.llm.llm.TransformerLM",
        {
            "text_encoder_input_size": YamlReference("<text_encoder_input_size>"),
            "llm_input_size": YamlReference("<llm_input_size>"),
            "llm_output_size": YamlReference("<llm_output_size>"),
            "text_token_size": config.text_vocab_size,
            "speech_token_size": config.speech_tokens,
            "length_normalized_loss": True,
            "lsm_weight": 0,
            "spk_embed_dim": YamlReference("<spk_embed_dim>"),
            "text_encoder": _conformer(text, use_dynamic_chunk=False, static_chunk_size=1),
            "llm": Tagged(
                "!new:cosyvoice.transformer.encoder.TransformerEncoder",
                {**_sizes(decoder), "input_layer": "linear_legacy", **_positions(), "static_chunk_size": 1},
            ),
        },
    )


def _flow(config: RegulatedFlowConfig) -> Tagged:
    return Tagged(
        "!new:cosyvoice.flow.flow.MaskedDiffWithXvec",
        {
            "input_size": config.token_width,
            "output_size": config.mel_bins,
            "spk_embed_dim": YamlReference("<spk_embed_dim>"),
            "output_type": "mel",
            "vocab_size": config.token_vocab_size,
            "input_frame_rate": config.token_rate,
            "only_mask_loss": True,
            "encoder": _conformer(config.whole_encoder),
            "length_regulator": Tagged(
                "!new:cosyvoice.flow.length_regulator.InterpolateRegulator",
                {"channels": config.mel_bins, "sampling_ratios": [1, 1, 1, 1]},
            ),
            "decoder": _solver(config),
        },
    )


def _solver(config: RegulatedFlowConfig) -> Tagged:
    parameters = {
        "sigma_min": 1e-06,
        "solver": "euler",
        "t_scheduler": "cosine",
        "training_cfg_rate": 0.2,
        "inference_cfg_rate": config.cfg_rate,
        "reg_loss_type": "l1",
    }
    return Tagged(
        "!new:cosyvoice.flow.flow_matching.ConditionalCFM",
        {
            "in_channels": 3 * config.mel_bins,
            "n_spks": 1,
            "spk_emb_dim": config.mel_bins,
            "cfm_params": Tagged("!new:omegaconf.DictConfig", {"content": parameters}),
            "estimator": _estimator(config.resampling_unet, config.mel_bins),
        },
    )


def _estimator(sizes: ResamplingEstimatorConfig, mel_bins: int) -> Tagged:
    return Tagged(
        "!new:cosyvoice.flow.decoder.ConditionalDecoder",
        {
            "in_channels": sizes.in_channels,
            "out_channels": mel_bins,
            "channels": list(sizes.channels),
            "dropout": 0.0,
            "attention_head_dim": sizes.head_dim,
            "n_blocks": sizes.blocks_per_stage,
            "num_mid_blocks": sizes.num_mid_stages,
            "num_heads": sizes.num_heads,
            "act_fn": "gelu",
        },
    )


def _conformer(config: RelativeEncoderConfig, **more: object) -> Tagged:
    return Tagged(
        "!new:cosyvoice.transformer.encoder.ConformerEncoder",
        {
            **_sizes(config),
            "normalize_before": True,
            "input_layer": "linear",
            **_positions(),
            "use_cnn_module": False,
            "macaron_style": False,
            **more,
        },
    )


def _positions() -> dict[str, str]:
    return {"pos_enc_layer_type": "rel_pos_espnet", "selfattention_layer_type": "rel_selfattn"}


def _sizes(config: RelativeEncoderConfig) -> dict[str, int]:
    return {
        "input_size": config.width_in,
        "output_size": config.width,
        "attention_heads": config.num_heads,
        "linear_units": config.feed_forward_width,
        "num_blocks": config.num_layers,
    }
