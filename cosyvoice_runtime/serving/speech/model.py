"""The models ``cosyvoice2``, which streams, and ``cosyvoice2_offline``, which answers once."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosyvoice_runtime.checkpoint import Layout, load_config, load_speakers
from cosyvoice_runtime.checkpoint.alignment_heads import AlignmentHeads
from cosyvoice_runtime.checkpoint.config_flow import FlowConfig
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.engine.host_client import SPEECH, host_socket, leave_socket
from cosyvoice_runtime.engine.utterance.hop import HopPolicy
from cosyvoice_runtime.engine.utterance.verifier import Judge, in_threads, load_verifier
from cosyvoice_runtime.errors import CosyVoiceError, InvalidInput
from cosyvoice_runtime.families import Family
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.metrics import Metrics, trace
from cosyvoice_runtime.metrics.metrics import RequestCount, shared_directory
from cosyvoice_runtime.process.event_loop import EventLoopThread
from cosyvoice_runtime.process.garbage import keep_loaded
from cosyvoice_runtime.serving.hosted.model_host import ModelHost
from cosyvoice_runtime.serving.proxies import OfflineModel
from cosyvoice_runtime.serving.speech.admission import BOARD_FILE, Admission
from cosyvoice_runtime.serving.speech.engine_client import EngineClient
from cosyvoice_runtime.serving.speech.service import SpeechService
from cosyvoice_runtime.serving.speech.speech_inputs import ChunkListener, WholeListener
from cosyvoice_runtime.serving.speech.speech_metrics import SpeechMetrics
from cosyvoice_runtime.serving.speech.voice_book import VoiceBook
from cosyvoice_runtime.serving.speech.watermark import find_watermark
from cosyvoice_runtime.serving.triton.load import read_settings
from cosyvoice_runtime.serving.triton.request import Inputs, Reply
from cosyvoice_runtime.settings import CosyVoice2Settings
from cosyvoice_runtime.settings.cosyvoice2 import NO_CLASS
from cosyvoice_runtime.text import Lexicon, TextFrontEnd, TextTokenizer, read_tokenizer
from cosyvoice_runtime.text.frontend import TokenCounter
from cosyvoice_runtime.text.markup import MarkupOptions
from cosyvoice_runtime.voice import Voice
from cosyvoice_runtime.voice.cached_voices import CachedVoices
from cosyvoice_runtime.voice.extractors import checkpoint_id
from cosyvoice_runtime.voice.opening import open_voices
from cosyvoice_runtime.voice.removal import DAY_S, forget_in_time
from cosyvoice_runtime.voice.speakers import import_speakers, list_speakers

logger = logging.getLogger(__name__)

MEASURE_TIMEOUT_S = 60.0
MANY, MOST_AT_ONCE = 8, 32
"""A machine with at least this capacity is a GPU, which is faster with many utterances: its speed is measured
with that many, up to the second number. Measured with one, an H200 refused 47 of 64 clients after its
start. A machine with a capacity of one is measured with two, because it would never speak two to show it: two
cores, busy with other work, made 2.1 s of speech a second for one and 4.7 for two."""

FIRST_TEXTS = {"en": "It is 3 PM.", "zh": "现在3点。"}
"""Texts by whose reading the words of their languages are loaded, which takes a tenth of a second each."""


def load_speech_service(
    settings: CosyVoice2Settings,
    engine: EngineClient,
    metrics: SpeechMetrics,
    admission: Admission,
) -> SpeechService:
    """Load the service of the entry models; a CheckpointError tells of a missing or damaged file."""
    layout, config = Layout(settings.checkpoint_dir), load_config(settings.checkpoint_dir)
    tokenizer = read_tokenizer(layout)
    front_end = front_end_of(settings, tokenizer, layout.family)
    for language, text in FIRST_TEXTS.items():
        front_end.transcript(text, language)
    return SpeechService(
        engine,
        _voices(settings, layout, config.flow, tokenizer, engine, metrics),
        front_end,
        tokenizer,
        HopPolicy.of(config.flow, settings),
        config.vocoder.sample_rate,
        metrics,
        admission,
        sampling=default_sampling(settings),
        max_characters=settings.max_text_characters,
        speech_tokens=config.speech_lm.speech_tokens,
        blocks=_blocks(settings, config.speech_lm),
        text_timeout_s=settings.text_timeout_s,
        watermark=find_watermark(settings.watermark),
        trim_silence=settings.trim_silence,
        paragraph_pause_s=settings.paragraph_pause_s,
        timeout_s=settings.silence_timeout_s,
        verify=settings.verify,
        judge=_judge(settings.verifier),
        heads=AlignmentHeads.of(layout, config.speech_lm),
    )


def front_end_of(settings: CosyVoice2Settings, tokenizer: TokenCounter, family: Family) -> TextFrontEnd:
    """Make the text front end; an InvalidInput tells of readings or a lexicon that can't be used."""
    lexicon = None
    if settings.lexicon != "none":
        lexicon = Lexicon.read(Path(settings.lexicon), family.special_tokens)
        logger.info("%s has %d words that are spoken as something else is", settings.lexicon, len(lexicon))
    return TextFrontEnd(
        tokenizer,
        family=family,
        lexicon=lexicon,
        polyphones=settings.polyphones,
        adds_instruction=settings.add_instruction,
        markup=MarkupOptions(settings.text_markup, settings.emoji, settings.code_blocks),
    )


