"""CosyVoice2 in the two sizes that are made, and the published form of its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cosyvoice_runtime.checkpoint.config import ModelConfig, VocoderConfig
from cosyvoice_runtime.checkpoint.config_flow import EncoderConfig, EstimatorConfig, FlowConfig
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.checkpoint.hyperpyyaml import Tagged, YamlReference

FULL = ModelConfig(
    speech_lm=SpeechLMConfig(
        hidden_size=896,
        intermediate_size=4864,
        num_layers=24,
        num_heads=14,
        num_kv_heads=2,
        text_vocab_size=151936,
        speech_tokens=6561,
        rope_theta=1e6,
        rms_norm_eps=1e-6,
        max_positions=32768,
        mix_ratio=(5, 15),
    ),
    flow=FlowConfig(
        token_vocab_size=6561,
        token_width=512,
        mel_bins=80,
        speaker_dim=192,
        lookahead_tokens=3,
        frames_per_token=2,
        token_rate=25,
        cfg_rate=0.7,
        encoder=EncoderConfig(
            width=512,
            num_heads=8,
            feed_forward_width=2048,
            num_layers=6,
            num_up_layers=4,
            chunk_tokens=25,
        ),
        estimator=EstimatorConfig(
            in_channels=320,
            channels=256,
            num_heads=8,
            head_dim=64,
            blocks_per_stage=4,
            num_mid_stages=12,
            chunk_frames=50,
        ),
    ),
    vocoder=VocoderConfig(
        mel_bins=80,
        base_channels=512,
        num_harmonics=8,
        sample_rate=24000,
        sine_amplitude=0.1,
        noise_std=0.003,
        voiced_threshold_hz=10.0,
        upsample_rates=(8, 5, 3),
        upsample_kernels=(16, 11, 7),
        istft_size=16,
        istft_hop=4,
        resblock_kernels=(3, 7, 11),
        resblock_dilations=((1, 3, 5),) * 3,
        source_kernels=(7, 7, 11),
        source_dilations=((1, 3, 5),) * 3,
        leaky_slope=0.1,
        audio_limit=0.99,
        f0_channels=512,
    ),
)
"""The published CosyVoice2-0.5B."""

TINY = ModelConfig(
    speech_lm=replace(
        FULL.speech_lm,
        hidden_size=64,
        intermediate_size=160,
        num_layers=2,
        num_heads=4,
        text_vocab_size=1024,
    ),
    flow=replace(
        FULL.flow,
        token_width=64,
        encoder=replace(
            FULL.flow.conformer, width=64, num_heads=4, feed_forward_width=128, num_layers=2, num_up_layers=2
        ),
        estimator=replace(
            FULL.flow.unet, channels=64, num_heads=4, head_dim=16, blocks_per_stage=1, num_mid_stages=2
        ),
    ),
    vocoder=replace(
        FULL.vocoder,
        base_channels=32,
        resblock_kernels=(3, 7),
        resblock_dilations=((1, 3),) * 2,
        source_dilations=((1, 3),) * 3,
        f0_channels=32,
    ),
)
"""All rates, the speech vocabulary and the speaker dimension of the published model, in small networks."""


def rates_and_sizes(config: ModelConfig) -> dict[str, Any]:
    """The lines at the top of every family's file."""
    return {
        "sample_rate": config.vocoder.sample_rate,
        "llm_input_size": config.speech_lm.hidden_size,
        "llm_output_size": config.speech_lm.hidden_size,
        "spk_embed_dim": config.flow.speaker_dim,
        "token_frame_rate": config.flow.token_rate,
        "token_mel_ratio": config.flow.frames_per_token,
        "chunk_size": config.flow.encoder.chunk_tokens,
    }


def yaml_tree(config: ModelConfig) -> dict[str, Any]:
    """Content of ``cosyvoice2.yaml`` for an architecture, tagged like the published file."""
    return {
        **rates_and_sizes(config),
        "encoder_up_blocks": config.flow.conformer.num_up_layers,
        "llm": llm_section(config.speech_lm, "Qwen2LM"),
        "flow": _flow(config.flow),
        "hift": hift_section(config.vocoder, "HiFTGenerator", "ConvRNNF0Predictor"),
    }


def qwen2_json(config: SpeechLMConfig, token_ids: Mapping[str, int]) -> dict[str, Any]:
    """Content of a Qwen2 ``config.json``."""
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_act": "silu",
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "max_position_embeddings": config.max_positions,
        "max_window_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_hidden_layers": config.num_layers,
        "num_key_value_heads": config.num_kv_heads,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "tie_word_embeddings": True,
        "use_sliding_window": False,
        "vocab_size": config.text_vocab_size,
        "bos_token_id": token_ids["<|endoftext|>"],
        "eos_token_id": token_ids["<|im_end|>"],
    }


