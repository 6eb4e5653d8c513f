#!/usr/bin/env python3
"""PyTorch's products fused with collectives, timed as `symmetra-bench matmul` times ours.

    symmetra launch -n 4 --no-prefix -- python3 bench/torch_fused_matmul.py --model llama3-70b --tokens 512,4096 --output torch.json
    torchrun --nproc-per-node 4 bench/torch_fused_matmul.py --collective all-gather --shape 4096,8192,8192 --json

Sides:
  torch-fused    torch.ops.symm_mem.fused_all_gather_matmul and fused_matmul_reduce_scatter, of f8 their scaled forms
  torch-nccl     a collective of NCCL and a product: all-gather before, reduce-scatter or all-reduce behind
  torch-matmul   the product alone, of the whole left factor
A side that cannot run is named in its row, with the reason, and the others run. There is no fused all-reduce.

Sizes are those of all ranks together: an all-gather has a shard [M/W, K] and a weight of [K, N/W], a sum has factors
[M, K/W] and [K/W, N]. A weight is the transposed view of [N, K]. Left factors are plain tensors. The fused all-gather does not
return what it gathers.

Method: that of bench/torch_symm_mem.py. OPERATIONS operations are captured in one CUDA graph; of a side that cannot be
captured they are called one by one, and the row says `events`. A time is the median over LAUNCHES launches of the slowest
rank's time for one operation; the sides take turns. Before, the result of torch-fused is compared with that of torch-nccl,
within what rounding may do, on random data. A layer that takes longer than --limit seconds ends the run with what was measured
before. Prints a table, or with --json one object with rows like ours. Multicast stays off. Needs PyTorch 2.9 or newer and
NVLink. Exit status: 0, or 1 when an element is wrong or a layer never ended, or 2 for wrong usage.
"""
import argparse
import json
import os
import statistics
import sys
import threading

# The variables that PyTorch and NCCL read when they are imported: multicast is never on here.
os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"
os.environ["NCCL_NVLS_ENABLE"] = "0"

try:
    from torch_symm_mem import DTYPES, LEAD_IN, ROUNDOFF, captured, symm_mem, timed
    from torch_moe import agreed, numbers, words
    import torch
    import torch.distributed as dist
except ImportError as missing:
    print(f"error: {missing}. bench/torch_fused_matmul.py needs PyTorch: pip install torch", file=sys.stderr)
    sys.exit(2)

# Name, K and N of the weights: of GEMMs after an all-gather, and of GEMMs whose sums are scattered or reduced.
MODELS = {"llama3-70b": {
    True: [("qkv", 8192, 10240), ("gate_up", 8192, 57344)],
    False: [("o", 8192, 8192), ("down", 28672, 8192)],
}}
COLLECTIVES = ("all-gather", "reduce-scatter", "all-reduce")
SIDES = ("torch-fused", "torch-nccl", "torch-matmul")
F8 = torch.float8_e4m3fn
# Standard deviation of a product of two numbers that are uniform in -0.5 to 0.5.
SPREAD = 1 / 12


def sizes(text):
    found = numbers(text)
    if len(found) != 3 or min(found) < 1:
        raise argparse.ArgumentTypeError("M,K,N are three numbers")
    return found


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collective", type=words(COLLECTIVES), default="all-gather,reduce-scatter", metavar="LIST")
    parser.add_argument("--model", choices=MODELS, default="llama3-70b")
    parser.add_argument("--tokens", type=numbers, default="128,512,1024,2048,4096,8192,16384",
                        help="values of M, separated by commas")
    parser.add_argument("--shape", type=sizes, action="append", metavar="M,K,N",
                        help="in place of a model; may be given several times")
    parser.add_argument("--dtype", choices=(*DTYPES, "f8"), default="bf16")
    parser.add_argument("--scaling", choices=("tensor", "rows"), default="tensor", help="scales of factors of f8")
    parser.add_argument("--operations", type=int, default=40)
    parser.add_argument("--launches", type=int, default=7)
    parser.add_argument("--limit", type=int, default=180, help="seconds that a layer may take")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--output", metavar="PATH", help="write that object into this file too")
    return parser.parse_args()


