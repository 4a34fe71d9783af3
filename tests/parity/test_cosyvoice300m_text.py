"""CosyVoice-300M's front end against the reference: text ids and the prompt's mel."""

from __future__ import annotations

import pytest
from goldens import COSYVOICE_300M, Case, Compare

from cosyvoice_runtime.audio.mel import mel_spectrogram
from cosyvoice_runtime.checkpoint import family
from cosyvoice_runtime.checkpoint.whisper_tokens import WHISPER_TOKENS

TEXT = COSYVOICE_300M.settings("text")
BYTES_AND_MERGES = 50_257


@pytest.mark.parametrize("case", COSYVOICE_300M.cases("audio_frontend"), ids=str)
def test_prompt_mel(case: Case, compare: Compare) -> None:
    mel = mel_spectrogram(case["wav"][0].numpy(), family.COSYVOICE_300M.mel)
    compare("mel", mel.T[None], case["mel"], 1e-4)


def test_special_tokens_have_the_published_ids() -> None:
    ids = {token: BYTES_AND_MERGES + place for place, token in enumerate(WHISPER_TOKENS)}
    assert {token: ids[token] for token in TEXT["special_ids"]} == TEXT["special_ids"]
    assert BYTES_AND_MERGES + len(WHISPER_TOKENS) == TEXT["n_vocab"]
