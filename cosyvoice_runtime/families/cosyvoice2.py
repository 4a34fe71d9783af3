"""CosyVoice2."""

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
from cosyvoice_runtime.families.tokens import SPECIAL_TOKENS

COSYVOICE2 = Family(
    name="cosyvoice2",
    config_file="cosyvoice2.yaml",
    speech_tokenizer="speech_tokenizer_v2.onnx",
    speech_codes=6561,
    log_mel_frames_per_token=4,
    vocabulary=QWEN2_VOCABULARY,
    has_qwen2=True,
    special_tokens=SPECIAL_TOKENS,
    language_tags=(),
    mel=MelFormat(),
    prompt_frames_per_token=2,
    reads_speaker=False,
    usual_instruction="",
    silent_tokens=frozenset(),
    speech_lm_needs=QWEN2_NEEDS,
    second_mib=(110.7, 57.7),
    gpu_first_hop=16,
    read_config="cosyvoice_runtime.checkpoint.sections_cosyvoice2:read_config",
    tokenizer=QWEN2_TOKENIZER,
    speech_lm=SpeechLmParts(
        config="cosyvoice_runtime.checkpoint.config_lm:SpeechLMConfig",
        tensors="cosyvoice_runtime.checkpoint.schema:qwen2_lm_schema",
        network="cosyvoice_runtime.lm.torch.network:SpeechLM.from_tensors",
        made_length="making.length:shape_length",
    ),
    flow=FlowParts(
        estimator_config="cosyvoice_runtime.checkpoint.config_flow:EstimatorConfig",
        encoder_tensors="cosyvoice_runtime.checkpoint.schema_flow:encoder_schema",
        estimator_tensors="cosyvoice_runtime.checkpoint.schema_flow:estimator_schema",
        networks="cosyvoice_runtime.flow.torch.flow:UNET",
        token2wav="cosyvoice_runtime.token2wav.loading:load_streamed",
        runtime="cosyvoice_runtime.engine.runtimes.torch_runtime:open_paged",
        fused_solver="cosyvoice_runtime.flow.kernels.fused_solver:FusedSolver.of",
        powers_of_two=("channels", "num_heads", "head_dim"),
        onnx_graphs="cosyvoice_runtime.token2wav.onnx_export:UNET",
        tensorrt_graphs="cosyvoice_runtime.tensorrt.graph_files:UNET",
    ),
    vocoder=VocoderParts(
        config="cosyvoice_runtime.checkpoint.config:VocoderConfig",
        networks="cosyvoice_runtime.vocoder.torch.hift:networks",
        context="cosyvoice_runtime.vocoder.geometry:centred_context",
        onnx_source="cosyvoice_runtime.vocoder.onnx.source:CpuSource",
        onnx_decoder="cosyvoice_runtime.vocoder.onnx.decoder_graph:StreamedDecoder",
        tensorrt_decoder="cosyvoice_runtime.vocoder.export:DecoderGraph",
    ),
    published=Published(
        "FunAudioLLM/CosyVoice2-0.5B",
        "iic/CosyVoice2-0.5B",
        "Apache-2.0",
        "eec1ae6c79877dbd9379285cf8789c9e0879293d",
    ),
    vocabulary_source=None,
    made="making.architecture",
    engines=("torch", "onnx", "tensorrt_llm", "vllm"),
    backends=("torch", "onnx", "tensorrt"),
)
