"""The description of a family: its files, its text, its parts, and the memory that these take.

A part is named by the place of its code, ``module:name``, which is imported when the part is loaded: so a
process without torch can read descriptions. The class of a network's configuration picks its parts; a network
that differs has a class of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from operator import attrgetter
from typing import Any, NamedTuple

from cosyvoice_runtime.audio.mel import MelFormat
from cosyvoice_runtime.families.tokens import END_OF_PROMPT, UNITS

Place = str
"""``module:name`` of a class, a function or a constant."""
PUBLISHED_PROMPT_RATE = 24_000
"""Rate in Hz at which the published code reads every family's prompts, see :class:`MelFormat`."""


def load(place: Place) -> Any:
    """The class, function or constant of a place; imports its module."""
    module, name = place.split(":")
    return attrgetter(name)(import_module(module))


class Published(NamedTuple):
    """The hubs' copies of a family's checkpoint.

    Attributes:
        hugging_face, model_scope: names under which the hubs have it.
        licence: of the weights, as their publisher says (SPDX).
        commit: of Hugging Face, as other projects pin it; downloads are the newest unless told otherwise.
    """

    hugging_face: str
    model_scope: str
    licence: str
    commit: str


class PublishedFile(NamedTuple):
    """A file that a family needs and its checkpoint does not bring."""

    url: str
    sha256: str


@dataclass(frozen=True)
class SpeechLmNeeds:
    """Needs of the published speech LM, for settings that leave it open.

    Attributes:
        positions: of a request with 1,240 ids of text and transcript, a reference of 30 s and 2,048 new
            tokens, rounded.
        slots: requests decoded together on a GPU.
        position_bytes: keys and values of a position in 16 bits.
        network_gib: weights in 16 bits, CUDA graphs and the driver's context, without the cache.
        fused_gib: weights of fused kernels, which have their own and read pages; 0: there are none.
    """

    positions: int
    slots: int
    position_bytes: int
    network_gib: float
    fused_gib: float = 0.0


QWEN2_VOCABULARY = "CosyVoice-BlankEN/vocab.json"
QWEN2_TOKENIZER = "cosyvoice_runtime.text.tokenizer:TextTokenizer.beside"
QWEN2_NEEDS = SpeechLmNeeds(4096, 64, 24 * 2 * 2 * 64 * 2, 2.7, fused_gib=0.7)
"""24 layers, two heads of 64 that keep something; the network as measured in bfloat16 on an H200, and its 360
million parameters of layers and head once more."""


@dataclass(frozen=True)
class SpeechLmParts:
    """The code of a speech LM.

    Attributes:
        config: class of its configuration.
        tensors: names and shapes of ``llm.pt`` for a configuration.
        network: makes the network of torch from a configuration, tensors, a device and a type.
        made_length: gives random weights utterances of a sensible length.
    """

    config: Place
    tensors: Place
    network: Place
    made_length: Place


@dataclass(frozen=True)
class FlowParts:
    """The code of a flow. A place is None where there is no such code.

    Attributes:
        estimator_config: class of the estimator's configuration.
        encoder_tensors, estimator_tensors: names and shapes of what comes before the estimator, and of it.
        networks: :class:`~cosyvoice_runtime.flow.torch.flow.FlowNetworks` of a flow in blocks.
        token2wav: loads flow and vocoder of torch.
        runtime: opens flow and vocoder of torch in the engine.
        fused_solver: makes fused kernels for a flow.
        powers_of_two: sizes of the estimator that fused kernels need as such.
        onnx_graphs: :class:`~cosyvoice_runtime.token2wav.onnx_export.CpuFlowGraphs`.
        tensorrt_graphs: :class:`~cosyvoice_runtime.tensorrt.graph_files.FlowGraphs`.
    """

    estimator_config: Place
    encoder_tensors: Place
    estimator_tensors: Place
    networks: Place | None
    token2wav: Place
    runtime: Place
    fused_solver: Place | None = None
    powers_of_two: tuple[str, ...] = ()
    onnx_graphs: Place | None = None
    tensorrt_graphs: Place | None = None


