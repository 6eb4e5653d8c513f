"""CuPy's NCCL over the library that `LD_PRELOAD` names: one process and one thread with a communicator for each GPU. Prints one
line a check; a wrong value ends the process."""

import cupy
from cupy.cuda import nccl

COUNTS = (1, 1000, 1 << 20)
TYPES = {
    nccl.NCCL_FLOAT32: cupy.float32,
    nccl.NCCL_FLOAT64: cupy.float64,
    nccl.NCCL_FLOAT16: cupy.float16,
    nccl.NCCL_INT32: cupy.int32,
    nccl.NCCL_INT64: cupy.int64,
}
RANKS = cupy.cuda.runtime.getDeviceCount()


def values(rank, count, dtype):
    with cupy.cuda.Device(rank):
        return ((cupy.arange(count) + rank * 7) % 5).astype(dtype)


def expected(rank, count, dtype):
    return ((cupy.arange(count) + rank * 7) % 5).astype(dtype).get()


def grouped(call):
    """Makes `call` for every rank in one group, from this thread."""
    nccl.groupStart()
    for rank in range(RANKS):
        with cupy.cuda.Device(rank):
            call(rank)
    nccl.groupEnd()
    for rank in range(RANKS):
        cupy.cuda.Device(rank).synchronize()


def each_type(comms):
    null = cupy.cuda.Stream.null.ptr
    for number, dtype in TYPES.items():
        for count in COUNTS:
            inputs = [values(rank, count, dtype) for rank in range(RANKS)]
            outputs, everyone = [], []
            for rank in range(RANKS):
                with cupy.cuda.Device(rank):
                    outputs.append(cupy.empty(count, dtype))
                    everyone.append(cupy.empty(count * RANKS, dtype))

            def all_reduce(rank):
                sources = inputs[rank].data.ptr, outputs[rank].data.ptr
                comms[rank].allReduce(*sources, count, number, nccl.NCCL_SUM, null)

            def all_gather(rank):
                comms[rank].allGather(inputs[rank].data.ptr, everyone[rank].data.ptr, count, number, null)

            grouped(all_reduce)
            total = sum(expected(rank, count, dtype) for rank in range(RANKS))
            assert all((output.get() == total).all() for output in outputs), f"all-reduce of {dtype}"
            grouped(all_gather)
            for gathered in everyone:
                parts = gathered.get().reshape(RANKS, count)
                assert all((parts[rank] == expected(rank, count, dtype)).all() for rank in range(RANKS)), "all-gather"

            def exchange(rank):
                comms[rank].send(inputs[rank].data.ptr, count, number, (rank + 1) % RANKS, null)
                comms[rank].recv(outputs[rank].data.ptr, count, number, (rank - 1) % RANKS, null)

            grouped(exchange)
            for rank, output in enumerate(outputs):
                assert (output.get() == expected((rank - 1) % RANKS, count, dtype)).all(), "send and receive"
        print(f"ok {dtype.__name__}", flush=True)


def main():
    comms = nccl.NcclCommunicator.initAll(list(range(RANKS)))
    assert [comm.rank_id() for comm in comms] == list(range(RANKS)) and comms[0].size() == RANKS
    print(f"ok {RANKS} communicators of one thread", flush=True)
    each_type(comms)
    assert all(comm.check_async_error() is None for comm in comms)
    for comm in comms:
        comm.destroy()
    print("ok destroy", flush=True)


main()
