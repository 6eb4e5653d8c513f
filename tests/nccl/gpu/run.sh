#!/usr/bin/env bash
# PyTorch, CuPy and JAX over libsymmetra_nccl.so on the GPUs of this machine. tests/nccl/gpu/run.sh LIBRARY RANKS FOLDER writes logs into
# FOLDER and prints a line a check. Needs torch, cupy and jax with CUDA. SYMMETRA_NCCL_LIBRARY names the real NCCL; without it one
# check is skipped.
set -uo pipefail
library=$(realpath "$1") ranks=$2 folder=$3
here=$(dirname "$0")
mkdir -p "$folder"
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 SYMMETRA_NCCL_LOG=calls SYMMETRA_NCCL_SERVE=only
failed=0
check() { # NAME COMMAND...
  local name=$1
  shift
  if timeout 150 "$@" >"$folder/$name.log" 2>&1 && ! grep -q "wrong\|Traceback" "$folder/$name.log"; then
    echo "$name: ok, $(grep -c '^ok' "$folder/$name.log") lines"
  else
    echo "$name: FAILED"
    tail -15 "$folder/$name.log"
    failed=1
  fi
}
run=(torchrun --nproc_per_node "$ranks" "$here/torch_client.py")
check preload env LD_PRELOAD="$library" "${run[@]}"
check eager_init env LD_PRELOAD="$library" EAGER_INIT=1 "${run[@]}"
check not_blocking env LD_PRELOAD="$library" TORCH_NCCL_USE_COMM_NONBLOCKING=1 "${run[@]}"
check captured torchrun --nproc_per_node "$ranks" "$here/captured.py" "$library"
check captured_alone env CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun --nproc_per_node "$ranks" "$here/captured.py" "$library"
check without_order env NCCL_GRAPH_MIXING_SUPPORT=0 SYMMETRA_NCCL_TIMEOUT_S=20 SYMMETRA_NCCL_HOLD=0 torchrun --nproc_per_node "$ranks" "$here/captured.py" "$library" --without-order
for mixing in 1 0; do
  check "times_mixing_$mixing" env NCCL_GRAPH_MIXING_SUPPORT=$mixing torchrun --nproc_per_node "$ranks" "$here/captured.py" "$library" --times
  grep "^ok" "$folder/times_mixing_$mixing.log"
done
check orders env LD_PRELOAD="$library" torchrun --nproc_per_node "$ranks" "$here/orders.py"
check windows env LD_PRELOAD="$library" torchrun --nproc_per_node "$ranks" "$here/windows.py"
check windows_of_segments env LD_PRELOAD="$library" PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True \
  torchrun --nproc_per_node "$ranks" "$here/windows.py"
if [ -n "${SYMMETRA_NCCL_LIBRARY:-}" ]; then check foreign_windows python3 "$here/foreign_windows.py" "$library" "$SYMMETRA_NCCL_LIBRARY"; fi
check cupy env LD_PRELOAD="$library" python3 "$here/cupy_client.py"
check jax env LD_PRELOAD="$library" XLA_PYTHON_CLIENT_PREALLOCATE=false python3 "$here/jax_client.py"
check killed python3 "$here/killed.py" "$library"
check exit_held env EXIT_HELD=1 python3 "$here/killed.py" "$library"
grep -h "in a window" "$folder"/windows*.log
grep -h "serves" "$folder"/*.log | sed 's/.*: symmetra/symmetra/' | sort | uniq -c | head -4
exit "$failed"
