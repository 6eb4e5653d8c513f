"""One communicator's eager calls and graphs on unlike streams, of which only the library keeps the order: C functions by ctypes,
streams and graphs of PyTorch. Ranks of torchrun. The argument is the library. `--without-order` launches graphs and calls that
nothing orders, and prints whether a value differs: with NCCL_GRAPH_MIXING_SUPPORT=0, a test of these tests. `--times` prints the
times of launches and calls, to be compared with those without mixing."""

import ctypes
import os
import sys
import time

import torch
import torch.distributed as dist

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
FLOAT64, SUM, INVALID_USAGE = 8, 0, 5
COUNT = 1 << 16
MODES = ("global", "thread_local", "relaxed")


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


def line(name):
    torch.cuda.synchronize()
    if RANK == 0:
        print(f"ok {name}", flush=True)


class Comm:
    def __init__(self, library):
        self.library = library
        unique = UniqueId()
        if RANK == 0:
            self.check(library.ncclGetUniqueId(ctypes.byref(unique)))
        made = [bytes(unique)]
        dist.broadcast_object_list(made, 0)
        self.handle = ctypes.c_void_p()
        self.check(library.ncclCommInitRank(ctypes.byref(self.handle), RANKS, UniqueId.from_buffer_copy(made[0]), RANK))

    def check(self, code):
        assert code == 0, (code, self.library.ncclGetLastError(None).decode())

    def sum(self, source, target, stream):
        """All-reduces on a stream of PyTorch, which stays the only order that PyTorch makes."""
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (source, target)]
        count, handle = ctypes.c_size_t(source.numel()), ctypes.c_void_p(stream.cuda_stream)
        self.check(self.library.ncclAllReduce(*pointers, count, FLOAT64, SUM, self.handle, handle))

    def group(self, calls):
        """Calls of a group, and the code of its end."""
        self.check(self.library.ncclGroupStart())
        for call in calls:
            self.sum(*call)
        return self.library.ncclGroupEnd()

    def destroy(self):
        self.check(self.library.ncclCommDestroy(self.handle))

    def abort(self):
        self.check(self.library.ncclCommAbort(self.handle))

    def async_error(self):
        code = ctypes.c_int()
        self.check(self.library.ncclCommGetAsyncError(self.handle, ctypes.byref(code)))
        return code.value


def tensors(number):
    made = [torch.ones(COUNT, dtype=torch.float64, device="cuda") for _ in range(number)]
    torch.cuda.synchronize()
    return made


def streams(number):
    return [torch.cuda.Stream() for _ in range(number)]


def capture(stream, mode, work):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode=mode):
        work()
    return graph


def replay(graph, stream):
    with torch.cuda.stream(stream):
        graph.replay()


def is_equal(tensor, expected):
    torch.cuda.synchronize()
    return bool((tensor == expected).all().item())


def chain(comm, mode, steps, rounds):
    """Two graphs and an eager call pass values through three tensors, each on another stream. The first calls are captured."""
    one, two, three = tensors(3)
    lanes = streams(4)

    def twice(source, target, stream):
        comm.sum(source, target, stream)
        comm.sum(target, target, stream)

    graphs = [
        capture(lanes[0], mode, lambda: twice(one, two, lanes[0])),
        capture(lanes[1], mode, lambda: twice(two, three, lanes[1])),
    ]
    for _ in range(rounds):
        for tensor in (one, two, three):
            tensor.fill_(1)
        torch.cuda.synchronize()
        for step in range(steps):
            replay(graphs[0], lanes[step % 4])
            replay(graphs[1], lanes[(step + 1) % 4])
            comm.sum(three, one, lanes[(step + 2) % 4])
        if not is_equal(one, float(RANKS) ** (5 * steps)):
            return False
    return True


def many_replays(comm, count):
    """One graph on two streams in turn, with eager calls between, and values every 100 replays."""
    tensor, other = tensors(2)
    lanes = streams(3)
    graph = capture(lanes[0], "global", lambda: comm.sum(tensor, other, lanes[0]))
    for number in range(count):
        if number % 100 == 0:
            tensor.fill_(1)
            torch.cuda.synchronize()
        replay(graph, lanes[number % 2])
        comm.sum(other, tensor, lanes[2])
        if number % 100 == 99:
            assert is_equal(tensor, float(RANKS) ** 200), (number, tensor[0].item())


def branches(comm, mode):
    main, side = streams(2)
    (tensor,) = tensors(1)

    def work():
        side.wait_stream(main)
        for number in range(8):
            comm.sum(tensor, tensor, [main, side][number % 2])
        main.wait_stream(side)

    graph = capture(main, mode, work)
    for number in range(10):
        replay(graph, [main, side][number % 2])
    assert is_equal(tensor, float(RANKS) ** 80), tensor[0].item()


