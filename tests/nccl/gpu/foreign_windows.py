"""Memory of the library's `ncclMemAlloc` in windows of the real NCCL, on two GPUs of one process: foreign_windows.py LIBRARY NCCL.
Prints `ok` lines; a wrong value ends the process."""

import ctypes
import sys

import torch

SYMMETRIC, FLOAT, SUM, COUNT = 1, 7, 0, 1 << 20
POINTER, SIZE = ctypes.c_void_p, ctypes.c_size_t
OURS, REAL = ctypes.CDLL(sys.argv[1]), ctypes.CDLL(sys.argv[2])
for library in OURS, REAL:
    library.ncclMemAlloc.argtypes = [ctypes.POINTER(POINTER), SIZE]
    library.ncclMemFree.argtypes = [POINTER]
REAL.ncclCommWindowRegister.argtypes = [POINTER, POINTER, SIZE, ctypes.POINTER(POINTER), ctypes.c_int]
REAL.ncclCommWindowDeregister.argtypes = [POINTER, POINTER]
REAL.ncclCommDestroy.argtypes = [POINTER]
REAL.ncclAllReduce.argtypes = [POINTER, POINTER, SIZE, ctypes.c_int, ctypes.c_int, POINTER, POINTER]


class Memory:
    """Floats of the library, as an array that torch can read."""

    def __init__(self, device):
        torch.cuda.set_device(device)
        self.address = POINTER()
        call(OURS, "ncclMemAlloc", ctypes.byref(self.address), 4 * COUNT)
        self.__cuda_array_interface__ = {"shape": (COUNT,), "typestr": "<f4", "data": (self.address.value, False), "version": 3}
        self.values = torch.as_tensor(self, device=f"cuda:{device}")


def call(library, name, *arguments):
    code = getattr(library, name)(*arguments)
    assert code == 0, f"{name}: {code}"


def grouped(body):
    call(REAL, "ncclGroupStart")
    for device in range(2):
        torch.cuda.set_device(device)
        body(device)
    call(REAL, "ncclGroupEnd")
    for device in range(2):
        torch.cuda.synchronize(device)


comms, windows = (POINTER * 2)(), (POINTER * 2)()
call(REAL, "ncclCommInitAll", comms, 2, (ctypes.c_int * 2)(0, 1))
memories = [Memory(device) for device in range(2)]
assert all(bool((memory.values == 0).all()) for memory in memories)
print("ok memory of zeros", flush=True)

memories[0].values.fill_(1)
torch.cuda.synchronize(0)
memories[1].values.copy_(memories[0].values)
torch.cuda.synchronize(1)
assert bool((memories[1].values == 1).all())
print("ok a copy between the GPUs", flush=True)


def register(device):
    window = ctypes.cast(ctypes.byref(windows, device * ctypes.sizeof(POINTER)), ctypes.POINTER(POINTER))
    call(REAL, "ncclCommWindowRegister", comms[device], memories[device].address, 4 * COUNT, window, SYMMETRIC)


grouped(register)
assert all(windows), "the real NCCL made no window"
print("ok windows of the real NCCL", flush=True)


def reduce(device):
    address, stream = memories[device].address, torch.cuda.current_stream().cuda_stream
    call(REAL, "ncclAllReduce", address, address, COUNT, FLOAT, SUM, comms[device], stream)


grouped(reduce)
assert all(bool((memory.values == 2).all()) for memory in memories)
print("ok a sum in the windows", flush=True)

grouped(lambda device: call(REAL, "ncclCommWindowDeregister", comms[device], windows[device]))
for memory in memories:
    memory.values = None
    call(OURS, "ncclMemFree", memory.address)
for comm in comms:
    call(REAL, "ncclCommDestroy", comm)
print("ok end", flush=True)
