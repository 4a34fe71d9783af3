#!/usr/bin/env bash
# One entry to everything; see usage below.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" # where it lies, not where a link to it does

FAMILY="${FAMILY:-cosyvoice2}"
case "$FAMILY" in
  cosyvoice3) PUBLISHED=Fun-CosyVoice3-0.5B ;;
  cosyvoice300m) PUBLISHED=CosyVoice-300M ;;
  cosyvoice2) PUBLISHED=CosyVoice2-0.5B ;;
  *) echo "FAMILY: $FAMILY is none of cosyvoice2, cosyvoice3, cosyvoice300m" >&2 && exit 2 ;;
esac
NAMED="${CHECKPOINT:-${COSYVOICE_CHECKPOINT_DIR:-}}" # empty where nobody chose a checkpoint
CHECKPOINT="${CHECKPOINT:-${COSYVOICE_CHECKPOINT_DIR:-checkpoints/$PUBLISHED}}"
SOURCE="${SOURCE:-auto}"
MODEL_REPO="${MODEL_REPO:-build/model_repo}"
VENV="${VENV:-.venv}"
[[ "${1:-}" != demo && "${1:-}" != fleet ]] || TORCH="${TORCH:-no}"
TORCH="${TORCH:-yes}"
PYTHON="$VENV/bin/python"
[[ "$VENV" != system ]] || PYTHON=python3 # a container's, which has everything already