def _blocks(settings: CosyVoice2Settings, speech_lm: SpeechLMConfig) -> SpeechLMConfig | None:
    """The speech LM's configuration if it takes text between its speech; None to feed it clause by clause."""
    feeding = settings.text_feeding
    if feeding == "interleaved" and not speech_lm.interleaves_text:
        limit = "the checkpoint's speech LM was not trained on text between speech"
        raise InvalidInput("cosyvoice2.text_feeding", feeding, limit)
    interleaved = speech_lm.interleaves_text and feeding != "clauses"
    logger.info("text in pieces is %s", "fed between speech" if interleaved else "spoken clause by clause")
    return speech_lm if interleaved else None


def _judge(name: str) -> Judge | None:
    return None if name == NO_CLASS else in_threads(load_verifier(name, "cosyvoice2.verifier"))


def open_admission(settings: CosyVoice2Settings) -> Admission:
    """Open the admission, whose board the gateways read in the directory of the server's run."""
    directory = shared_directory()
    path = None if directory is None else directory / BOARD_FILE
    return Admission(settings.max_inflight_utterances or None, path)


async def learn_speed(service: SpeechService, admission: Admission, engine: EngineClient) -> None:
    """Measure the machine's speed as soon as possible, unless it is known.

    A process that replaces a dead one finds what is known. Without the supervisor it is not known
    whether the engine is loaded before this model is: one utterance at a time is admitted then until the
    speed has been learned from those that are spoken.
    """
    if admission.capacity.speed or shared_directory() is None:
        return
    await engine.loaded()
    await _measure_speed(service, admission)


async def _measure_speed(service: SpeechService, admission: Admission) -> None:
    try:
        async with asyncio.timeout(MEASURE_TIMEOUT_S):
            admission.capacity.start(await service.speed())
            count = admission.capacity.keeps_up_with
            if count == 1 or count >= MANY:
                together = await service.speed(min(max(count, 2), MOST_AT_ONCE))
                admission.capacity.start(max(together, admission.capacity.speed))
    except (CosyVoiceError, TimeoutError) as error:
        logger.warning("the speed could not be measured (%r) and is learned from requests", error)
    else:
        speed, limit = admission.capacity.speed, admission.capacity.limit
        logger.info("this machine makes %.2f s of speech a second: %d utterances at a time", speed, limit)


def default_sampling(settings: CosyVoice2Settings) -> SamplingOptions:
    """The sampling of speech tokens for requests without options."""
    return SamplingOptions(
        strategy=settings.sampling,
        top_k=settings.top_k,
        top_p=settings.top_p,
        temperature=settings.temperature,
        repetition_penalty=settings.repetition_penalty,
        ceiling=settings.max_tokens,
    )


