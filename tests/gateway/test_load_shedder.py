"""What a gateway refuses by itself, by the table of the models."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cosyvoice_runtime.errors import OverloadedError
from cosyvoice_runtime.gateway.limits import LoadShedder
from cosyvoice_runtime.gateway.options import GatewayOptions
from cosyvoice_runtime.gateway.policy import RefusedError
from cosyvoice_runtime.gateway.request_check import UtteranceRequest
from cosyvoice_runtime.metrics.page import read_samples, sum_of_counters
from cosyvoice_runtime.serving.speech.admission import BOARD_FILE, Admission
from taken_place import taken_place

MODEL = "cosyvoice2"


def options(directory: Path | str) -> GatewayOptions:
    return GatewayOptions("", "", (MODEL, "token2wav"), 1, 1, stages=("token2wav",), shared=str(directory))


def shedder_of(directory: Path) -> LoadShedder:
    shedder = LoadShedder.of(options(directory))
    assert shedder is not None
    return shedder


@pytest.fixture
def model(tmp_path: Path) -> Admission:
    return Admission(1, tmp_path / BOARD_FILE)


@pytest.fixture
def speaking(model: Admission) -> Iterator[ExitStack]:
    """An utterance that has the model's only place, until it is closed."""
    with ExitStack() as stack:
        stack.enter_context(model.admit("first"))
        yield stack


@pytest.fixture
def shedder(model: Admission, tmp_path: Path) -> LoadShedder:
    return shedder_of(tmp_path)


def asked(client: str | None = None, model: str = MODEL, begins: bool = True) -> UtteranceRequest:
    return UtteranceRequest(model, client, begins)


def refusal(shedder: LoadShedder, client: str | None = None) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        shedder.check(asked(client))
    return caught.value


def refused_count(directory: Path) -> float:
    labels = {"model": MODEL, "ending": "refused"}
    return sum(each.value for each in read_samples(directory) if each.labels == labels)


def test_request_goes_through_while_a_place_is_free(shedder):
    shedder.check(asked("anybody"))


def test_refusal_has_the_models_status_and_words(shedder, model, speaking):
    error = refusal(shedder, "second")
    assert (error.status, str(error)) == (
        "UNAVAILABLE",
        "1 utterances are in progress, the limit; try again in 0.4 s",
    )
    with pytest.raises(OverloadedError, match="1 utterances are in progress, the limit; try again in"):
        speaking.enter_context(model.admit("third"))


def test_turn_of_a_client_that_the_gateway_has_refused_counts_for_the_model(shedder, model, speaking):
    refusal(shedder, "second")
    speaking.close()
    with pytest.raises(OverloadedError, match="others were here before"), model.admit("first"):
        pass
    with model.admit("second"):
        assert model.count == 1


def test_turn_of_a_client_that_the_model_has_refused_counts_for_the_gateway(shedder, model, speaking):
    with pytest.raises(OverloadedError), model.admit("second"):
        pass
    speaking.close()
    assert "others were here before" in str(refusal(shedder, "first"))
    shedder.check(asked("second"))


def test_model_has_the_last_word_when_two_get_through_for_one_place(shedder, model):
    for client in ("one", "other"):
        shedder.check(asked(client))
    with model.admit("one"), pytest.raises(OverloadedError), model.admit("other"):
        pass


def test_several_gateways_know_each_others_refusals(shedder, tmp_path, speaking):
    first, other = refusal(shedder, "second"), refusal(shedder_of(tmp_path), "third")
    assert str(first).endswith("try again in 0.4 s")
    assert str(other) != str(first)  # somebody is before him
    assert refused_count(tmp_path) == 2


def test_messages_for_an_utterance_that_is_spoken_and_other_models_go_through(shedder, speaking):
    shedder.check(asked(begins=False))
    shedder.check(asked(model="token2wav"))
    refusal(shedder)


def test_nothing_is_refused_by_a_limit_that_nobody_knows_yet(tmp_path):
    """As while the server starts, and the first speech is measured."""
    model, shedder = Admission(None, tmp_path / BOARD_FILE), shedder_of(tmp_path)
    with taken_place(tmp_path):
        shedder.check(asked())
        model.capacity.start(2.0)
        refusal(shedder)


def test_gateway_that_opens_the_table_first_changes_nothing_in_it(tmp_path):
    shedder = shedder_of(tmp_path)
    model = Admission(2, tmp_path / BOARD_FILE)
    shedder.check(asked())
    with model.admit(), model.admit():
        refusal(shedder)
    assert model.capacity.limit == 2


def test_refusals_are_counted_for_the_model_and_are_no_work_of_it(shedder, tmp_path, speaking):
    before = sum_of_counters(tmp_path, MODEL)
    for _ in range(3):
        refusal(shedder)
    assert refused_count(tmp_path) == 3
    assert sum_of_counters(tmp_path, MODEL) == before


def test_gateway_without_a_table_refuses_nothing():
    assert LoadShedder.of(options("")) is None


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_gateway_imports_no_torch(protocol):
    program = (
        f"import sys, cosyvoice_runtime.gateway.{protocol}_gateway\n"
        "sys.exit('torch is imported' if 'torch' in sys.modules else 0)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
