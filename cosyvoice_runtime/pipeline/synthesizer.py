"""A checkpoint, ready to speak: text and a voice in, waveform chunks out, in one process."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path

import torch

from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.checkpoint.sections import load_config
from cosyvoice_runtime.checkpoint.tensors import load_speakers, load_tensors
from cosyvoice_runtime.flow.flow import Flow
from cosyvoice_runtime.flow.solver import NUM_STEPS
from cosyvoice_runtime.flow.stream import FlowStream
from cosyvoice_runtime.lm import FinishReason, Prompt, SpeechLM, generate
from cosyvoice_runtime.pipeline.flow_prompt import cut_prompt, flow_prompt
from cosyvoice_runtime.pipeline.prompting import lm_prompts
from cosyvoice_runtime.pipeline.request import AudioChunk, SpeechRequest
from cosyvoice_runtime.pipeline.schedule import (
    BlockSchedule,
    OneChunk,
    Portions,
    Schedule,
    UpstreamSchedule,
)
from cosyvoice_runtime.pipeline.seeds import derived_seed, fresh_seed
from cosyvoice_runtime.pipeline.session import Session
from cosyvoice_runtime.pipeline.token2wav import Synthesis, Token2Wav
from cosyvoice_runtime.pipeline.upstream import UpstreamToken2Wav
from cosyvoice_runtime.text import TextFrontEnd, TextTokenizer
from cosyvoice_runtime.vocoder.hift import HiFT
from cosyvoice_runtime.voice import Voice
from cosyvoice_runtime.voice.extractors import Extractors
from cosyvoice_runtime.voice.speakers import import_speakers

logger = logging.getLogger(__name__)

FLOW_PAGES = 64
"""Chunks of 1 s kept for incremental flow: prompt and speech of one utterance up to a minute."""


class TokenStream:
    """Speech tokens of one utterance and, once they have ended, why."""

    def __init__(self, tokens: Generator[int, None, FinishReason]) -> None:
        self._tokens = tokens
        self.finish_reason: FinishReason | None = None

    def __iter__(self) -> Iterator[int]:
        self.finish_reason = yield from self._tokens


class Synthesizer:
    """Front end, speech LM, flow and vocoder of one checkpoint.

    Args:
        speakers: voices that the checkpoint brings, by name.
        upstream_streaming: cut and join chunks as CosyVoice2's own code does (fades at the joins, full
            attention in the last call) instead of the exact way.
        lookahead_frames: mel frames the vocoder waits for; None is its default.
        first_hop: cut the flow's prompt so that the first block has this many new tokens; None leaves it
            whole (:func:`cut_prompt`).
    """

    def __init__(
        self,
        tokenizer: TextTokenizer,
        front_end: TextFrontEnd,
        lm: SpeechLM,
        flow: Flow,
        vocoder: HiFT,
        extractors: Extractors,
        speakers: Mapping[str, Voice],
        *,
        upstream_streaming: bool = False,
        lookahead_frames: int | None = None,
        first_hop: int | None = None,
    ) -> None:
        self.first_hop = first_hop
        self.tokenizer = tokenizer
        self.front_end = front_end
        self.lm = lm
        self.flow = flow
        self.vocoder = vocoder
        self.extractors = extractors
        self.speakers = speakers
        self.schedule: Schedule
        self.token2wav: Synthesis
        if upstream_streaming:
            self.schedule = UpstreamSchedule()
            self.token2wav = UpstreamToken2Wav(flow, vocoder)
        else:
            self.schedule = BlockSchedule(flow.config.encoder.chunk_tokens)
            self.token2wav = Token2Wav(FlowStream(flow, FLOW_PAGES), vocoder, lookahead_frames)

    @classmethod
    def from_checkpoint(
        cls,
        directory: str | Path,
        *,
        device: torch.device | str = "cpu",
        lm_dtype: torch.dtype = torch.float32,
        flow_dtype: torch.dtype = torch.float32,
        vocoder_dtype: torch.dtype = torch.float32,
        threads: int = 1,
        upstream_streaming: bool = False,
        lookahead_frames: int | None = None,
        first_hop: int | None = None,
        ode_steps: int = NUM_STEPS,
    ) -> Synthesizer:
        """Load a directory laid out like the published CosyVoice2-0.5B.

        Args:
            threads: of the extractors, when a voice is made.
            ode_steps: Euler steps of the flow.

        Raises:
            CheckpointError: a file is missing or damaged, or doesn't fit the others.
        """
        layout, config = Layout(directory), load_config(directory)
        tokenizer = TextTokenizer(layout.vocabulary.parent)
        extractors = Extractors(layout, threads)
        logger.info("loading %s on %s", layout.directory, device)
        return cls(
            tokenizer,
            TextFrontEnd(tokenizer),
            SpeechLM.from_tensors(config.speech_lm, load_tensors(layout, "llm", config), device, lm_dtype),
            Flow.from_tensors(
                config.flow, load_tensors(layout, "flow", config), device, flow_dtype, ode_steps
            ),
            HiFT.from_tensors(config.vocoder, load_tensors(layout, "hift", config), device, vocoder_dtype),
            extractors,
            import_speakers(load_speakers(layout), tokenizer.decode, extractors.checkpoint_id),
            upstream_streaming=upstream_streaming,
            lookahead_frames=lookahead_frames,
            first_hop=first_hop,
        )

    @property
    def sample_rate(self) -> int:
        return self.vocoder.config.sample_rate

    def voice(self, audio: Audio, transcript: str = "") -> Voice:
        """The voice of reference audio; raises InvalidInput if the audio is no usable reference."""
        return self.extractors.voice(audio, transcript)

    def synthesize(self, request: SpeechRequest) -> Iterator[AudioChunk]:
        """Speak, piece of text after piece, each chunk as soon as it is there.

        Raises:
            InvalidInput: on the first step, naming the field of the request that can't be served.
        """
        seed = fresh_seed() if request.seed is None else request.seed
        for segment, prompt in enumerate(lm_prompts(request, self.front_end, self.tokenizer)):
            yield from self._speak(request, prompt, segment, seed)

    def _speak(self, request: SpeechRequest, prompt: Prompt, segment: int, seed: int) -> Iterator[AudioChunk]:
        sampling = dataclasses.replace(request.sampling, seed=derived_seed(seed, "sampling", segment))
        tokens = TokenStream(generate(self.lm, prompt, sampling))
        with self.session(request, derived_seed(seed, "noise", segment)) as session:
            for samples in session.chunks(tokens):
                yield AudioChunk(samples, self.sample_rate, segment, tokens.finish_reason)

    def session(self, request: SpeechRequest, noise_seed: int) -> Session:
        """What turns speech tokens of the request's own or anybody's making into its voice."""
        schedule = self.schedule if request.streaming else OneChunk()
        voice = request.voice
        if self.first_hop is not None:
            voice = cut_prompt(voice, self.flow.config.encoder.chunk_tokens, self.first_hop)
        prompt = flow_prompt(voice)
        state = self.token2wav.open(prompt, noise_seed, request.speed)
        portions = Portions(schedule, len(prompt.tokens), self.flow.config.lookahead_tokens)
        return Session(self.token2wav, state, portions)