def _voices(
    settings: CosyVoice2Settings,
    layout: Layout,
    flow: FlowConfig,
    tokenizer: TextTokenizer,
    engine: EngineClient,
    metrics: SpeechMetrics,
) -> VoiceBook:
    identity = checkpoint_id(layout)
    store = open_voices(
        settings.voices_dir,
        settings.bucket_url,
        identity,
        max_voices=settings.max_voices,
        max_bytes=settings.max_voice_bytes,
        keeps_unnamed=settings.reference_days > 0,
        grace_s=settings.voices_grace_s,
        on_grace=metrics.voice_stood_in,
    )
    forget_in_time(store, settings.reference_days * DAY_S)
    family = layout.family
    frames_per_token = family.prompt_frames_per_token
    speakers = import_speakers(load_speakers(layout), tokenizer.decode, identity, frames_per_token)
    list_speakers(settings.voices_dir, speakers)
    if isinstance(store, CachedVoices):
        store.shared.list_speakers(speakers)
    neutral = Voice.of_nobody(flow.mel_bins, flow.speaker_dim, identity)
    book = VoiceBook(
        store, speakers, settings.default_voice, engine, identity, metrics.voice_looked_up, family, neutral,
        layout.voice_adapters,
    )  # fmt: skip
    try:
        book.default()
    except CosyVoiceError as error:
        logger.warning("requests have to bring a reference or to name a voice: %s", error)
    return book


@dataclass(frozen=True)
class EntryModel:
    """A model that clients call; one that streams answers in chunks."""

    name: str
    streams: bool
    metrics: SpeechMetrics


class SpeechModel:
    """The ``TritonPythonModel`` with one event loop for all utterances in progress."""

    def initialize(self, arguments: Mapping[str, str]) -> None:
        trace.send()
        self._settings = read_settings(arguments, CosyVoice2Settings)
        name = arguments["model_name"]
        decoupled = json.loads(arguments["model_config"])["model_transaction_policy"]["decoupled"]
        self._entry = EntryModel(name, decoupled, SpeechMetrics(Metrics(name)))
        self._requests = RequestCount(name)
        self._answers: set[Future[None]] = set()
        self._loop = EventLoopThread("utterances")
        self._service = self._loop.run(self._load())
        self._host = ModelHost(host_socket(SPEECH), {OfflineModel.name: WholeAnswers(self)}, loop=self._loop)
        keep_loaded()

    def execute(self, requests: list[Any]) -> None:
        """Begin each request, whose answers come from the event loop."""
        for request in requests:
            self._requests.enter()
            self.begin(request, self._entry).add_done_callback(lambda _: self._requests.leave())

    def begin(self, request: Any, entry: EntryModel) -> Future[None]:
        """Begin a request to an entry model; the future is done after its answer."""
        answer = self._loop.start(self._answer(request, entry))
        self._answers.add(answer)
        answer.add_done_callback(self._ended)
        return answer

    def finalize(self) -> None:
        """Wait for the requests in progress."""
        wait(list(self._answers))
        self._host.close()
        leave_socket(host_socket(SPEECH))
        self._loop.run(self._engine.close())
        self._loop.close()
        trace.close()

    async def _load(self) -> SpeechService:
        self._engine = EngineClient(host_socket(), self._settings.silence_timeout_s)
        admission = open_admission(self._settings)
        service = load_speech_service(self._settings, self._engine, self._entry.metrics, admission)
        await learn_speed(service, admission, self._engine)
        self._entry.metrics.admits(admission.capacity)
        return service

    async def _answer(self, request: Any, entry: EntryModel) -> None:
        with Reply(request, entry.name, entry.streams) as reply:
            inputs = Inputs(request)
            make_listener = ChunkListener if entry.streams else WholeListener
            told = inputs.call, inputs.tells_spoken_tokens
            listener = make_listener(reply, self._service.token_rate, *told)
            if (left := inputs.left_call) is not None:
                self._service.leave(left)
                listener.acknowledge()
            else:
                await self._service.answer(inputs, listener, entry.metrics)

    def _ended(self, answer: Future[None]) -> None:
        self._answers.discard(answer)
        if not answer.cancelled() and answer.exception() is not None:
            logger.error("an answer could not be ended", exc_info=answer.exception())


class WholeAnswers:
    """The hosted model ``cosyvoice2_offline``, whose proxy counts the requests."""

    def __init__(self, model: SpeechModel) -> None:
        name = OfflineModel.name
        self._model = model
        self._entry = EntryModel(name, streams=False, metrics=SpeechMetrics(Metrics(name)))

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            self._model.begin(request, self._entry)
