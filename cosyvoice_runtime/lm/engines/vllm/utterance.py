"""What the draws of one utterance depend on, in a form that vLLM carries to where it samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.lm import Generation, SamplingOptions
from cosyvoice_runtime.lm.generation import TokenLimits

KEY = "cosyvoice2"
"""Of ``SamplingParams.extra_args``, and of ``config.json`` for the `SpeechLMConfig`."""


@dataclass(frozen=True)
class VllmUtterance:
    """
    Attributes:
        options: with a seed.
        prompt_speech: codes that the repetition penalty counts as well.
    """

    options: SamplingOptions
    prompt_speech: Sequence[int]
    limits: TokenLimits

    def generation(self, config: SpeechLMConfig) -> Generation:
        """A fresh record of it, with nothing drawn yet."""
        return Generation(config, self.options, self.prompt_speech, self.limits)

    def as_extra_args(self) -> dict[str, Any]:
        """Plain values, which survive the way to another process."""
        return {
            KEY: {
                "options": asdict(self.options),
                "prompt_speech": list(self.prompt_speech),
                "limits": list(self.limits),
            }
        }

    @classmethod
    def from_extra_args(cls, extra_args: Mapping[str, Any] | None) -> VllmUtterance:
        """
        Raises:
            ValueError: they are not from :meth:`as_extra_args`.
        """
        if not extra_args or KEY not in extra_args:
            raise ValueError(f"a request to this model needs extra_args[{KEY!r}]")
        values = extra_args[KEY]
        options = SamplingOptions(**values["options"])
        return cls(options, values["prompt_speech"], TokenLimits(*values["limits"]))
