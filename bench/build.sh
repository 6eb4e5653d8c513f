#!/usr/bin/env bash
# Builds the benchmarks for GPUs into one folder that can be copied to a machine without a toolchain:
#   bench/build.sh DIR        (needs nvcc; SYMMETRA_CUDA_ARCHS as for cargo)
# The folder has symmetra and symmetra-bench (with NCCL as a peer, and cuBLASLt in the same folder), cpp_overhead,
# safety, expert_kernels, expert_direct_kernels, and their scripts.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: $0 DIR" >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."

cargo build --release --locked --features cudarc,nccl --lib --bins
target=$(cargo metadata --format-version 1 --no-deps | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
cp "$target"/release/{symmetra,symmetra-bench} "$out/"
home=${CUDA_HOME:-${CUDA_PATH:-$(dirname "$(dirname "$(command -v nvcc)")")}}
library=$home/lib64
[ -f "$library/libcudart_static.a" ] || library=$home/lib
g++ -std=c++17 -O2 -Iinclude bench/cpp_overhead.cc "$target/release/libsymmetra.a" -L"$library" -lcudart_static -ldl -lrt -lm -pthread \
  -o "$out/cpp_overhead"
archs=()
for arch in $(echo "${SYMMETRA_CUDA_ARCHS:-80,90a,100a}" | tr ',;' '  '); do archs+=("-gencode=arch=compute_$arch,code=sm_$arch"); done
nvcc() { "$home/bin/nvcc" -O3 -std=c++20 "${archs[@]}" -I. -Iinclude "$@"; }
objects=$(mktemp -d)
trap 'rm -r "$objects"' EXIT
nvcc -c -DNAME=bounded bench/safety_kernels.cu -o "$objects/bounded.o"
# Its own namespace: the linker would take one of two functions of the same name for both.
nvcc -c -DNAME=unbounded -DSYMMETRA_UNBOUNDED_WAITS -Dsymmetra=symmetra_unbounded bench/safety_kernels.cu -o "$objects/unbounded.o"
nvcc bench/safety.cu "$objects/bounded.o" "$objects/unbounded.o" -L"$library" -o "$out/safety"
for name in expert_kernels expert_direct_kernels; do nvcc -fmad=false "bench/$name.cu" -L"$library" -o "$out/$name"; done
strip "$out"/{symmetra,symmetra-bench,cpp_overhead,safety,expert_kernels,expert_direct_kernels}
cp bench/measure.sh bench/{torch_symm_mem,torch_moe,torch_moe_sides,torch_fused_matmul,torch_direct_product,flashinfer_norm}.py "$out/"
du -sh "$out"
