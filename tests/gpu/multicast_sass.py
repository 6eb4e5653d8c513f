#!/usr/bin/env python3
"""Reads the machine code and the PTX of the multicast kernels, and of a kernel for each function of
symmetra/device/multicast.cuh: sums are single accesses to the switch, stores and flags are multicast, packets move sixteen bytes at
once, and nothing spills to local memory.

    tests/gpu/multicast_sass.py CUOBJDUMP FOLDER
"""

import pathlib
import re
import sys

from sass import faults, functions

SUMS = {
    "multicast<F32, 0u>": r"\bLDGMC\.E\.ADD\.F32x4\.RN\.STRONG\.SYS\b",
    "multicast<F16, 0u>": r"\bLDGMC\.E\.(?:F32ADD|HPADD)\.F16x8\.RN\.STRONG\.SYS\b",
    "multicast<BF16, 0u>": r"\bLDGMC\.E\.(?:F32ADD|HPADD)\.BF16x8\.RN\.STRONG\.SYS\b",
    "multicast<U32, 1u>": r"\bLDGMC\.E\.ADD\.32\.STRONG\.SYS\b",
    "multicast<U64, 1u>": r"\bLDGMC\.E\.ADD\.64\.STRONG\.SYS\b",
    "multicast<U8, 2u>": r"\bSTG?\.E\.128\.STRONG\.SYS\b",
}
# Sums of 8-bit floats, which the code of one chip alone has.
F8 = {
    "multicast<AddedInF16<F8E4M3>, 0u>": r"\bLDGMC\.E\.HPADD\.E4M3x16\.RN\.STRONG\.SYS\b",
    "multicast<AddedInF16<F8E5M2>, 1u>": r"\bLDGMC\.E\.HPADD\.E5M2x16\.RN\.STRONG\.SYS\b",
}
TRAP = r"\bBPT\.TRAP\b"
# Stores of multicast look like any other in machine code, and the width of sums of halves has a name for each chip.
PTX = {
    "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.f16x2": 1,
    "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2": 1,
    "multimem.st.relaxed.sys.global.v4.f32": 5,
    "multimem.st.release.sys.global.u32": 8,
}
F8_PTX = [f"multimem.ld_reduce.relaxed.sys.global.add.acc::f16.v4.{kind}x4" for kind in ("e4m3", "e5m2")]
# Of tests/kernels/multicast_view_kernels.cu: the machine code of each kernel, and its one kind of multicast access in PTX.
PACKET = r"\bSTG?\.E\.128\b"
RED = r"\bREDG?\.E\.ADD\.STRONG\.SYS\b"
VIEWS = {
    "view_sum_f32": ((SUMS["multicast<F32, 0u>"], PACKET), "ld_reduce.relaxed.sys.global.add.v4.f32"),
    "view_sum_f16": ((SUMS["multicast<F16, 0u>"], PACKET), "ld_reduce.relaxed.sys.global.add.acc::f32.v4.f16x2"),
    "view_sum_bf16": ((SUMS["multicast<BF16, 0u>"], PACKET), "ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2"),
    "view_sum_u32": ((SUMS["multicast<U32, 1u>"], PACKET), "ld_reduce.relaxed.sys.global.add.u32"),
    "view_sum_i64": ((SUMS["multicast<U64, 1u>"], PACKET), "ld_reduce.relaxed.sys.global.add.u64"),
    "view_store": ((r"\bLDG?\.E\.128\b", SUMS["multicast<U8, 2u>"]), "st.relaxed.sys.global.v4.f32"),
    "view_add": ((RED,), "red.relaxed.sys.global.add.u32"),
    "view_add_release": ((RED,), "red.release.sys.global.add.u32"),
    "view_signal": ((RED,), "red.release.sys.global.add.u32"),
}
F8_VIEWS = {
    "view_sum_e4m3": ((F8["multicast<AddedInF16<F8E4M3>, 0u>"], PACKET), "ld_reduce.relaxed.sys.global.add.acc::f16.v4.e4m3x4"),
    "view_sum_e5m2": ((F8["multicast<AddedInF16<F8E5M2>, 1u>"], PACKET), "ld_reduce.relaxed.sys.global.add.acc::f16.v4.e5m2x4"),
}


def f8(name: str, code: str, needed: tuple[str, ...], has: bool) -> list[str]:
    """What is wrong with a kernel of 8-bit floats, which traps where the chip has no such sums."""
    wrong = faults(name, code, needed if has else (TRAP,))
    unlike = TRAP if has else r"\bLDGMC\b"
    return wrong + ([f"{name}: has {unlike}"] if re.search(unlike, code) else [])


def views(cuobjdump: str, folder: pathlib.Path) -> list[str]:
    wrong = []
    for arch in ("90a", "100a"):
        code = functions(cuobjdump, str(folder / f"views-{arch}.o"))
        for name, (needed, _) in VIEWS.items():
            wrong += faults(f"{name} of {arch}", code[name], needed) if name in code else [f"{name} of {arch}: is not there"]
        for name, (needed, _) in F8_VIEWS.items():
            wrong += f8(f"{name} of {arch}", code[name], needed, arch == "100a") if name in code else [f"{name} of {arch}: is not there"]
        entries = re.split(r"\.visible \.entry (\w+)", (folder / f"views-{arch}.ptx").read_text())[1:]
        found = {name: set(re.findall(r"\bmultimem\.([\w.:]+)", body)) for name, body in zip(entries[::2], entries[1::2])}
        wanted = {name: {access} for name, (_, access) in VIEWS.items()}
        wanted |= {name: {access} if arch == "100a" else set() for name, (_, access) in F8_VIEWS.items()}
        wrong += [] if found == wanted else [f"views of {arch}: {found} instead of {wanted}"]
    return wrong


def main() -> int:
    folder, wrong = pathlib.Path(sys.argv[2]), []
    for arch in ("90a", "100a"):
        code = functions(sys.argv[1], str(folder / f"{arch}.o"))
        for name, needed in SUMS.items():
            body = next((body for full, body in code.items() if name in full), None)
            wrong += faults(f"{name} of {arch}", body, (needed,)) if body is not None else [f"{name} of {arch}: is not there"]
        for name, needed in F8.items():
            body = next((body for full, body in code.items() if name in full), None)
            wrong += f8(f"{name} of {arch}", body, (needed,), arch == "100a") if body is not None else [f"{name} of {arch}: is not there"]
        entries = re.split(r"\.visible \.entry", (folder / f"kernels-{arch}.ptx").read_text())[1:]
        for text, kernels in (PTX | {text: int(arch == "100a") for text in F8_PTX}).items():
            found = sum(text in part for part in entries)
            wrong += [] if found == kernels else [f"{text} of {arch}: in {found} kernels instead of {kernels}"]
    wrong += views(sys.argv[1], folder)
    print("\n".join(wrong + [f"multicast: {len(wrong)} failed"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