def llm_section(config: SpeechLMConfig, class_name: str) -> Tagged:
    """The speech LM's part, by the name of its published class."""
    return Tagged(
        f"!new:cosyvoice.llm.llm.{class_name}",
        {
            "llm_input_size": YamlReference("<llm_input_size>"),
            "llm_output_size": YamlReference("<llm_output_size>"),
            "speech_token_size": config.speech_tokens,
            "length_normalized_loss": True,
            "lsm_weight": 0,
            "mix_ratio": list(config.mix_ratio),
        },
    )


def _flow(config: FlowConfig) -> Tagged:
    return Tagged(
        "!new:cosyvoice.flow.flow.CausalMaskedDiffWithXvec",
        {
            **flow_arguments(config),
            "encoder": _encoder(config.conformer, config.token_width),
            "decoder": decoder_section(config, _estimator(config.unet, config.mel_bins)),
        },
    )


def flow_arguments(config: FlowConfig) -> dict[str, Any]:
    """The arguments of the flow's class, but for its parts."""
    return {
        "input_size": config.token_width,
        "output_size": config.mel_bins,
        "spk_embed_dim": YamlReference("<spk_embed_dim>"),
        "output_type": "mel",
        "vocab_size": config.token_vocab_size,
        "input_frame_rate": YamlReference("<token_frame_rate>"),
        "token_mel_ratio": YamlReference("<token_mel_ratio>"),
        "pre_lookahead_len": config.lookahead_tokens,
    }


def _encoder(config: EncoderConfig, token_width: int) -> Tagged:
    return Tagged(
        "!new:cosyvoice.transformer.upsample_encoder.UpsampleConformerEncoder",
        {
            "output_size": config.width,
            "attention_heads": config.num_heads,
            "linear_units": config.feed_forward_width,
            "num_blocks": config.num_layers,
            "normalize_before": True,
            "input_layer": "linear",
            "pos_enc_layer_type": "rel_pos_espnet",
            "selfattention_layer_type": "rel_selfattn",
            "input_size": token_width,
            "use_cnn_module": False,
            "macaron_style": False,
            "static_chunk_size": YamlReference("<chunk_size>"),
        },
    )


def decoder_section(config: FlowConfig, estimator: Tagged) -> Tagged:
    """The solver's part."""
    solver = {
        "sigma_min": 1e-06,
        "solver": "euler",
        "t_scheduler": "cosine",
        "training_cfg_rate": 0.2,
        "inference_cfg_rate": config.cfg_rate,
        "reg_loss_type": "l1",
    }
    return Tagged(
        "!new:cosyvoice.flow.flow_matching.CausalConditionalCFM",
        {
            "in_channels": 3 * config.mel_bins,
            "spk_emb_dim": config.mel_bins,
            "cfm_params": Tagged("!new:omegaconf.DictConfig", {"content": solver}),
            "estimator": estimator,
        },
    )


def _estimator(config: EstimatorConfig, mel_bins: int) -> Tagged:
    return Tagged(
        "!new:cosyvoice.flow.decoder.CausalConditionalDecoder",
        {
            "in_channels": config.in_channels,
            "out_channels": mel_bins,
            "channels": [config.channels],
            "dropout": 0.0,
            "attention_head_dim": config.head_dim,
            "n_blocks": config.blocks_per_stage,
            "num_mid_blocks": config.num_mid_stages,
            "num_heads": config.num_heads,
            "act_fn": "gelu",
            "static_chunk_size": YamlReference("<chunk_size> * <token_mel_ratio>"),
            "num_decoding_left_chunks": -1,
        },
    )


def hift_section(config: VocoderConfig, class_name: str, f0_class_name: str, **more: int) -> Tagged:
    """The vocoder's part, by the names of its published classes; ``more`` arguments of its class."""
    f0_predictor = {"num_class": 1, "in_channels": config.mel_bins, "cond_channels": config.f0_channels}
    return Tagged(
        f"!new:cosyvoice.hifigan.generator.{class_name}",
        {
            "in_channels": config.mel_bins,
            "base_channels": config.base_channels,
            "nb_harmonics": config.num_harmonics,
            "sampling_rate": YamlReference("<sample_rate>"),
            "nsf_alpha": config.sine_amplitude,
            "nsf_sigma": config.noise_std,
            "nsf_voiced_threshold": config.voiced_threshold_hz,
            "upsample_rates": list(config.upsample_rates),
            "upsample_kernel_sizes": list(config.upsample_kernels),
            "istft_params": {"n_fft": config.istft_size, "hop_len": config.istft_hop},
            "resblock_kernel_sizes": list(config.resblock_kernels),
            "resblock_dilation_sizes": [list(row) for row in config.resblock_dilations],
            "source_resblock_kernel_sizes": list(config.source_kernels),
            "source_resblock_dilation_sizes": [list(row) for row in config.source_dilations],
            "lrelu_slope": config.leaky_slope,
            "audio_limit": config.audio_limit,
            **more,
            "f0_predictor": Tagged(f"!new:cosyvoice.hifigan.f0_predictor.{f0_class_name}", f0_predictor),
        },
    )
