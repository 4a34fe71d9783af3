"""The lookup of a request's voice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.errors import InvalidInput, StorageError
from cosyvoice_runtime.families import DEFAULT, Family
from cosyvoice_runtime.serving.speech.engine_client import EngineClient
from cosyvoice_runtime.settings.front import DEFAULT_VOICE
from cosyvoice_runtime.voice import Voice, VoiceStore, voice_key
from cosyvoice_runtime.voice.build import assemble_voice, extractor_samples, prompt_mel
from cosyvoice_runtime.voice.cached_voices import CachedVoices


class VoiceBook:
    """Voices by name, and voices of references, which are analysed once and cached.

    Args:
        speakers: the checkpoint's voices.
        default: name of the voice of requests that say nothing, registered or a speaker. The usual name
            stands for the checkpoint's first speaker where no voice has it.
        on_lookup: called for each reference with whether its voice was cached.
        family: the checkpoint's model family, which sets the form of prompts.
        neutral: speaks in probes and measurements where there is no default voice.
        adapters: names of the checkpoint's adapters by voice.
    """

    def __init__(
        self,
        store: VoiceStore | CachedVoices,
        speakers: Mapping[str, Voice],
        default: str,
        extractors: EngineClient,
        checkpoint_id: str,
        on_lookup: Callable[[bool], None] = lambda _: None,
        family: Family = DEFAULT,
        neutral: Voice | None = None,
        adapters: Collection[str] = (),
    ) -> None:
        self._store = store
        self._speakers = speakers
        self._default = default
        self._extractors = extractors
        self._checkpoint_id = checkpoint_id
        self._on_lookup = on_lookup
        self._family = family
        self._neutral = neutral
        self._adapters = adapters

    def named(self, name: str) -> Voice:
        """A registered voice or a speaker of the checkpoint; an InvalidInput tells that there is none of the
        name, or that the checkpoint lacks its adapter."""
        voice = self._speakers.get(name) or self._store.get(name, self._speakers)
        if voice.adapter and voice.adapter not in self._adapters:
            limit = f"the checkpoint's folder adapters has no {voice.adapter!r}, with which this voice speaks"
            raise InvalidInput("voice", name, limit)
        return voice

    def default(self) -> Voice:
        """The voice of requests that name none; an InvalidInput tells that the deployment has none."""
        is_unset = self._default == DEFAULT_VOICE and self._default not in self._speakers
        if is_unset and self._speakers and not self._store.names_of(self._default):
            return next(iter(self._speakers.values()))
        return self.named(self._default)

    def any(self) -> Voice:
        """The default voice, or a neutral one if there is none."""
        try:
            return self.default()
        except InvalidInput:
            if self._neutral is None:
                raise
            return self._neutral

    async def of(self, reference: Audio, transcript: str, share_as: str | None = None) -> Voice:
        """The voice of a reference.

        Args:
            share_as: token by which the voice is left in the bucket, where whoever asks for it keeps it or
                doesn't; this server keeps none of its own then.

        Raises:
            InvalidInput: the reference is not usable.
            StorageError: there is no bucket, or it is away.
        """
        if share_as is not None and not isinstance(self._store, CachedVoices):
            raise StorageError("share_as needs a bucket: cosyvoice2.voices_url is not set for this server")
        known = await asyncio.to_thread(self._find, reference, transcript)
        self._on_lookup(known is not None)
        voice = known or await self._analysed(reference, transcript)
        if share_as is not None and isinstance(self._store, CachedVoices):
            await asyncio.to_thread(self._store.shared.leave, share_as, voice)
        elif known is None:
            await asyncio.to_thread(self._store.put, voice)
        return voice

    def kept(self, name: str | None, *, any_will_do: bool = False) -> Voice:
        """The voice of a request without a reference; any will do for one in which it is not heard."""
        if name is not None:
            return self.named(name)
        return self.any() if any_will_do else self.default()

    def changed_to(self, name: str) -> Voice:
        """The voice that a text changes to; without a name the default one."""
        return self.kept(name or None)

    def _find(self, reference: Audio, transcript: str) -> Voice | None:
        return self._store.find(voice_key(reference, transcript, self._checkpoint_id, self._family.mel))

    async def _analysed(self, reference: Audio, transcript: str) -> Voice:
        """Run the three extractors concurrently."""
        samples = await asyncio.to_thread(extractor_samples, reference)
        tokens, embedding, mel = await asyncio.gather(
            self._extractors.speech_tokens(samples),
            self._extractors.speaker_embedding(samples),
            asyncio.to_thread(prompt_mel, reference, self._family.mel),
        )
        return assemble_voice(
            reference, transcript, mel, tokens, embedding, self._checkpoint_id, self._family
        )
