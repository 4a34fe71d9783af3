"""CosyVoice3."""

from __future__ import annotations

from cosyvoice_runtime.audio.mel import MelFormat
from cosyvoice_runtime.families.family import (
    QWEN2_NEEDS,
    QWEN2_TOKENIZER,
    QWEN2_VOCABULARY,
    Family,
    FlowParts,
    Published,
    SpeechLmParts,
    VocoderParts,
)
from cosyvoice_runtime.families.tokens import END_OF_PROMPT, SPECIAL_TOKENS_AND_UNITS

COSYVOICE3 = Family(
    name="cosyvoice3",
    config_file="cosyvoice3.yaml",
    speech_tokenizer="speech_tokenizer_v3.onnx",
    speech_codes=6561,
    log_mel_frames_per_token=4,
    vocabulary=QWEN2_VOCABULARY,
    has_qwen2=True,
    special_tokens=SPECIAL_TOKENS_AND_UNITS,
    language_tags=(),
    mel=MelFormat(high_hz=12_000.0),
    prompt_frames_per_token=2,
    reads_speaker=False,
    usual_instruction=f"You are a helpful assistant.{END_OF_PROMPT}",
    silent_tokens=frozenset({1, 2, 28, 29, 55, 248, 494, 2241, 2242, 2322, 2323}),
    speech_lm_needs=QWEN2_NEEDS,
    second_mib=(88.3, 46.7),
    gpu_first_hop=12,
    read_config="cosyvoice_runtime.checkpoint.sections_cosyvoice3:read_config",
    tokenizer=QWEN2_TOKENIZER,
    speech_lm=SpeechLmParts(
        config="cosyvoice_runtime.checkpoint.config_lm:OneTableSpeechLMConfig",
        tensors="cosyvoice_runtime.checkpoint.schema:qwen2_lm_schema",
        network="cosyvoice_runtime.lm.torch.network:SpeechLM.from_tensors",
        made_length="making.length:shape_length",
    ),
    flow=FlowParts(
        estimator_config="cosyvoice_runtime.checkpoint.config_flow:DiTConfig",
        encoder_tensors="cosyvoice_runtime.checkpoint.schema_flow:look_ahead_schema",
        estimator_tensors="cosyvoice_runtime.checkpoint.schema_flow:dit_schema",
        networks="cosyvoice_runtime.flow.torch.flow:DIFFUSION_TRANSFORMER",
        token2wav="cosyvoice_runtime.token2wav.loading:load_streamed",
        runtime="cosyvoice_runtime.engine.runtimes.torch_runtime:open_paged",
        fused_solver="cosyvoice_runtime.flow.kernels.fused_dit:FusedDiTSolver.of",
        powers_of_two=("width", "num_heads", "head_dim", "feed_forward_factor"),
        onnx_graphs="cosyvoice_runtime.token2wav.onnx_export:DIFFUSION_TRANSFORMER",
        tensorrt_graphs="cosyvoice_runtime.tensorrt.graph_files:DIFFUSION_TRANSFORMER",
    ),
    vocoder=VocoderParts(
        config="cosyvoice_runtime.checkpoint.config:CausalVocoderConfig",
        networks="cosyvoice_runtime.vocoder.torch.causal:networks",
        context="cosyvoice_runtime.vocoder.geometry:causal_context",
        onnx_source="cosyvoice_runtime.vocoder.onnx.source:CpuStaircaseSource",
        onnx_decoder="cosyvoice_runtime.vocoder.onnx.decoder_graph:CausalStreamedDecoder",
        tensorrt_decoder="cosyvoice_runtime.vocoder.export:CausalDecoderGraph",
    ),
    published=Published(
        "FunAudioLLM/Fun-CosyVoice3-0.5B-2512",
        "FunAudioLLM/Fun-CosyVoice3-0.5B-2512",
        "Apache-2.0",
        "29e01c4e8d000f4bcd70751be16fa94bf3d85a18",
    ),
    vocabulary_source=None,
    made="making.architecture_cosyvoice3",
    engines=("torch", "onnx", "tensorrt_llm", "vllm"),
    backends=("torch", "onnx", "tensorrt"),
)
