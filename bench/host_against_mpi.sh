#!/usr/bin/env bash
# The host device compared with Open MPI on this machine, in one run: 4 ranks as processes, f32, sum, taken in turn.
# Needs mpicc and mpirun. Prints a table of medians and their ratio.
#   bench/host_against_mpi.sh [MAX_BYTES] [ROUNDS]
set -euo pipefail
cd "$(dirname "$0")/.."
max=${1:-16777216} rounds=${2:-3}
out=target/mpi
mkdir -p "$out"
cargo build --release --locked >&2
mpicc -O3 bench/mpi_all_reduce.c -o "$out/mpi_all_reduce" -lm
: >"$out/ours" && : >"$out/theirs"
for _ in $(seq "$rounds"); do
  target/release/symmetra all-reduce --device host --ranks 4 --dtype f32 --min-bytes 1KiB --max-bytes "$max" --json >>"$out/ours"
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 4 "$out/mpi_all_reduce" 1024 "$max" 20 >>"$out/theirs"
done
python3 - "$out/ours" "$out/theirs" <<'PY'
import json, statistics, sys
def medians(path):
    times = {}
    for row in map(json.loads, open(path)):
        assert row["wrong"] == 0, row
        times.setdefault(row["bytes"], []).append(row["time_us"])
    return {size: statistics.median(values) for size, values in times.items()}
ours, theirs = medians(sys.argv[1]), medians(sys.argv[2])
print(f"{'bytes':>10} {'symmetra us':>12} {'Open MPI us':>12} {'ratio':>6}")
for size in sorted(ours):
    print(f"{size:>10} {ours[size]:>12.1f} {theirs[size]:>12.1f} {ours[size] / theirs[size]:>6.2f}")
PY
