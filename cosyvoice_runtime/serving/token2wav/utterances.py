"""Utterances in progress and the voices they speak in: found by key, bounded in number, dropped when idle."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from cosyvoice_runtime.errors import InvalidInput, NotFoundError, OverloadedError
from cosyvoice_runtime.serving.token2wav.chunk import PromptTensors
from cosyvoice_runtime.voice.digest import KEY
from cosyvoice_runtime.wave.prompt import FlowPrompt
from cosyvoice_runtime.wave.voice_flow import FlowPrefix, VoiceFlow

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
        content: hash of the prompt as it was sent.
        prefix: the prompt's chunks, computed; None while there are no pages for them.
        users: utterances in progress with this voice.
    """

    prompt: FlowPrompt
    content: str = ""
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

    def __init__(self, flow: VoiceFlow, limit: int) -> None:
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
            InvalidInput: the tensors are no prompt of this checkpoint, or not those of the key.
        """
        if tensors is not None:
            self._require_name_of(tensors, key)
        if key not in self._voices:
            if tensors is None:
                wanted = ", ".join(INPUT_NAMES.values())
                raise NotFoundError("voice_key", key, f"send it with {wanted}")
            self._add(key, CachedVoice(self._checked(tensors), tensors.key))
        self._voices.move_to_end(key)
        voice = self._voices[key]
        self._count(voice.prefix is not None)
        pages = self._flow.prefix_pages(voice.prompt)
        if voice.prefix is None and self._can_free(pages):
            self.make_room_for(pages)
            voice.prefix = self._flow.prefix(voice.prompt)
        voice.users += 1
        return voice

    def release(self, voice: CachedVoice) -> None:
        """An utterance has ended."""
        voice.users -= 1

    def make_room_for(self, pages: int) -> None:
        """Have so many pages free, as far as voices that nobody speaks with can give some.

        The one unused for longest gives first.
        """
        for voice in self._voices.values():
            if self._flow.free_pages >= pages:
                return
            if not voice.users:
                self._drop_prefix(voice)

    def clear(self) -> None:
        while self._voices:
            self._drop_prefix(self._voices.popitem()[1])

    def _count(self, hit: bool) -> None:
        if hit:
            self.hits += 1
        else:
            self.misses += 1

    def _require_name_of(self, tensors: PromptTensors, key: str) -> None:
        """A key never changes its voice: all who know it would speak with the new one."""
        if KEY.fullmatch(key) and key != tensors.key:
            raise InvalidInput("voice_key", key, f"the tensors' own hash is {tensors.key}")
        if key in self._voices and self._voices[key].content != tensors.key:
            raise InvalidInput("voice_key", key, "it names another voice already")

    def _add(self, key: str, voice: CachedVoice) -> None:
        while len(self._voices) >= self._limit:
            self._drop_prefix(self._voices.popitem(last=False)[1])
        self._voices[key] = voice

    def _can_free(self, pages: int) -> bool:
        unused = [voice.prefix for voice in self._voices.values() if voice.prefix and not voice.users]
        return self._flow.free_pages + sum(len(prefix.pages) for prefix in unused) >= pages

    def _drop_prefix(self, voice: CachedVoice) -> None:
        if voice.prefix is not None:
            self._flow.close(voice.prefix)
            voice.prefix = None

    def _checked(self, tensors: PromptTensors) -> FlowPrompt:
        prompt = tensors.flow_prompt()
        try:
            return self._flow.flow.check_prompt(prompt)
        except InvalidInput as error:
            name = INPUT_NAMES.get(error.field, error.field)
            raise InvalidInput(name, error.value, error.limit) from error


@dataclass(eq=False)
class OpenUtterance:
    """
    Attributes:
        state: the networks' own.
        received: speech tokens so far.
        used_at: when it was called last, by the store's clock.
    """

    state: Any
    voice: CachedVoice
    used_at: float
    received: int = 0


class Utterances:
    """The utterances in progress.

    Args:
        limit: how many there may be.
        idle_timeout_s: longest time between two calls for one.
        clock: monotonic seconds.
    """

    def __init__(self, limit: int, idle_timeout_s: float, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._idle_timeout_s = idle_timeout_s
        self._clock = clock
        self._utterances: dict[str, OpenUtterance] = {}

    def __len__(self) -> int:
        return len(self._utterances)

    def __contains__(self, name: str) -> bool:
        return name in self._utterances

    def names(self) -> list[str]:
        return list(self._utterances)

    def making_room(self, turn: Collection[str]) -> str | None:
        """The utterance to give up for another one; None when there is room.

        Whoever was only opened has no token yet and loses nothing: its first token opens it again. So
        openings never keep out those who speak.

        Args:
            turn: those that are being computed, which are kept.

        Raises:
            OverloadedError: as many speak as may.
        """
        if len(self._utterances) < self._limit:
            return None
        opened = (name for name, one in self._utterances.items() if not one.received and name not in turn)
        oldest = next(opened, None)
        if oldest is None:
            raise OverloadedError(
                f"utterance_id: {self._limit} utterances are in progress, which is the limit; try again later"
            )
        return oldest

    def add(self, name: str, state: Any, voice: CachedVoice) -> OpenUtterance:
        self._utterances[name] = OpenUtterance(state, voice, self._clock())
        return self._utterances[name]

    def get(self, name: str) -> OpenUtterance:
        """
        Raises:
            NotFoundError: it was never opened, or is over.
        """
        if name not in self._utterances:
            limit = f"it was not opened, has ended or failed, or was idle for {self._idle_timeout_s:g} s"
            raise NotFoundError("utterance_id", name, limit)
        return self._utterances[name]

    def is_open(self, name: str, utterance: OpenUtterance) -> bool:
        """Whether this one is in progress, and no other of its name."""
        return self._utterances.get(name) is utterance

    def remove(self, name: str) -> OpenUtterance | None:
        return self._utterances.pop(name, None)

    def touch(self, names: Iterable[str]) -> None:
        """These are not idle."""
        for name in names:
            if name in self._utterances:
                self._utterances[name].used_at = self._clock()

    def idle(self) -> list[str]:
        """Those whose time is over."""
        end = self._clock() - self._idle_timeout_s
        return [name for name, utterance in self._utterances.items() if utterance.used_at <= end]

    def idle_in_s(self) -> float | None:
        """Time until the next one is idle, unless it is called; None without any."""
        if not self._utterances:
            return None
        oldest = min(utterance.used_at for utterance in self._utterances.values())
        return max(oldest + self._idle_timeout_s - self._clock(), 0.0)
