"""Voices of utterances: found by key, bounded in number, and computed once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from cosyvoice_runtime.engine.batches.chunk import PromptTensors
from cosyvoice_runtime.engine.batches.usage import MemoryUsage
from cosyvoice_runtime.errors import InvalidInput, NotFoundError
from cosyvoice_runtime.flow.voice_flow import FlowPrefix, FlowPrompt, VoiceFlow
from cosyvoice_runtime.voice.digest import KEY

INPUT_NAMES = {
    "speech_tokens": "prompt_speech_tokens",
    "prompt_mel": "prompt_speech_feat",
    "speaker_embedding": "prompt_spk_embedding",
}
"""The inputs of a prompt's arrays, by the names that the flow has for them."""


NEWEST = 0.02
"""Share of the newest utterance in the averages. With 0.05 the averages of few long ones among many short
ones differ by a third from one time to another."""


class UsualPages:
    """How many pages utterances hold, learned from those that have ended.

    One thread at a time learns; what others read meanwhile may be one utterance old.

    Args:
        pages: pages of an utterance, before any has ended.
        squared: the mean of their square; for speech of all lengths about one and a half times the square of
            the mean.
    """

    def __init__(self, pages: float = 12.0, squared: float = 220.0) -> None:
        self._mean, self._mean_squared = pages, squared

    def learn(self, pages: int) -> None:
        """Note that an utterance has ended that held so many pages."""
        self._mean += NEWEST * (pages - self._mean)
        self._mean_squared += NEWEST * (pages * pages - self._mean_squared)

    @property
    def at_end(self) -> int:
        """Pages that an utterance holds when it ends, on average."""
        return round(self._mean)

    @property
    def in_progress(self) -> float:
        """Pages that an utterance in progress holds, on average, if all go on equally fast.

        Long utterances are in progress for longer, each with half of its pages on average: so this is the
        mean of the squares by twice the mean. Of equally long utterances it is half of their pages at the
        end, and much more where a few are very long.
        """
        return self._mean_squared / (2 * self._mean)


@dataclass(eq=False)
class CachedVoice:
    """A voice that is known.

    Attributes:
        content: hash of the prompt as it was sent.
        prefix: the prompt's chunks, computed; None while there are no pages for them.
        users: utterances in progress with this voice, and those about to be.
        computing: whether a thread makes the prefix.
        forgotten: whether no key leads here any more.
        told: called after the computation, whatever its outcome.
    """

    prompt: FlowPrompt
    content: str = ""
    prefix: FlowPrefix | None = None
    users: int = 0
    computing: bool = False
    forgotten: bool = False
    told: list[Callable[[], None]] = field(default_factory=list)

    @property
    def start(self) -> FlowPrefix | FlowPrompt:
        """The prefix or, before there is one, the prompt that an utterance is opened with."""
        return self.prefix or self.prompt


