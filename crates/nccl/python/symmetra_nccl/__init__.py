"""libsymmetra_nccl.so: a library with the names of NCCL, whose communicators of one host run on symmetra's kernels.

`python -m symmetra_nccl run -- torchrun program.py` starts a program over the library. A program that loads NCCL by itself
calls `load` before torch is imported, or passes `path()` where a setting takes the file of NCCL.
"""

import ctypes
import os
import pathlib

__all__ = ["environment", "load", "path"]


def path():
    """The absolute path of the library."""
    return str(pathlib.Path(__file__).resolve().parent / "libsymmetra_nccl.so")


def _loaded():
    """The NCCL or torch that the process has loaded already, or None."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            file = line.split(maxsplit=5)[-1].strip()
            name = os.path.basename(file)
            if name.startswith(("libnccl.so", "libtorch")) and file != path():
                return file
    return None


def load():
    """Loads the library for the whole process, so that torch finds the library in place of NCCL. Returns the
    `ctypes.CDLL`. Raises RuntimeError if the process has loaded NCCL or torch already: both are bound to NCCL then."""
    loaded = _loaded()
    if loaded is not None:
        raise RuntimeError(f"{loaded} is loaded already: call symmetra_nccl.load() before torch is imported")
    return ctypes.CDLL(path(), ctypes.RTLD_GLOBAL)


def environment(base=None):
    """The variables of a process whose NCCL is the library: those of `base`, by default of this process, and LD_PRELOAD,
    VLLM_NCCL_SO_PATH and SGLANG_NCCL_SO_PATH. Other preloaded libraries stay."""
    variables = dict(os.environ if base is None else base)
    preloaded = [file for file in variables.get("LD_PRELOAD", "").split(":") if file and file != path()]
    variables["LD_PRELOAD"] = ":".join([path(), *preloaded])
    variables["VLLM_NCCL_SO_PATH"] = variables["SGLANG_NCCL_SO_PATH"] = path()
    return variables
