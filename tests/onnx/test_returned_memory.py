"""Memory of the flow's pages goes back to the system with the utterance that held them."""

from __future__ import annotations

import numpy as np
import pytest
from small_runtime import flows

from cosyvoice_runtime.flow.onnx.flow import OnnxFlowStream
from cosyvoice_runtime.lm.onnx.speech_lm import OnnxKVCache
from cosyvoice_runtime.onnx.memory import ReturnedMemory
from resident import resident_mib

MIB = 2**20


pytestmark = pytest.mark.usefixtures("no_garbage_goes")


@pytest.mark.parametrize("in_one", [True, False])
def test_memory_is_taken_by_what_is_written_and_goes_back_part_by_part(in_one):
    before = resident_mib()
    memory = ReturnedMemory((64, 3 * MIB // 4 + 1), np.float32, in_one)
    assert resident_mib() - before < 8
    memory.array[:] = 1
    assert resident_mib() - before > 180
    for part in range(0, 64, 2):
        memory.give_back(part)
    assert 90 < resident_mib() - before < 105
    assert (memory.array[1::2] == 1).all()


@pytest.mark.parametrize("width", [1, 1023, 1024, 1025, 5000])
def test_what_is_beside_a_returned_part_stays(width):
    memory = ReturnedMemory((5, width), np.float32, in_one=False)
    memory.array[:] = np.arange(5)[:, None] + 1
    memory.give_back(2)
    for part in (0, 1, 3, 4):
        assert (memory.array[part] == part + 1).all()
    memory.array[2] = 7
    assert (memory.array.sum(axis=1) == np.array([1, 2, 7, 4, 5]) * width).all()


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (2, 3, 0)])
def test_nothing_is_no_trouble(shape):
    memory = ReturnedMemory(shape, np.float16, in_one=True)
    assert memory.array.shape == shape
    if shape[0]:
        memory.give_back(0)


def test_pages_that_nobody_holds_go_back(tmp_path):
    stream = OnnxFlowStream(flows(tmp_path)[1], num_pages=3)
    pages = stream.pool
    held = pages.acquire(2)
    pages.share(held[:1])
    pages.estimator[held] = 1
    pages.release(held)
    stream.give_back_memory()
    assert pages.estimator[held[0]].min() == 1
    assert pages.estimator[held[1]].mean() < 0.1  # its ends lie in system pages that others have, too


def test_a_page_that_is_taken_just_before_it_would_go_back_stays(tmp_path, monkeypatch):
    stream = OnnxFlowStream(flows(tmp_path)[1], num_pages=3)
    pages, taken = stream.pool, []
    give_back = pages._give_back

    def late(page: int) -> None:
        taken.extend(pages.acquire(1) or [])
        pages.estimator[taken] = 1
        give_back(page)

    monkeypatch.setattr(pages, "_give_back", late)
    stream.give_back_memory()
    assert len(taken) == 3
    assert pages.estimator[taken].min() == 1


def test_streams_beside_each_other_have_the_same_pages_and_counts_of_their_own(tmp_path):
    stream = OnnxFlowStream(flows(tmp_path)[1], num_pages=3)
    stream.calls = stream.recomputing = 5
    fork = stream.fork()
    assert fork.pool is stream.pool
    assert (fork.calls, fork.recomputing, stream.calls) == (0, 0, 5)


def test_a_slot_of_the_speech_lm_goes_back_with_its_request(config):
    cache = OnnxKVCache(config, slots=3, max_len=16_384)
    before = resident_mib()
    taken = [cache.acquire() for _ in range(3)]
    cache.data[:] = 1
    filled = resident_mib() - before
    cache.release(taken[1])
    assert resident_mib() - before < 0.7 * filled
    assert (cache.data[:, :, [0, 2]] == 1).all()
