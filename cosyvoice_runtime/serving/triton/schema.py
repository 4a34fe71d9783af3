"""The tensors of every model, from which requests, ``config.pbtxt`` and the docs are generated."""

from __future__ import annotations

from collections.abc import Mapping

from cosyvoice_runtime.serving.triton.tensor_spec import ModelSchema, TensorSpec

COSYVOICE2 = ModelSchema(
    "cosyvoice2",
    [
        TensorSpec(
            "reference_wav",
            "FP32",
            (-1,),
            "recording of the voice, 0.5 to 30 s, floats in [-1, 1], taken as it is; without it and voice: "
            "the default voice",
            optional=True,
        ),
        TensorSpec(
            "reference_wav_len",
            "INT32",
            (1,),
            "samples of reference_wav that count; default all",
            optional=True,
        ),
        TensorSpec(
            "reference_sample_rate",
            "INT32",
            (1,),
            "samples per second of reference_wav, 8000 to 192000; default 16000",
            optional=True,
        ),
        TensorSpec("reference_text", "STRING", (1,), "what reference_wav says", optional=True),
        TensorSpec("target_text", "STRING", (1,), "what to speak"),
        TensorSpec(
            "share_as",
            "STRING",
            (1,),
            "32 hexadecimal digits, by which a front finds the voice of reference_wav in the bucket of "
            "cosyvoice2.voices_url, for an hour",
            optional=True,
        ),
        TensorSpec(
            "voice",
            "STRING",
            (1,),
            "name of a registered voice or of a speaker of the checkpoint",
            optional=True,
        ),
        TensorSpec(
            "instruct_text", "STRING", (1,), "how to speak, in place of the reference's words", optional=True
        ),
        TensorSpec(
            "cross_lingual", "BOOL", (1,), "use only how the voice sounds; default false", optional=True
        ),
        TensorSpec("language", "STRING", (1,), "auto, zh, en, ...; default auto", optional=True),
        TensorSpec(
            "text_markup", "STRING", (1,), "auto, plain, markdown or ssml; default as deployed", optional=True
        ),
        TensorSpec(
            "lexicon", "STRING", (1,), "up to 500 lines of a word, a tab and what is spoken", optional=True
        ),
        TensorSpec(
            "text_voices",
            "STRING",
            (1,),
            "the voices that <voice> in the text, or turns, may name: a JSON object of their names there and "
            "the server's, empty for the default one; default all, by the server's names",
            optional=True,
        ),
        TensorSpec("speed", "FP32", (1,), "0.5 to 2; default 1", optional=True),
        TensorSpec("seed", "INT64", (1,), "repeats an utterance; default a fresh one", optional=True),
        TensorSpec(
            "sampling_strategy",
            "STRING",
            (1,),
            "ras, nucleus or greedy; this and the next four default to the deployment's settings",
            optional=True,
        ),
        TensorSpec("top_k", "INT32", (1,), "most candidates of a draw; 0 is no limit", optional=True),
        TensorSpec("top_p", "FP32", (1,), "probability of the candidates", optional=True),
        TensorSpec("temperature", "FP32", (1,), "divisor of the logits", optional=True),
        TensorSpec("repetition_penalty", "FP32", (1,), "1 is none", optional=True),
        TensorSpec(
            "max_tokens",
            "INT32",
            (1,),
            "most speech tokens of a segment; default 20 for each text token, within the deployment's limit",
            optional=True,
        ),
        TensorSpec(
            "utterance_id",
            "STRING",
            (1,),
            "names an utterance whose text comes in several requests, which all name it; "
            "16 to 128 characters of A-Z, a-z, 0-9, _ and -",
            optional=True,
        ),
        TensorSpec(
            "text_event",
            "STRING",
            (1,),
            "with utterance_id: open, push, flush, end or cancel; target_text comes before it, if only empty",
            optional=True,
        ),
        TensorSpec(
            "spoken_tokens",
            "INT32",
            (-1,),
            "what the output of this name has told of the same request; the same speech is made of it, and "
            "goes on from there",
            optional=True,
        ),
        TensorSpec(
            "trim_silence",
            "STRING",
            (1,),
            "silence that is left out: off, start (before the speech) or both (also behind it); default as "
            "deployed",
            optional=True,
        ),
        TensorSpec(
            "turns",
            "STRING",
            (1,),
            "what several speakers say, beside an empty target_text: a JSON list of 1 to 200 objects with "
            "voice (empty for the default one), text and, if any, instructions",
            optional=True,
        ),
        TensorSpec(
            "turn_pause_s",
            "FP32",
            (1,),
            "seconds of silence between two turns, 0 to 3; default 0.3",
            optional=True,
        ),
        TensorSpec("words", "BOOL", (1,), "tell when each word is heard; default false", optional=True),
        TensorSpec(
            "verify", "STRING", (1,), "words not said once: off, report, retry; default as set", optional=True
        ),
        TensorSpec(
            "paragraph_pause_s",
            "FP32",
            (1,),
            "seconds of silence between two paragraphs, beside that of their own, 0 to 10; default as "
            "deployed",
            optional=True,
        ),
        TensorSpec(
            "sentence_pause_s",
            "FP32",
            (1,),
            "seconds of silence between two segments of text, in place of that of their own, 0 to 10; "
            "default their own",
            optional=True,
        ),
        TensorSpec(
            "start_character",
            "INT32",
            (1,),
            "begin with the segment that holds this character of the text: what the whole answer has from "
            "there on; default 0",
            optional=True,
        ),
    ],
    [
        TensorSpec("waveform", "FP32", (-1,), "the next chunk; of cosyvoice2_offline the whole speech"),
        TensorSpec(
            "finish_reason",
            "STRING",
            (1,),
            "stop, length, repetition or incomplete with the last chunk of a segment of text, else empty",
        ),
        TensorSpec(
            "spoken_characters",
            "INT32",
            (1,),
            "with the last chunk of a segment, how many characters of the text are spoken by then, else -1; "
            "of turns, with the last segment of each alone. A request with this start_character goes on "
            "there",
        ),
        TensorSpec(
            "start_character",
            "INT32",
            (1,),
            "only with an input of this name above 0: the character of the text at which the answer begins",
        ),
        TensorSpec("sample_rate", "INT32", (1,), "samples of the waveform per second"),
        TensorSpec("token_rate", "INT32", (1,), "speech tokens of a second at speed 1"),
        TensorSpec(
            "spoken_tokens",
            "INT32",
            (-1,),
            "only with the request's parameter tell_spoken_tokens: speech tokens since the last chunk, some "
            "of later chunks, and behind those of a segment -1 (stop), -2 (length) or -3 (repetition)",
        ),
        TensorSpec(
            "words",
            "STRING",
            (1,),
            "only with the input words: JSON with by (attention or estimate) and words, which are over by "
            "the end of this chunk: text as it was sent, start_s and end_s in the answer",
        ),
        TensorSpec(
            "verification", "STRING", (1,), "with verify, at the end of a segment: JSON of what was found"
        ),
    ],
)

