#!/usr/bin/env bash
# Builds everything the GPU suite runs into one folder that can be taken to a machine with GPUs and no toolchain:
#   tests/gpu/build.sh DIR        (needs nvcc; SYMMETRA_CUDA_ARCHS as for cargo)
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: $0 DIR" >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."

suites=(suite memory failures interrupted processes)
flags=(--release --locked --features cudarc,nccl)
cargo build "${flags[@]}" --lib --bins --example tensor_parallel_mlp --example mixture_of_experts
tests=()
for suite in "${suites[@]}"; do tests+=(--test "$suite"); done
cargo test "${flags[@]}" --no-run --message-format=json "${tests[@]}" | python3 -c '
import json, shutil, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message["target"]["kind"] == ["test"]:
        shutil.copy(message["executable"], sys.argv[1] + "/test-" + message["target"]["name"])
' "$out"
target=$(cargo metadata --format-version 1 --no-deps | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
cp "$target"/release/{symmetra,symmetra-bench} "$target"/release/examples/{tensor_parallel_mlp,mixture_of_experts} "$out/"
home=${CUDA_HOME:-${CUDA_PATH:-$(dirname "$(dirname "$(command -v nvcc)")")}}
library=$home/lib64
[ -f "$library/libcudart_static.a" ] || library=$home/lib
g++ -std=c++20 -O1 -DSYMMETRA_CUDA -I. -Iinclude -I"$home/include" tests/gpu/device_test.cc cpp/device/cuda/*.cc \
  -L"$library" -lcudart_static -ldl -lrt -pthread -o "$out/device_test"
archs=()
for arch in $(echo "${SYMMETRA_CUDA_ARCHS:-80,90a,100a}" | tr ',;' '  '); do archs+=("-gencode=arch=compute_$arch,code=sm_$arch"); done
"$home/bin/nvcc" -O3 -std=c++20 -fmad=false "${archs[@]}" -I. -Iinclude -x cu tests/kernels/cuda_test.cc tests/kernels/user_kernel.cu \
  tests/kernels/narrow_kernels.cu kernels/cuda/kernels.cu -L"$library" -o "$out/kernels_test"
"$home/bin/nvcc" -O3 -std=c++20 "${archs[@]}" -I. -Iinclude tests/gpu/heap_test.cu -L"$library" -o "$out/heap_test"
# The kernel that test-suite loads by cudarc: machine code alone, as for a caller without nvcc's host code.
"$home/bin/nvcc" -O3 -std=c++20 "${archs[@]}" -Iinclude -fatbin tests/kernels/cudarc_kernel.cu -o "$out/cudarc_kernel.fatbin"
# The p2p_allreduce API: without MPI, and with it where it is.
p2p=(-std=c++17 -O1 -DP2P_ALLREDUCE_DEVICE=CUDA -DOMPI_SKIP_MPICXX -Iinclude -Iinclude/p2p_allreduce/shim -I"$home/include")
link=("$target/release/libsymmetra.a" -L"$library" -lcudart_static -ldl -lrt -lm -pthread)
g++ "${p2p[@]}" -DP2P_ALLREDUCE_NO_MPI tests/p2p/every_call.cc "${link[@]}" -o "$out/p2p_every_call"
"$home/bin/nvcc" -O3 -std=c++20 "${archs[@]}" -Iinclude -c examples/cpp/gpu_initiated.cu -o "$out/gpu_initiated.o"
g++ "$out/gpu_initiated.o" "${link[@]}" -o "$out/gpu_initiated"
rm "$out/gpu_initiated.o"
if command -v mpicxx >/dev/null; then
  for program in basic every_call; do mpicxx "${p2p[@]}" "tests/p2p/$program.cc" "${link[@]}" -o "$out/p2p_mpi_$program"; done
fi
find "$out" -maxdepth 1 -type f ! -name '*.sh' ! -name '*.py' ! -name '*.fatbin' -exec strip {} +
cp tests/gpu/run.sh bench/torch_symm_mem.py "$out/"
du -sh "$out"
