#!/usr/bin/env bash
# The GPU suite: runs the programs that build.sh put next to this script on all GPUs of the machine and ends in one
# line, `gpu suite: N passed, M failed, G GPUs`. Exit status 1 when anything failed. Logs go to LOGS (default:
# gpu-logs).
#   run.sh [quick|full|sanitize]
# quick: device test, test suites, a sweep per world. full: also every algorithm, type, graph and rank kind, 10,000 replays of
# the graphs of all groups, 100,000 of one graph with every kind of node, a million calls.
# sanitize: memcheck and racecheck of a 2-rank sweep (needs compute-sanitizer).
# SYMMETRA_NCCL_LIBRARY names the NCCL that groups are also served through; unset: that test is skipped.
# SHARE=1: also worlds of more ranks than GPUs, as processes, several of which take turns on one GPU. Correct, but slow.
# ONLY is a regular expression: checks whose names do not match it are skipped, as in ONLY='^w4-' run.sh full.
# CUBLAS names the folder of libcublasLt.so, with which the example multiplies; unset: where the loader finds it.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mode=${1:-quick}
logs=${LOGS:-gpu-logs}
mkdir -p "$logs"
# The visible GPUs: fewer than the machine has if CUDA_VISIBLE_DEVICES is set.
gpus=$("$here/symmetra" info --json | grep -o '"kind":"cuda"' | wc -l)
if [ "$gpus" -lt 2 ]; then
  echo "gpu suite: not run, it needs 2 GPUs or more and $gpus are visible"
  exit 1
fi
passed=0 failed=0
# The device of each rank of a program, chosen by its local rank.
place=(bash -c "LOCAL_RANK=\$((LOCAL_RANK % $gpus)) exec \"\$@\"" place)
export SYMMETRA_TEST_DEVICE=cuda NCCL_NVLS_ENABLE=0 SYMMETRA_MULTICAST=0

check() { # NAME SECONDS COMMAND...
  local name=$1 limit=$2 start=$SECONDS
  shift 2
  [[ $name =~ ${ONLY:-} ]] || return 0
  if timeout -k 5 "$limit" "$@" >"$logs/$name.log" 2>&1; then
    passed=$((passed + 1))
    echo "ok    $name ($((SECONDS - start)) s)"
  else
    local status=$?
    failed=$((failed + 1))
    echo "FAIL  $name (status $status, $((SECONDS - start)) s): $(tail -n 3 "$logs/$name.log" | tr '\n' ' ')"
  fi
}

sweep() { # NAME ARGS...
  local name=$1
  shift
  check "$name" 60 "$here/symmetra" all-reduce --device cuda --share-devices --json --iterations 3 "$@"
}

exchange() { # NAME COLLECTIVE ARGS...
  local name=$1 collective=$2
  shift 2
  check "$name" 60 "$here/symmetra" "$collective" --device cuda --share-devices --json --iterations 3 "$@"
}

example() { # NAME PROGRAM WORLD ARGS...
  local name=$1 program=$2 world=$3
  shift 3
  LD_LIBRARY_PATH=${CUBLAS:+$CUBLAS:}${LD_LIBRARY_PATH:-} check "w$world-$name${*// /}" 60 "$here/symmetra" launch -n "$world" -- \
    "${place[@]}" "$here/$program" "$@"
}

mlp() { example mlp tensor_parallel_mlp "$@"; } # WORLD ARGS...

moe() { example moe mixture_of_experts "$@"; } # WORLD ARGS...

# Every operation but all-reduce: each has a command of its name.
operations=(all-gather all-gather-v reduce-scatter reduce-scatter-v all-to-all all-to-all-v broadcast reduce gather scatter send-receive shift)

worlds() { for world in 2 3 4 5 7 8; do { [ "$world" -le "$gpus" ] || [ -n "${SHARE:-}" ]; } && echo "$world"; done; }

# Kernels of one process that wait for each other on one GPU may not all fit it, so threads do not share.
kinds_of_rank() { # WORLD
  echo processes
  if [ "$1" -le "$gpus" ]; then echo threads; fi
}

if [ "$mode" = sanitize ]; then
  for tool in memcheck racecheck; do
    check "$tool" 300 compute-sanitizer --tool "$tool" --error-exitcode 9 "$here/symmetra" all-reduce --device cuda --ranks 2 \
      --ranks-as threads --dtype bf16 --min-bytes 1KiB --max-bytes 4MiB --iterations 2 --json
  done
