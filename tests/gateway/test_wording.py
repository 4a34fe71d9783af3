"""What clients read of the errors of tritonserver and of the models."""

from __future__ import annotations

import pytest

from cosyvoice_runtime.gateway.wording import (
    CROWDED,
    INTERNAL,
    RESTARTING,
    SHORT_OF_MEMORY,
    reworded,
    reworded_in_stream,
)

AS_THEY_ARE = [
    ("INVALID_ARGUMENT", "voice: '/etc/shared memory' is not accepted; a name is expected"),
    ("INTERNAL", "cosyvoice2: internal error (KeyError); the server's log has the details"),
    ("INVALID_ARGUMENT", "'Exceeds maximum queue size' is not a language"),
    ("UNAVAILABLE", "64 utterances are in progress, the limit; try again in 2.5 s"),
    ("INTERNAL", "token2wav: vocoder: NaN or infinity in the samples"),
    ("INVALID_ARGUMENT", "unexpected shape for input 'speed' for model 'cosyvoice2'. Expected [-1,1]"),
]  # fmt: skip
IN_OTHER_WORDS = {
    "Failed to increase the shared memory pool size for key 'cosyvoice_7_0a_3' to 9 bytes.": SHORT_OF_MEMORY,
    "Unable to find shared memory region: 'cosyvoice_7_0a_3'": SHORT_OF_MEMORY,
    "Failed to process the request(s) for model instance 'cosyvoice2_0_0', message: Stub process "
    "'cosyvoice2_0_0' is not healthy.": RESTARTING,
    "Request for unknown model: 'cosyvoice2' has no available versions": RESTARTING,
    "failed to connect to all addresses; last error: UNKNOWN: unix:/tmp/x/grpc:1": RESTARTING,
    "[request id: 7] Exceeds maximum queue size": CROWDED,
}


@pytest.mark.parametrize(("status", "text"), AS_THEY_ARE)
def test_errors_about_the_request_and_of_the_models_are_passed_on(status, text):
    assert reworded(status, text) == (status, text)


@pytest.mark.parametrize("text", IN_OTHER_WORDS)
def test_what_passes_by_itself_is_unavailable(text):
    assert reworded("INTERNAL", text) == ("UNAVAILABLE", IN_OTHER_WORDS[text])


@pytest.mark.parametrize("text", ["ValueError: x\n\nAt:\n  /srv/models/1/model.py(7): execute\n", "no idea"])
def test_everything_else_is_in_the_log_alone(text):
    assert reworded("INTERNAL", text) == ("INTERNAL", INTERNAL)


def test_id_that_tritonserver_puts_before_an_error_is_left_out():
    assert reworded("INVALID_ARGUMENT", "[request id: <id_unknown>] expected 2 inputs") == (
        "INVALID_ARGUMENT",
        "expected 2 inputs",
    )


def test_words_that_a_model_says_with_a_status_are_passed_on_in_streams_and_no_others():
    for said in (
        "INTERNAL: no idea",
        "UNAVAILABLE: 64 utterances are in progress, the limit; try again in 2.5 s",
    ):
        assert reworded_in_stream(said) == said
    assert reworded_in_stream("no idea") == f"INTERNAL: {INTERNAL}"
    assert reworded_in_stream("INTERNAL: /srv/models/1/model.py") == f"INTERNAL: {INTERNAL}"
