#!/usr/bin/env bash
# The programs of nccl-tests that a folder holds (`*_perf`), over libsymmetra_nccl.so and over NCCL, one after the other:
# bench/nccl_tests.sh LIBRARY FOLDER [ARGUMENT...]. Arguments go to every program; the default is `-b 1K -e 256M -f 4 -g 2
# -c 1`. Builds nothing. Prints a row a program: wrong elements, the average bus bandwidths in GB/s and their ratio. The exit
# status is 1 if a program failed or an element was wrong.
set -uo pipefail
[ $# -ge 2 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
library=$(realpath "$1") folder=$2
shift 2
[ $# -gt 0 ] || set -- -b 1K -e 256M -f 4 -g 2 -c 1
export NCCL_NVLS_ENABLE=0
shopt -s nullglob
programs=("$folder"/*_perf)
[ ${#programs[@]} -gt 0 ] || { echo "$folder has no program *_perf of nccl-tests" >&2; exit 2; }

# The number of wrong elements and the average bus bandwidth that a program printed. An output without them is a failure.
read_output() {
  awk '/Out of bounds values/ { wrong = $7 } /Avg bus bandwidth/ { bandwidth = $NF }
    END { if (wrong == "" || bandwidth == "") exit 1; print wrong, bandwidth }'
}

failed=0
printf '%-24s %7s %10s %10s %7s\n' program wrong symmetra NCCL ratio
for program in "${programs[@]}"; do
  # A program may fail after its last line, also for another reason than wrong elements.
  status=0
  found=$(LD_PRELOAD=$library timeout 600 "$program" "$@" | read_output) || status=$?
  read -r wrong own <<<"${found:-failed 0}"
  if [ "$status" -ne 0 ] && [ "$wrong" = 0 ]; then wrong=failed; fi
  read -r _ real <<<"$(timeout 600 "$program" "$@" | read_output)"
  real=${real:-0}
  [ "$wrong" = 0 ] || failed=1
  ratio=$(awk -v own="$own" -v real="$real" 'BEGIN { if (real > 0) printf "%.2f", own / real; else print "-" }')
  printf '%-24s %7s %10s %10s %7s\n' "$(basename "$program")" "$wrong" "$own" "$real" "$ratio"
done
exit "$failed"
