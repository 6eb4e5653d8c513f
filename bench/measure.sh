#!/usr/bin/env bash
# All races of one world against NCCL, in at most 8 minutes of the machine:
#   measure.sh WORLD FOLDER
# FOLDER gets about.json (build, devices, driver), a file of results for each race (docs/design/method.md describes the form),
# tuning.json and logs. Standard output has a line for each race, the rows in which symmetra is slower than the best peer, and
# at the end the number of races that failed. Exit status 1 if one failed.
# PROGRAMS: the folder of symmetra and symmetra-bench [the folder of this script, as bench/build.sh copies it].
# SUITE: the folder of tests/gpu/build.sh, whose quick suite runs too.
# DEVICE=host tries the script on a CPU: small sizes, and no peers.
# SYMMETRA_NCCL_LIBRARY names NCCL. NVLink multicast stays off for every library.
set -uo pipefail
[ $# -eq 2 ] || { echo "usage: $0 WORLD FOLDER" >&2; exit 2; }
programs=$(realpath "${PROGRAMS:-$(dirname "$0")}")
world=$1 device=${DEVICE:-cuda} failed=0
mkdir -p "$2"
out=$(cd "$2" && pwd)
# Of an earlier run.
rm -f "$out"/mixed-*.log "$out/tuning.json"
export NCCL_NVLS_ENABLE=0 SYMMETRA_MULTICAST=0

nccl=(--against nccl) windows=(--against nccl,nccl-symmetric)
collectives=(--max-bytes 256MiB) codecs=(--min-bytes 1MiB --max-bytes 64MiB) norms=(--tokens 1,4,16,64,256,1024)
experts=(--phase both) products=(--tokens 128,2048 --way auto,sequence) tuning=(--hidden 8192 --experts deepseek --max-bytes 64MiB)
if [ "$device" = host ]; then
  nccl=() windows=()
  collectives=(--max-bytes 16KiB) codecs=(--min-bytes 16KiB --max-bytes 16KiB) norms=(--tokens 1,4 --hidden 256)
  experts=(--shape 8,2,64 --tokens 1,5) products=(--inner 128 --columns 256 --tokens 64) tuning=(--max-bytes 8KiB)
fi

run() { # NAME SECONDS COMMAND...
  local name=$1 limit=$2 start=$SECONDS status=0
  shift 2
  rm -f "$out/$name.json"
  timeout -k 5 "$limit" "$@" >"$out/$name.log" 2>"$out/$name.err" || status=$?
  if [ "$status" -eq 0 ]; then
    echo "ok      $name ($((SECONDS - start)) s)"
  else
    failed=$((failed + 1))
    echo "FAILED  $name (status $status, $((SECONDS - start)) s): $(tail -n 2 "$out/$name.err" | tr '\n' ' ')"
  fi
}

race() { # NAME SECONDS COMMAND ARGS...
  local name=$1 limit=$2 command=$3
  shift 3
  run "$name" "$limit" "$programs/symmetra-bench" "$command" --device "$device" --ranks "$world" --graph --output "$out/$name.json" "$@"
}

"$programs/symmetra" info --json >"$out/about.json" || failed=$((failed + 1))
if [ -n "${SUITE:-}" ]; then LOGS=$out/suite run suite 300 "$SUITE/run.sh" quick; fi
for operation in all-reduce all-gather reduce-scatter all-to-all broadcast; do
  race "$operation" 60 "$operation" "${windows[@]}" "${collectives[@]}"
done
race codecs 40 all-reduce --with fp8,int8,int6,int4 "${codecs[@]}"
race norms 60 all-reduce-norm --algorithm auto,apart "${nccl[@]}" "${norms[@]}"
race norms-fp8 60 all-reduce-norm --algorithm auto,apart --quantise per-token-e4m3 "${norms[@]}"
race experts 60 moe "${nccl[@]}" "${experts[@]}"
for collective in all-gather reduce-scatter all-reduce; do
  race "matmul-$collective" 60 matmul --collective "$collective" "${nccl[@]}" "${products[@]}"
done
# The tensor groups of 2 ranks, and those of half of the ranks.
for tp in $(printf '%s\n' 2 $((world / 2)) | sort -un | grep -v '^1$'); do
  operations=(all-reduce-all-gather reduce-scatter-all-reduce)
  if [ "$tp" -eq "$world" ]; then operations=(all-reduce); fi
  for operation in "${operations[@]}"; do
    run "mixed-$operation-tp$tp" 60 "$programs/symmetra" mixed "$operation" --device "$device" --ranks "$world" --local-tp "$tp" \
      --local-dp $((world / tp)) --graph --json "${nccl[@]}" --max-bytes 16MiB
  done
done
run tune 100 "$programs/symmetra" tune --device "$device" --ranks "$world" --output "$out/tuning.json" "${tuning[@]}"

python3 - "$out" <<'PY' || failed=$((failed + 1))
import json, pathlib, sys
folder, unread = pathlib.Path(sys.argv[1]), 0
def rows(path):
    """The rows of a race, by the names of their columns: a file of results, or an object a line."""
    if path.suffix == ".log":
        return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]
    table = json.loads(path.read_text())
    return [dict(zip(table.get("columns", []), row)) for row in table.get("rows", [])]
for path in [*sorted(folder.glob("*.json")), *sorted(folder.glob("mixed-*.log"))]:
    try:
        peers = [row for row in rows(path) if row.get("ratio") is not None]
    except ValueError as error:
        print(f"{path.stem}: cannot be read: {error}")
        unread += 1
        continue
    slower = [row for row in peers if row["ratio"] < 1]
    if peers:
        print(f"{path.stem}: {len(peers)} rows with peers, {len(slower)} slower than the best of them")
    for row in slower:
        print(f"  {row['ratio']:.2f}  " + ", ".join(f"{name} {cell}" for name, cell in row.items() if name != "ratio"))
sys.exit(1 if unread else 0)
PY
echo "measure: world $world, $failed failed"
[ "$failed" -eq 0 ]
