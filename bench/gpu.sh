#!/usr/bin/env bash
# Tests and measures Dragoman on one NVIDIA GPU. Needs nothing from outside: what isn't installed
# comes from a folder of wheels. It goes on where it stopped: what was measured is not measured
# again, and a part that fails does not keep the others from running.
#
#   bench/gpu.sh --wheels DIR                     everything: about 15 minutes, in one go
#   bench/gpu.sh --wheels DIR --minutes 9         as much as fits; the same command goes on
#   bench/gpu.sh --wheels DIR --parts "step engine" --models base
#   bench/gpu.sh --device cpu --smoke             every line of it on a CPU, in a minute or two
#
# Wheels: onnxruntime-gpu 1.31 for this Python and CUDA, and of pyproject.toml's dependencies what
# this Python does not have (`bench/gpu.sh --parts preflight` names them). They are installed beside
# the environment, in build/bench-gpu/site, which comes first on the path: an `onnxruntime` for CPUs
# that is installed is left alone and not used. CUDA's libraries may lie beside PyTorch.
#
# Results are in --output (default build/bench-gpu/report): preflight.json, results/*.jsonl,
# sync.txt, tests.txt. What they should show is in bench/gpu/README.md.
set -uo pipefail

cd "$(dirname "$0")/.."
wheels='' models='' output=build/bench-gpu/report work=build/bench-gpu device=cuda smoke='' minutes=60
parts='preflight sync tests prepare step engine grpc profile'
python=${PYTHON:-python3}

usage() {
    sed -n '2,17p' "$0" | sed 's/^# \{0,1\}//'
    exit "${1:-0}"
}

while [ $# -gt 0 ]; do
    case $1 in
    --wheels) wheels=$2 && shift 2 ;;
    --output) output=$2 && shift 2 ;;
    --work) work=$2 && shift 2 ;;
    --device) device=$2 && shift 2 ;;
    --parts) parts=$2 && shift 2 ;;
    --models) models=$2 && shift 2 ;;
    --minutes) minutes=$2 && shift 2 ;;
    --smoke) smoke=--smoke && shift ;;
    --help | -h) usage ;;
    *) echo "unknown: $1" >&2 && usage 2 >&2 ;;
    esac
done

began=$(date +%s)
left() { echo $((minutes * 60 - ($(date +%s) - began))); }
say() { echo "== $(date +%H:%M:%S) $*"; }

mkdir -p "$output" "$work"
export ORT_DISABLE_TELEMETRY=1 PYTHONUNBUFFERED=1
export PYTHONPATH="$PWD:$PWD/proto${PYTHONPATH:+:$PYTHONPATH}"

# Threads that wait for each other by spinning take minutes where others compute, too.
[ "$device" = cpu ] && export OMP_NUM_THREADS=1

if [ -n "$wheels" ]; then
    site=$(realpath -m "$work/site")
    if [ ! -e "$site/.installed" ] || [ "$wheels" -nt "$site/.installed" ]; then
        say "installing the wheels of $wheels"
        "$python" -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir --upgrade \
            --target "$site" "$wheels"/*.whl && touch "$site/.installed" || {
            echo "the wheels could not be installed: is each for $("$python" --version)," \
                "and is there one version of each?" >&2
            exit 1
        }
    fi
    export PYTHONPATH="$site:$PYTHONPATH"
fi

# What failed in an earlier go may work now.
rm -f "$output/failures.txt"

run_part() {
    "$python" -m bench.gpu.run "$1" --output "$output" --work "$work" --device "$device" $smoke \
        --seconds "$2"
}

# A part may take as long as its points are worth, and never longer than there is time.
bounded() {
    local most=$1 seconds
    shift
    seconds=$(left)
    [ "$seconds" -gt "$most" ] && seconds=$most
    if [ "$seconds" -lt 30 ]; then
        say "no time left for ${*: -1}: the same command goes on"
        return 0
    fi
    "$@" "$seconds"
}

# part_tests STEPS_IN_FLIGHT TESTS NAME SECONDS
part_tests() {
    local variables=(DRAGOMAN_TEST_DEVICE="${device%%:*}" DRAGOMAN_GPU_DEPTH="$1")
    [ -n "$smoke" ] && variables+=(DRAGOMAN_GPU_SENTENCES=3)
    [ -e "$output/$3.done" ] && return 0
    env "${variables[@]}" timeout --kill-after=10 "$4" "$python" -m pytest -c bench/gpu/pytest.ini \
        --rootdir . -p no:cacheprovider -rA tests/gpu -k "$2" 2>&1 | tee "$output/$3.txt"
    local status=${PIPESTATUS[0]}
    [ "$status" = 0 ] && touch "$output/$3.done"
    return "$status"
}

part_measure() {
    # Twenty seconds to end the point under way and to write it.
    timeout --kill-after=10 "$2" "$python" -m bench.gpu.run "$1" --output "$output" --work "$work" \
        --device "$device" $smoke --models "$models" --seconds $(($2 - 20))
}

failed=''
for part in $parts; do
    say "$part"
    case $part in
    preflight)
        run_part preflight 60 || {
            echo "The benchmark can't run here: see MISSING above." >&2
            exit 1
        }
        continue
        ;;
    sync) bounded 200 part_tests 0 "pytorchs or beams" sync ;;
    tests) bounded 400 part_tests 2 "" tests ;;
    prepare) bounded 400 part_measure prepare ;;
    step | engine) bounded 420 part_measure "$part" ;;
    grpc | profile) bounded 240 part_measure "$part" ;;
    *) echo "there is no part $part" >&2 && exit 2 ;;
    esac
    status=$?
    if [ $status -ne 0 ]; then
        failed="$failed $part"
        echo "$part ended with status $status$([ $status = 124 ] && echo ': out of time')" |
            tee -a "$output/failures.txt"
    fi
done
say "done${failed:+; failed:$failed}"
[ -z "$failed" ]
