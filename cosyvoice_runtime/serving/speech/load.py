"""From settings and a checkpoint to a service that answers."""

from __future__ import annotations

import asyncio
import logging
import os
from functools import lru_cache
from pathlib import Path

from cosyvoice_runtime.checkpoint import Layout, ModelConfig, load_config, load_speakers
from cosyvoice_runtime.checkpoint.config import FlowConfig, SpeechLMConfig
from cosyvoice_runtime.checkpoint.family import Family
from cosyvoice_runtime.checkpoint.merged_vocabulary import MergedVocabulary
from cosyvoice_runtime.errors import CosyVoiceError, InvalidInput
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.metrics.metrics import shared_directory
from cosyvoice_runtime.pipeline.hop import HopPolicy
from cosyvoice_runtime.pipeline.watermark import find_watermark
from cosyvoice_runtime.run_variables import GRPC_URL_VARIABLE
from cosyvoice_runtime.serving.host.host_calls import HostCalls
from cosyvoice_runtime.serving.host.host_client import host_socket
from cosyvoice_runtime.serving.speech.admission import Admission
from cosyvoice_runtime.serving.speech.places import PLACES_FILE
from cosyvoice_runtime.serving.speech.service import SpeechService
from cosyvoice_runtime.serving.speech.speech_metrics import SpeechMetrics
from cosyvoice_runtime.serving.speech.voice_book import VoiceBook
from cosyvoice_runtime.serving.triton.stage_calls import StageCalls, StageWay
from cosyvoice_runtime.serving.triton.stage_client import StageClient
from cosyvoice_runtime.settings import CosyVoice2Settings
from cosyvoice_runtime.settings.rendered import GUESTS, HOST, guests_of
from cosyvoice_runtime.text import Lexicon, TextFrontEnd, TextTokenizer, read_tokenizer
from cosyvoice_runtime.text.frontend import TokenCounter
from cosyvoice_runtime.voice import Voice, VoiceStore
from cosyvoice_runtime.voice.extractors import checkpoint_id
from cosyvoice_runtime.voice.retention import DAY_S, forget_in_time
from cosyvoice_runtime.voice.speakers import import_speakers, list_speakers

MEASURE_TIMEOUT_S = 60.0
CROWD, MOST_AT_ONCE = 8, 32
"""A machine that keeps up with so many is a GPU, which speaks faster to many at a time: it is measured with
them, too, but with no more. By what it does for one an H200 refused 47 of 64 who came after its start."""
logger = logging.getLogger(__name__)


def open_stages(settings: CosyVoice2Settings, repository: Path) -> StageClient:
    """The other models; to be called in the service's event loop.

    Through the server's own gRPC port, or past it where one process computes for several models.

    Args:
        repository: the rendered one that the server runs.
    """
    layout, config = _checkpoint(settings.checkpoint_dir)
    vocabulary = MergedVocabulary.of(layout, config.speech_lm)
    url = os.environ.get(GRPC_URL_VARIABLE, settings.grpc_url)
    text_timeout_s = settings.child_timeout_s + settings.text_timeout_s
    calls = StageCalls(open_ways(repository, url), settings.child_timeout_s)
    return StageClient(
        calls,
        vocabulary,
        settings.child_timeout_s,
        text_timeout_s,
        layout.family.silent_tokens,
        HopPolicy.of(config.flow, settings).block_tokens,
    )


def open_ways(repository: Path, url: str) -> dict[str, StageWay]:
    """How each stage is called.

    Args:
        url: the server's own gRPC port.
    """
    socket, guests = host_socket(), guests_of(repository)
    ways: dict[str, StageWay] = {}
    if socket is not None and guests:
        ways = dict.fromkeys((HOST, *guests), HostCalls(socket, HOST))
        logger.info("%s are called in the process of %s at %s", " and ".join(ways), HOST, socket)
    if others := [model for model in (HOST, *GUESTS) if model not in ways]:
        from cosyvoice_runtime.serving.triton.grpc_calls import GrpcCalls  # memory that hosted stages save

        ways |= dict.fromkeys(others, GrpcCalls(url))
        logger.info("%s are called through gRPC at %s", " and ".join(others), url)
    return ways


def load_speech_service(
    settings: CosyVoice2Settings,
    stages: StageClient,
    metrics: SpeechMetrics,
    admission: Admission,
    *,
    streaming: bool,
) -> SpeechService:
    """
    Raises:
        CheckpointError: a file is missing or damaged.
    """
    layout, config = _checkpoint(settings.checkpoint_dir)
    tokenizer = read_tokenizer(layout)
    return SpeechService(
        stages,
        _voices(settings, layout, config.flow, tokenizer, stages, metrics),
        front_end_of(settings, tokenizer, layout.family),
        tokenizer,
        HopPolicy.of(config.flow, settings),
        config.vocoder.sample_rate,
        metrics,
        admission,
        streaming=streaming,
        sampling=default_sampling(settings),
        max_characters=settings.max_text_characters,
        blocks=_blocks(settings, config.speech_lm),
        text_timeout_s=settings.text_timeout_s,
        watermark=find_watermark(settings.watermark),
        head_start=True,
    )