usage() {
  cat <<'TEXT'
Usage:
  ./run.sh demo                             speak a sentence through a real server, on a machine without a GPU
  ./run.sh demo --serve                     and then serve OpenAI's speech API until Ctrl-C
  ./run.sh fleet SERVERS                    so many servers without a GPU, and two fronts, until Ctrl-C
  ./run.sh check [KEY=VALUE ...]            compare what $CHECKPOINT speaks, as served and in float32; look for NaN
  ./run.sh test [--quick] [pytest options]  lint, types and all tests; quick: without slow ones and servers
  ./run.sh START STOP [streaming|offline [OPTIONS]]   stages START to STOP; stages 4 to 6 get the options:
     0  checkpoint          fetch it into $CHECKPOINT (SOURCE: auto, huggingface, modelscope, made, a directory)
     1  engines             convert and build what the engines in the settings need
     2  model repository    render model_repo/ into $MODEL_REPO
     3  server              run it until Ctrl-C or SIGTERM: one for each GPU, behind one address
     4  client              one request: gRPC when streaming, HTTP when offline
     5  benchmark           clients against the server, streaming or offline
     6  offline benchmark   without a server

Variables: FAMILY (cosyvoice2, cosyvoice3, cosyvoice300m: what stage 0 fetches), SOURCE, REVISION (a commit,
branch or tag of the hub's repository; the newest unless it is given), CHECKPOINT (or COSYVOICE_CHECKPOINT_DIR:
the checkpoint of all stages), MODEL_REPO, VENV (system: the python3 on PATH, and nothing is installed), TORCH
(no: an environment without it, which is the demo's default), and COSYVOICE_* for every other setting in
docs/settings.md. Relative paths count from the directory of run.sh.
TEXT
}

say() { printf '\033[1m== %s\033[0m\n' "$*"; }

need() { # need FILE STAGE: stop unless an earlier stage has made the file
  [[ -e "$1" ]] || { echo "run.sh: $1 is missing; stage $2 makes it: ./run.sh $2 $2" >&2; exit 1; }
}

need_checkpoint() { # of any family; what can't be done with it, the scripts say
  compgen -G "$CHECKPOINT/cosyvoice*.yaml" >/dev/null || need "$CHECKPOINT/cosyvoice2.yaml" 0
}

need_served() { # need_served CONFIG CHECKPOINT: the repository is rendered for this one
  local served
  served="$(sed -n 's/.*"checkpoint_dir".* string_value: "\(.*\)" .*/\1/p' "$1" | sed 's/\\\(.\)/\1/g')" # \" is "
  [[ "$served" -ef "$2" ]] || refuse "$MODEL_REPO serves $served, not $2; stages 1 and 2 change that: ./run.sh 1 3"
}

find_server() { # find_server http|grpc: where the settings say that it listens, unless the options say it
  local url
  SERVER=()
  [[ " ${OPTIONS[*]}" == *" --url"* || " ${OPTIONS[*]}" == *" --server-url"* ]] && return
  url="$("$PYTHON" scripts/server_address.py "$1")" || exit
  SERVER=(--url "$url")
}

find_instruction() { # what a checkpoint that is here needs before each text, if anything
  INSTRUCTION=""
  [[ " ${OPTIONS[*]}" != *" --instruct"* ]] || return 0
  ! compgen -G "$CHECKPOINT/cosyvoice*.yaml" >/dev/null || INSTRUCTION="$("$PYTHON" scripts/usual_instruction.py "$CHECKPOINT")"
}

find_voice() { # find_voice FILE_OPTION TEXT_OPTION: a recording to speak like, where a checkpoint brings no voice
  SPEAKER=()
  [[ -d "$CHECKPOINT" && ! -e "$CHECKPOINT/spk2info.pt" ]] || return 0
  [[ ! " ${OPTIONS[*]}" =~ " --"(voice|reference|manifest|split-name|prompt-speech) ]] || return 0
  echo "run.sh: $CHECKPOINT brings no voice; demo_voice/reference.flac is spoken like" >&2
  SPEAKER=("$1" demo_voice/reference.flac "$2" "$(< demo_voice/reference.txt)")
}

refuse() { echo "run.sh: $*" >&2; exit 2; }

is_ascii() { local LC_ALL=C; [[ "$1" != *[^\ -~]* ]]; }

need_ascii() { # need_ascii NAME PATH: Python in the models' processes reads no other paths, whatever the locale
  is_ascii "$2" || refuse "$(printf '%s is %q: a path may have letters, digits and signs of ASCII alone' "$1" "$2")"
}

need_place() { # need_place NAME PATH: for Python's environment, whose installer takes these signs for its own
  need_ascii "$1" "$2"
  [[ "$2" != *[\$#:]* ]] || refuse "$(printf "%s is %q: this path may have no '$', '#' or ':'" "$1" "$2")"
}

need_paths() {
  need_place "the directory of run.sh" "$PWD"
  [[ "$VENV" == system ]] || need_place VENV "$VENV"
  need_ascii CHECKPOINT "$CHECKPOINT"
}

environment() { # environment [--test]
  [[ "$TORCH" != no ]] || set -- --no-torch "$@"
  [[ "$VENV" == system ]] || python3 scripts/environment.py --venv "$VENV" "$@"
}

stage_0() {
  say "checkpoint"
  "$PYTHON" scripts/fetch_checkpoint.py "$CHECKPOINT" --source "$SOURCE" --family "$FAMILY" \
    ${REVISION:+--revision "$REVISION"}
}

stage_1() {
  say "engines"
  need_checkpoint
  "$PYTHON" scripts/build_engines.py "checkpoint_dir=$CHECKPOINT"
}

stage_2() {
  say "model repository"
  need_checkpoint
  "$PYTHON" scripts/render_model_repo.py --output "$MODEL_REPO" "checkpoint_dir=$CHECKPOINT"
}

stage_3() {
  say "server"
  need "$MODEL_REPO/cosyvoice2/config.pbtxt" 2
  [[ -z "$NAMED" ]] || need_served "$MODEL_REPO/cosyvoice2/config.pbtxt" "$NAMED"
  exec "$PYTHON" -m cosyvoice_runtime.supervisor "$MODEL_REPO" # exec: signals go to the server, which drains
}

stage_4() {
  say "client ($MODE)"
  local client=client/grpc_client.py port=grpc
  [[ "$MODE" == offline ]] && client=client/http_client.py port=http
  find_server "$port"
  find_instruction
  find_voice --reference --reference-text
  "$PYTHON" "$client" "${SERVER[@]}" --text "${INSTRUCTION}Hello, this is a voice out of a Triton server." \
    --output speech.wav "${SPEAKER[@]}" "${OPTIONS[@]}"
}

stage_5() {
  say "benchmark ($MODE)"
  find_server grpc
  find_instruction
  find_voice --reference --reference-text
  "$PYTHON" benchmarks/client_server.py "${SERVER[@]}" --mode "$MODE" --concurrency 1,2,4,8 \
    ${INSTRUCTION:+--instruction "$INSTRUCTION"} "${SPEAKER[@]}" "${OPTIONS[@]}"
}

stage_6() {
  say "offline benchmark"
  [[ "$TORCH" != no ]] || refuse "stage 6 needs torch: leave TORCH away, or set it to yes"
  need_checkpoint
  find_voice --prompt-speech-path --prompt-text
  "$PYTHON" benchmarks/offline_inference.py --checkpoint "$CHECKPOINT" "${SPEAKER[@]}" "${OPTIONS[@]}"
}

stages() { # stages START STOP [MODE [OPTIONS]]
  [[ "$1" =~ ^[0-6]$ && "$2" =~ ^[0-6]$ ]] || { usage >&2; exit 2; }
  (($1 <= $2)) || refuse "stage $1 comes after stage $2; name the first one first"
  (($1 > 3 || $2 <= 3)) || refuse "stage 3 runs until it is stopped; run stages 4 to 6 in another shell"
  (($1 > 3 || $# == 2)) || refuse "stages 0 to 3 take no options; settings come from variables, see docs/settings.md"
  MODE="${3:-streaming}" OPTIONS=("${@:4}")
  [[ "$MODE" == streaming || "$MODE" == offline ]] || refuse "$MODE: streaming or offline comes before the options"
  # Clients need no torch, and should not wait for it.
  if (($1 == 4 || $1 == 5)) && (($2 <= 5)); then TORCH=no environment; else environment; fi
  local stage
  for ((stage = $1; stage <= $2; stage++)); do "stage_$stage"; done
}

demo() {
  environment ${1:+--front}
  exec "$PYTHON" scripts/demo.py "$@" # exec: a signal to this process ends the demo and what it started
}

fleet() { # fleet SERVERS
  environment --front
  exec "$PYTHON" scripts/demo_fleet.py "$1"
}

check() { # of the demo voice where no other checkpoint is named or here
  environment
  [[ "$CHECKPOINT" != "checkpoints/$PUBLISHED" || -e "$CHECKPOINT" ]] || CHECKPOINT=demo_voice
  need_checkpoint
  exec "$PYTHON" -m cosyvoice_runtime.check --reference demo_voice/reference.flac \
    --reference-text "$(< demo_voice/reference.txt)" "checkpoint_dir=$CHECKPOINT" "$@"
}

run_tests() {
  environment --test
  [[ "${1:-}" != --quick ]] || set -- -m "not slow and not server and not gpu" "${@:2}"
  unset PYTHONDONTWRITEBYTECODE # or each process that a test starts would compile all modules again
  # Beside lint and types, this writes the bytecode that all processes of the tests would write at once.
  OMP_NUM_THREADS=1 "$PYTHON" -m pytest --collect-only "$@" >/dev/null 2>&1 &
  say "lint"
  "$PYTHON" -m ruff check .
  "$PYTHON" -m ruff format --check .
  say "types"
  "$PYTHON" -m mypy
  "$PYTHON" -m mypy {scripts,client,benchmarks}/*.py # which are no packages
  say "tests"
  wait || true # what can't be collected, the tests say
  local processes=$(($(nproc) + 2)) # two more than cores: tests of servers mostly wait
  # A process whose test hangs is not started again: it would run that test once more.
  OMP_NUM_THREADS=1 "$PYTHON" -m pytest -n "$((processes < 4 ? processes : 4))" --max-worker-restart 0 \
    --dist loadfile --no-loadscope-reorder --durations 15 "$@"
}

case "${1:-}" in demo | fleet | test | check | [0-9]*) need_paths ;; esac
case "${1:-}" in
  demo) shift; [[ "$*" =~ ^(--serve)?$ ]] || refuse "demo takes no option but --serve"; demo "$@" ;;
  fleet) [[ $# == 2 && "$2" =~ ^[1-9][0-9]?$ ]] || refuse "fleet takes the number of servers, as in: ./run.sh fleet 3"; fleet "$2" ;;
  check) shift; check "$@" ;;
  test) shift; run_tests "$@" ;;
  [0-9]*) stages "$1" "${2:-$1}" "${@:3}" ;;
  -h | --help | help) usage ;;
  *) usage >&2; exit 2 ;;
esac
