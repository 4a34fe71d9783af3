"""Synthesis with a checkpoint in one process: text and a voice in, waveform chunks out."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from functools import cached_property, partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cosyvoice_runtime.alignment.words import WordMethod
from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.checkpoint.alignment_heads import COMMAND, AlignmentHeads
from cosyvoice_runtime.checkpoint.layout import ALIGNMENT_HEADS, Layout
from cosyvoice_runtime.checkpoint.sections import load_config
from cosyvoice_runtime.checkpoint.tensors import load_speakers
from cosyvoice_runtime.engine.utterance.arriving_words import ArrivingWords
from cosyvoice_runtime.engine.utterance.feed import SegmentFeed
from cosyvoice_runtime.engine.utterance.followed import FollowedSpeech
from cosyvoice_runtime.engine.utterance.hop import HopPolicy
from cosyvoice_runtime.engine.utterance.incoming_text import FIELD, GivenText, TextMark
from cosyvoice_runtime.engine.utterance.layout import LaidSegment, SegmentLayout, TurnsLayout, laid_out
from cosyvoice_runtime.engine.utterance.request import AudioChunk, SpeechRequest, Utterance
from cosyvoice_runtime.engine.utterance.streamed_text import TextFeeder, speak_arriving, within_ceiling
from cosyvoice_runtime.engine.utterance.utterance import Playback, Stages, speak
from cosyvoice_runtime.engine.utterance.verification import Checks, way_to_verify
from cosyvoice_runtime.engine.utterance.verifier import Verifier, in_threads
from cosyvoice_runtime.engine.utterance.word_clock import VoiceTiming, WordClock
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families import DEFAULT, Family
from cosyvoice_runtime.flow.solvers import EULER
from cosyvoice_runtime.lm import Prompt
from cosyvoice_runtime.lm.text_segment import SegmentQueue
from cosyvoice_runtime.local.networks import EXPORTED, OpenBatch, Placing, open_lm, open_token2wav
from cosyvoice_runtime.local.stages import GivenTokens, LocalStages
from cosyvoice_runtime.process.event_loop import EventLoopThread
from cosyvoice_runtime.settings import CosyVoice2Settings
from cosyvoice_runtime.text import Lexicon, TextFrontEnd, TextTokenizer, read_tokenizer
from cosyvoice_runtime.text.markup import MarkupOptions
from cosyvoice_runtime.token2wav.token2wav import AnyToken2Wav
from cosyvoice_runtime.voice import Voice
from cosyvoice_runtime.voice.extractors import Extractors
from cosyvoice_runtime.voice.speakers import import_speakers

if TYPE_CHECKING:
    import torch


class Synthesizer:
    """The front end, speech LM, flow and vocoder of one checkpoint.

    Utterances are driven as in the server (``engine/utterance/utterance.py``), one after another.

    Args:
        lm, open_batch, token2wav: the networks, and what opens a batch of the speech LM.
        hop: policy that sets the chunk boundaries.
        speakers: the checkpoint's voices by name.
        family: the checkpoint's model family.
        verifier: judges the audio of answers as a whole that are verified.
        find_heads: reads which heads of the speech LM follow the text; it returns None where none are known.
    """

    def __init__(
        self,
        tokenizer: TextTokenizer,
        front_end: TextFrontEnd,
        lm: Any,
        open_batch: OpenBatch,
        token2wav: AnyToken2Wav,
        hop: HopPolicy,
        extractors: Extractors,
        speakers: Mapping[str, Voice],
        family: Family = DEFAULT,
        find_heads: Callable[[], AlignmentHeads | None] = lambda: None,
        verifier: Verifier | None = None,
    ) -> None:
        self._find_heads = find_heads
        self._judge = None if verifier is None else in_threads(verifier)
        self.tokenizer = tokenizer
        self.front_end = front_end
        self.lm = lm
        self.token2wav = token2wav
        self._open_batch = open_batch
        self.hop = hop
        self.extractors = extractors
        self.speakers = speakers
        self.family = family

    @classmethod
    def from_checkpoint(
        cls,
        directory: str | Path,
        *,
        device: torch.device | str = "cpu",
        lm_dtype: torch.dtype | None = None,
        flow_dtype: torch.dtype | None = None,
        vocoder_dtype: torch.dtype | None = None,
        threads: int = 1,
        lookahead_frames: int | None = None,
        first_hop: int | None = None,
        ode_steps: int | None = None,
        solver: str = EULER,
        runtime: str = "torch",
        weight_format: str = "float32",
        exported: Path = EXPORTED,
        lexicon: Path | None = None,
        polyphones: bool = False,
        markup: MarkupOptions | None = None,
        published_prompt_rate: bool = False,
        verifier: Verifier | None = None,
    ) -> Synthesizer:
        """Load a directory in a published layout; its files tell the model family.

        Args:
            lm_dtype, flow_dtype, vocoder_dtype: data types of the networks; None is float32.
            threads: threads of the extractors and, with runtime ``onnx``, of the networks.
            lookahead_frames: mel frames the vocoder waits for; None is its default.
            first_hop: cut the voice's prompt so that this many tokens give the first chunk; None leaves the
                prompt whole (:func:`~cosyvoice_runtime.token2wav.token2wav.cut_prompt`).
            ode_steps: solver steps of the flow; None is the number of a distilled flow's own times, or the
                published one.
            solver: of the flow, ``euler`` as published or ``adams_bashforth``, which needs fewer steps.
            runtime: ``torch``, or ``onnx``: ONNX Runtime and numpy, on a CPU, of CosyVoice2.
            weight_format: weights of the speech LM with runtime ``onnx``: ``float32``, ``int8`` or
                ``int8_rows``.
            exported: directory of the graphs of runtime ``onnx``, which are written at the first start.
            lexicon: path of a pronunciation lexicon, see :class:`Lexicon`.
            polyphones: tell the speech LM how Chinese characters are read that have several readings, where
                it reads units of pronunciation.
            markup: how that of texts is read.
            published_prompt_rate: option of :class:`Extractors`, for comparison with the published code.
            verifier: judges the audio of answers as a whole that are verified.

        Raises:
            InvalidInput: ``first_hop``, ``threads``, ``ode_steps``, ``lexicon`` or ``polyphones`` can't be
                served;
                the runtime is unknown or not installed, or does not run on the device.
            CheckpointError: a file is missing or damaged, or doesn't fit the others.
        """
        layout, config = Layout(directory), load_config(directory)
        hop = _hop(HopPolicy.of(config.flow, CosyVoice2Settings()), first_hop)
        family = layout.family
        placing = Placing(
            runtime, device, lm_dtype, flow_dtype, vocoder_dtype, threads, weight_format, exported,
            lookahead_frames, ode_steps, solver,
        )  # fmt: skip
        tokenizer = read_tokenizer(layout)
        words = Lexicon.read(lexicon, family.special_tokens) if lexicon else None
        extractors = Extractors(layout, threads, published_prompt_rate)
        lm, open_batch = open_lm(layout, config, placing)
        return cls(
            tokenizer,
            TextFrontEnd(tokenizer, family=family, lexicon=words, polyphones=polyphones, markup=markup),
            lm,
            open_batch,
            open_token2wav(layout, config, placing),
            hop,
            extractors,
            import_speakers(
                load_speakers(layout),
                tokenizer.decode,
                extractors.checkpoint_id,
                family.prompt_frames_per_token,
            ),
            family,
            partial(AlignmentHeads.of, layout, config.speech_lm) if family.has_qwen2 else lambda: None,
            verifier,
        )

    @cached_property
    def heads(self) -> AlignmentHeads | None:
        """The heads of the speech LM by which words are timed; None where times are an estimate.

        Raises:
            CheckpointError: the checkpoint's file of them is damaged, or was made for other weights.
        """
        return self._find_heads()

    @property
    def word_method(self) -> WordMethod:
        """How words are timed; raises as `heads` does."""
        return "estimate" if self.heads is None else "attention"

    @property
    def no_heads(self) -> str:
        """The reason why words are timed by estimate."""
        if self.family.has_qwen2:
            return f"the checkpoint has no {ALIGNMENT_HEADS}, which {COMMAND} writes"
        return "the attention of this speech LM is not seen; that of a Qwen2 is"

    @property
    def sample_rate(self) -> int:
        return self.token2wav.sample_rate

    def voice(self, audio: Audio, transcript: str = "") -> Voice:
        """Make the voice of reference audio; raises InvalidInput as :meth:`Extractors.voice` does."""
        return self.extractors.voice(audio, transcript)

    def synthesize(self, request: SpeechRequest, words: bool = False) -> Iterator[AudioChunk]:
        """Speak one segment of text after another, and yield each chunk when it is ready.

        Args:
            words: let each chunk tell the words that are over by its end: by `heads`, or by estimate.

        Raises:
            InvalidInput: at once, naming the field of the request that can't be served; a voice that
                another checkpoint made is one.
            CheckpointError: words are asked for, or speech is verified, and `heads` raises it.
        """
        request = self._within_positions(self._of_own(request))
        judge = None if request.streaming else self._judge
        verify = way_to_verify(request, "report", lambda: "" if judge or self.heads else self.no_heads)
        follows = words or verify != "off"
        layout = laid_out(request, self.front_end, self.tokenizer, self.hop.flow_voice, follows)
        segments, followed = layout.segments(), None
        if follows:  # Otherwise its heads are not read.
            clock = WordClock(request.speed, self._timing, layout.first_segment) if words else None
            followed = self._followed(request, clock, Checks.of(self._timing, verify, judge))
        return self._chunks(request, layout, segments, self._stages(layout, follows), followed)

    def synthesize_pieces(
        self, pieces: Iterable[str | TextMark], request: SpeechRequest, interleaved: bool | None = None
    ) -> Iterator[AudioChunk]:
        """Speak text that arrives in pieces, from its first clause on; the request's own text is ignored.

        Args:
            pieces: parts of the text, divided anywhere, and marks between them.
            interleaved: whether the speech LM gets clauses while it speaks, or each one as a segment; None
                is what the checkpoint was trained for. With `verify` each one is a segment.

        Raises:
            InvalidInput: at once, or when the piece that can't be spoken has come, or at the end of a text of
                which nothing can be.
        """
        request, text = self._within_positions(self._of_own(request)), GivenText(pieces)
        verify = way_to_verify(request, "off", lambda: "" if self.heads else self.no_heads)
        followed, words = None, None
        if verify != "off":
            followed = self._followed(request, None, Checks.of(self._timing, verify, goes_on=True))
            words = ArrivingWords(followed, request.text_markup or self.front_end.markup)
        if interleaved is None:
            interleaved = self.lm.config.interleaves_text
        blocks, segments = self.lm.config if interleaved and followed is None else None, SegmentQueue()
        layout = self._layout(request)
        feeder = TextFeeder(text, layout, self.hop, segments, blocks, words=words)
        request = dataclasses.replace(request, sampling=within_ceiling(request.sampling))
        heard, stages = Playback(now=lambda: 0.0), self._stages(layout, followed is not None)
        spoken = speak_arriving(feeder, self._spoken(request, layout, segments, stages, heard, followed))
        return _at_least_one(_iterate(spoken, heard), text)

    def synthesize_tokens(self, tokens: Iterable[int], request: SpeechRequest) -> Iterator[AudioChunk]:
        """Speak the given speech tokens in the request's voice; its text is ignored.

        Raises:
            InvalidInput: at once: another checkpoint made the voice.
        """
        layout = self._layout(self._of_own(request))
        stages = GivenTokens(tokens, self.token2wav, layout.voices)
        laid = LaidSegment(Prompt([]), characters=len(request.text))
        return self._chunks(request, layout, iter([laid]), stages)

    def _of_own(self, request: SpeechRequest) -> SpeechRequest:
        """The request, whose further voices are checked where they are found.

        Raises:
            InvalidInput: another checkpoint made its voice.
        """
        own = self.extractors.checkpoint_id
        request.voice.require_made_with(own, request.voice.key)

        def find_voice(name: str) -> Voice:
            voice = request.find_voice(name)
            voice.require_made_with(own, name)
            return voice

        return dataclasses.replace(request, find_voice=find_voice)

    def _within_positions(self, request: SpeechRequest) -> SpeechRequest:
        """The request with its speech tokens limited to the positions of the speech LM, which set its memory.

        Raises:
            InvalidInput: the request asks for more.
        """
        most = self.lm.config.max_positions
        ceiling = min(request.sampling.ceiling or most, most)
        return dataclasses.replace(request, sampling=dataclasses.replace(request.sampling, ceiling=ceiling))

    def _layout(self, request: SpeechRequest) -> SegmentLayout:
        return SegmentLayout(request, self.front_end, self.tokenizer, self.hop.flow_voice)

    def _stages(self, layout: SegmentLayout | TurnsLayout, follows: bool = False) -> LocalStages:
        heads = self.heads.heads if follows and self.heads is not None else ()
        return LocalStages(self._open_batch, self.token2wav, layout.voices, self.family.silent_tokens, heads)

    @property
    def _timing(self) -> VoiceTiming:
        token_s = 1 / self.lm.config.token_rate
        return VoiceTiming(self.heads, self.tokenizer.spans, token_s, self.sample_rate)

    def _chunks(
        self,
        request: SpeechRequest,
        layout: SegmentLayout | TurnsLayout,
        segments: Iterator[LaidSegment],
        stages: Stages,
        followed: FollowedSpeech | None = None,
    ) -> Iterator[AudioChunk]:
        # Nothing is played yet, so chunk sizes grow in the same way on every machine.
        heard, queue = Playback(now=lambda: 0.0), SegmentQueue()
        characters = None if request.turns else len(request.text)
        feed = SegmentFeed(segments, characters, followed=followed)
        feed.begin(queue)
        chunks = _iterate(feed.chunks(self._spoken(request, layout, queue, stages, heard, followed)), heard)
        return chunks if request.streaming else _whole_segments(chunks)

    def _followed(
        self, request: SpeechRequest, clock: WordClock | None, checks: Checks | None
    ) -> FollowedSpeech:
        return FollowedSpeech(clock, checks, request.speed, self.tokenizer.spans)

    def _spoken(
        self,
        request: SpeechRequest,
        layout: SegmentLayout | TurnsLayout,
        segments: SegmentQueue,
        stages: Stages,
        heard: Playback,
        followed: FollowedSpeech | None,
    ) -> AsyncGenerator[AudioChunk, None]:
        utterance = Utterance.of(request, layout.sound, layout.first_segment, followed is not None)
        cushion_s = lambda: heard.cushion_s  # noqa: E731
        checks = None if followed is None or followed.checks is None else followed.checks.of_draws
        spoken = speak(utterance, segments, stages, self.hop, self.sample_rate, cushion_s, checks)
        return spoken if followed is None else followed.told(spoken)


def _hop(hop: HopPolicy, first_hop: int | None) -> HopPolicy:
    if first_hop is None:
        return dataclasses.replace(hop, most_cut=0.0)
    return dataclasses.replace(hop, min_first_tokens=first_hop, most_cut=1.0)


def _at_least_one(chunks: Generator[AudioChunk, None, None], text: GivenText) -> Iterator[AudioChunk]:
    """The chunks; an utterance without any is an error, as for text that arrives whole."""
    none = True
    with closing(chunks):
        for chunk in chunks:
            none = False
            yield chunk
    if none:
        raise InvalidInput(FIELD, text.text, "it must hold more than punctuation and symbols")


def _iterate(spoken: AsyncGenerator[AudioChunk, None], heard: Playback) -> Generator[AudioChunk, None, None]:
    with closing(EventLoopThread("synthesizer")) as loop, closing(loop.iterate(spoken)) as chunks:
        for chunk in chunks:
            heard.sent(len(chunk.samples) / chunk.sample_rate)
            yield chunk


def _whole_segments(chunks: Iterator[AudioChunk]) -> Iterator[AudioChunk]:
    """One chunk for each segment of text."""
    for _, parts in groupby(chunks, attrgetter("segment")):
        segment = list(parts)
        samples = np.concatenate([part.samples for part in segment])
        words = [word for part in segment for word in part.words]
        yield dataclasses.replace(segment[-1], samples=samples, words=words)
