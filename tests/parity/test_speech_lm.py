"""Speech LM against the reference: embeddings, logits, tokens; text streaming."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import goldens
import pytest
import torch
from goldens import Compare

from cosyvoice_runtime.lm.generation import FinishReason
from cosyvoice_runtime.lm.prompt import Prompt, PromptSegment, Table, num_positions
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.text_stream import StreamState, TextStream
from cosyvoice_runtime.lm.torch.decoder import BatchDecoder
from cosyvoice_runtime.lm.torch.kv_cache import KVCache
from cosyvoice_runtime.lm.torch.speech_decoder import SpeechDecoder, load_speech_lm

TOLERANCE = 1e-4
FAMILIES = [goldens.COSYVOICE2, goldens.COSYVOICE3, goldens.COSYVOICE_300M]
PROMPT_TOLERANCE = {
    goldens.COSYVOICE2: 0.0,
    goldens.COSYVOICE3: 0.0,
    goldens.COSYVOICE_300M: TOLERANCE,  # its text is encoded
}
GREEDY, RAS, BISTREAM = (
    [case for family in FAMILIES for case in family.cases("llm", prefix)]
    for prefix in ("greedy", "ras", "bistream")
)
ENCODED_TEXTS = goldens.COSYVOICE_300M.cases("text_encoder", "c")


@cache
def speech_lm(family: goldens.Goldens) -> SpeechDecoder:
    return load_speech_lm(family.config().speech_lm, family.tensors("tiny_llm"))


def ids(case: goldens.Case, name: str) -> list[int]:
    return case[name].flatten().tolist()


def prompt_of(case: goldens.Case) -> Prompt:
    speaker = case["embedding"].flatten().tolist() if "embedding" in case else ()
    return Prompt(ids(case, "text"), ids(case, "prompt_text"), ids(case, "prompt_speech_token"), (), speaker)


def needed_len(case: goldens.Case) -> int:
    return num_positions(prompt_of(case).segments()) + case.settings["max_len"]


def options_of(case: goldens.Case) -> SamplingOptions:
    """The reference's settings: only the end-of-speech id is masked, and no runaway is ended."""
    return SamplingOptions(
        strategy="ras" if "torch_seed" in case.settings else "greedy",
        seed=case.settings.get("torch_seed"),
        min_tokens=case.settings["min_len"],
        max_tokens=case.settings["max_len"],
        runaway_span=0,
        upstream_min_length_mask=True,
    )


def teacher_forced(lm: SpeechDecoder, embeddings: torch.Tensor, tokens: list[int]) -> torch.Tensor:
    """Logits [1 + tokens, rows] after the prompt and after each token, decoded step by step."""
    length = len(embeddings)
    view = KVCache(lm.config, 1, length + len(tokens)).view(0, 1)
    logits = [lm.prefill(embeddings, 0, view)]
    for position, token in enumerate(tokens, start=length):
        logits.append(lm.decode_step(torch.tensor([token]), torch.tensor([position]), view, position + 1)[0])
    return torch.stack(logits)


@pytest.mark.parametrize("case", GREEDY, ids=str)
def test_prompt_hidden_states_and_logits(case: goldens.Case, compare: Compare) -> None:
    lm, prompt = speech_lm(case.family), prompt_of(case)
    embeddings = lm.embed(prompt.segments())
    compare("lm_input", embeddings[None], case["lm_input"], PROMPT_TOLERANCE[case.family])
    length = len(embeddings)
    view = KVCache(lm.config, 1, length).view(0, 1)
    hidden = lm(embeddings[None], torch.arange(length)[None], view, length)
    compare("hidden", hidden, case["hidden"], TOLERANCE)
    compare("logits", lm.logits(hidden), case["logits"], TOLERANCE)


@pytest.mark.parametrize("case", ENCODED_TEXTS, ids=str)
@torch.inference_mode()
def test_text_encoder(case: goldens.Case, compare: Compare) -> None:
    lm = speech_lm(case.family)
    compare("embedded", lm.text_embedding(case["text"]), case["embedded"], 0.0)
    compare("encoded", lm.text_encoder(case["embedded"], causal=True), case["encoded"], TOLERANCE)
    compare("out", lm.encode_text(case["text"]), case["out"], TOLERANCE)


@torch.inference_mode()
def test_padding_changes_no_encoded_text(compare: Compare) -> None:
    [case] = goldens.COSYVOICE_300M.cases("text_encoder", "padded")
    out = speech_lm(case.family).encode_text(case["text"])
    for row, length in enumerate(case.settings["lengths"]):
        compare(f"row {row}", out[row, :length], case["out"][row, :length], TOLERANCE)