TENSORRT_LLM = ModelSchema(
    "tensorrt_llm",
    [
        TensorSpec(
            "input_ids",
            "INT32",
            (-1,),
            "ids of the merged vocabulary: [sos] text [task_id] prompt speech",
            optional=True,
        ),
        TensorSpec("input_lengths", "INT32", (1,), "how many of input_ids count", optional=True),
        TensorSpec("request_output_len", "INT32", (1,), "most new tokens", optional=True),
        TensorSpec("end_id", "INT32", (1,), "one of the stop ids; all of them end the speech", optional=True),
        TensorSpec("pad_id", "INT32", (1,), "accepted, not needed", optional=True),
        TensorSpec("runtime_top_k", "INT32", (1,), "0 is no limit", optional=True),
        TensorSpec("runtime_top_p", "FP32", (1,), "without it and runtime_top_k: greedy", optional=True),
        TensorSpec("temperature", "FP32", (1,), "default 1", optional=True),
        TensorSpec("repetition_penalty", "FP32", (1,), "default 1", optional=True),
        TensorSpec("seed", "UINT64", (1,), "default 0", optional=True),
        TensorSpec("min_tokens", "INT32", (1,), "default 1", optional=True),
        TensorSpec("streaming", "BOOL", (1,), "default false: one response", optional=True),
        TensorSpec(
            "first_tokens",
            "INT32",
            (1,),
            "fewest ids of a stream's first response, for a reader who can't use fewer; default 1",
            optional=True,
        ),
        TensorSpec(
            "group_tokens",
            "INT32",
            (1,),
            "ids of each further response of a stream, long silence not counted; "
            "by default they grow from 1 to 8",
            optional=True,
        ),
        TensorSpec("stop", "BOOL", (1,), "end the running request that has this request's id", optional=True),
        TensorSpec(
            "text_open",
            "BOOL",
            (1,),
            "the text to speak comes while the request runs, in requests with its id; "
            "in input_ids stands the prompt alone",
            optional=True,
        ),
        TensorSpec(
            "more_text",
            "INT32",
            (-1,),
            "further text ids for the running request of this id; of one that ended early nobody reads them",
            optional=True,
        ),
        TensorSpec(
            "end_text",
            "BOOL",
            (1,),
            "the text of the running request that has this request's id is complete, "
            "with more_text if there is any",
            optional=True,
        ),
        TensorSpec(
            "exclude_input_in_output",
            "BOOL",
            (1,),
            "default false; streams never repeat the input",
            optional=True,
        ),
        TensorSpec(
            "sampling_strategy",
            "STRING",
            (1,),
            "ras, nucleus or greedy, with the defaults of CosyVoice2",
            optional=True,
        ),
        TensorSpec("ras_window", "INT32", (1,), "default 10", optional=True),
        TensorSpec("ras_threshold", "FP32", (1,), "default 0.1", optional=True),
        TensorSpec(
            "prompt_spk_embedding",
            "FP32",
            (-1,),
            "the voice's speaker, for a speech LM that reads it: CosyVoice-300M's, but for instructions",
            optional=True,
        ),
        TensorSpec(
            "self_test",
            "BOOL",
            (1,),
            "decode one token of a built-in prompt; the other inputs don't matter",
            optional=True,
        ),
        TensorSpec(
            "tell_attention",
            "BOOL",
            (1,),
            "tell what each new token looks at in the text, if that came whole; default false",
            optional=True,
        ),
    ],
    [
        TensorSpec(
            "output_ids",
            "INT32",
            (-1, -1),
            "[beam 1, new ids]; speech token i is the tokenizer's length + i; may be empty at the end",
        ),
        TensorSpec("sequence_length", "INT32", (-1,), "ids in this response"),
        TensorSpec(
            "finish_reason",
            "STRING",
            (1,),
            "stop, length, repetition or cancelled; empty before the last response",
        ),
        TensorSpec(
            "attention",
            "FP32",
            (-1, -1),
            "only with the input tell_attention, where the engine sees it: for each new id its shares among "
            "the text ids between sos and task_id, of sum 1, by the heads of alignment_heads.json",
        ),
    ],
)

