#!/usr/bin/env python3
"""Reads the machine code of the CUDA kernels: packets move in single 16-byte system-scope accesses,
and no hot kernel spills to local memory.

    tests/gpu/sass.py CUOBJDUMP ARCHIVE
"""

import re
import subprocess
import sys

TYPES = ("BF16", "F16", "F32")
WORLDS = (2, 4, 8)
PUSH = (
    "one_shot<LL<Sum<{0}> >, {1}u>", "one_shot<Sentinel<Sum<{0}> >, {1}u>", "two_shot<Sentinel<Sum<{0}> >, {1}u>",
    "reduce_sentinels<Sentinel<Sum<{0}> >, {1}u, Whole<", "exchange_escaped<Whole<",
)
DIRECT = ("two_shot_zero_copy<Sum<{0}>, {1}u>", "ring<Sum<{0}> >")


def functions(cuobjdump: str, archive: str) -> dict[str, str]:
    """Machine code by demangled kernel name, without namespaces."""
    dump = subprocess.run([cuobjdump, "-sass", archive], check=True, capture_output=True, text=True).stdout
    parts = re.split(r"^\s*Function : (\S+)$", dump, flags=re.MULTILINE)
    mangled, bodies = parts[1::2], parts[2::2]
    names = subprocess.run(["c++filt"], input="\n".join(mangled), check=True, capture_output=True, text=True).stdout.splitlines()
    return {re.sub(r"(\w+::)+", "", name): body for name, body in zip(names, bodies)}


def faults(name: str, code: str, needed: tuple[str, ...]) -> list[str]:
    """What is wrong with one kernel."""
    found = [f"{name}: no {pattern}" for pattern in needed if not re.search(pattern, code)]
    spills = len(re.findall(r"\b(?:LDL|STL)\b", code))
    return found + ([f"{name}: {spills} accesses to local memory"] if spills else [])


def main() -> int:
    code = functions(sys.argv[1], sys.argv[2])
    packets = (r"\bSTG?\.E\.128\.STRONG\.SYS\b", r"\bLDG?\.E\.128\.STRONG\.SYS\b")
    vectors = (r"\bSTG?\.E\.128\b", r"\bLDG?\.E\.128\b")
    wrong, checked = [], 0
    for patterns, needed in ((PUSH, packets), (DIRECT, vectors)):
        for pattern in patterns:
            for element in TYPES:
                for world in WORLDS:
                    name = pattern.format(element, world)
                    body = next((body for full, body in code.items() if name in full), None)
                    checked += 1
                    wrong += faults(name, body, needed) if body is not None else [f"{name}: not in {sys.argv[2]}"]
    print("\n".join(wrong))
    print(f"sass: {checked - len({line.split(':')[0] for line in wrong})} passed, {len(wrong)} failed of {len(code)} kernels")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