@pytest.mark.parametrize("case", GREEDY + RAS, ids=str)
def test_log_probabilities_of_every_step(case: goldens.Case, compare: Compare) -> None:
    lm, expected = speech_lm(case.family), case["logp"]
    fed = ids(case, "tokens")[: len(expected) - 1]
    logp = teacher_forced(lm, lm.embed(prompt_of(case).segments()), fed).log_softmax(-1)
    compare("logp", logp, expected, TOLERANCE)


@pytest.mark.parametrize("case", GREEDY + RAS, ids=str)
def test_tokens(case: goldens.Case) -> None:
    decoder = BatchDecoder(speech_lm(case.family), slots=1, max_len=needed_len(case))
    options = options_of(case)
    generation = decoder.add(prompt_of(case), options)
    while generation.finish_reason is None:
        decoder.step()
    assert generation.tokens == ids(case, "tokens")
    full = len(generation.tokens) == options.max_tokens
    assert generation.finish_reason is (FinishReason.LENGTH if full else FinishReason.STOP)


@pytest.mark.parametrize("family", FAMILIES, ids=[family.name or "cosyvoice2" for family in FAMILIES])
def test_tokens_of_all_cases_decoded_together(family: goldens.Goldens) -> None:
    cases = [case for case in GREEDY + RAS if case.family is family]
    decoder = BatchDecoder(speech_lm(family), slots=len(cases), max_len=max(map(needed_len, cases)))
    generations = [decoder.add(prompt_of(case), options_of(case)) for case in cases]
    while decoder.busy:
        decoder.step()
    assert [g.tokens for g in generations] == [ids(case, "tokens") for case in cases]


def next_feed(stream: TextStream, pieces: Iterator[torch.Tensor]) -> list[PromptSegment]:
    """The reference reads one piece whenever it waits."""
    feed = None
    while feed is None:
        piece = next(pieces, None)
        if piece is None:
            stream.end()
        else:
            stream.push(piece.tolist())
        feed = stream.take()
    return feed


class UpstreamStream(TextStream):
    """The published feeding, where it departs from its own layout.

    All text that is left when it ends is fed at once; what was fed last before a fill marker is fed again
    with the final text; a prompt that ends with a full block, or that has a lead and no speech, is not
    followed by text before speech is drawn; prompt speech for which text never came is dropped.
    """

    last_fed: Sequence[PromptSegment] = ()

    def accept(self, token: int) -> None:
        super().accept(token)
        if token != self._fill_id:
            self.last_fed = [PromptSegment(Table.SPEECH, (token,))]

    def _opens_with_speech(self) -> bool:
        return not self._prompt_speech and len(self._opening) > 1

    def _has_block(self) -> bool:
        return not self.ended and super()._has_block()

    def _final_segments(self) -> list[PromptSegment]:
        self._prompt_speech.clear()
        return [*self.last_fed, *super()._final_segments()]

    def _start(self, state: StreamState, segments: list[PromptSegment]) -> list[PromptSegment]:
        self.last_fed = super()._start(state, segments)
        return self.last_fed


def parted(case: goldens.Case) -> tuple[list[int], list[int]]:
    """The prompt's text up to the id that ends an instruction, and what follows."""
    marker, prompt_text = case.family.settings("config").get("endofprompt_id"), ids(case, "prompt_text")
    end = prompt_text.index(marker) + 1 if marker in prompt_text else 0
    return prompt_text[:end], prompt_text[end:]


def stream_text(case: goldens.Case) -> tuple[torch.Tensor, list[int]]:
    """Embeddings fed [T, hidden] and tokens, with the recorded run's sampler: the best speech code."""
    lm = speech_lm(case.family)
    lead, prompt_text = parted(case)
    stream = UpstreamStream(lm.config, prompt_text, ids(case, "prompt_speech_token"), lead)
    pieces = iter(torch.split(case["text"].flatten(), case.settings["pieces"]))
    view = KVCache(lm.config, 1, len(case["fed"]) + 1).view(0, 1)
    fed, tokens, start = [], [], 0
    feed: list[PromptSegment] | None = None
    while feed or len(tokens) < case.settings["n_yielded"]:
        fed.append(lm.embed(feed or next_feed(stream, pieces)))
        logits = lm.prefill(fed[-1], start, view)
        start += len(fed[-1])
        feed = None
        if stream.must_fill:
            stream.accept(lm.config.fill_id)
        elif len(tokens) < case.settings["n_yielded"]:
            tokens.append(int(logits[: lm.config.speech_tokens].argmax()))
            stream.accept(tokens[-1])
            feed = [PromptSegment(Table.SPEECH, tokens[-1:])]
    return torch.cat(fed), tokens


@pytest.mark.parametrize("case", BISTREAM, ids=str)
def test_streamed_text_feeds_and_speaks_as_reference(case: goldens.Case, compare: Compare) -> None:
    fed, tokens = stream_text(case)
    assert tokens == ids(case, "tokens")
    compare("fed", fed, case["fed"], 0.0)