AUDIO_TOKENIZER = ModelSchema(
    "audio_tokenizer",
    [
        TensorSpec("reference_wav", "FP32", (-1,), "16 kHz, mono, 0.5 to 30 s", ragged=True),
        TensorSpec("reference_wav_len", "INT32", (1,), "valid samples; all by default", optional=True),
    ],
    [
        TensorSpec("prompt_speech_tokens", "INT32", (-1,), "25 a second; 50 with CosyVoice-300M"),
    ],
)

SPEAKER_EMBEDDING = ModelSchema(
    "speaker_embedding",
    [
        TensorSpec("reference_wav", "FP32", (-1,), "16 kHz, mono, 0.5 to 30 s", ragged=True),
        TensorSpec("reference_wav_len", "INT32", (1,), "valid samples; all by default", optional=True),
    ],
    [
        TensorSpec("prompt_spk_embedding", "FP32", (-1,), "not normalised"),
    ],
)

TOKEN2WAV = ModelSchema(
    "token2wav",
    [
        TensorSpec(
            "utterance_id", "STRING", (1,), "the same for all chunks of an utterance and for no other's"
        ),
        TensorSpec(
            "speech_tokens",
            "INT32",
            (-1,),
            "the utterance's next tokens; may be none, to open it or to end it",
            optional=True,
            ragged=True,
        ),
        TensorSpec(
            "position", "INT32", (1,), "tokens of the utterance sent before; 0 opens it", optional=True
        ),
        TensorSpec("last", "BOOL", (1,), "no more tokens will come", optional=True),
        TensorSpec(
            "voice_key",
            "STRING",
            (1,),
            "names the voice, by the hash of its tensors or by a name that it got first; "
            "this and the next two are read when the utterance is opened",
            optional=True,
        ),
        TensorSpec("noise_seed", "INT64", (1,), "0 to 2**63 - 1", optional=True),
        TensorSpec("speed", "FP32", (1,), "0.5 to 2", optional=True),
        TensorSpec(
            "cushion",
            "FP32",
            (1,),
            "seconds of audio that the listener still has to play; the less, the more urgent; default 0",
            optional=True,
        ),
        TensorSpec(
            "continues",
            "BOOL",
            (1,),
            "the utterance is a later part of what somebody listens to: it doesn't wait for pages to begin; "
            "default false",
            optional=True,
        ),
        TensorSpec(
            "cancel",
            "BOOL",
            (1,),
            "forget the utterance; nothing else is read and the waveform is empty",
            optional=True,
        ),
        TensorSpec(
            "prompt_speech_tokens",
            "INT32",
            (-1,),
            "the voice, when voice_key is not known here (or not any more): tokens,",
            optional=True,
            ragged=True,
        ),
        TensorSpec("prompt_speech_feat", "FP32", (-1, -1), "its log-mel,", optional=True, ragged=True),
        TensorSpec("prompt_spk_embedding", "FP32", (-1,), "and its speaker", optional=True, ragged=True),
    ],
    [TensorSpec("waveform", "FP32", (-1,), "the samples that the tokens so far make certain")],
)

SCHEMAS: Mapping[str, ModelSchema] = {
    "cosyvoice2": COSYVOICE2,
    "cosyvoice2_offline": COSYVOICE2,
    "tensorrt_llm": TENSORRT_LLM,
    "audio_tokenizer": AUDIO_TOKENIZER,
    "speaker_embedding": SPEAKER_EMBEDDING,
    "token2wav": TOKEN2WAV,
}
"""The schema of each model in the repository."""
