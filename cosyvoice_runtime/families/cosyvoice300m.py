"""CosyVoice-300M, -SFT and -Instruct."""

from __future__ import annotations

from cosyvoice_runtime.audio.mel import MelFormat
from cosyvoice_runtime.families.family import (
    Family,
    FlowParts,
    Published,
    PublishedFile,
    SpeechLmNeeds,
    SpeechLmParts,
    VocoderParts,
)
from cosyvoice_runtime.families.whisper_tokens import LANGUAGE_TAGS, WHISPER_TOKENS

TRANSFORMER_NEEDS = SpeechLmNeeds(5000, 16, 14 * 2 * 16 * 64 * 2, 1.7)
"""14 layers, 16 heads of 64; all positions that it knows. The network is estimated from its 311 million
parameters; chunks are computed one after another, so that a GPU keeps up with few requests."""


COSYVOICE_300M = Family(
    name="cosyvoice300m",
    config_file="cosyvoice.yaml",
    speech_tokenizer="speech_tokenizer_v1.onnx",
    speech_codes=4096,
    log_mel_frames_per_token=2,
    vocabulary="multilingual.tiktoken",
    has_qwen2=False,
    special_tokens=WHISPER_TOKENS,
    language_tags=LANGUAGE_TAGS,
    mel=MelFormat(sample_rate=22_050, hop=256, fft_size=1024),
    prompt_frames_per_token=None,
    reads_speaker=True,
    usual_instruction="",
    silent_tokens=frozenset(),
    speech_lm_needs=TRANSFORMER_NEEDS,
    second_mib=(0.0, 0.0),
    gpu_first_hop=12,
    read_config="cosyvoice_runtime.checkpoint.sections_cosyvoice300m:read_config",
    tokenizer="cosyvoice_runtime.text.tokenizer:WhisperTokenizer",
    speech_lm=SpeechLmParts(
        config="cosyvoice_runtime.checkpoint.config_lm:TransformerLMConfig",
        tensors="cosyvoice_runtime.checkpoint.schema:transformer_lm_schema",
        network="cosyvoice_runtime.lm.torch.transformer_lm:TransformerLM.from_tensors",
        made_length="making.length_cosyvoice300m:shape_relative_length",
    ),
    flow=FlowParts(
        estimator_config="cosyvoice_runtime.checkpoint.config_flow:ResamplingEstimatorConfig",
        encoder_tensors="cosyvoice_runtime.checkpoint.schema_flow:regulated_encoder_schema",
        estimator_tensors="cosyvoice_runtime.checkpoint.schema_flow:resampling_estimator_schema",
        networks=None,
        token2wav="cosyvoice_runtime.token2wav.loading:load_chunked",
        runtime="cosyvoice_runtime.engine.runtimes.torch_runtime:open_chunked",
    ),
    vocoder=VocoderParts(
        config="cosyvoice_runtime.checkpoint.config:SampledPhaseVocoderConfig",
        networks="cosyvoice_runtime.vocoder.torch.sampled_phase:networks",
        context="cosyvoice_runtime.vocoder.geometry:centred_context",
    ),
    published=Published(
        "FunAudioLLM/CosyVoice-300M",
        "iic/CosyVoice-300M",
        "Apache-2.0",
        "24c40509c3c5ea6fe06b5f8790ff99e3714a6bee",
    ),
    vocabulary_source=PublishedFile(
        "https://raw.githubusercontent.com/openai/whisper/v20250625/whisper/assets/multilingual.tiktoken",
        "b34b360dbb493e781e479794586d661700670d65564001f23024971d1f2fa126",
    ),
    made="making.architecture_cosyvoice300m",
    engines=("torch",),
    backends=("torch",),
)
