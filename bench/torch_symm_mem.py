#!/usr/bin/env python3
"""PyTorch's one-shot and two-shot all-reduce on symmetric memory, timed as `symmetra-bench all-reduce` times.

    symmetra launch -n 8 --no-prefix -- python3 bench/torch_symm_mem.py --max-bytes 1GiB --output torch.json
    torchrun --nproc-per-node 8 bench/torch_symm_mem.py

Method: OPERATIONS all-reduces are captured in one CUDA graph. The ranks meet on their devices in a graph of
barriers, which also hides the host's launches; then the graph runs between two events. A time is the median over
LAUNCHES launches of the slowest rank's time for one operation; the sides take turns, launch by launch. Results are
verified on fresh random data, within what rounding after every addition may do. Multicast stays off. Prints a
table, or with --json one object with the rows of symmetra's: bytes, time_us, busbw_gbps and wrong by side. --output
writes that object into a file too. Needs PyTorch 2.9 or newer and NVLink.
"""
import argparse
import json
import os
import statistics
import string
import sys

os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"
os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
os.environ.setdefault("NVSHMEM_DISABLE_NVLS", "1")

import torch  # noqa: E402  (after what it reads from the environment)
import torch.distributed as dist  # noqa: E402
import torch.distributed._symmetric_memory as symm_mem  # noqa: E402

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
ROUNDOFF = {"bf16": 1 / 256, "f16": 1 / 2048, "f32": 2.0**-24}
BASES = {"": 1024, "IB": 1024, "B": 1000}
UNITS = {"": 1, "B": 1, **{letter + suffix: base**power for power, letter in enumerate("KMGT", 1) for suffix, base in BASES.items()}}
# Two-shot works on 16 bytes of every rank at a time.
ALIGN_BYTES = 16
LEAD_IN = 16


