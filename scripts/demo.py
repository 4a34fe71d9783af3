#!/usr/bin/env python3
"""Speak one sentence through a real server: checkpoint, model repository, server, client, and stop.

demo.py [--text TEXT] [--checkpoint DIRECTORY] [--reference FILE --reference-text TEXT] [--output FILE]
demo.py --serve                 and then serve OpenAI's speech API until Ctrl-C
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from cosyvoice_client import SpeechClient, SpeechRequest, Timeline, read_reference, recorded
from cosyvoice_runtime.checkpoint import Layout
from cosyvoice_runtime.engine.measured_threads import with_measured_threads
from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.process.listening import EVERYWHERE, local_url
from cosyvoice_runtime.settings import (
    FrontSettings,
    Machine,
    ServerSettings,
    Settings,
    TensorrtLlmSettings,
    Token2WavSettings,
)
from cosyvoice_runtime.settings.repository import render, write
from cosyvoice_runtime.supervisor import Server

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "demo"
DEMO_VOICE = ROOT / "demo_voice"
POLL_S = 0.1
INTERRUPTED = 130


class DemoError(CosyVoiceError):
    """The demo can't go on."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", default="Hello! This voice comes out of a real Triton server.")
    parser.add_argument("--checkpoint", type=Path, default=DEMO_VOICE, help="default: demo_voice/")
    parser.add_argument(
        "--reference", type=Path, default=DEMO_VOICE / "reference.flac", help="recording of the voice"
    )
    parser.add_argument(
        "--reference-text",
        default=(DEMO_VOICE / "reference.txt").read_text("utf-8").strip(),
        help="what the reference says; an instruction that the checkpoint needs is put before it",
    )
    parser.add_argument("--output", type=Path, default=ROOT / "demo.wav")
    parser.add_argument("--serve", action="store_true", help="then serve OpenAI's speech API until Ctrl-C")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it ends as Ctrl-C does
    try:
        if options.serve:
            require_free(Settings.read([], os.environ).front)
        repository = make_repository(options.checkpoint)
        ports = ServerSettings(
            http_port=0,
            grpc_port=0,
            metrics_port=0,
            model_metrics_port=0,
            log_file=BUILD / "tritonserver.log",
        )
        with Server(repository, ports) as server:
            words = Layout(options.checkpoint).family.instructed(options.reference_text)
            reference = read_reference(str(options.reference), words)
            speak(server.grpc_url, SpeechRequest(options.text, reference, seed=1), options.output)
            if options.serve:
                serve(server.grpc_url, server.require)
    except CosyVoiceError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def make_repository(checkpoint: Path, servers: int = 1) -> Path:
    """Render the model repository for this machine, with the files that its engines need.

    Args:
        servers: that share the cores, without a GPU if they are several.
    """
    texts = [f"checkpoint_dir={checkpoint}", f"cosyvoice2.voices_dir={BUILD / 'voices'}"]
    machine = Machine.here()
    if servers > 1:
        machine = replace(machine, cores=max(1, machine.cores // servers), gpu=False, gpus=())
    settings = Settings.read(texts, os.environ).resolved(machine)
    lm_on_onnx, wave_on_onnx = settings.tensorrt_llm.engine == "onnx", settings.token2wav.backend == "onnx"
    if lm_on_onnx:
        texts.append(f"tensorrt_llm.engine_dir={BUILD / 'speech_lm'}")
    if wave_on_onnx:
        texts.append(f"token2wav.backend_dir={BUILD / 'networks'}")
    given = Settings.read(texts, os.environ)
    settings = given.resolved(machine)
    if lm_on_onnx:
        export_speech_lm(settings.tensorrt_llm)
    if wave_on_onnx:
        export_wave_graphs(settings.token2wav)
    repository = BUILD / ("model_repo" if servers == 1 else "fleet_repo")
    write(render(ROOT / "model_repo", with_measured_threads(given, machine)), repository)
    return repository


def export_speech_lm(settings: TensorrtLlmSettings) -> None:
    from cosyvoice_runtime.lm.onnx.export import export_lm

    for reason in export_lm(settings.checkpoint_dir, settings.engine_dir, settings.weight_format):
        print(f"{settings.engine_dir}: made because: {reason}")


def export_wave_graphs(settings: Token2WavSettings) -> None:
    from cosyvoice_runtime.onnx.session import EstimatorFormats
    from cosyvoice_runtime.token2wav.onnx_export import export_wave

    formats = EstimatorFormats(settings.weight_format, settings.page_format)
    for reason in export_wave(settings.checkpoint_dir, settings.backend_dir, formats):
        print(f"{settings.backend_dir}: made because: {reason}")


def serve(grpc_url: str, require_server: Callable[[], None]) -> None:
    """Run the front before this server, with the voices of the server's own directory, until Ctrl-C.

    Raises:
        DemoError: it ends by itself.
    """
    given = [f"front.grpc_url={grpc_url}", f"front.voices_dir={BUILD / 'voices'}", "front.leave_s=0"]
    front = Settings.read(given, os.environ).front
    with subprocess.Popen([sys.executable, "-m", "cosyvoice_front", *given], cwd=ROOT) as process:
        try:
            while process.poll() is None and front.port and not listens(front.host, front.port):
                require_server()
                time.sleep(POLL_S)
            if process.poll() is None:
                tell_address(front)
            while process.poll() is None:
                require_server()
                time.sleep(POLL_S)
        except KeyboardInterrupt:  # the front ends when those who listen have heard all
            process.terminate()  # it may have been told to this process alone
            process.wait()
            return
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        raise DemoError(f"the front has ended with status {process.returncode}")


def require_free(front: FrontSettings) -> None:
    """Raise a DemoError where something else listens at the front's address."""
    if listens(front.host, front.port):
        taken = f"front.port: something else listens on {front.host}:{front.port} already"
        raise DemoError(f"{taken}; with COSYVOICE_FRONT__PORT=9080 it takes another port")


def listens(host: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((EVERYWHERE.get(host, host), port), timeout=POLL_S):
        return True
    return False


def tell_address(front: FrontSettings) -> None:
    address = f"http://{local_url(front.host, front.port)}"
    if front.page:
        print(f"page to speak from: {address}/")
    print(f"OpenAI's speech API: {address}/v1 (Ctrl-C ends it)", flush=True)


def speak(url: str, request: SpeechRequest, output: Path) -> None:
    """Send the request twice, so that the second finds the voice known, and keep the second's audio."""
    client = SpeechClient(url)
    for title in ("new voice", "known voice"):
        timeline = Timeline()
        for chunk in recorded(output, client.speak(request)):
            timeline.add(chunk.arrived_s, chunk.seconds)
            finished_s = chunk.arrived_s
        print(
            f"{title}: first audio after {1000 * (timeline.ttfb_s or 0):.0f} ms, "
            f"real-time factor {finished_s / timeline.audio_s:.2f}"
        )
    print(f"{output}: {timeline.audio_s:.1f} s of speech")


if __name__ == "__main__":
    sys.exit(main())