else
  check device 60 "$here/device_test"
  check kernels 100 "$here/kernels_test"
  check heap 200 "$here/heap_test"
  for module in $("$here/test-suite" --list | sed -n 's/::.*: test$//p' | sort -u); do
    skip=()
    [ "$module" = coordinator ] && [ -z "${SYMMETRA_NCCL_LIBRARY:-}" ] && skip=(--skip through_nccl)
    check "suite-$module" 200 "$here/test-suite" --test-threads 1 "$module::" "${skip[@]}"
  done
  for suite in memory failures interrupted processes; do
    check "suite-$suite" 200 "$here/test-$suite" --test-threads 1
  done
  if [ "$mode" = full ]; then
    SYMMETRA_TEST_REPLAYS=10000 check replays 300 "$here/test-suite" coordinator::graphs_of_all_groups
    SYMMETRA_TEST_REPLAYS=100000 check replays-of-graphs 120 "$here/test-suite" graphs::pitfall_09
    SYMMETRA_TEST_REPLAYS=10000 check replays-of-experts 200 "$here/test-suite" expert_errors::a_graph
    SYMMETRA_TEST_REPLAYS=10000 check replays-of-halves 200 "$here/test-suite" expert_halves::graphs
    SYMMETRA_TEST_CALLS=1000000 check calls 120 "$here/test-memory" pitfall_19
  fi
  capability=$({ nvidia-smi --query-gpu=compute_cap --format=csv,noheader || true; } | sort -n | head -n 1 | tr -d .)
  for world in $(worlds); do
    check "w$world-p2p" 120 "$here/symmetra" launch -n "$world" -- "$here/p2p_every_call"
    if command -v mpirun >/dev/null && [ -x "$here/p2p_mpi_basic" ]; then
      for program in basic every_call; do
        check "w$world-p2p-mpi-$program" 120 mpirun --oversubscribe --allow-run-as-root -n "$world" "$here/p2p_mpi_$program"
      done
    fi
    # Kernels of ranks that share a GPU wait for each other, and may not run at once.
    if [ "$world" -le "$gpus" ]; then example gpu-initiated gpu_initiated "$world"; fi
    mlp "$world" --tp "$world" --intermediate $((world * 256))
    if [ $((world % 2)) -eq 0 ]; then mlp "$world" --tp $((world / 2)) --dp 2; fi
    if [ "$world" -eq 4 ]; then mlp 4 --tp 2 --pp 2; fi
    # FP8 begins at compute capability 8.9.
    if [ "${capability:-0}" -ge 89 ]; then mlp "$world" --fp8 --tp "$world" --intermediate $((world * 256)); fi
    if [ "$world" -eq 8 ]; then mlp 8 --tp 2 --pp 2 --dp 2; fi
    moe "$world"
    moe "$world" --packets --experts 13 --top-k 3
    if [ "$world" -le "$gpus" ]; then
      check "w$world-moe-by-source" 60 "$here/symmetra-bench" moe --device cuda --ranks "$world" --json --layout by-source \
        --shape 60,6,2880 --tokens 1,33,300 --method packets,direct,gather
    fi
    for as in $(kinds_of_rank "$world"); do
      sweep "w$world-$as-bf16" --ranks "$world" --ranks-as $as --dtype bf16
      sweep "w$world-$as-bf16-graph" --ranks "$world" --ranks-as $as --dtype bf16 --graph
      for op in "${operations[@]}"; do
        exchange "w$world-$as-$op" $op --ranks "$world" --ranks-as $as --dtype bf16 --max-bytes 4MiB
      done
      sweep "w$world-$as-bound" --ranks "$world" --ranks-as $as --dtype bf16 --bound --max-bytes 4MiB
      for op in all-gather reduce-scatter; do
        for dim in 0 1 2; do
          exchange "w$world-$as-$op-along-$dim" $op --ranks "$world" --ranks-as $as --dtype bf16 --along $dim --max-bytes 4MiB
        done
        exchange "w$world-$as-$op-copy-engine" $op --ranks "$world" --ranks-as $as --dtype bf16 --transport copy-engine --max-bytes 4MiB
        exchange "w$world-$as-$op-copy-engine-graph" $op --ranks "$world" --ranks-as $as --transport copy-engine --graph --plain --max-bytes 4MiB
      done
      [ "$mode" = full ] || continue
      for op in "${operations[@]}"; do
        for transport in packets direct; do
          exchange "w$world-$as-$op-$transport-graph" $op --ranks "$world" --ranks-as $as --transport $transport --graph --max-bytes 4MiB
        done
        exchange "w$world-$as-$op-plain" $op --ranks "$world" --ranks-as $as --dtype u8 --plain --max-bytes 4MiB
      done
      for dtype in f32 f64 f16 i32 i64 i8 u8 u32 u64 f8e4m3 f8e5m2; do
        sweep "w$world-$as-$dtype" --ranks "$world" --ranks-as $as --dtype $dtype --max-bytes 4MiB
        sweep "w$world-$as-$dtype-graph-in-place" --ranks "$world" --ranks-as $as --dtype $dtype --graph --in-place --max-bytes 4MiB
      done
      for op in prod min max avg; do
        sweep "w$world-$as-$op-bf16" --ranks "$world" --ranks-as $as --dtype bf16 --op $op --max-bytes 4MiB
        sweep "w$world-$as-$op-i8" --ranks "$world" --ranks-as $as --dtype i8 --op $op --max-bytes 4MiB
      done
      sweep "w$world-$as-bound-graph-plain" --ranks "$world" --ranks-as $as --bound --graph --plain --max-bytes 4MiB
      for algorithm in one-shot-ll one-shot-sentinel two-shot-ll two-shot-sentinel two-shot-zero-copy ring recursive-doubling; do
        sweep "w$world-$as-$algorithm" --ranks "$world" --ranks-as $as --dtype bf16 --algorithm $algorithm --max-bytes 4MiB
      done
    done
  done
fi
echo "gpu suite: $passed passed, $failed failed, $gpus GPUs"
# Nothing ran where ONLY matches nothing.
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
