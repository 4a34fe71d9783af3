"""The course of an utterance with stages that write token ids as samples."""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict

import pytest
import torch

from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.lm.limits import FinishReason
from cosyvoice_runtime.pipeline.hop import HopPolicy
from cosyvoice_runtime.pipeline.request import SpeechRequest
from cosyvoice_runtime.pipeline.stages import TokenGroup, WaveSettings
from cosyvoice_runtime.serving.speech.speech_service import OFFLINE_CUSHION_S, SpeechService
from cosyvoice_runtime.serving.speech.token_queue import StageSilentError
from cosyvoice_runtime.text import TextFrontEnd, TextTokenizer
from cosyvoice_runtime.voice import Voice

GroupsOf = list[TokenGroup | Exception]


class CodedStages:
    """A speech LM that says given groups of tokens, a token2wav that writes each token as one sample."""

    def __init__(self, groups: GroupsOf) -> None:
        self.groups = groups
        self.calls: list[tuple[list[int], bool]] = []
        self.calls_of: dict[str, list[tuple[list[int], bool]]] = defaultdict(list)
        self.sounds: list[WaveSettings] = []
        self.cushions: list[float] = []
        self.stopped: list[str] = []
        self.dropped: list[str] = []
        self.prompts: list[object] = []
        self.first_tokens: list[int] = []
        self.wave_error: Exception | None = None
        self.hold = threading.Event()
        self.hold.set()

    def generate(self, prompt, sampling, request_id, first_tokens):
        self.prompts.append((prompt, sampling))
        self.first_tokens.append(first_tokens)
        for group in self.groups:
            if isinstance(group, Exception):
                raise group
            yield group
            self.hold.wait()

    def stop(self, request_id):
        self.stopped.append(request_id)
        self.hold.set()

    def wave(self, utterance_id, tokens, position, last, settings, cushion_s):
        if self.wave_error:
            raise self.wave_error
        assert position == sum(len(before) for before, _ in self.calls_of[utterance_id])
        self.calls.append((list(tokens), last))
        self.calls_of[utterance_id].append((list(tokens), last))
        self.sounds.append(settings)
        self.cushions.append(cushion_s)
        return torch.tensor(tokens, dtype=torch.float32).repeat_interleave(960)

    def drop(self, utterance_id):
        self.dropped.append(utterance_id)


class Listener:
    """Keeps what it hears. ``releases`` lets held stages go on once it has heard something."""

    def __init__(self, leaves_after: int | None = None, releases: CodedStages | None = None) -> None:
        self.chunks: list[torch.Tensor] = []
        self.reasons: list[FinishReason | None] = []
        self.leaves_after = leaves_after
        self.releases = releases

    def require(self) -> None:
        if self.leaves_after is not None and len(self.chunks) >= self.leaves_after:
            raise ConnectionResetError

    def send(self, samples, finish_reason) -> None:
        self.chunks.append(samples)
        self.reasons.append(finish_reason)
        if self.releases:
            self.releases.hold.set()

    def tokens(self) -> list[int]:
        return torch.cat(self.chunks)[::960].int().tolist()


@pytest.fixture(scope="module")
def tokenizer(tiny_checkpoint) -> TextTokenizer:
    return TextTokenizer(tiny_checkpoint / "CosyVoice-BlankEN")


def service(
    stages: CodedStages, tokenizer: TextTokenizer, timeout_s: float = 20.0, cut_prompts: bool = False
) -> SpeechService:
    clock = itertools.count()  # a second passes at every look: the client is always about to run dry
    return SpeechService(
        stages,
        TextFrontEnd(tokenizer),
        tokenizer,
        HopPolicy(),
        timeout_s,
        cut_prompts,
        now=lambda: float(next(clock)),
    )


def request(prompt_tokens: int = 15, **options) -> SpeechRequest:
    voice = Voice(
        "0" * 64,
        "some words",
        torch.arange(prompt_tokens, dtype=torch.int32),
        torch.zeros(2 * prompt_tokens, 80),
        torch.zeros(192),
        "checkpoint",
    )
    return SpeechRequest(**({"text": "Hello there.", "voice": voice, "seed": 1} | options))


def singles(count: int, reason: FinishReason = FinishReason.STOP) -> GroupsOf:
    return [*(TokenGroup([token]) for token in range(count)), TokenGroup([], reason)]


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("count", [0, 1, 12, 13, 14, 200])
def test_every_token_is_heard_once_in_order(tokenizer, count, streaming):
    stages, listener = CodedStages(singles(count)), Listener()
    service(stages, tokenizer).speak(request(streaming=streaming), listener)
    assert listener.tokens() == list(range(count))
    assert listener.reasons == [None] * (len(listener.reasons) - 1) + [FinishReason.STOP]
    assert [last for _, last in stages.calls] == [False] * (len(stages.calls) - 1) + [True]


def test_whoever_waits_for_all_of_it_is_served_in_long_chunks_and_without_hurry(tokenizer):
    stages = CodedStages([TokenGroup(list(range(250)), FinishReason.STOP)])
    service(stages, tokenizer).speak(request(streaming=False), Listener())
    assert set(stages.cushions) == {OFFLINE_CUSHION_S}
    assert [len(tokens) for tokens, _ in stages.calls] == [13, 100, 100, 37]