@dataclass(frozen=True)
class VocoderParts:
    """The code of a vocoder. A place is None where there is no such code.

    Attributes:
        config: class of its configuration.
        networks: makes F0 predictor, source and decoder of torch.
        context: frames that the networks read around a frame.
        onnx_source, onnx_decoder: the source on ONNX Runtime, and the graph of the decoder.
        tensorrt_decoder: the graph of the decoder for TensorRT.
    """

    config: Place
    networks: Place
    context: Place
    onnx_source: Place | None = None
    onnx_decoder: Place | None = None
    tensorrt_decoder: Place | None = None


@dataclass(frozen=True)
class Family:
    """A description of the checkpoints of a family.

    Attributes:
        name: for the command line and messages.
        config_file: by which a directory is told to be of the family.
        speech_tokenizer: file of the ONNX speech tokenizer.
        speech_codes: that it knows.
        log_mel_frames_per_token: of its input (100 Hz).
        vocabulary: file of the text tokenizer.
        has_qwen2: whether the speech LM is a Qwen2, with that one's configuration and tokenizer.
        special_tokens: of the text tokenizer, in the order of their ids.
        language_tags: those of them that a text may begin with, to say its language.
        mel: of the prompt.
        prompt_frames_per_token: to which a prompt's tokens and mel are cut; None where the flow stretches
            tokens to whatever mel there is.
        reads_speaker: whether the speech LM reads the speaker's embedding, but for instructions.
        usual_instruction: for words that are spoken as usual, where every prompt of the speech LM must hold
            an instruction; empty where none is needed.
        silent_tokens: speech codes without sound, of which only the first few of a run are spoken.
        speech_lm_needs: what the published speech LM takes.
        second_mib: pages of a finished second of speech in 16 bits and in 8, with the published flow;
            0 where nothing is kept in pages.
        gpu_first_hop: fewest speech tokens of a first chunk on a GPU. A fifth of a second or more is heard of
            it, for which the next chunk takes on an H200 with 64 clients.
        read_config: reads the sizes of the networks out of the content of ``config_file`` and of the Qwen2
            ``config.json``, which is empty where there is none.
        tokenizer: makes the text tokenizer of the vocabulary's path and the special tokens.
        speech_lm, flow, vocoder: parts of the networks.
        published: where the published checkpoint lies.
        vocabulary_source: file that the checkpoint is published without; None where it has everything.
        made: module of ``scripts`` with ``TINY`` and ``FULL`` sizes of a made checkpoint, and ``yaml_tree``,
            the content of ``config_file`` for such sizes.
        engines: values of ``tensorrt_llm.engine`` that can run the speech LM.
        backends: values of ``token2wav.backend`` that can run flow and vocoder; alike.
    """

    name: str
    config_file: str
    speech_tokenizer: str
    speech_codes: int
    log_mel_frames_per_token: int
    vocabulary: str
    has_qwen2: bool
    special_tokens: tuple[str, ...]
    language_tags: tuple[str, ...]
    mel: MelFormat
    prompt_frames_per_token: int | None
    reads_speaker: bool
    usual_instruction: str
    silent_tokens: frozenset[int]
    speech_lm_needs: SpeechLmNeeds
    second_mib: tuple[float, float]
    gpu_first_hop: int
    read_config: Place
    tokenizer: Place
    speech_lm: SpeechLmParts
    flow: FlowParts
    vocoder: VocoderParts
    published: Published
    vocabulary_source: PublishedFile | None
    made: str
    engines: tuple[str, ...]
    backends: tuple[str, ...]

    @property
    def needs_end_of_prompt(self) -> bool:
        """Whether every prompt of the speech LM must hold ``<|endofprompt|>``."""
        return bool(self.usual_instruction)

    @property
    def reads_units(self) -> bool:
        """Whether the speech LM reads units of pronunciation."""
        return set(UNITS).issubset(self.special_tokens)

    def with_published_prompts(self) -> Family:
        """The family with prompts read at the rate at which the published code reads them, right or wrong."""
        if self.mel.sample_rate == PUBLISHED_PROMPT_RATE:
            return self
        return replace(self, mel=replace(self.mel, read_at=PUBLISHED_PROMPT_RATE))

    def instructed(self, text: str) -> str:
        """The text behind the usual instruction, where one is needed and the text has none."""
        return text if END_OF_PROMPT in text else self.usual_instruction + text
