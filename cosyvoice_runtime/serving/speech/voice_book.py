"""Which voice a request speaks with."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.pipeline.stages import Stages
from cosyvoice_runtime.voice import Voice, VoiceStore, build_voice, voice_key


class VoiceBook:
    """Voices by name, and of recordings, which are analysed once and then remembered.

    Args:
        speakers: voices that the checkpoint brings.
        default: name of the voice of requests that say nothing; the checkpoint's first speaker if it has
            no voice of this name.
        on_lookup: told of each recording whether its voice was known.
    """

    def __init__(
        self,
        store: VoiceStore,
        speakers: Mapping[str, Voice],
        default: str,
        stages: Stages,
        checkpoint_id: str,
        on_lookup: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._speakers = speakers
        self._default = default
        self._stages = stages
        self._checkpoint_id = checkpoint_id
        self._on_lookup = on_lookup

    def named(self, name: str) -> Voice:
        """A registered voice or a speaker of the checkpoint.

        Raises:
            InvalidInput: field ``voice``: there is none of this name.
        """
        return self._speakers.get(name) or self._store.get(name)

    def default(self) -> Voice:
        """The voice of a request that brings none.

        Raises:
            InvalidInput: field ``voice``: the deployment has no default voice.
        """
        if self._default in self._speakers or not self._speakers:
            return self.named(self._default)
        return next(iter(self._speakers.values()))

    def of(self, recording: Audio, transcript: str) -> Voice:
        """The voice of a recording.

        Raises:
            InvalidInput: the recording is no usable reference.
        """
        known = self._store.find(voice_key(recording, transcript, self._checkpoint_id))
        self._on_lookup(known is not None)
        if known is not None:
            return known
        voice = build_voice(
            recording,
            transcript,
            self._stages.speech_tokens,
            self._stages.speaker_embedding,
            self._checkpoint_id,
        )
        self._store.put(voice)
        return voice

    def resolve(self, name: str | None, recording: Audio | None, transcript: str | None) -> Voice:
        """The voice of a request.

        Raises:
            InvalidInput: it names a voice and brings a recording as well, or one of them can't be used.
        """
        if recording is None:
            if transcript is not None:
                raise InvalidInput("reference_text", transcript, "it goes with reference_wav only")
            return self.default() if name is None else self.named(name)
        if name is not None:
            raise InvalidInput("voice", name, "it can't be combined with reference_wav")
        return self.of(recording, transcript or "")
