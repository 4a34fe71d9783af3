"""The work before the speech LM, without a server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.checkpoint.sections import load_config
from cosyvoice_runtime.checkpoint.tensors import load_speakers
from cosyvoice_runtime.engine.utterance.layout import lm_prompts
from cosyvoice_runtime.lm import Prompt
from cosyvoice_runtime.local import SpeechRequest
from cosyvoice_runtime.text import TextFrontEnd, read_tokenizer
from cosyvoice_runtime.voice import Voice
from cosyvoice_runtime.voice.extractors import Extractors
from cosyvoice_runtime.voice.speakers import import_speakers


class FrontEnd:
    """Voices and prompts of a checkpoint.

    Attributes:
        sample_rate: of what is spoken.
        family: of the checkpoint.
        speakers: voices that the checkpoint brings, by name.
        make_voice: the voice of a reference and what it says.
    """

    def __init__(self, checkpoint: Path, threads: int) -> None:
        layout = Layout(checkpoint)
        extractors = Extractors(layout, threads)
        self.sample_rate = load_config(checkpoint).vocoder.sample_rate
        self.family = layout.family
        self._tokenizer = read_tokenizer(layout)
        self._text = TextFrontEnd(self._tokenizer, family=self.family)
        self.make_voice: Callable[[Audio, str], Voice] = extractors.voice
        self.speakers: Mapping[str, Voice] = import_speakers(
            load_speakers(layout),
            self._tokenizer.decode,
            extractors.checkpoint_id,
            self.family.prompt_frames_per_token,
        )

    def prompts(self, text: str, voice: Voice) -> Sequence[Prompt]:
        """One for each segment of the text."""
        return lm_prompts(SpeechRequest(text, voice), self._text, self._tokenizer)