class Layer:
    """The operands of a rank."""

    def __init__(self, args, collective, name, tokens, inner, columns):
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.collective, self.name, self.tokens = collective, name, tokens
        self.gathers = collective == "all-gather"
        self.inner, self.columns = (inner, columns // self.ranks) if self.gathers else (inner // self.ranks, columns)
        if (columns if self.gathers else inner) % self.ranks:
            raise ValueError(f"{self.ranks} ranks cannot share {'N' if self.gathers else 'K'} of {name} equally")
        if collective != "all-reduce" and tokens % self.ranks:
            raise ValueError(f"{self.ranks} ranks cannot share {tokens} rows equally")
        self.is_f8 = args.dtype == "f8"
        self.result = torch.bfloat16 if self.is_f8 else DTYPES[args.dtype]
        # The rounding of the result, and of sums in f32 in any order.
        self.roundoff = ROUNDOFF["bf16" if self.is_f8 else args.dtype] + self.inner**0.5 * 2.0**-24
        self.group = dist.group.WORLD.group_name
        self.rows = tokens // self.ranks if self.gathers else tokens
        self.left, self.right = self.factor(self.rows), self.factor(self.columns).t()
        by_row = self.is_f8 and args.scaling == "rows"
        self.left_scale = self.scale((self.rows, 1) if by_row else (1,))
        self.right_scale = self.scale((1, self.columns) if by_row else (1,))
        self.gathers_scales = self.gathers and by_row
        self.whole, self.whole_scale = self.left, self.left_scale
        if self.gathers:
            self.whole = torch.empty(tokens, self.inner, dtype=self.left.dtype, device="cuda")
        if self.gathers_scales:
            self.whole_scale = self.left_scale.new_empty(tokens, 1)
        self.product = torch.empty(tokens, self.columns, dtype=self.result, device="cuda")
        share = tokens // self.ranks if collective == "reduce-scatter" else tokens
        self.reduced = self.product[:share].clone() if collective == "reduce-scatter" else self.product

    def factor(self, rows):
        values = torch.empty(rows, self.inner, device="cuda").uniform_(-0.5, 0.5)
        return values.to(F8 if self.is_f8 else self.result)

    def scale(self, shape):
        # Near 1, and one scale of a whole factor is equal on all ranks.
        return torch.empty(shape, device="cuda").uniform_(0.5, 1.5) if len(shape) == 2 else torch.ones((), device="cuda")

    def multiply(self):
        if self.is_f8:
            scales = (self.whole_scale, self.right_scale)
            torch.ops.aten._scaled_mm.out(self.whole, self.right, *scales, out_dtype=self.result, out=self.product)
        else:
            torch.mm(self.whole, self.right, out=self.product)
        return self.product

    def nccl(self):
        if self.gathers:
            for whole, own in ((self.whole, self.left), (self.whole_scale, self.left_scale))[: 1 + self.gathers_scales]:
                dist.all_gather_into_tensor(whole.view(torch.uint8), own.view(torch.uint8))
            return self.multiply()
        self.multiply()
        if self.collective == "all-reduce":
            dist.all_reduce(self.product)
        else:
            dist.reduce_scatter_tensor(self.reduced, self.product)
        return self.reduced

    def fused(self):
        ops, group = torch.ops.symm_mem, self.group
        if self.collective == "all-reduce":
            raise NotImplementedError("PyTorch has no fused all-reduce")
        if self.gathers and self.is_f8:
            return ops.fused_all_gather_scaled_matmul(
                self.left, [self.right], self.left_scale, [self.right_scale], gather_dim=0, group_name=group,
                biases=[None], result_scales=[None], out_dtypes=[self.result], use_fast_accum=[False])[1][0]
        if self.gathers:
            # With multicast, small products that return no whole factor would gather by it.
            return ops.fused_all_gather_matmul(self.left, [self.right], 0, group, return_A=has_multicast())[1][0]
        if self.is_f8:
            return ops.fused_scaled_matmul_reduce_scatter(
                self.left, self.right, self.left_scale, self.right_scale, "sum", 0, 0, group, [self.tokens, self.columns],
                out_dtype=self.result, use_fast_accum=False)
        return ops.fused_matmul_reduce_scatter(self.left, self.right, "sum", 0, group)

    def operation(self, side):
        return {"torch-fused": self.fused, "torch-nccl": self.nccl, "torch-matmul": self.multiply}[side]

    def count_wrong(self, found, right):
        """How many elements differ by more than rounding may do: each partial product and each addition rounds once."""
        ranks = 1 if self.gathers else self.ranks
        deviation = 1.5 * SPREAD * (self.inner * ranks) ** 0.5
        wrong = 0
        if found.shape != right.shape:
            return right.numel()
        for one, other in zip(found.split(2048), right.split(2048)):
            slack = 2 * (ranks + 1) * self.roundoff * (other.float().abs() + 3 * deviation)
            far = (one.float() - other.float()).abs() > slack
            wrong += int((far | ~torch.isfinite(one)).sum())
        return wrong


def has_multicast():
    from torch._C._autograd import DeviceType
    return symm_mem._SymmetricMemory.has_multicast_support(DeviceType.CUDA, torch.cuda.current_device())


def timed_one_by_one(operation, lead_in, operations):
    """This rank's time of one operation, in microseconds, without a graph."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    lead_in.replay()
    start.record()
    for _ in range(operations):
        operation()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1000 / operations


def ready(layer, side):
    """Runs a side once. Returns a copy of its result."""
    result = layer.operation(side)().clone()
    torch.cuda.synchronize()
    return result


def measure(args, layer, lead_in):
    """Times by side, how they were taken, wrong elements, and why sides are missing."""
    results, missing, clocks, modes = {}, {}, {}, {}
    for side in SIDES:
        result, why = agreed(lambda side=side: ready(layer, side))
        if why is None:
            results[side] = result
        else:
            missing[side] = why
    wrong = {side: 0 for side in results}
    if "torch-fused" in results and "torch-nccl" in results:
        wrong["torch-fused"] = layer.count_wrong(results["torch-fused"], results["torch-nccl"])
    del result
    for side in list(results):
        operation = layer.operation(side)
        graph, why = agreed(lambda operation=operation: captured(operation, args.operations))
        torch.cuda.synchronize()
        results[side] = None
        modes[side] = "graph" if why is None else "events"
        clocks[side] = (lambda graph=graph: timed(graph, lead_in, args.operations)) if why is None else (
            lambda operation=operation: timed_one_by_one(operation, lead_in, args.operations))
        if why is not None and layer.rank == 0:
            print(f"{side} cannot be captured: {why}", file=sys.stderr, flush=True)
    times = {side: [] for side in clocks}
    for launch in range(args.launches + 1):
        for side, clock in clocks.items():
            time_us = clock()
            if launch > 0:
                times[side].append(time_us)
    return times, modes, wrong, missing


def row(layer, found):
    """From what every rank found."""
    _, modes, _, missing = found[0]
    slowest = lambda side: [max(launch) for launch in zip(*(times[side] for times, _, _, _ in found))]
    return {"collective": layer.collective, "shape": layer.name,
            "tokens": layer.tokens, "inner": layer.inner, "columns": layer.columns,
            "mode": modes, "time_us": {side: statistics.median(slowest(side)) for side in modes},
            "wrong": {side: sum(wrong[side] for _, _, wrong, _ in found) for side in modes}, "missing": missing}


def table(rows):
    sides = [f"{side + ' us':>15}" for side in SIDES]
    yield "  ".join([f"{'collective':14}", f"{'layer':8}", "      M", "     K", "     N", *sides, "wrong"])
    for row in rows:
        cells = [f"{row['time_us'][side]:15.2f}" if side in row["time_us"] else f"{'-':>15}" for side in SIDES]
        sizes = [f"{row['tokens']:>7}", f"{row['inner']:>6}", f"{row['columns']:>6}"]
        yield "  ".join([f"{row['collective']:14}", f"{row['shape']:8}", *sizes, *cells, f"{sum(row['wrong'].values()):5}"])


def write(args, report):
    if dist.get_rank() != 0:
        return
    if args.output:
        with open(args.output, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=2)
            file.write("\n")
    print(json.dumps(report) if args.json else "\n".join(table(report["rows"])), flush=True)


def give_up(args, report, asked):
    """Ends a rank that waits for others, with what was measured before."""
    collective, name, sizes = asked
    error = f"no answer in {args.limit} seconds"
    report["rows"].append(empty(collective, name, sizes, error))
    print(f"error: {name}, {collective}: {error}", file=sys.stderr, flush=True)
    write(args, report)
    os._exit(1)


def empty(collective, name, sizes, error):
    """The row of a layer of which nothing was measured."""
    tokens, inner, columns = sizes
    return {"collective": collective, "shape": name, "tokens": tokens, "inner": inner, "columns": columns,
            "mode": {}, "time_us": {}, "wrong": {}, "missing": {side: error for side in SIDES}}


def layers(args):
    for collective in args.collective:
        if args.shape:
            yield from ((collective, "shape", sizes) for sizes in args.shape)
            continue
        for name, inner, columns in MODELS[args.model][collective == "all-gather"]:
            yield from ((collective, name, (tokens, inner, columns)) for tokens in args.tokens)


def main():
    args = arguments()
    local = int(os.environ.get("LOCAL_RANK", os.environ["RANK"]))
    device = torch.device("cuda", local)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    enable = getattr(symm_mem, "enable_symm_mem_for_group", None)
    if enable is not None:
        enable(dist.group.WORLD.group_name)
    ranks = dist.get_world_size()
    torch.manual_seed(dist.get_rank() + int.from_bytes(os.urandom(4), "little"))
    meeting = torch.zeros(1, device=device)
    lead_in = captured(lambda: dist.all_reduce(meeting), LEAD_IN)
    report = {"ranks": ranks, "device": "cuda", "ranks_as": "processes",
              "dtype": args.dtype, "scaling": args.scaling if args.dtype == "f8" else "none",
              "launches": args.launches, "operations": args.operations, "sides": list(SIDES),
              "about_peers": f"PyTorch {torch.__version__}, multicast {'on' if has_multicast() else 'off'}", "rows": []}
    for asked in layers(args):
        collective, name, sizes = asked
        watch = threading.Timer(args.limit, give_up, (args, report, asked))
        watch.daemon = True
        watch.start()
        layer, why = agreed(lambda: Layer(args, collective, name, *sizes))
        if why is None:
            found = [None] * ranks
            measured, why = agreed(lambda: measure(args, layer, lead_in))
            if why is None:
                dist.all_gather_object(found, measured)
                report["rows"].append(row(layer, found))
        if why is not None:
            report["rows"].append(empty(collective, name, sizes, why))
        watch.cancel()
        layer = measured = None
        torch.cuda.empty_cache()
    write(args, report)
    torch.cuda.synchronize()
    dist.barrier()
    sys.stdout.flush()
    # Destroying the group waits for ever where a graph holds operations of NCCL.
    os._exit(int(any(sum(row["wrong"].values()) for row in report["rows"])))


if __name__ == "__main__":
    main()
