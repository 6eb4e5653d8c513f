#!/usr/bin/env python3
"""Reads what clang makes of tests/hip/heap_kernels.hip for AMD GPUs: every release waits for all memory, and for the
write-back that its scope needs; every acquire drops what caches hold, as far as its scope needs; a relaxed access does
neither. A put moves 16 bytes at once, and keeps nothing in scratch memory.

    tests/hip/heap_assembly.py gfx90a|gfx942 FILE.s
"""

import re
import subprocess
import sys

ORDERS = ("relaxed", "acquire", "release", "acquire and release")
SCOPES = ("block", "device", "system")
WHOLE_WAIT = "s_waitcnt vmcnt(0) lgkmcnt(0)"
# The instructions that write back for a release and invalidate for an acquire, by chip and scope; empty where none is
# needed.
WRITE_BACK = {"gfx90a": ("", "", "buffer_wbl2"), "gfx942": ("", "buffer_wbl2 sc1", "buffer_wbl2 sc0 sc1")}
INVALIDATE = {"gfx90a": ("", "buffer_wbinvl1_vol", "buffer_invl2"), "gfx942": ("", "buffer_inv sc1", "buffer_inv sc0 sc1")}


def kernels(path: str) -> dict[str, list[str]]:
    """Instructions by demangled kernel name, without namespaces; and scratch memory if it uses some."""
    text = open(path, encoding="utf-8").read()
    scratch = dict(re.findall(r"\.name:\s+(\S+)\n\s+\.private_segment_fixed_size: (\d+)", text))
    found = {}
    for symbol in re.findall(r"^\s*\.amdhsa_kernel (\S+)$", text, flags=re.MULTILINE):
        body = text.split(f"\n{symbol}:", 1)[1].split("s_endpgm\n\t.section", 1)[0]
        lines = (re.sub(r"\s+", " ", line.split(";")[0].strip()) for line in body.splitlines())
        name = subprocess.run(["c++filt", symbol], check=True, capture_output=True, text=True).stdout.strip()
        found[re.sub(r"(\w+::)+", "", name)] = [line for line in lines if line] + ([f"scratch {scratch[symbol]}"] if int(scratch[symbol]) else [])
    return found


def faults(chip: str, name: str, code: list[str], order: int, scope: int) -> list[str]:
    """What is wrong with the kernel of an order and a scope."""
    releases, acquires = order in (2, 3), order in (1, 3)
    found = []
    backs = [line for line in code if line.startswith("buffer_wbl2")]
    drops = [line for line in code if line.startswith(("buffer_inv", "buffer_wbinvl1"))]
    back, drop = WRITE_BACK[chip][scope], INVALIDATE[chip][scope]
    if set(backs) != ({back} if releases and back else set()):
        found.append(f"{name}: writes back {backs}")
    if releases and WHOLE_WAIT not in code:
        found.append(f"{name}: releases without a wait")
    if (drop in drops) != bool(acquires and drop) or (not acquires and drops):
        found.append(f"{name}: drops {drops}")
    return found


def main() -> int:
    chip, path = sys.argv[1:]
    code, wrong, read = kernels(path), [], 0
    for order, order_name in enumerate(ORDERS):
        for scope, scope_name in enumerate(SCOPES):
            named = [lines for name, lines in code.items() if f"scoped<(Order){order}, (Scope){scope}>" in name]
            read += len(named)
            wrong += [] if len(named) == 1 else [f"{order_name}, {scope_name}: {len(named)} kernels"]
            for lines in named:
                wrong += faults(chip, f"{order_name}, {scope_name}", lines, order, scope)
    for scope, scope_name in enumerate(SCOPES):
        named = [lines for name, lines in code.items() if f"fenced<(Scope){scope}>" in name]
        read += len(named)
        wrong += [] if len(named) == 1 else [f"fence, {scope_name}: {len(named)} kernels"]
        for lines in named:
            wrong += faults(chip, f"fence, {scope_name}", lines, 3, scope)
    put = next((lines for name, lines in code.items() if name.startswith("puts(")), [])
    wrong += [f"puts: no {access}" for access in ("global_load_dwordx4", "global_store_dwordx4") if not any(line.startswith(access) for line in put)]
    wrong += [f"puts: {line} bytes" for line in put if line.startswith("scratch ")]
    for name, lines in code.items():
        for at, line in enumerate(lines):
            if line.startswith("buffer_wbl2") and lines[at + 1] != WHOLE_WAIT:
                wrong.append(f"{name}: a release that does not wait for its write-back")
    print("".join(line + "\n" for line in wrong) + f"heap assembly of {chip}: {read} kernels read of {len(code)}, {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
