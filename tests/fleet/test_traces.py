"""A request is one trace, whatever it passes."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import NamedTuple

from drills.deaths import busiest
from drills.listeners import SHORT, TEXT, Listener
from drills.places import taken_places
from drills.speech_server import PLACES
from otlp_receiver import ReceivedSpan

SPEECH = "POST /v1/audio/speech"
"""Name of a front's span."""
OURS = (SPEECH, "call", "gateway grpc", "cosyvoice2", "engine")


class Trace(NamedTuple):
    """
    Attributes:
        id: in hexadecimal.
        parent: ``traceparent`` of a request.
    """

    id: str
    parent: str


def new_trace() -> Trace:
    """A trace of which all spans are wanted."""
    name = secrets.token_hex(16)
    return Trace(name, f"00-{name}-{secrets.token_hex(8)}-01")


def named(spans: Sequence[ReceivedSpan], name: str) -> int:
    """The number of spans with this name."""
    return sum(span.name == name for span in spans)


def way_to(span: ReceivedSpan, spans: list[ReceivedSpan]) -> list[ReceivedSpan]:
    """The spans from the first of a trace to this one, each the parent of the next."""
    by_id = {each.id: each for each in spans}
    way = [span]
    while way[0].parent in by_id:
        way.insert(0, by_id[way[0].parent])
    return way


def test_a_request_is_one_trace_through_a_front_envoy_and_a_server(fleet, behind_envoy, receiver):
    trace = new_trace()
    assert Listener(behind_envoy[0], SHORT, trace=trace.parent).end() == 200
    # Envoy's own spans are the call, and the try at a server.
    spans = receiver.of_trace(trace.id, lambda spans: len(spans) == len(OURS) + 2)
    way = way_to(next(span for span in spans if span.name == "engine"), spans)
    assert len(way) == len(spans)
    assert way[0].parent == trace.parent.split("-")[2]
    assert [span.name for span in way if span.service != "envoy"] == [*OURS]
    services = ["cosyvoice-front"] * 2 + ["envoy"] * 2 + ["cosyvoice-server"] * 3
    assert [span.service for span in way] == services
    assert len({span.process for span in way if span.service == "cosyvoice-server"}) == 3
    model, engine = way[-2:]
    assert [name for name, _ in model.events] == ["admitted", "voice", "text", "first chunk"]
    names = [name for name, _ in engine.events]
    assert names[0] == "prefill"
    assert {"first chunk", "token2wav turn"} <= {*names}
    turns = [said for name, said in engine.events if name in ("prefill", "token2wav turn")]
    assert all(said["wait_ms"] >= 0 and said["compute_ms"] > 0 for said in turns)
    assert engine.said["cosyvoice.finish_reason"] in ("stop", "length", "repetition")
    assert {span.said["cosyvoice.ending"] for span in way if span.service != "envoy"} == {"ok"}
    assert not [span for span in spans if "Hello" in span.whole]


def test_a_retry_is_linked_with_the_call_that_was_refused(fleet, round_robin, receiver):
    trace = new_trace()
    asked = len(fleet.servers)  # in turn, of which one is full
    with taken_places(fleet.servers[0].grpc_url, PLACES):
        for _ in range(asked):
            assert Listener(round_robin[0], SHORT, trace=trace.parent).end() == 200
    spans = receiver.of_trace(
        trace.id,
        lambda spans: (
            named(spans, SPEECH) == named(spans, "engine") == asked
            and named(spans, "gateway grpc") == named(spans, "call")
        ),
    )
    links = [link for span in spans for link in span.links]
    assert links
    for before, said in links:
        assert said == {"cosyvoice.why": "retry"}
        [refused] = [span for span in spans if span.parent == before]
        assert (refused.name, refused.said["cosyvoice.ending"]) == ("gateway grpc", "refused")


def test_speech_that_goes_on_from_another_server_is_linked_with_the_lost_call(fleet, round_robin, receiver):
    trace = new_trace()
    listener = Listener(round_robin[0], TEXT, trace=trace.parent)
    assert listener.begin() == 200
    busiest(fleet).strike("gateway grpc")
    assert len(listener.whole)
    spans = receiver.of_trace(trace.id, lambda spans: named(spans, SPEECH))
    calls = {span.id: span for span in spans if span.name == "call"}
    links = [(calls[before], said["cosyvoice.why"]) for call in calls.values() for before, said in call.links]
    [lost] = [before for before, why in links if why == "resume"]
    assert (lost.said["cosyvoice.number"], lost.said["cosyvoice.ending"]) == (1, "lost")
    [whole] = [span for span in spans if span.name == SPEECH]
    assert {call.parent for call in calls.values()} == {whole.id}