def groups(comm):
    """Streams of a group are of one capture, or of none."""
    main, side, other = streams(3)
    one, two = tensors(2)

    def work():
        assert comm.group([(one, one, main), (two, two, other)]) == INVALID_USAGE
        side.wait_stream(main)
        comm.check(comm.group([(one, one, main), (two, two, side)]))
        main.wait_stream(side)

    graph = capture(main, "relaxed", work)
    for _ in range(10):
        replay(graph, other)
    assert is_equal(one, float(RANKS) ** 10) and is_equal(two, float(RANKS) ** 10)


def thrown_away(comm):
    """A capture that is thrown away, and new streams that may have the handles of destroyed ones."""
    (tensor,) = tensors(1)
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="relaxed"):
            comm.sum(tensor, tensor, torch.cuda.current_stream())
            raise KeyError("thrown away")
    except KeyError:
        pass
    graph = capture(streams(1)[0], "global", lambda: comm.sum(tensor, tensor, torch.cuda.current_stream()))
    runtime = ctypes.CDLL("libcudart.so.13" if torch.version.cuda.startswith("13") else "libcudart.so.12")
    for number in range(100):
        handle = ctypes.c_void_p()
        assert runtime.cudaStreamCreateWithFlags(ctypes.byref(handle), 1) == 0
        lane = torch.cuda.ExternalStream(handle.value)
        comm.sum(tensor, tensor, lane)
        assert runtime.cudaStreamDestroy(handle) == 0
        if number % 10 == 0:
            replay(graph, torch.cuda.Stream())
    assert is_equal(tensor, float(RANKS) ** 110), tensor[0].item()


def ended(comm, end):
    """Replays after the communicator's end: the GPU stays usable."""
    (tensor,) = tensors(1)
    lane = streams(1)[0]
    graph = capture(lane, "global", lambda: comm.sum(tensor, tensor, lane))
    replay(graph, lane)
    assert is_equal(tensor, RANKS)
    end(comm)
    for _ in range(10):
        replay(graph, lane)
    torch.cuda.synchronize()
    assert end is Comm.abort or is_equal(tensor, float(RANKS) ** 11), tensor[0].item()
    del graph
    tensor.fill_(3)
    assert is_equal(tensor, 3)


def times(comm):
    """Microseconds of launches of graphs of 1 and 40 calls, and of the host in an eager call, each of the best of ten rounds."""
    tensor = torch.ones(128, dtype=torch.float64, device="cuda")
    lane = streams(1)[0]

    def repeated(count):
        for _ in range(count):
            comm.sum(tensor, tensor, lane)

    def least(work, count):
        found = []
        for _ in range(10):
            torch.cuda.synchronize()
            dist.barrier()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin = time.perf_counter()
            start.record(lane)
            for _ in range(count):
                work()
            host = time.perf_counter() - begin
            end.record(lane)
            torch.cuda.synchronize()
            found.append((start.elapsed_time(end) * 1e3 / count, host * 1e6 / count))
        return min(found)

    device, host = least(lambda: comm.sum(tensor, tensor, lane), 500)
    line(f"eager calls of 1 KiB before a capture: {device:.2f} us, of which the host {host:.2f} us")
    for count in (1, 40):
        graph = capture(lane, "relaxed", lambda: repeated(count))
        device, _ = least(lambda: replay(graph, lane), 200)
        line(f"launches of a graph of {count} calls of 1 KiB: {device:.2f} us")
    device, host = least(lambda: comm.sum(tensor, tensor, lane), 500)
    line(f"eager calls of 1 KiB after a capture: {device:.2f} us, of which the host {host:.2f} us")


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("gloo")
    library = ctypes.CDLL(sys.argv[1])
    library.ncclGetLastError.restype = ctypes.c_char_p
    if "--without-order" in sys.argv:
        try:
            right = chain(Comm(library), "global", 50, 50)
        except AssertionError:
            right = False
        if RANK == 0:
            print("ok nothing orders the calls:", "all values are equal" if right else "a value differs, or a call gave up", flush=True)
        os._exit(0)
    if "--times" in sys.argv:
        times(Comm(library))
        os._exit(0)
    for mode in MODES:
        assert chain(Comm(library), mode, 50, 20), f"a value differs, capture mode {mode}"
        line(f"graphs and eager calls on four streams, the first calls captured, mode {mode}")
    comm = Comm(library)
    for mode in MODES:
        branches(comm, mode)
        line(f"branches of a capture, mode {mode}")
    many_replays(comm, 10_000)
    line("10,000 replays among eager calls on other streams")
    groups(comm)
    line("groups of several streams, captured and not")
    thrown_away(comm)
    line("a capture thrown away, streams that are destroyed after their call")
    assert comm.async_error() == 0
    ended(comm, Comm.destroy)
    line("replays after ncclCommDestroy")
    ended(Comm(library), Comm.abort)
    line("replays after ncclCommAbort")
    dist.destroy_process_group()


main()