def test_whoever_is_about_to_run_dry_never_waits_for_more_than_a_block(tokenizer):
    stages = CodedStages([TokenGroup(list(range(250)), FinishReason.STOP)])
    service(stages, tokenizer).speak(request(), Listener())
    assert [len(tokens) for tokens, _ in stages.calls] == [13, *9 * [25], 12]


def test_every_call_brings_the_same_voice_seed_and_speed(tokenizer):
    stages = CodedStages([TokenGroup(list(range(13))), *singles(100)])
    stages.hold.clear()
    service(stages, tokenizer).speak(request(speed=1.5), Listener(releases=stages))
    assert len(stages.sounds) > 1
    assert set(stages.sounds) == {stages.sounds[0]}
    assert (stages.sounds[0].speed, stages.sounds[0].voice.key) == (1.5, "0" * 64)


def test_first_chunk_goes_out_while_the_lm_is_still_speaking(tokenizer):
    stages = CodedStages([TokenGroup(list(range(13))), TokenGroup([13], FinishReason.LENGTH)])
    stages.hold.clear()
    listener = Listener(releases=stages)
    service(stages, tokenizer).speak(request(), listener)
    assert stages.first_tokens == [13]
    assert stages.calls[0] == (list(range(13)), False)
    assert listener.reasons[-1] is FinishReason.LENGTH


@pytest.mark.parametrize(
    ("prompt_tokens", "left"), [(40, 40), (41, 40), (62, 40), (64, 40), (15, 15), (3, 3)]
)
def test_cut_prompt_leaves_token2wav_less_and_the_lm_all_of_it(tokenizer, prompt_tokens, left):
    stages, listener = CodedStages(singles(60)), Listener()
    service(stages, tokenizer, cut_prompts=True).speak(request(prompt_tokens), listener)
    assert listener.tokens() == list(range(60))
    voice = stages.sounds[0].voice
    assert voice.speech_tokens.tolist() == list(range(prompt_tokens - left, prompt_tokens))
    assert voice.prompt_mel.shape == (2 * left, 80)
    assert (voice.key == "0" * 64) == (left == prompt_tokens)
    assert stages.prompts[0][0].prompt_speech == list(range(prompt_tokens))
    assert stages.first_tokens == [25 if left == 3 else 13]
    assert len(stages.calls[0][0]) == stages.first_tokens[0]


def test_cut_voices_have_keys_of_their_own_however_they_are_heard(tokenizer):
    keys = []
    for prompt_tokens, streaming in ((41, True), (41, False), (62, True)):
        stages = CodedStages(singles(5))
        asked = request(prompt_tokens, streaming=streaming)
        service(stages, tokenizer, cut_prompts=True).speak(asked, Listener())
        keys.append(stages.sounds[0].voice.key)
    assert keys[0] == keys[1]
    assert len({*keys, "0" * 64}) == 3


def test_long_text_is_one_listener_and_several_pieces_with_seeds_of_their_own(tokenizer):
    stages, listener = CodedStages(singles(5)), Listener()
    service(stages, tokenizer).speak(request(text="This is a sentence of some length. " * 12), listener)
    pieces = len(stages.prompts)
    assert pieces > 1
    assert listener.tokens() == list(range(5)) * pieces
    assert [reason for reason in listener.reasons if reason] == [FinishReason.STOP] * pieces
    assert len({sampling.seed for _, sampling in stages.prompts}) == pieces


def test_failure_of_the_lm_reaches_the_caller_and_drops_the_utterance(tokenizer):
    stages = CodedStages([TokenGroup([1, 2]), CosyVoiceError("no memory")])
    with pytest.raises(CosyVoiceError, match="no memory"):
        service(stages, tokenizer).speak(request(), Listener())
    assert len(stages.dropped) == 1


def test_lm_that_ends_without_a_reason_is_a_failure(tokenizer):
    stages = CodedStages([TokenGroup([1, 2])])
    with pytest.raises(CosyVoiceError, match="ended without a reason"):
        service(stages, tokenizer).speak(request(), Listener())


def test_failure_of_token2wav_stops_the_lm_and_drops_the_utterance(tokenizer):
    stages = CodedStages([TokenGroup(list(range(40))), *singles(500)])
    stages.hold.clear()
    stages.wave_error = CosyVoiceError("broken")
    with pytest.raises(CosyVoiceError, match="broken"):
        service(stages, tokenizer).speak(request(), Listener())
    assert len(stages.stopped) == len(stages.dropped) == 1


def test_listener_that_leaves_stops_the_lm_and_drops_the_utterance(tokenizer):
    stages = CodedStages([TokenGroup(list(range(40))), *singles(500)])
    stages.hold.clear()
    with pytest.raises(ConnectionResetError):
        service(stages, tokenizer).speak(request(), Listener(leaves_after=1, releases=stages))
    assert len(stages.dropped) == 1


def test_silent_lm_is_a_failure_that_says_how_long(tokenizer):
    stages = CodedStages(singles(30))
    stages.hold.clear()
    with pytest.raises(StageSilentError, match=r"sent nothing for 0\.05 s"):
        service(stages, tokenizer, timeout_s=0.05).speak(request(), Listener())
    assert len(stages.stopped) == 1