class VoiceCache:
    """The voices used last, of one scheduler or of several whose flows share their pages; for any thread.

    A forgotten voice's pages are free as soon as no utterance reads them. When pages are short, voices that
    no utterance uses give theirs up first and compute them again when needed; they stay known. A voice is
    computed by one thread at a time, and by none that waits for another voice.

    Args:
        flow: the flow with the pages.
        limit: most voices; the one unused for longest makes room.

    Attributes:
        usual_pages: pages of utterances, without their voices'.
    """

    def __init__(self, flow: VoiceFlow, limit: int) -> None:
        self._flow = flow
        self._limit = limit
        self._voices: OrderedDict[str, CachedVoice] = OrderedDict()
        self._members = self._speaking = 0
        self.usual_pages = UsualPages()
        # It is never held while networks compute or others are told; the pages' lock is taken inside it.
        self._changed = threading.Condition()
        flow.when_short(self._make_room_for)

    def __len__(self) -> int:
        return len(self._voices)

    @property
    def pages(self) -> int:
        """Pages that voices hold."""
        with self._changed:
            return sum(len(voice.prefix.pages) for voice in self._voices.values() if voice.prefix)

    @property
    def num_pages(self) -> int:
        """Number of all pages."""
        return self._flow.num_pages

    @property
    def pages_left(self) -> int:
        """Pages that are free, or would be if unused voices gave theirs up."""
        with self._changed:
            return self._flow.free_pages + sum(map(_pages_to_give, self._voices.values()))

    @property
    def speaking(self) -> int:
        """Number of utterances in progress that share the pages."""
        return self._speaking

    @property
    def spoken_pages(self) -> int:
        """Pages that utterances in progress hold."""
        return self._flow.num_pages - self._flow.free_pages - self.pages

    def can_speak(self, key: str, tensors: PromptTensors | None) -> bool:
        """Whether the voice is known, or comes with the call."""
        return tensors is not None or key in self._voices

    def pages_to_take(self, key: str, tensors: PromptTensors | None) -> int:
        """Pages of a voice that count as left, until an utterance uses it."""
        with self._changed:
            voice = self._voices.get(key)
            if voice is not None and voice.prefix is not None:
                return _pages_to_give(voice)
            if voice is not None:
                return self._flow.prefix_pages(len(voice.prompt.tokens))
            if tensors is None:
                return 0
            # The tensors are not checked yet: a longer prompt is refused, and must not wait for pages before.
            return self._flow.prefix_pages(min(tensors.tokens.size, self._flow.flow.most_prompt_tokens))

    def usage(self) -> MemoryUsage:
        in_use = self._flow.num_pages - self._flow.free_pages
        return MemoryUsage(len(self), self.pages, in_use, self._flow.num_pages)

    def enter(self) -> None:
        """Note a service that begins to use the cache; paired with :meth:`leave`."""
        with self._changed:
            self._members += 1

    def leave(self) -> None:
        """Note that a service has no utterance and will have none; the last one frees all voices."""
        with self._changed:
            self._members -= 1
            if not self._members:
                self.clear()

    def computes(self, key: str, tensors: PromptTensors | None) -> bool:
        """Whether :meth:`acquire` would run the networks over a prompt, or wait for a thread that does."""
        with self._changed:
            return self._voices[key].prefix is None if key in self._voices else tensors is not None

    def awaits(self, key: str, told: Callable[[], None]) -> bool:
        """Whether the voice is being computed now; if so, ``told`` is called after that, from the computing
        thread."""
        with self._changed:
            voice = self._voices.get(key)
            if voice is None or not voice.computing:
                return False
            voice.told.append(told)
            return True

    def acquire(self, key: str, tensors: PromptTensors | None, flow: VoiceFlow | None = None) -> CachedVoice:
        """The voice of a key, made from the tensors if unknown; paired with :meth:`release`.

        Waits if another thread computes it, and computes it itself if that one fails.

        Args:
            flow: computes it; by default the one that has the pages.

        Raises:
            NotFoundError: the voice is unknown and there are no tensors.
            InvalidInput: the tensors are no prompt of this checkpoint, or not those of the key.
        """
        if tensors is not None and KEY.fullmatch(key) and key != tensors.key:
            raise InvalidInput("voice_key", key, f"the tensors' own hash is {tensors.key}")
        with self._changed:
            voice = self._known(key, tensors)
            voice.users += 1
            self._speaking += 1
        try:
            self._complete(voice, flow or self._flow)
        except BaseException:
            self.release(voice)
            raise
        return voice

    def release(self, voice: CachedVoice, pages: int = 0) -> None:
        """Note the end of an utterance with the pages that it alone held; None if nothing of it was heard."""
        with self._changed:
            voice.users -= 1
            self._speaking -= 1
            if pages:
                self.usual_pages.learn(pages)
            if voice.forgotten:
                self._drop_prefix(voice)

    def clear(self) -> None:
        """Free all voices, which no utterance may speak with any more."""
        with self._changed:
            while self._voices:
                voice = self._voices.popitem()[1]
                self._speaking -= voice.users
                voice.users = 0
                self._drop_prefix(voice)

    def _known(self, key: str, tensors: PromptTensors | None) -> CachedVoice:
        voice = self._voices.get(key)
        if voice is None:
            if tensors is None:
                wanted = ", ".join(INPUT_NAMES.values())
                raise NotFoundError("voice_key", key, f"send it with {wanted}")
            voice = CachedVoice(self._checked(tensors), tensors.key)
            self._forget_down_to(self._limit - 1)
            self._voices[key] = voice
        elif tensors is not None and voice.content != tensors.key:
            # A key never changes its voice: all clients that know it would speak with the new one.
            raise InvalidInput("voice_key", key, "it names another voice already")
        self._voices.move_to_end(key)
        return voice

    def _complete(self, voice: CachedVoice, flow: VoiceFlow) -> None:
        """Compute the voice, unless there are no pages for it."""
        wanted = flow.prefix_pages(len(voice.prompt.tokens))
        with self._changed:
            self._changed.wait_for(lambda: not voice.computing)
            if voice.prefix is not None or self.pages_left < wanted:
                return
            voice.computing = True
        prefix = None
        try:
            prefix = flow.prefix(voice.prompt)
        finally:
            # A prefix whose pages others took meanwhile is useless: the next utterance computes it again.
            self._computed(voice, prefix if prefix and (prefix.pages or not wanted) else None)

    def _computed(self, voice: CachedVoice, prefix: FlowPrefix | None) -> None:
        with self._changed:
            voice.computing, voice.prefix = False, prefix
            told, voice.told = voice.told, []
            self._changed.notify_all()
        for tell in told:
            tell()

    def _make_room_for(self, pages: int) -> bool:
        """Free so many pages, as far as unused voices hold them; the one unused for longest gives first."""
        with self._changed:
            for voice in self._voices.values():
                if self._flow.free_pages >= pages:
                    break
                self._drop_prefix(voice)
            return self._flow.free_pages >= pages

    def _forget_down_to(self, limit: int) -> None:
        while self._voices and len(self._voices) > limit:
            voice = self._voices.popitem(last=False)[1]
            voice.forgotten = True
            self._drop_prefix(voice)

    def _drop_prefix(self, voice: CachedVoice) -> None:
        """Free the voice's pages, unless an utterance uses it or is about to."""
        if voice.prefix is not None and not voice.users:
            self._flow.close(voice.prefix)
            voice.prefix = None

    def _checked(self, tensors: PromptTensors) -> FlowPrompt:
        prompt = tensors.flow_prompt()
        try:
            return self._flow.flow.check_prompt(prompt)
        except InvalidInput as error:
            name = INPUT_NAMES.get(error.field, error.field)
            raise InvalidInput(name, error.value, error.limit) from error


def _pages_to_give(voice: CachedVoice) -> int:
    """Pages that an unused voice holds."""
    return 0 if voice.users or voice.prefix is None else len(voice.prefix.pages)
