"""Voices by key, each with what the flow computes from it once for all of its utterances."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from cosyvoice_runtime.errors import InvalidInput, NotFoundError
from cosyvoice_runtime.flow.flow import FlowPrompt
from cosyvoice_runtime.flow.stream import FlowPrefix, FlowStream
from cosyvoice_runtime.pipeline.token2wav import WaveState
from cosyvoice_runtime.serving.token2wav.chunk import PromptTensors

INPUT_NAMES = {
    "speech_tokens": "prompt_speech_tokens",
    "prompt_mel": "prompt_speech_feat",
    "speaker_embedding": "prompt_spk_embedding",
}
"""A prompt's parts as the flow calls them, and the inputs they come from."""


@dataclass(eq=False)
class CachedVoice:
    """
    Attributes:
        prefix: the prompt's chunks, computed; None while there are no pages for them.
        users: utterances in progress with this voice.
    """

    prompt: FlowPrompt
    prefix: FlowPrefix | None = None
    users: int = 0

    @property
    def start(self) -> FlowPrefix | FlowPrompt:
        """What an utterance is opened with."""
        return self.prefix or self.prompt


class VoiceCache:
    """The voices used last.

    A forgotten voice's pages are free as soon as no utterance reads them. When pages are short, voices that
    nobody speaks with give theirs up first and compute them again when needed; they stay known.

    Args:
        limit: voices kept; the one unused for longest makes room.

    Attributes:
        hits, misses: utterances so far whose voice had been computed before, or had not.
    """

    def __init__(self, flow: FlowStream, limit: int) -> None:
        self.hits = self.misses = 0
        self._flow = flow
        self._limit = limit
        self._voices: OrderedDict[str, CachedVoice] = OrderedDict()

    def __len__(self) -> int:
        return len(self._voices)

    @property
    def pages(self) -> int:
        """Pages that voices hold."""
        return sum(len(voice.prefix.pages) for voice in self._voices.values() if voice.prefix)

    def computes(self, key: str, tensors: PromptTensors | None) -> bool:
        """Whether :meth:`acquire` would run the networks over a prompt."""
        return self._voices[key].prefix is None if key in self._voices else tensors is not None

    def acquire(self, key: str, tensors: PromptTensors | None) -> CachedVoice:
        """The voice of a key, made from the tensors if unknown. Pair with :meth:`release`.

        Raises:
            NotFoundError: the voice is unknown and there are no tensors.
            InvalidInput: the tensors are no prompt of this checkpoint.
        """
        if key not in self._voices:
            if tensors is None:
                wanted = ", ".join(INPUT_NAMES.values())
                raise NotFoundError("voice_key", key, f"send it with {wanted}")
            self._add(key, self._checked(tensors))
        self._voices.move_to_end(key)
        voice = self._voices[key]
        self._count(voice.prefix is not None)
        if voice.prefix is None and self._can_free(self._chunks(voice.prompt)):
            self._free(self._chunks(voice.prompt))
            voice.prefix = self._flow.prefix(voice.prompt)
        voice.users += 1
        return voice

    def release(self, voice: CachedVoice) -> None:
        """An utterance has ended."""
        voice.users -= 1

    def make_room_for(self, states: Sequence[WaveState]) -> None:
        """Free pages for the next chunks of these utterances, as far as unused voices can give some."""
        spans = filter(None, (state.flow.next_span() for state in states if state.flow.pages is not None))
        self._free(sum(-(-span.count // self._flow.flow.config.encoder.chunk_tokens) for span in spans))

    def clear(self) -> None:
        while self._voices:
            self._drop_prefix(self._voices.popitem()[1])

    def _count(self, hit: bool) -> None:
        if hit:
            self.hits += 1
        else:
            self.misses += 1

    def _add(self, key: str, prompt: FlowPrompt) -> None:
        while len(self._voices) >= self._limit:
            self._drop_prefix(self._voices.popitem(last=False)[1])
        self._voices[key] = CachedVoice(prompt)

    def _can_free(self, pages: int) -> bool:
        unused = [voice.prefix for voice in self._voices.values() if voice.prefix and not voice.users]
        return self._flow.pool.free_pages + sum(len(prefix.pages) for prefix in unused) >= pages

    def _free(self, pages: int) -> None:
        """Take pages from voices that nobody speaks with, the one unused for longest first."""
        for voice in self._voices.values():
            if self._flow.pool.free_pages >= pages:
                return
            if not voice.users:
                self._drop_prefix(voice)

    def _drop_prefix(self, voice: CachedVoice) -> None:
        if voice.prefix is not None:
            self._flow.close(voice.prefix)
            voice.prefix = None

    def _chunks(self, prompt: FlowPrompt) -> int:
        config = self._flow.flow.config
        return max(len(prompt.tokens) - config.lookahead_tokens, 0) // config.encoder.chunk_tokens

    def _checked(self, tensors: PromptTensors) -> FlowPrompt:
        prompt = tensors.flow_prompt()
        try:
            return self._flow.flow.check_prompt(prompt)
        except InvalidInput as error:
            name = INPUT_NAMES.get(error.field, error.field)
            raise InvalidInput(name, error.value, error.limit) from error