def size(text):
    """Bytes of 4096, 64K, 64KiB or 64KB: as symmetra reads them, a bare letter is a power of 1024."""
    digits = text.rstrip(string.ascii_letters + " ")
    return int(digits) * UNITS.get(text[len(digits):].strip().upper())


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("-b", "--min-bytes", type=size, default="1KiB")
    parser.add_argument("-e", "--max-bytes", type=size, default="16MiB")
    parser.add_argument("-f", "--step-factor", type=int, default=2)
    parser.add_argument("--operations", type=int, default=40)
    parser.add_argument("--launches", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--output", metavar="PATH", help="write that object into this file too")
    return parser.parse_args()


def captured(operation, operations):
    """A graph of so many of them, run once before."""
    operation()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(operations):
            operation()
    return graph


def timed(graph, lead_in, operations):
    """This rank's time of one operation, in microseconds."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    lead_in.replay()
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1000 / operations


def sides(buffer, output, group):
    """Name, operation, and where the result is. Two-shot sums in place."""
    ops = torch.ops.symm_mem
    return [
        ("torch-one-shot", lambda: ops.one_shot_all_reduce_out(buffer, "sum", group, output), output),
        ("torch-two-shot", lambda: ops.two_shot_all_reduce_(buffer, "sum", group), buffer),
    ]


def count_wrong(result, exact, magnitude, ranks, dtype):
    far = (result.double() - exact).abs() > ranks * ROUNDOFF[dtype] * magnitude
    return int((far | ~torch.isfinite(result)).sum())


def measure(args, nbytes, group, lead_in):
    """Times of this rank by side, and wrong elements, for one size."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    dtype = DTYPES[args.dtype]
    elems = nbytes // dtype.itemsize
    buffer = symm_mem.empty(elems, dtype=dtype, device="cuda")
    symm_mem.rendezvous(buffer, group)
    output = torch.empty(elems, dtype=dtype, device="cuda")
    values = torch.empty(elems, dtype=dtype, device="cuda").uniform_(-4, 4)
    gathered = torch.empty(ranks * elems, dtype=dtype, device="cuda")
    dist.all_gather_into_tensor(gathered, values)
    inputs = gathered.view(ranks, elems)
    found = []
    for name, operation, result in sides(buffer, output, group):
        if name == "torch-two-shot" and nbytes % (ALIGN_BYTES * ranks) != 0:
            continue
        output.fill_(float("nan"))
        buffer.copy_(values)
        torch.cuda.synchronize()
        dist.barrier()
        operation()
        torch.cuda.synchronize()
        wrong = 0
        for at in range(0, elems, 1 << 24):
            part = inputs[:, at : at + (1 << 24)].double()
            wrong += count_wrong(result[at : at + (1 << 24)], part.sum(0), part.abs().sum(0), ranks, args.dtype)
            del part
        dist.barrier()
        # In place sums of sums would overflow: zeros stay zeros.
        buffer.zero_()
        torch.cuda.synchronize()
        found.append((name, captured(operation, args.operations), wrong))
    times = {name: [] for name, _, _ in found}
    for launch in range(args.launches + 1):
        for name, graph, _ in found:
            time_us = timed(graph, lead_in, args.operations)
            if launch > 0:
                times[name].append(time_us)
    return times, {name: wrong for name, _, wrong in found}


def row(nbytes, ranks, gathered):
    """From what every rank found."""
    time_us, wrong = {}, {}
    for name in gathered[0][0]:
        slowest = [max(launch) for launch in zip(*(times[name] for times, _ in gathered))]
        time_us[name] = statistics.median(slowest)
        wrong[name] = sum(counts[name] for _, counts in gathered)
    busbw = {name: nbytes / us / 1e3 * 2 * (ranks - 1) / ranks for name, us in time_us.items()}
    return {"bytes": nbytes, "mode": "graph", "time_us": time_us, "busbw_gbps": busbw, "wrong": wrong}


def table(rows, names):
    yield "  ".join(["     bytes", *(f"{name + ' us':>18}" for name in names), "best busbw GB/s", "wrong"])
    for row in rows:
        cells = [f"{row['time_us'][name]:18.2f}" if name in row["time_us"] else f"{'-':>18}" for name in names]
        best, wrong = max(row["busbw_gbps"].values()), sum(row["wrong"].values())
        yield "  ".join([f"{row['bytes']:>10}", *cells, f"{best:15.2f}", f"{wrong:5}"])


def main():
    args = arguments()
    local = int(os.environ.get("LOCAL_RANK", os.environ["RANK"]))
    torch.cuda.set_device(local)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    group = dist.group.WORLD.group_name
    rank, ranks = dist.get_rank(), dist.get_world_size()
    meeting = symm_mem.empty(1024, dtype=torch.float32, device="cuda")
    handle = symm_mem.rendezvous(meeting, group)
    lead_in = captured(lambda: handle.barrier(channel=0), LEAD_IN)
    rows, nbytes = [], args.min_bytes
    while nbytes <= args.max_bytes:
        gathered = [None] * ranks
        dist.all_gather_object(gathered, measure(args, nbytes, group, lead_in))
        rows.append(row(nbytes, ranks, gathered))
        nbytes *= args.step_factor
    names = ["torch-one-shot", "torch-two-shot"]
    report = {"ranks": ranks, "device": "cuda", "ranks_as": "processes", "op": "sum", "dtype": args.dtype,
              "launches": args.launches, "operations": args.operations, "sides": names,
              "about_peers": f"PyTorch {torch.__version__}, multicast off", "floor": [], "rows": rows}
    if rank == 0:
        if args.output:
            with open(args.output, "w", encoding="utf-8") as file:
                json.dump(report, file, indent=2)
                file.write("\n")
        print(json.dumps(report) if args.json else "\n".join(table(rows, names)), flush=True)
    wrong = sum(sum(row["wrong"].values()) for row in rows)
    dist.destroy_process_group()
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
