"""Two schedulers on one CPU share the networks and divide the pages."""

from __future__ import annotations

from cosyvoice_runtime.onnx_cpu.wave_export import export_wave
from cosyvoice_runtime.onnx_cpu.wave_graphs import EstimatorFormats
from cosyvoice_runtime.serving.token2wav.onnx_runtime import open_runtimes


def test_schedulers_share_networks_and_divide_pages(torch_settings, tmp_path):
    export_wave(torch_settings.checkpoint_dir, tmp_path, EstimatorFormats())
    settings = torch_settings.replace(backend="onnx", backend_dir=tmp_path, device="cpu,cpu")
    first, second = (runtime.token2wav for runtime in open_runtimes(settings))
    assert first.vocoder is second.vocoder
    assert first.flow.flow is second.flow.flow
    assert first.flow.pool is not second.flow.pool
    assert first.flow.pool.num_pages == second.flow.pool.num_pages == settings.most_flow_pages // 2
