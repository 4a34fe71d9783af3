#!/bin/sh
# Serves a CosyVoice3 checkpoint with vLLM-Omni: vllm_omni.sh SERVED [PORT] [further options of its command serve]
set -e
served=$1 port=${2:-8091} here=$(cd "$(dirname "$0")" && pwd)
[ -f "$served/config.json" ] || { echo "$served: expected a directory of torch_checkpoint.py" >&2; exit 2; }
shift; [ $# -eq 0 ] || shift
export PYTHONPATH="$here/standins${PYTHONPATH:+:$PYTHONPATH}" S3TOKENIZER_ONNX="$served/speech_tokenizer_v3.onnx"
export COSYVOICE3_TRT=0 VLLM_USE_FLASHINFER_SAMPLER=0 HF_HUB_OFFLINE=1
exec "${PYTHON:-python}" -m vllm_omni.entrypoints.cli.main serve "$served" --omni --trust-remote-code \
    --tokenizer "$served/CosyVoice-BlankEN" --served-model-name tts-1 --host 127.0.0.1 --port "$port" "$@"
