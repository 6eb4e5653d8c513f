"""`python -m symmetra_nccl run -- PROGRAM ARGUMENTS...` and `python -m symmetra_nccl doctor [--json]`."""

import argparse
import ctypes
import importlib.util
import json
import os
import pathlib
import sys

import symmetra_nccl

# Variables that give every communicator to the real NCCL, with the value that does so; None is any value.
REASONS = {"SYMMETRA_NCCL_SERVE": "off", "NCCL_P2P_DISABLE": "1", "NCCL_COMM_ID": None}


def real_nccl():
    """The NCCL of the environment's packages, which serves where symmetra cannot; None without one."""
    try:
        package = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        return None
    folders = package.submodule_search_locations if package else []
    files = (pathlib.Path(folder) / "lib" / "libnccl.so.2" for folder in folders)
    return next((str(file) for file in files if file.is_file()), None)


def doctor():
    """Facts of this environment, and why symmetra would not serve; an empty list if it would."""
    reasons = [
        f"{name} is {os.environ[name]}"
        for name, value in REASONS.items()
        if os.environ.get(name) and value in (None, os.environ[name])
    ]
    facts = {"library": symmetra_nccl.path(), "real_nccl": real_nccl(), "nccl_version": None}
    try:
        library = ctypes.CDLL(symmetra_nccl.path())
    except OSError as error:
        reasons.append(f"the library cannot be loaded: {error}")
    else:
        version = ctypes.c_int()
        library.ncclGetLastError.restype = ctypes.c_char_p
        if library.ncclGetVersion(ctypes.byref(version)) == 0:
            facts["nccl_version"] = version.value
        else:
            reasons.append(library.ncclGetLastError(None).decode())
    return {**facts, "serves": not reasons, "reasons": reasons}


def main():
    parser = argparse.ArgumentParser(prog="python -m symmetra_nccl", description="Programs over symmetra's NCCL.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run a program whose NCCL is this library")
    run.add_argument("program", nargs="+", help="the program and its arguments, after --")
    check = commands.add_parser("doctor", help="say which library would serve the communicators of one host here")
    check.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    if arguments.command == "run":
        program = arguments.program
        try:
            os.execvpe(program[0], program, symmetra_nccl.environment())
        except OSError as error:
            sys.exit(f"{program[0]}: {error.strerror}")
    facts = doctor()
    if arguments.json:
        print(json.dumps(facts))
    else:
        print(f"library      {facts['library']}")
        print(f"reports      NCCL {facts['nccl_version']}")
        print(f"real NCCL    {facts['real_nccl'] or 'not in the packages of this Python'}")
        print(f"serves       {'yes, communicators of one host' if facts['serves'] else 'no: ' + '; '.join(facts['reasons'])}")
    sys.exit(0 if facts["serves"] else 1)


if __name__ == "__main__":
    main()
