"""Requests decoded together follow what a GPU's pages can carry, by arithmetic alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from cosyvoice_runtime.families import COSYVOICE2, COSYVOICE3, COSYVOICE_300M
from cosyvoice_runtime.flow.torch.flow import Flow, FlowNetwork
from cosyvoice_runtime.flow.torch.pages import PagePool
from cosyvoice_runtime.gpu.nvidia import GpuFacts
from cosyvoice_runtime.settings import Machine, Settings
from cosyvoice_runtime.settings.gpu_memory import seconds_of_pages
from making import architecture, architecture_cosyvoice3

ROOT = Path(__file__).resolve().parents[2]
CAPABILITIES = {
    "L4, A10": (8, 9),
    "RTX 3090, RTX 4090": (8, 9),
    "A100 40 GB": (8, 0),
    "L40S": (8, 9),
    "A100 80 GB": (8, 0),
    "H100 80 GB": (9, 0),
    "H200": (9, 0),
}
"""Of the cards in docs/deployment.md."""
UNKNOWN = Machine(8, gpu=True)


def machine(gib: float, capability: tuple[int, int] = (8, 9), number: int = 1) -> Machine:
    return Machine(8, gpu=True, gpus=(GpuFacts(gib, capability),) * number)


def slots(given: list[str], on: Machine) -> int:
    return Settings.read(given).resolved(on).tensorrt_llm.max_slots


def kept(given: list[str], on: Machine) -> tuple[int, int]:
    """Slots, and seconds of finished speech beside them."""
    resolved = Settings.read(given).resolved(on)
    gpu = on.gpus[0]
    # With 40 GiB a GPU is divided by how many speak, if that leaves enough.
    divisions = 2 if gpu.gib >= 40 else 1
    seconds = seconds_of_pages(gpu, resolved.tensorrt_llm, resolved.token2wav, divisions)
    return resolved.tensorrt_llm.max_slots, int(seconds)


def rows_of_the_docs() -> dict[str, list[str]]:
    page = (ROOT / "docs" / "deployment.md").read_text()
    section = re.search(r"^## A recipe for each card$(.*?)^## ", page, re.M | re.S)
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section[1].splitlines()
        if line.startswith("| ") and "slots" not in line
    ]
    return {name: rest for name, *rest in cells}


def test_docs_name_every_card_with_what_is_computed_for_it():
    rows = rows_of_the_docs()
    assert rows.keys() == CAPABILITIES.keys()
    for name, (gib, *told) in rows.items():
        on = machine(float(gib), CAPABILITIES[name])
        computed = [*kept([], on), *kept(["page_format=int8"], on)]
        assert told == [f"{number:,}" for number in computed], name


@pytest.mark.parametrize("gib", [79.2, 94.5, 139.8])
def test_hopper_keeps_its_values(gib):
    """They are those of a GPU of which nothing is known, with which figures were measured."""
    known = Settings.read([]).resolved(machine(gib, (9, 0)))
    assert known == Settings.read([]).resolved(UNKNOWN)
    assert known.tensorrt_llm.max_slots == 64
    assert known.token2wav.gpu_reserve_gib == 7.4


def test_fewer_slots_leave_a_small_gpu_what_their_cache_would_take():
    small, on = machine(23.6), ["tensorrt_llm.max_slots=64"]
    before, after = kept(on, small), kept([], small)
    assert (before[0], after[0]) == (64, 16)
    assert after[1] - before[1] == pytest.approx(48 * 4096 * 12288 * 10 / (1107 * 2**20), abs=1)
    assert kept(["kernels=plain"], small)[1] > after[1]  # fused ones have copies of the weights


def test_slots_grow_with_memory():
    numbers = [slots([], machine(gib)) for gib in range(8, 145)]
    assert numbers == sorted(numbers)
    assert set(numbers) == {16, 32, 64}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["tensorrt_llm.max_slots=48"], 48),
        (["token2wav.gpu_reserve_gib=9"], 16),
        (["tensorrt_llm.device=cuda:1", "token2wav.device=cuda:1"], 16),
        (["tensorrt_llm.device=cuda:7", "token2wav.device=cuda:7"], 64),
        (["token2wav.device=cpu"], 64),
        (["tensorrt_llm.device=cpu"], 16),
        (["tensorrt_llm.engine=vllm"], 16),
        (["page_format=int8"], 16),
        (["token2wav.dtype=float32", "tensorrt_llm.dtype=float32"], 16),
    ],
    ids=str,
)
def test_only_what_shares_a_known_gpu_gets_fewer(given, expected):
    assert slots(given, machine(23.6, number=2)) == expected


def test_resolving_again_changes_nothing():
    resolved = Settings.read([]).resolved(machine(23.6))
    assert resolved.resolved(machine(79.2, (9, 0))) == resolved


def test_cache_follows_the_slots():
    assert Settings.read([]).resolved(machine(23.6)).tensorrt_llm.kv_cache_tokens == 16 * 4096


def test_cosyvoice300m_keeps_its_own(tmp_path):
    (tmp_path / COSYVOICE_300M.config_file).touch()
    assert slots([f"checkpoint_dir={tmp_path}"], machine(14.6)) == 16


@pytest.mark.parametrize(
    ("family", "made"), [(COSYVOICE2, architecture), (COSYVOICE3, architecture_cosyvoice3)]
)
def test_a_second_takes_what_the_published_flow_keeps_of_it(family, made):
    config = made.FULL.flow
    assert config.encoder.chunk_tokens == config.token_rate  # a page is a second
    with torch.device("meta"):
        network = FlowNetwork(config).requires_grad_(False).half()
    flow = Flow(config, network)
    sizes = []
    for flow.codes_pages in (False, True):
        sizes.append(PagePool(flow, 0).page_bytes / 2**20)
    assert sizes == pytest.approx(family.second_mib, abs=0.05)
