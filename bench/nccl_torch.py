"""Times of PyTorch's collectives in CUDA graphs over the library that torch finds: NCCL, or libsymmetra_nccl.so by
LD_PRELOAD. Ranks of torchrun. Writes one JSON line an operation and size: the median of the slowest rank in microseconds,
and the number of wrong elements. bench/nccl_torch.sh compares libraries."""

import json
import os
import sys

import torch
import torch.distributed as dist

CALLS, REPLAYS = 40, 15
SIZES = [1 << power for power in (10, 14, 16, 18, 20, 22, 24, 26, 28)]
RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def buffers(name, size):
    """Input and output of an operation whose larger buffer a rank has `size` bytes of."""
    count = size // 2
    whole, part = count * RANKS, count
    sizes = {
        "all_reduce": (part, part),
        "all_gather": (part, whole),
        "reduce_scatter": (whole, part),
        "all_to_all": (part, part),
        "send_receive": (part, part),
    }[name]
    return [torch.zeros(length, dtype=torch.bfloat16, device="cuda") for length in sizes]


def call(name, own, out):
    if name == "all_reduce":
        dist.all_reduce(out)
    elif name == "all_gather":
        dist.all_gather_into_tensor(out, own)
    elif name == "reduce_scatter":
        dist.reduce_scatter_tensor(out, own)
    elif name == "all_to_all":
        dist.all_to_all_single(out, own)
    else:
        after, before = (RANK + 1) % RANKS, (RANK - 1) % RANKS
        work = dist.batch_isend_irecv([dist.P2POp(dist.isend, own, after), dist.P2POp(dist.irecv, out, before)])
        for one in work:
            one.wait()


def expected(name, inputs):
    if name == "all_reduce":
        return sum(one.float() for one in inputs).bfloat16()
    if name == "all_gather":
        return torch.cat(inputs)
    if name == "send_receive":
        return inputs[(RANK - 1) % RANKS]
    parts = [one.chunk(RANKS)[RANK] for one in inputs]
    return sum(part.float() for part in parts).bfloat16() if name == "reduce_scatter" else torch.cat(parts)


def random(rank, length):
    generator = torch.Generator(device="cuda").manual_seed(rank + int(os.environ.get("SEED", "1")))
    return torch.randint(-8, 8, (length,), device="cuda", generator=generator).bfloat16()


def measure(name, size):
    own, out = buffers(name, size)
    call(name, own, out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call(name, own, out)
    graph.replay()
    times = []
    for _ in range(REPLAYS):
        dist.barrier()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1000 / CALLS)
    time = torch.tensor([sorted(times)[REPLAYS // 2]], device="cuda")
    dist.all_reduce(time, op=dist.ReduceOp.MAX)
    # One call on random values; the captured calls of an all-reduce have zeros, which stay zeros.
    inputs = [random(rank, own.numel()) for rank in range(RANKS)]
    own.copy_(inputs[RANK])
    if name == "all_reduce":
        out.copy_(own)
    call(name, own, out)
    wrong = (out != expected(name, inputs)).sum().reshape(1)
    dist.all_reduce(wrong)
    return {"operation": name, "bytes": size, "us": round(time.item(), 3), "wrong": int(wrong.item())}


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_receive"):
        for size in SIZES:
            # The larger buffer of all ranks stays below 1 GiB.
            if size * RANKS > 1 << 30:
                continue
            row = measure(name, size)
            if RANK == 0:
                print(json.dumps(row), flush=True)
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
