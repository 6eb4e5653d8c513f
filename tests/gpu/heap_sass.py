#!/usr/bin/env python3
"""Reads the machine code of tests/kernels/heap_kernels.cu: every atomic access has the scope and the order that its
source names, copies move 16 bytes at once, and nothing spills to local memory.

    tests/gpu/heap_sass.py CUOBJDUMP OBJECT
"""

import re
import subprocess
import sys

ORDERS = ("relaxed", "acquire", "release", "acquire and release")
SCOPES = ("CTA", "GPU", "SYS")
# The name of each scope in machine code.
STRONG = {"CTA": "SM", "GPU": "GPU", "SYS": "SYS"}
# The two accesses of a kernel, and which orders it is compiled for.
KERNELS = {
    "loads": ((r"LDG\.E\.STRONG\.{0}", r"LDG\.E\.64\.STRONG\.{0}"), (0, 1)),
    "stores": ((r"STG\.E\.STRONG\.{0}", r"STG\.E\.64\.STRONG\.{0}"), (0, 2)),
    "fetches": ((r"ATOMG\.E\.MAX\.STRONG\.{0}", r"ATOMG\.E\.EXCH\.64\.STRONG\.{0}"), (0, 1, 2, 3)),
    "compares": ((r"ATOMG\.E\.CAS\.STRONG\.{0}", r"ATOMG\.E\.CAS\.64\.STRONG\.{0}"), (0, 1, 2, 3)),
    "adds": ((r"RED[G]?\.E\.ADD\.STRONG\.{0}", r"RED[G]?\.E\.ADD\.64\.STRONG\.{0}"), (0, 2)),
}


def kernels(cuobjdump: str, path: str) -> dict[str, list[str]]:
    """Instructions by demangled kernel name, without predicates and operands."""
    dump = subprocess.run([cuobjdump, "-sass", path], check=True, capture_output=True, text=True).stdout
    parts = re.split(r"^\s*Function : (\S+)$", dump, flags=re.MULTILINE)
    names = subprocess.run(["c++filt"], input="\n".join(parts[1::2]), check=True, capture_output=True, text=True).stdout.splitlines()
    code = (re.findall(r"^\s*/\*[0-9a-f]{4}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", body, flags=re.MULTILINE) for body in parts[2::2])
    return dict(zip(names, code))


def ordered(name: str, code: list[str], accesses: tuple[str, ...], order: int, scope: str) -> list[str]:
    """What is wrong with a kernel of two accesses: each has a barrier before it where it releases, and drops what the
    first cache holds after it where it acquires beyond the block."""
    found, at = [], 0
    for access in accesses:
        place = next((place for place in range(at, len(code)) if re.fullmatch(access.format(STRONG[scope]), code[place])), None)
        if place is None:
            found.append(f"{name}: no {access.format(STRONG[scope])}")
            continue
        before, after = code[at:place], code[place + 1 : place + 3]
        releases, acquires = f"MEMBAR.ALL.{scope}" in before, "CCTL.IVALL" in after
        if releases != (order in (2, 3)):
            found.append(f"{name}: {'a' if releases else 'no'} release at {access}")
        if acquires != (order in (1, 3) and scope != "CTA"):
            found.append(f"{name}: {'an' if acquires else 'no'} acquire at {access}")
        at = place + 1
    return found


def main() -> int:
    code = kernels(sys.argv[1], sys.argv[2])
    wrong, checked = [], 0

    def body(name: str) -> list[str]:
        nonlocal checked
        checked += 1
        found = [lines for full, lines in code.items() if name in re.sub(r"(\w+::)+", "", full)]
        if len(found) != 1:
            wrong.append(f"{name}: {len(found)} kernels")
        return found[0] if found else []

    for kernel, (accesses, orders) in KERNELS.items():
        for order in orders:
            for number, scope in enumerate(SCOPES):
                lines = body(f"{kernel}<(Order){order}, (Scope){number}>")
                wrong += ordered(f"{kernel}, {ORDERS[order]}, {scope}", lines, accesses, order, scope)
    for number, scope in enumerate(SCOPES):
        if f"MEMBAR.SC.{scope}" not in body(f"fences<(Scope){number}>"):
            wrong.append(f"fences, {scope}: no MEMBAR.SC.{scope}")
    # Data, then one thread's release, then the count.
    put = " ".join(body("puts("))
    if not re.search(r"LDG\.E\.128( \S+)* STG\.E\.128 .*MEMBAR\.ALL\.SYS( \S+){0,3} STG\.E\.STRONG\.SYS", put):
        wrong.append(f"puts: {put}")
    for name, lines in code.items():
        spills = sum(line.startswith(("LDL", "STL")) for line in lines)
        wrong += [f"{name}: {spills} accesses to local memory"] if spills else []
    print("".join(line + "\n" for line in wrong) + f"heap sass: {checked} kernels read of {len(code)}, {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
