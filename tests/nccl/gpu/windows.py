"""Windows of torch's memory over the library that `LD_PRELOAD` names. Ranks of torchrun. Prints one line a check on rank 0; a
wrong value ends the process. Works with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True too."""

import ctypes
import os

import torch
import torch.distributed as dist

DEVICE = int(os.environ["LOCAL_RANK"])
RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
SYMMETRIC = 1
LIBRARY = ctypes.CDLL(None)
POINTER, SIZE = ctypes.c_void_p, ctypes.c_size_t
LIBRARY.ncclCommWindowRegister.argtypes = [POINTER, POINTER, SIZE, ctypes.POINTER(POINTER), ctypes.c_int]
LIBRARY.ncclCommWindowDeregister.argtypes = [POINTER, POINTER]
LIBRARY.ncclMemAlloc.argtypes = [ctypes.POINTER(POINTER), SIZE]
LIBRARY.ncclMemFree.argtypes = [POINTER]
LIBRARY.ncclGetLastError.argtypes, LIBRARY.ncclGetLastError.restype = [POINTER], ctypes.c_char_p


def line(name):
    torch.cuda.synchronize()
    if RANK == 0:
        print(f"ok {name}", flush=True)


def call(function, *arguments):
    code = getattr(LIBRARY, function)(*arguments)
    assert code == 0, f"{function}: {code}: {LIBRARY.ncclGetLastError(None)}"


def register(comm, address, size):
    window = POINTER()
    call("ncclCommWindowRegister", comm, address, size, ctypes.byref(window), SYMMETRIC)
    assert window.value, "the memory of some rank is not shared"
    return window


def register_tensor(comm, tensor):
    return register(comm, tensor.data_ptr(), tensor.nbytes)


def values(rank, count, dtype):
    return ((torch.arange(count, device="cuda") + rank * 7) % 5).to(dtype)


def total(count, dtype):
    return sum(values(rank, count, torch.float32) for rank in range(RANKS)).to(dtype)


def equal(found, expected, name):
    assert torch.equal(found, expected), f"{name}: rank {RANK}: {found.flatten()[:8]} for {expected.flatten()[:8]}"


def collectives(comm):
    for dtype in (torch.bfloat16, torch.float32, torch.int32):
        for count in (1, 1000, 1 << 20, 1 << 24):
            whole = torch.empty(count * RANKS, dtype=dtype, device="cuda")
            window = register_tensor(comm, whole)
            own = whole[:count]
            for _ in range(3):
                own.copy_(values(RANK, count, dtype))
                dist.all_reduce(own)
                equal(own, total(count, dtype), f"all_reduce {dtype} {count}")
            part = whole[RANK * count : (RANK + 1) * count]
            part.copy_(values(RANK, count, dtype))
            dist.all_gather_into_tensor(whole, part)
            everyone = torch.cat([values(rank, count, dtype) for rank in range(RANKS)])
            equal(whole, everyone, f"all_gather {dtype} {count}")
            out = torch.empty(count, dtype=dtype, device="cuda")
            dist.reduce_scatter_tensor(out, whole)
            equal(out, everyone[RANK * count : (RANK + 1) * count] * RANKS, f"reduce_scatter {dtype} {count}")
            torch.cuda.synchronize()
            call("ncclCommWindowDeregister", comm, window)


def registration_in_a_capture(comm):
    first, second = (torch.zeros(1 << 20, device="cuda") for _ in range(2))
    for tensor in (first, second):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            window = register_tensor(comm, tensor)
            dist.all_reduce(tensor)
        for replay in range(20):
            tensor.fill_(RANK + replay)
            graph.replay()
            expected = sum(rank + replay for rank in range(RANKS))
            equal(tensor, torch.full_like(tensor, expected), "a window registered in a capture")
        torch.cuda.synchronize()
        del graph
        call("ncclCommWindowDeregister", comm, window)


def memory_freed_with_its_window(comm):
    """As SGLang does: the allocator registers, and frees with the window alive."""
    free = torch.cuda.mem_get_info()[0]
    for round in range(1000):
        memory = POINTER()
        call("ncclMemAlloc", ctypes.byref(memory), 4 << 20)
        register(comm, memory.value, 4 << 20)
        if round % 100 == 0:
            tensor = torch.full((1 << 10,), float(RANK), device="cuda")
            dist.all_reduce(tensor)
            equal(tensor, torch.full_like(tensor, RANKS * (RANKS - 1) // 2), "between allocations")
        call("ncclMemFree", memory)
    lost = free - torch.cuda.mem_get_info()[0]
    assert lost < 64 << 20, f"{lost >> 20} MiB are lost after 1000 allocations"


def time_of(tensor):
    """Microseconds of an all-reduce, as one of 20 in a graph: the median of 10 replays."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(20):
            dist.all_reduce(tensor)
    times = []
    for _ in range(12):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        dist.barrier()
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / 20)
    return sorted(times[2:])[5]


def times(comm):
    for size in (1 << 20, 4 << 20, 16 << 20, 64 << 20):
        tensor = torch.zeros(size // 2, dtype=torch.bfloat16, device="cuda")
        plain = time_of(tensor)
        window = register_tensor(comm, tensor)
        inside = time_of(tensor)
        torch.cuda.synchronize()
        call("ncclCommWindowDeregister", comm, window)
        if RANK == 0:
            print(f"all_reduce bf16 {size >> 20} MiB: {plain:.1f} us, in a window {inside:.1f} us", flush=True)


def main():
    torch.cuda.set_device(DEVICE)
    dist.init_process_group("nccl", device_id=torch.device("cuda", DEVICE))
    dist.all_reduce(torch.ones(1, device="cuda"))
    comm = dist.group.WORLD._get_backend(torch.device("cuda"))._comm_ptr()
    for check in (registration_in_a_capture, collectives, memory_freed_with_its_window, times):
        check(comm)
        line(check.__name__)
    dist.destroy_process_group()
    if RANK == 0:
        print("ok destroy", flush=True)


main()
