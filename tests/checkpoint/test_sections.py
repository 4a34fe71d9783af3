from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cosyvoice_runtime.checkpoint import ModelConfig, hyperpyyaml, load_config
from cosyvoice_runtime.checkpoint.merged_vocabulary import special_token_ids
from cosyvoice_runtime.errors import CheckpointError
from making.architecture import FULL, TINY, qwen2_json, yaml_tree

YAML_IN_PUBLISHED_FORM = """
__set_seed: !apply:random.seed [1]
sample_rate: 24000
spk_embed_dim: 192
token_frame_rate: 25
token_mel_ratio: 2
chunk_size: 25
llm: !new:cosyvoice.llm.llm.Qwen2LM
    speech_token_size: 6561
    mix_ratio: [5, 15]
    llm: !new:cosyvoice.llm.llm.Qwen2Encoder
        pretrain_path: ''
    sampling: !name:cosyvoice.utils.common.ras_sampling
        top_p: 0.8
flow: !new:cosyvoice.flow.flow.CausalMaskedDiffWithXvec
    input_size: 512
    output_size: 80
    spk_embed_dim: !ref <spk_embed_dim>
    vocab_size: 6561
    input_frame_rate: !ref <token_frame_rate>
    token_mel_ratio: !ref <token_mel_ratio>
    pre_lookahead_len: 3
    encoder: !new:cosyvoice.transformer.upsample_encoder.UpsampleConformerEncoder
        output_size: 512
        attention_heads: 8
        linear_units: 2048
        num_blocks: 6
        static_chunk_size: !ref <chunk_size>
    decoder: !new:cosyvoice.flow.flow_matching.CausalConditionalCFM
        cfm_params: !new:omegaconf.DictConfig
            content:
                sigma_min: 1e-06
                t_scheduler: 'cosine'
                inference_cfg_rate: 0.7
        estimator: !new:cosyvoice.flow.decoder.CausalConditionalDecoder
            in_channels: 320
            channels: [256]
            attention_head_dim: 64
            n_blocks: 4
            num_mid_blocks: 12
            num_heads: 8
            act_fn: 'gelu'
            static_chunk_size: !ref <chunk_size> * <token_mel_ratio> # in frames
hift: !new:cosyvoice.hifigan.generator.HiFTGenerator
    in_channels: 80
    base_channels: 512
    nb_harmonics: 8
    sampling_rate: !ref <sample_rate>
    nsf_alpha: 0.1
    nsf_sigma: 0.003
    nsf_voiced_threshold: 10
    upsample_rates: [8, 5, 3]
    upsample_kernel_sizes: [16, 11, 7]
    istft_params:
        n_fft: 16
        hop_len: 4
    resblock_kernel_sizes: [3, 7, 11]
    resblock_dilation_sizes: [[1, 3, 5], [1, 3, 5], [1, 3, 5]]
    source_resblock_kernel_sizes: [7, 7, 11]
    source_resblock_dilation_sizes: [[1, 3, 5], [1, 3, 5], [1, 3, 5]]
    lrelu_slope: 0.1
    audio_limit: 0.99
    f0_predictor: !new:cosyvoice.hifigan.f0_predictor.ConvRNNF0Predictor
        cond_channels: 512
gan: !new:cosyvoice.hifigan.hifigan.HiFiGan
    generator: !ref <hift>
"""


def write(directory: Path, yaml_text: str, config: ModelConfig = FULL, **qwen2: Any) -> Path:
    (directory / "CosyVoice-BlankEN").mkdir()
    (directory / "cosyvoice2.yaml").write_text(yaml_text, encoding="utf-8")
    content = qwen2_json(config.speech_lm, special_token_ids(1000)) | qwen2
    (directory / "CosyVoice-BlankEN" / "config.json").write_text(json.dumps(content), encoding="utf-8")
    return directory


def test_published_form_gives_published_sizes(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, YAML_IN_PUBLISHED_FORM)) == FULL


@pytest.mark.parametrize(
    "config",
    [
        FULL,
        TINY,
        replace(TINY, flow=replace(TINY.flow, encoder=replace(TINY.flow.encoder, num_up_layers=1))),
    ],
)
def test_written_configuration_is_read_back(tmp_path: Path, config: ModelConfig) -> None:
    write(tmp_path, "", config)
    hyperpyyaml.write(tmp_path / "cosyvoice2.yaml", yaml_tree(config))
    assert load_config(tmp_path) == config


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("flow.CausalMaskedDiffWithXvec", "flow.CausalMaskedDiffWithDiT", "only CausalMaskedDiffWithXvec is"),
        ("!new:cosyvoice.hifigan.generator.HiFTGenerator", "!new:os.system", "only HiFTGenerator is"),
        (
            "llm: !new:cosyvoice.llm.llm.Qwen2LM",
            "other: !new:cosyvoice.llm.llm.Qwen2LM",
            "llm: expected !new:",
        ),
        ("    base_channels: 512\n", "", "lacks the key 'base_channels'"),
        ("content:", "contents:", "content"),
        ("channels: [256]", "channels: [256, 256]", "only one level"),
        ("num_blocks: 6", "num_blocks: six", "num_layers is 'six', expected a number"),
        ("num_blocks: 6", "num_blocks: 0", "num_layers is 0, expected a number above 0"),
        ("num_blocks: 6", "num_blocks: 99999999999", "num_layers is 99999999999"),
        ("num_blocks: 6", "num_blocks: true", "num_layers is True"),
        ("upsample_rates: [8, 5, 3]", "upsample_rates: 8", "not iterable"),
        ("!ref <spk_embed_dim>", "!ref <speaker_size>", "<speaker_size>: no such key"),
    ],
)
def test_unsuitable_configuration_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in YAML_IN_PUBLISHED_FORM
    write(tmp_path, YAML_IN_PUBLISHED_FORM.replace(old, new))
    with pytest.raises(CheckpointError, match=rf"cosyvoice2\.yaml.*{re.escape(message)}"):
        load_config(tmp_path)


def test_damaged_qwen2_configuration_is_named(tmp_path: Path) -> None:
    write(tmp_path, YAML_IN_PUBLISHED_FORM)
    for text in ("{", "[]"):
        (tmp_path / "CosyVoice-BlankEN" / "config.json").write_text(text)
        with pytest.raises(CheckpointError, match=r"config\.json: "):
            load_config(tmp_path)
