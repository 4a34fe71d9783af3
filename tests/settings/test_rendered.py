"""Which process a model of a rendered repository computes in."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.settings import Machine, Settings
from cosyvoice_runtime.settings.repository import (
    TemplateError,
    escape,
    home_of,
    hosted_models,
    read_parameters,
    render,
    write,
)

MODEL_REPO = Path(__file__).parents[2] / "model_repo"
HOSTED = ["tensorrt_llm", "audio_tokenizer", "speaker_embedding"]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    settings = Settings.read([]).resolved(Machine(cores=2, gpu=False))
    write(render(MODEL_REPO, settings), tmp_path / "repository")
    return tmp_path / "repository"


def test_home_of_a_model_is_what_its_configuration_says(repository):
    assert hosted_models(repository) == HOSTED
    assert home_of(repository, "speaker_embedding") == "token2wav"
    assert home_of(repository, "tensorrt_llm") == "token2wav"
    assert home_of(repository, "cosyvoice2") == "cosyvoice2"


def test_model_that_a_repository_lacks_is_not_hosted(repository):
    shutil.rmtree(repository / "speaker_embedding")
    assert hosted_models(repository) == ["tensorrt_llm", "audio_tokenizer"]


@pytest.mark.parametrize("model", ["cosyvoice2", "token2wav", *HOSTED])
def test_parameters_are_those_that_triton_reads(repository, model):
    text_format = pytest.importorskip("google.protobuf.text_format", reason="needs protobuf")
    model_config_pb2 = pytest.importorskip("tritonclient.grpc", reason="needs tritonclient").model_config_pb2
    text = (repository / model / "config.pbtxt").read_text("utf-8")
    read = text_format.Parse(text, model_config_pb2.ModelConfig()).parameters
    expected = {key: {"string_value": value.string_value} for key, value in read.items()}
    assert "log_level" in expected
    assert read_parameters(repository / model) == expected


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r")))
def test_any_value_of_a_parameter_is_read_as_it_was_written(tmp_path_factory, value):
    model = tmp_path_factory.mktemp("model")
    line = f'parameters {{ key: "voices_dir" value: {{ string_value: "{escape(value)}" }} }}\n'
    (model / "config.pbtxt").write_text(line, "utf-8", newline="\n")
    assert read_parameters(model) == {"voices_dir": {"string_value": value}}


def test_parameters_in_another_form_are_refused(repository):
    path = repository / "tensorrt_llm" / "config.pbtxt"
    path.write_text(path.read_text("utf-8").replace(" } }", "\n} }"), "utf-8")
    with pytest.raises(TemplateError, match=r"tensorrt_llm/config\.pbtxt: each of the parameters"):
        read_parameters(path.parent)
