"""Stands for both entry models: every sample says which request and which chunk it belongs to.

A target text of ``key=value`` words steers it:

    id, chunks, samples   sample values are code(id, chunk) / 32768, ``samples`` of them per chunk
    pause_ms              wait before each chunk, unless the client leaves
    fail, fail_after      gRPC's status of an error, and the number of chunks before it
    says                  what the error says, with _ for blanks
    unnamed               the error of a stream does not begin with its status
    silent                chunks without a single sample are sent as well, first
    rate                  samples per second, which older servers don't say
    by                    how words are timed, where they are asked for: each chunk is one, named by its
                          number. With broken, those of the second chunk are no JSON
    wrong                 a word that is told as skipped, behind the last chunk, where ``verify`` is asked for

Any other text speaks one chunk per eight characters. A text that comes in pieces is spoken at each flush,
SAMPLES_A_CHARACTER samples for a character, of the value of its number; the piece ``fail`` ends it with an
error. The text ``report`` answers with what the model has seen so far, as JSON in ``finish_reason``. A
client has gone when Triton or the gateway says so.
"""

import contextlib
import json
import queue
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils

DEFAULTS = {
    "id": 1,
    "chunks": 1,
    "samples": 2400,
    "pause_ms": 0,
    "fail": "",
    "fail_after": 0,
    "says": "speech:_told_to_fail",
    "unnamed": 0,
    "silent": 0,
    "rate": 0,
    "by": "",
    "wrong": "",
}
TRITON_CODES = {"INVALID_ARGUMENT": "INVALID_ARG", "UNIMPLEMENTED": "UNSUPPORTED"}
"""Triton's names of statuses that gRPC calls otherwise."""
LOOK_S = 0.02
SAMPLES_A_CHARACTER = 24


class TritonPythonModel:
    def initialize(self, args):
        self.decoupled = pb_utils.using_decoupled_model_transaction_policy(json.loads(args["model_config"]))
        self.lock = threading.Lock()
        self.counts = {"active": 0, "finished": 0, "cancelled": 0, "failed": 0}
        self.inputs = {}
        self.open = {}
        self.left = set()

    def execute(self, requests):
        if self.decoupled:
            for request in requests:
                threading.Thread(target=self.stream, args=(request, request.get_response_sender())).start()
            return None
        return [self.whole(request) for request in requests]

    def stream(self, request, sender):
        final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        event = text_of(request, "text_event")
        responses = self.responses if event is None else self.arriving if event == "open" else self.deliver
        for response in responses(request):
            if response.has_error():
                sender.send(response, flags=final)
                return
            sender.send(response)
        sender.send(flags=final)

    def arriving(self, request):
        name, text, spoken = text_of(request, "utterance_id"), text_of(request, "target_text"), 0
        messages = self.open[name] = queue.SimpleQueue()
        self.count(active=1)
        try:
            yield answer(np.zeros((1, 0), np.float32), "")
            while not self.gone(request):
                with contextlib.suppress(queue.Empty):
                    event, piece = messages.get(timeout=LOOK_S)
                    if event == "cancel":
                        break
                    text += piece
                    if piece == "fail":
                        yield self.failure({"fail": "UNAVAILABLE", "says": "a_stage_is_gone", "unnamed": 0})
                        return
                    if event != "push" and len(text) > spoken:
                        numbers = np.arange(spoken, len(text), dtype=np.float32) / 32768
                        spoken = len(text)
                        yield answer(np.repeat(numbers, SAMPLES_A_CHARACTER)[None], "stop", spoken)
                    if event == "end":
                        self.count(finished=1)
                        return
            self.count(cancelled=1)
        finally:
            del self.open[name]
            self.count(active=-1)

    def deliver(self, request):
        messages = self.open.get(text_of(request, "utterance_id"))
        if messages is None:
            yield self.failure({"fail": "NOT_FOUND", "says": "utterance_id:_it_has_ended", "unnamed": 0})
        else:
            messages.put((text_of(request, "text_event"), text_of(request, "target_text")))

    def whole(self, request):
        waves, reason, rate, told, found = [], "", 0, [], ""
        for response in self.responses(request):
            if response.has_error():
                return response
            outputs = {tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()}
            waves.append(outputs["waveform"])
            reason = outputs["finish_reason"][0, 0]
            rate = int(outputs["sample_rate"][0, 0]) if "sample_rate" in outputs else 0
            told += [json.loads(outputs["words"][0, 0])] if "words" in outputs else []
            found = outputs["verification"][0, 0] if "verification" in outputs else ""
        words = [word for each in told for word in each["words"]]
        told = json.dumps({"by": told[0]["by"], "words": words}) if told else ""
        return answer(np.concatenate(waves, axis=1), reason, rate=rate, told=told, found=found)

    def responses(self, request):
        text = pb_utils.get_input_tensor_by_name(request, "target_text").as_numpy()[0, 0].decode()
        if left := header(request, "x-left-call"):
            self.left.add(left)
        if left or text == "report":
            yield answer(np.zeros((1, 0), np.float32), json.dumps({**self.counts, "inputs": self.inputs}))
            return
        self.inputs = {tensor.name(): describe(tensor.as_numpy()) for tensor in request.inputs()}
        self.count(active=1)
        outcome = "failed"
        try:
            for response in self.speak(options(text), request):
                yield response
                if response.has_error():
                    return
            outcome = "cancelled" if self.gone(request) else "finished"
        finally:
            self.count(active=-1, **{outcome: 1})

    def speak(self, wanted, request):
        if wanted["silent"]:
            yield answer(np.zeros((1, 0), np.float32), "")
        for index in range(wanted["chunks"]):
            if wanted["fail"] and index == wanted["fail_after"]:
                yield self.failure(wanted)
                return
            self.pause(request, wanted["pause_ms"] / 1000)
            if self.gone(request):
                return
            value = (wanted["id"] * 64 + index) / 32768
            last = index == wanted["chunks"] - 1
            samples = np.full((1, wanted["samples"]), value, np.float32)
            told = words(wanted, index) if wanted["by"] and asks_for_words(request) else ""
            found = verification(wanted["wrong"]) if last and text_of(request, "verify") else ""
            yield answer(samples, "stop" if last else "", rate=wanted["rate"], told=told, found=found)

    def gone(self, request):
        return request.is_cancelled() or header(request, "x-call-id") in self.left

    def pause(self, request, seconds):
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self.gone(request):
            time.sleep(min(left, LOOK_S))

    def failure(self, wanted):
        status, message = wanted["fail"], wanted["says"].replace("_", " ")
        code = getattr(pb_utils.TritonError, TRITON_CODES.get(status, status))
        if self.decoupled and not wanted["unnamed"]:
            message = f"{status}: {message}"
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, code))

    def count(self, **changes):
        with self.lock:
            for name, change in changes.items():
                self.counts[name] += change


