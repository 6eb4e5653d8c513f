"""A rank is killed while another waits for it: the poll for errors returns code 6 within a second, an abort ends the wait, and
the GPU stays usable. The first argument is the library. Needs torch and two GPUs."""

import ctypes
import multiprocessing
import os
import signal
import sys
import time

import torch

FLOAT32, SUM, REMOTE_ERROR = 7, 0, 6


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


class Rank:
    """A rank of two, on the GPU of its number."""

    def __init__(self, path, made, ranks, number):
        torch.cuda.set_device(number)
        self.library = ctypes.CDLL(path)
        self.library.ncclGetLastError.restype = ctypes.c_char_p
        self.comm = ctypes.c_void_p()
        unique = UniqueId.from_buffer_copy(made)
        self.check(self.library.ncclCommInitRank(ctypes.byref(self.comm), ranks, unique, number))
        self.tensor = torch.ones(1 << 20, device="cuda")

    def words(self):
        return self.library.ncclGetLastError(None).decode()

    def check(self, code):
        assert code == 0, (code, self.words())

    def all_reduce(self):
        address, count = ctypes.c_void_p(self.tensor.data_ptr()), ctypes.c_size_t(self.tensor.numel())
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        return self.library.ncclAllReduce(address, address, count, FLOAT32, SUM, self.comm, stream)


def sleeper(path, made, ready):
    rank = Rank(path, made, 2, 1)
    rank.check(rank.all_reduce())
    torch.cuda.synchronize()
    ready.set()
    time.sleep(60)


def unique_id(library):
    made = UniqueId()
    assert library.ncclGetUniqueId(ctypes.byref(made)) == 0
    return bytes(made.internal)


def main(path):
    context = multiprocessing.get_context("spawn")
    made = unique_id(ctypes.CDLL(path))
    ready = context.Event()
    process = context.Process(target=sleeper, args=(path, made, ready))
    process.start()
    rank = Rank(path, made, 2, 0)
    rank.check(rank.all_reduce())
    torch.cuda.synchronize()
    assert rank.tensor[0].item() == 2.0 and ready.wait(30)
    print("ok a call of two processes")
    code = ctypes.c_int()
    rank.check(rank.all_reduce())
    time.sleep(0.5)
    rank.check(rank.library.ncclCommGetAsyncError(rank.comm, ctypes.byref(code)))
    assert code.value == 0, rank.words()
    os.kill(process.pid, signal.SIGKILL)
    start = time.monotonic()
    while code.value == 0 and time.monotonic() - start < 10:
        rank.check(rank.library.ncclCommGetAsyncError(rank.comm, ctypes.byref(code)))
    waited = time.monotonic() - start
    assert code.value == REMOTE_ERROR and waited < 1, (code.value, waited)
    assert rank.all_reduce() == REMOTE_ERROR and "rank 1 is gone" in rank.words(), rank.words()
    print(f"ok the killed rank is named after {waited * 1000:.0f} ms")
    stream = torch.cuda.current_stream()
    for _ in range(20):
        time.sleep(0.01)
        assert not stream.query(), "the stream went on"
    print("ok the stream is held")
    if "EXIT_HELD" in os.environ:
        print("ok the process ends with a stream that is held")
        return
    start = time.monotonic()
    rank.check(rank.library.ncclCommAbort(rank.comm))
    aborted = time.monotonic() - start
    torch.cuda.synchronize()
    assert aborted < 0.01, aborted
    print(f"ok the abort returned after {aborted * 1000:.2f} ms, and the stream went on")
    alone = Rank(path, unique_id(rank.library), 1, 0)
    alone.check(alone.all_reduce())
    torch.cuda.synchronize()
    assert alone.tensor.sum().item() == alone.tensor.numel()
    print("ok a new communicator")
    process.join()


if __name__ == "__main__":
    main(sys.argv[1])
