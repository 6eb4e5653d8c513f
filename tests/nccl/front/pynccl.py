"""The life of a rank as the ctypes wrappers of vLLM and SGLang have it, by the standard library alone: an id of rank 0, one
process for each rank, a warm-up, operations, messages, windows, and an exit without destroy. The first argument is the
library."""

import ctypes
import multiprocessing
import sys

COUNT = 1000
FLOAT32, SUM = 7, 0


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


class Nccl:
    """The functions of a library by their names."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.ncclGetErrorString.restype = ctypes.c_char_p
        self.library.ncclGetLastError.restype = ctypes.c_char_p

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code != 0:
            words = self.library.ncclGetErrorString(code), self.library.ncclGetLastError(None)
            raise RuntimeError(f"{name}: {words}")

    def unique_id(self):
        made = UniqueId()
        self.call("ncclGetUniqueId", ctypes.byref(made))
        return bytes(made.internal)


def floats(values):
    return (ctypes.c_float * len(values))(*values)


def rank(path, made, ranks, number):
    nccl = Nccl(path)
    version = ctypes.c_int()
    nccl.call("ncclGetVersion", ctypes.byref(version))
    assert version.value == 22809, version.value
    assert not hasattr(nccl.library, "ncclNoSuchFunction")
    comm = ctypes.c_void_p()
    unique = UniqueId.from_buffer_copy(made)
    nccl.call("ncclCommInitRank", ctypes.byref(comm), ranks, unique, number)

    size, count, stream = ctypes.c_size_t, ctypes.c_size_t(COUNT), ctypes.c_void_p(0)
    own, total = floats([float(number + i % 3) for i in range(COUNT)]), floats([0.0] * COUNT)
    expected = [float(sum(range(ranks)) + ranks * (i % 3)) for i in range(COUNT)]
    nccl.call("ncclAllReduce", own, total, count, FLOAT32, SUM, comm, stream)
    assert list(total) == expected

    gathered = floats([0.0] * (COUNT * ranks))
    nccl.call("ncclAllGather", own, gathered, count, FLOAT32, comm, stream)
    assert list(gathered) == [float(peer + i % 3) for peer in range(ranks) for i in range(COUNT)]

    part = floats([0.0] * COUNT)
    nccl.call("ncclReduceScatter", gathered, part, count, FLOAT32, SUM, comm, stream)
    assert list(part) == [float(ranks * (number + i % 3)) for i in range(COUNT)]

    received = floats([-1.0] * COUNT)
    nccl.call("ncclGroupStart")
    nccl.call("ncclSend", own, count, FLOAT32, (number + 1) % ranks, comm, stream)
    nccl.call("ncclRecv", received, count, FLOAT32, (number - 1) % ranks, comm, stream)
    nccl.call("ncclGroupEnd")
    assert list(received) == [float((number - 1) % ranks + i % 3) for i in range(COUNT)]

    nccl.call("ncclBroadcast", own, received, count, FLOAT32, ranks - 1, comm, stream)
    assert list(received) == [float(ranks - 1 + i % 3) for i in range(COUNT)]

    memory, window = ctypes.c_void_p(), ctypes.c_void_p()
    nccl.call("ncclMemAlloc", ctypes.byref(memory), size(1 << 20))
    nccl.call("ncclCommWindowRegister", comm, memory, size(1 << 20), ctypes.byref(window), 1)
    nccl.call("ncclCommWindowDeregister", comm, window)
    nccl.call("ncclMemFree", memory)
    # A symmetric buffer freed with its window alive.
    nccl.call("ncclMemAlloc", ctypes.byref(memory), size(1 << 20))
    nccl.call("ncclCommWindowRegister", comm, memory, size(1 << 20), ctypes.byref(window), 1)
    nccl.call("ncclMemFree", memory)
    nccl.call("ncclAllReduce", own, total, count, FLOAT32, SUM, comm, stream)
    assert list(total) == expected


def main(path, ranks):
    # This process makes the id and is no rank.
    made = Nccl(path).unique_id()
    processes = [multiprocessing.get_context("spawn").Process(target=rank, args=(path, made, ranks, n)) for n in range(ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    codes = [process.exitcode for process in processes]
    assert codes == [0] * ranks, codes
    print(f"{ranks} ranks as processes: ok")


if __name__ == "__main__":
    for world in (1, 2, 4):
        main(sys.argv[1], world)
