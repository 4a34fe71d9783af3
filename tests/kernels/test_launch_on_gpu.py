"""Launches through what was found, on a GPU: they compute what the Triton language's own would."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from cosyvoice_runtime.gpu.kernels.launch import Launcher, launched

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

WIDTH = 64


@launched
@triton.jit(do_not_specialize=["count"])
def _added(x, out, count, stride, more: tl.constexpr, width: tl.constexpr):
    n = tl.program_id(0) * width + tl.arange(0, width)
    inside = n < count
    tl.store(out + n, tl.load(x + n * stride, mask=inside, other=0.0) + more, mask=inside)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("start", [0, 1, 8])
@pytest.mark.parametrize("stride", [1, 3, 16])
def test_results_are_those_of_the_arguments(dtype, start, stride):
    assert isinstance(_added, Launcher)
    x = torch.arange(4096, device="cuda").to(dtype) % 128
    for count in (1, 63, 200):
        for more in (1.0, 2.0):
            for _ in range(2):  # the second is found
                out = torch.zeros(256, dtype=dtype, device="cuda")
                _added[(-(-count // WIDTH),)](
                    x[start:], out, count, stride, more, WIDTH, num_warps=2, launch_pdl=False
                )
                expected = x[start::stride][:count] + more
                assert torch.equal(out[:count], expected)
                assert not out[count:].any()


def test_kernel_is_captured_on_the_stream_that_is_current():
    x, out = torch.ones(WIDTH, device="cuda"), torch.zeros(WIDTH, device="cuda")
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            _added[1,](x, out, WIDTH, 1, 1.0, WIDTH, num_warps=2, launch_pdl=False)
        torch.cuda.synchronize()
        out.zero_()
        graph.capture_begin()
        _added[1,](x, out, WIDTH, 1, 1.0, WIDTH, num_warps=2, launch_pdl=False)
        graph.capture_end()
    assert not out.any()
    graph.replay()
    torch.cuda.synchronize()
    assert out.eq(2).all()
