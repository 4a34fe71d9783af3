"""Settings of earlier versions, and what to do where one is still given."""

from __future__ import annotations

from collections.abc import Mapping

RENAMED = "it is {} now"
CONSTANT = "leave it out, it is {} everywhere"

REMOVED: Mapping[str, str] = {
    "body_timeout_s": RENAMED.format("front.arrival_timeout_s"),
    "child_timeout_s": RENAMED.format("cosyvoice2.silence_timeout_s"),
    "config_timeout_s": RENAMED.format("front.arrival_timeout_s"),
    "cut_prompts": CONSTANT.format("auto"),
    "early_blocks": CONSTANT.format("false"),
    "encoder_threads": CONSTANT.format("2"),
    "flow_memory_share": "token2wav.max_flow_pages and token2wav.gpu_reserve_gib limit what it did",
    "gpu_share_of_few": "leave it out, it is 0.37, and none with token2wav.first_chunks_beside=false",
    "grammars_at_start": "leave it out; there are no grammars to read any more",
    "head_start": "leave it out, a first chunk never waits for the second",
    "header_timeout_s": RENAMED.format("front.arrival_timeout_s"),
    "hop_growth": "leave it out, it is 2 on a GPU and 0.5 on a CPU; cosyvoice2.max_hop_tokens limits chunks",
    "hurried_share": "leave it out, it is 0.25; token2wav.first_chunks_beside=false divides no GPU for it",
    "kv_cache_fraction": CONSTANT.format("0.5") + "; tensorrt_llm.kv_cache_tokens limits the cache, too",
    "lookahead_tokens": CONSTANT.format("exact"),
    "max_body_mib": RENAMED.format("front.max_request_mib"),
    "max_buffer_delay_ms": "leave it out, a request says it; without that it is 3000",
    "max_buffered_kib": CONSTANT.format("256"),
    "max_cached_voices": CONSTANT.format("64"),
    "max_contexts": CONSTANT.format("32"),
    "max_input_characters": RENAMED.format("front.max_text_characters"),
    "max_message_kib": CONSTANT.format("128"),
    "max_queue_delay_us": "leave it out, it is 1000 for the extractors and 0 for token2wav",
    "max_recording_mib": CONSTANT.format("10"),
    "max_reloads": "leave it out, server.max_restarts limits restarts, which 20 reloads lead to",
    "max_states": "leave it out, cosyvoice2.max_inflight_utterances limits utterances",
    "max_turn_ms": "leave it out, a batch lasts 200 ms on a CPU and has at most two blocks a row on a GPU",
    "max_voices_mib": "leave it out, max_voices voices of 2 MiB have room",
    "min_shared_memory_mib": CONSTANT.format("64"),
    "process": "leave it out, token2wav's process computes everything",
    "published_prompt_rate": "cosyvoice_runtime.local.cli has it, to compare with the published code",
    "ras_callback": "leave it out; with cosyvoice2.sampling=nucleus requests draw faster",
    "ras_threshold": CONSTANT.format("0.1"),
    "ras_window_tokens": CONSTANT.format("10"),
    "restart_after_reloads": "leave it out, it is 20 everywhere",
    "retry_after_ms": CONSTANT.format("1000"),
    "strict_preflight": "`python -m cosyvoice_runtime.preflight --strict` stops at warnings",
    "tensorrt_llm.idle_timeout_s": "leave it out, no reader holds up its request",
    "tensorrt_contexts": CONSTANT.format("1"),
    "turn_lanes": CONSTANT.format("1"),
    "vocoder_device": "leave it out; a server for each GPU gains more (./run.sh 3)",
    "watch_interval_s": "leave it out, the death of a process is told at once",
}
"""The remedies by name; the name has its section where another section has a setting of that name."""
