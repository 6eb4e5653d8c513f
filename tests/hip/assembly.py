#!/usr/bin/env python3
"""Reads what clang emits for AMD GPUs: packets move in single 16-byte accesses at system scope, a
release writes the cache back and waits before it stores, no barrier leaves memory in flight, numbers
round as elsewhere, and nothing is kept in scratch memory but by the kernels of MAY_SPILL.

    tests/hip/assembly.py gfx90a|gfx942 FILE.s
"""

import re
import subprocess
import sys

TYPES = ("BF16", "F16", "F32")
WORLDS = (2, 4, 8)
PUSH = (
    "one_shot<LL<Sum<{0}> >, {1}u>", "one_shot<Sentinel<Sum<{0}> >, {1}u>", "two_shot<Sentinel<Sum<{0}> >, {1}u>",
    "reduce_sentinels<Sentinel<Sum<{0}> >, {1}u, Whole<",
)
DIRECT = ("two_shot_zero_copy<Sum<{0}>, {1}u>",)

# The instructions of each chip.
STORE_PACKET = {"gfx90a": r"global_store_dwordx4 v\S+, v\S+, off glc slc", "gfx942": r"global_store_dwordx4 v\S+, v\S+, off sc0 sc1"}
LOAD_PACKET = {"gfx90a": r"global_load_dwordx4 v.* glc$", "gfx942": r"global_load_dwordx4 v.* sc0 sc1$"}
WRITE_BACK = {"gfx90a": r"buffer_wbl2", "gfx942": r"buffer_wbl2 sc0 sc1"}
INVALIDATE = {"gfx90a": r"buffer_invl2", "gfx942": r"buffer_inv sc0 sc1"}
RELEASED = {"gfx90a": r"global_store_dword v\S+, v\S+, off", "gfx942": r"global_store_dword v\S+, v\S+, off sc0 sc1"}

# Exchanges keep a table of all ranks' strips, which clang indexes in scratch memory. Quantised rows of LayerNorm have more values in
# use than a block of 1024 threads has registers: up to 100 bytes of a thread are in scratch memory.
MAY_SPILL = "exchange_|relay_packets|reduce_packets|reduce_local|, true, (Fused)?LayerNormArgs>"


def kernels(path: str) -> dict[str, list[str]]:
    """Instructions by demangled kernel name, without namespaces; and how much scratch it uses."""
    text = open(path, encoding="utf-8").read()
    bodies = {}
    for name in re.findall(r"^\s*\.amdhsa_kernel (\S+)$", text, flags=re.MULTILINE):
        body = text.split(f"\n{name}:", 1)[1].split("s_endpgm\n\t.section", 1)[0]
        lines = (line.split(";")[0].strip() for line in body.splitlines())
        bodies[name] = [re.sub(r"\s+", " ", line) for line in lines if line and not line.startswith((".", ";")) and not line.endswith(":")]
    scratch = dict(re.findall(r"\.name:\s+(\S+)\n\s+\.private_segment_fixed_size: (\d+)", text))
    mangled = list(bodies)
    names = subprocess.run(["c++filt"], input="\n".join(mangled), check=True, capture_output=True, text=True).stdout.splitlines()
    for name in mangled:
        if int(scratch[name]) != 0:
            bodies[name].append(f"scratch {scratch[name]}")
    return {re.sub(r"(\w+::)+", "", name): bodies[symbol] for name, symbol in zip(names, mangled)}


def waits(code: list[str], barrier: int) -> bool:
    """Whether nothing was read or written between a wait for all memory and the barrier."""
    for line in reversed(code[:barrier]):
        if line.startswith("s_waitcnt vmcnt(0)"):
            return True
        if re.match(r"(global|flat|buffer|scratch)_|s_c?branch", line):
            return False
    return False


def always(chip: str, name: str, code: list[str]) -> list[str]:
    """What must hold in every kernel."""
    found = [f"{name}: {line} bytes" for line in code if line.startswith("scratch ") and not re.search(MAY_SPILL, name)]
    for at, line in enumerate(code):
        after = code[at + 1 : at + 3]
        if line.startswith("buffer_wbl2"):
            whole = re.fullmatch(WRITE_BACK[chip], line) and after[0] == "s_waitcnt vmcnt(0) lgkmcnt(0)" and re.fullmatch(RELEASED[chip], after[1])
            found += [] if whole else [f"{name}: a release that is not whole: {line}; {'; '.join(after)}"]
        if line == "s_barrier" and not waits(code, at):
            found.append(f"{name}: a barrier that does not wait for memory")
        if re.fullmatch(STORE_PACKET[chip], line) and after[0] != "s_nop 0":
            found.append(f"{name}: a packet's registers may change while it is stored")
    return found


def modes(path: str) -> list[str]:
    """Numbers round to nearest even and keep denormals, as on other devices, in every kernel."""
    text = open(path, encoding="utf-8").read()
    wanted = {"round_mode_32": "0", "round_mode_16_64": "0", "denorm_mode_32": "3", "denorm_mode_16_64": "3"}
    found = re.findall(r"\.amdhsa_float_(\w+_mode_\w+) (\d)", text)
    return [f"{path}: {mode} is {value}" for mode, value in found if wanted[mode] != value] + ([] if found else [f"{path}: no modes"])


def main() -> int:
    chip, path = sys.argv[1:]
    code = kernels(path)
    needed = {name: () for name in code}

    def need(name: str, *patterns: str) -> None:
        full = next((full for full in code if name in full), None)
        needed[full or name] = patterns

    for element in TYPES:
        for world in WORLDS:
            for pattern in PUSH:
                need(pattern.format(element, world), STORE_PACKET[chip], LOAD_PACKET[chip])
            for pattern in DIRECT:
                need(pattern.format(element, world), WRITE_BACK[chip], INVALIDATE[chip], r"global_load_dwordx4 .*", r"global_store_dwordx4 .*")
    need("signal(", WRITE_BACK[chip], INVALIDATE[chip])
    for name in ("agree(", "exchange_escaped<Whole<", "exchange_escaped<Strip<"):
        need(name, STORE_PACKET[chip], LOAD_PACKET[chip])

    wrong = modes(path)
    for name, patterns in needed.items():
        if name not in code:
            wrong.append(f"{name}: not in {path}")
            continue
        wrong += always(chip, name, code[name])
        wrong += [f"{name}: no {pattern}" for pattern in patterns if not any(re.search(pattern, line) for line in code[name])]
    failed = {line.split(": ")[0] for line in wrong} & set(needed)
    print("".join(line + "\n" for line in wrong) + f"assembly of {chip}: {len(needed) - len(failed)} kernels passed, {len(failed)} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
