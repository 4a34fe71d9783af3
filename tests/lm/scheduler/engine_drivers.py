"""What the tests of the engines ``vllm`` and ``tensorrt_llm`` do alike."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence

import pytest
from coded_engine import TIMEOUT_S, CollectingReader
from coded_utterances import coded

from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.lm import FinishReason, Prompt, SamplingOptions
from cosyvoice_runtime.lm.engines.engine import EngineError, LmEngine, prepare_engine
from cosyvoice_runtime.lm.scheduler.request import Request
from cosyvoice_runtime.lm.scheduler.scheduler import Scheduler
from cosyvoice_runtime.settings import Machine, TensorrtLlmSettings

PROMPTS = [
    Prompt([3]),
    Prompt([900, 17, 4], prompt_text=[8, 1019]),
    Prompt([5, 6, 7], prompt_speech=[0, 6560, 41, 41]),
    Prompt([1019], prompt_text=[0], prompt_speech=range(100, 140)),
]


def own_threads() -> set[threading.Thread]:
    """Those of the schedulers and of TensorRT-LLM's stand-in."""
    names = ("speech-lm", "fake-executor")
    return {thread for thread in threading.enumerate() if thread.name.startswith(names)}


def submit(
    scheduler: Scheduler, name: int, strategy: str = "greedy", request_id: str = ""
) -> CollectingReader:
    """Ask for the coded utterance."""
    reader = CollectingReader()
    options = SamplingOptions(strategy, min_tokens=0, max_tokens=60, seed=name)
    scheduler.submit(Request(Prompt([name]), options, True, id=request_id), reader)
    return reader


def error_of(scheduler: Scheduler, name: int) -> Exception | None:
    """Why there is no coded utterance, whether it is told at once or a moment later."""
    try:
        return submit(scheduler, name).wait().ends[0]
    except EngineError as error:
        return error


def check_many_threads(scheduler: Scheduler) -> None:
    """Twelve of them ask for the utterances 1 to 48, of which ``n`` has ``n`` codes."""
    readers: dict[int, CollectingReader] = {}

    def ask(names: range) -> None:
        for name in names:
            readers[name] = submit(scheduler, name, ("greedy", "nucleus", "ras")[name % 3])
            if name % 4 == 0:
                readers[name].wait()

    threads = [threading.Thread(target=ask, args=[range(start, 49, 12)]) for start in range(1, 13)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    for name in range(1, 49):
        assert readers[name].wait().tokens == coded(name, name)
        assert readers[name].reason is FinishReason.STOP


def check_stops_that_race(scheduler: Scheduler) -> None:
    """Every other one of the utterances 1 to 60, of three codes each, is stopped."""
    readers = {name: submit(scheduler, name, request_id=str(name)) for name in range(1, 61)}
    for name in itertools.islice(readers, 0, None, 2):
        scheduler.stop(str(name))
    for name, reader in readers.items():
        assert reader.wait().reason in (FinishReason.STOP, FinishReason.CANCELLED)
        assert reader.tokens == coded(name, 3)[: len(reader.tokens)]
    assert all(readers[name].reason is FinishReason.STOP for name in itertools.islice(readers, 1, None, 2))


def run(engine: LmEngine, handles: set) -> dict:
    """Progress of each utterance to its end."""
    seen: dict = {handle: [] for handle in handles}
    left = set(handles)
    while left:
        for row in engine.step():
            seen[row.handle].append(row)
            if row.finish_reason is not None:
                left.remove(row.handle)
    return seen


def tokens(rows: list) -> list[int]:
    return [token for row in rows for token in row.tokens]


def speak(scheduler: Scheduler, options: Sequence[SamplingOptions]) -> list[CollectingReader]:
    """The prompts, each with its options, side by side to their ends."""
    readers = []
    for prompt, one in zip(PROMPTS, options, strict=True):
        readers.append(CollectingReader())
        scheduler.submit(Request(prompt, one, streaming=True), readers[-1])
    return [reader.wait() for reader in readers]


def torch_settings(settings: TensorrtLlmSettings) -> TensorrtLlmSettings:
    """Of the engine ``torch`` with the same weights."""
    changed = settings.replace(engine="torch", device="cpu", kv_cache_tokens=0)
    return changed.resolved(Machine(cores=1, gpu=False))


def refusal(settings: TensorrtLlmSettings, **changes: object) -> str:
    """Why the engine is not prepared."""
    with pytest.raises(CosyVoiceError) as raised:
        prepare_engine(settings.replace(**changes))
    return str(raised.value)
