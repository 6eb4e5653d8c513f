#!/usr/bin/env bash
# PyTorch's collectives in CUDA graphs: libsymmetra_nccl.so beside NCCL as it is and NCCL without graph mixing, in one run.
# bench/nccl_torch.sh LIBRARY RANKS FOLDER writes one file of JSON lines a library into FOLDER, then prints the table.
set -euo pipefail
library=$(realpath "$1") ranks=$2 folder=$3
mkdir -p "$folder"
script=$(dirname "$0")/nccl_torch.py
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 SEED=$RANDOM
run() { # NAME COMMAND...
  local name=$1
  shift
  timeout 300 env "$@" torchrun --nproc_per_node "$ranks" "$script" >"$folder/$name.jsonl" 2>"$folder/$name.log" || {
    tail -5 "$folder/$name.log" >&2
    return 1
  }
}
run symmetra LD_PRELOAD="$library"
run nccl NCCL_GRAPH_MIXING_SUPPORT=1
run nccl_unmixed NCCL_GRAPH_MIXING_SUPPORT=0
python3 - "$folder" <<'PY'
import json, sys
folder = sys.argv[1]
read = lambda name: [json.loads(line) for line in open(f"{folder}/{name}.jsonl")]
print(f"{'operation':15}{'bytes':>12}{'symmetra us':>13}{'NCCL / symmetra':>17}{'unmixed':>9}{'wrong':>7}")
for own, real, unmixed in zip(read("symmetra"), read("nccl"), read("nccl_unmixed")):
    ratios = real["us"] / own["us"], unmixed["us"] / own["us"]
    print(f"{own['operation']:15}{own['bytes']:12}{own['us']:13.2f}{ratios[0]:17.2f}{ratios[1]:9.2f}{own['wrong']:7}")
PY
