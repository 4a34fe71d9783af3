"""CosyVoice speech synthesis, all families: text and a voice in, waveform chunks out."""

import os

__version__ = "0.1.0"

# Libraries tell their makers what runs here unless these are set before they are imported.
for _variable in (
    "ORT_DISABLE_TELEMETRY",
    "TRTLLM_NO_USAGE_STATS",
    "VLLM_NO_USAGE_STATS",
    "HF_HUB_DISABLE_TELEMETRY",
    "DO_NOT_TRACK",
):
    os.environ[_variable] = "1"