def header(request, name):
    return json.loads(request.parameters() or "{}").get(name)


def asks_for_words(request):
    tensor = pb_utils.get_input_tensor_by_name(request, "words")
    return tensor is not None and bool(tensor.as_numpy()[0, 0])


def words(wanted, index):
    if wanted["by"] == "broken" and index == 1:
        return "{"
    seconds = wanted["samples"] / 24_000
    word = {"text": str(index), "start_s": index * seconds, "end_s": (index + 0.9) * seconds}
    by = "attention" if wanted["by"] == "broken" else wanted["by"]
    return json.dumps({"by": by, "words": [word]})


def verification(wrong):
    finding = {"kind": "skipped", "text": wrong, "start": 6, "end": 6 + len(wrong)}
    return json.dumps({"checked": True, "redraws": 2, "findings": [finding] if wrong else []})


def answer(waveform, reason, spoken=-1, rate=0, told="", found=""):
    tensors = [
        pb_utils.Tensor("waveform", waveform),
        pb_utils.Tensor("finish_reason", np.array([[reason]], dtype=object)),
        pb_utils.Tensor("spoken_characters", np.array([[spoken]], dtype=np.int32)),
    ]
    if rate:
        tensors.append(pb_utils.Tensor("sample_rate", np.array([[rate]], dtype=np.int32)))
    if told:
        tensors.append(pb_utils.Tensor("words", np.array([[told]], dtype=object)))
    if found:
        tensors.append(pb_utils.Tensor("verification", np.array([[found]], dtype=object)))
    return pb_utils.InferenceResponse(tensors)


def text_of(request, name):
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return None if tensor is None else tensor.as_numpy()[0, 0].decode()


def options(text):
    if "=" not in text:
        return DEFAULTS | {"chunks": len(text) // 8 + 1}
    given = dict(word.split("=") for word in text.split())
    return DEFAULTS | {name: type(DEFAULTS[name])(value) for name, value in given.items()}


def describe(array):
    first = array.reshape(-1)[0]
    return {
        "dtype": str(array.dtype),
        "shape": list(array.shape),
        "first": first.decode() if isinstance(first, bytes) else float(first),
    }