def front_end_of(settings: CosyVoice2Settings, tokenizer: TokenCounter, family: Family) -> TextFrontEnd:
    """
    Raises:
        InvalidInput: the checkpoint can't be told readings, or the file of words is no such file.
    """
    lexicon = None
    if settings.lexicon != "none":
        lexicon = Lexicon.read(Path(settings.lexicon), family.special_tokens)
        logger.info("%s has %d words that are spoken as something else is", settings.lexicon, len(lexicon))
    front_end = TextFrontEnd(
        tokenizer,
        family=family,
        lexicon=lexicon,
        polyphones=settings.polyphones,
        adds_instruction=settings.add_instruction,
    )
    if settings.grammars_at_start == "true":
        front_end.read_grammars(("zh", "en"))
    return front_end


def _blocks(settings: CosyVoice2Settings, speech_lm: SpeechLMConfig) -> SpeechLMConfig | None:
    """How text that comes in pieces reaches the speech LM, see ``text_feeding``.

    Raises:
        InvalidInput: the checkpoint can't be fed as the settings say.
    """
    feeding = settings.text_feeding
    if feeding == "interleaved" and not speech_lm.interleaves_text:
        limit = "the checkpoint's speech LM was not trained on text between speech"
        raise InvalidInput("cosyvoice2.text_feeding", feeding, limit)
    interleaved = speech_lm.interleaves_text and feeding != "clauses"
    logger.info("text in pieces is %s", "fed between speech" if interleaved else "spoken clause by clause")
    return speech_lm if interleaved else None


def open_admission(settings: CosyVoice2Settings) -> Admission:
    """The places that the entry models share, in the directory of the server's run."""
    directory = shared_directory()
    if directory is None:
        logger.warning("a server without the supervisor: max_inflight_utterances counts for each entry model")
        return Admission(settings.max_inflight_utterances or None)
    return Admission(settings.max_inflight_utterances or None, directory / PLACES_FILE)


async def learn_speed(service: SpeechService, admission: Admission, stages: StageClient) -> None:
    """Measure how fast the machine speaks as soon as it can, unless that is known.

    One of the entry models does it; a process that takes the place of a dead one finds what is known. Without
    the supervisor the stages can't be called while models load: one utterance at a time is admitted then
    until the speed has been learned from those that are spoken.
    """
    if admission.capacity.speed or GRPC_URL_VARIABLE not in os.environ:
        return
    with admission.alone() as first:
        if first:
            await stages.loaded()
            await _measure_speed(service, admission)
        else:
            logger.info("the other entry model measures how fast this machine speaks")


async def _measure_speed(service: SpeechService, admission: Admission) -> None:
    try:
        async with asyncio.timeout(MEASURE_TIMEOUT_S):
            admission.capacity.start(await service.speed())
            if (crowd := min(admission.capacity.keeps_up_with, MOST_AT_ONCE)) >= CROWD:
                admission.capacity.start(max(await service.speed(crowd), admission.capacity.speed))
    except (CosyVoiceError, TimeoutError) as error:
        logger.warning("the speed could not be measured (%r) and is learned from requests", error)
    else:
        speed, limit = admission.capacity.speed, admission.capacity.limit
        logger.info("this machine makes %.2f s of speech a second: %d utterances at a time", speed, limit)


@lru_cache(maxsize=1)
def _checkpoint(directory: Path) -> tuple[Layout, ModelConfig]:
    """Read once for the stages and the service."""
    return Layout(directory), load_config(directory)


def default_sampling(settings: CosyVoice2Settings) -> SamplingOptions:
    """How speech tokens are drawn where a request says nothing."""
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
    stages: StageClient,
    metrics: SpeechMetrics,
) -> VoiceBook:
    identity = checkpoint_id(layout)
    store = VoiceStore(
        settings.voices_dir,
        identity,
        max_voices=settings.max_voices,
        max_bytes=settings.max_voice_bytes,
        keeps_unnamed=settings.reference_days > 0,
    )
    forget_in_time(store, settings.reference_days * DAY_S)
    family = layout.family
    frames_per_token = family.prompt_frames_per_token
    speakers = import_speakers(load_speakers(layout), tokenizer.decode, identity, frames_per_token)
    list_speakers(settings.voices_dir, speakers)
    nobody = Voice.of_nobody(flow.mel_bins, flow.speaker_dim, identity)
    book = VoiceBook(
        store, speakers, settings.default_voice, stages, identity, metrics.voice_looked_up, family, nobody
    )
    try:
        book.default()
    except CosyVoiceError as error:
        logger.warning("requests have to bring a reference or to name a voice: %s", error)
    return book
