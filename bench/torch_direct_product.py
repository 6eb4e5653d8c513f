#!/usr/bin/env python3
"""Does a product that stores its result straight in a peer's memory beat one whose result a copy brings there?

    symmetra launch -n 2 --no-prefix -- python3 bench/torch_direct_product.py
    torchrun --nproc-per-node 2 bench/torch_direct_product.py --rows 64,2048 --json

A part of a matmul + reduce-scatter is a product of M rows that another rank sums. All ranks multiply at once, each for the rank
behind it. Sides:
  product    cuBLAS's product into own memory
  direct     the same product into the peer's memory
  copy       a copy of own memory into the peer's
  behind     the product into own memory, and the copy behind it
  beside     the product, beside the copy of what an earlier product gave, in one stream of copies
  halves     the same, with the copy in two halves in two streams

Factors are bf16: [M, K/W] and [K/W, N], of the layers o and down of Llama-3 70B. Method: that of bench/torch_symm_mem.py. What
arrived by `direct` and by `behind` is compared with the peer's own product, every bit. Prints a table, or with --json one object.
Multicast stays off. Needs PyTorch 2.9 or newer and NVLink. Exit status: 0, or 1 when an element is wrong, or 2 for wrong usage.
"""
import argparse
import json
import os
import statistics
import sys

# The variables that PyTorch and NCCL read when they are imported: multicast is never on here.
os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"
os.environ["NCCL_NVLS_ENABLE"] = "0"

try:
    from torch_symm_mem import LEAD_IN, captured, symm_mem, timed
    from torch_fused_matmul import MODELS
    from torch_moe import numbers
    import torch
    import torch.distributed as dist
except ImportError as missing:
    print(f"error: {missing}. bench/torch_direct_product.py needs PyTorch: pip install torch", file=sys.stderr)
    sys.exit(2)

# The layers whose sums are reduced.
LAYERS = MODELS["llama3-70b"][False]
SIDES = ("product", "direct", "copy", "behind", "beside", "halves")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=numbers, default="64,256,512,1024,2048,4096", help="values of M, separated by commas")
    parser.add_argument("--operations", type=int, default=20)
    parser.add_argument("--launches", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    return parser.parse_args()


class Part:
    """The operands of a rank: its factors, its own result, and the memory of the next rank."""

    def __init__(self, rows, inner, columns):
        rank, ranks = dist.get_rank(), dist.get_world_size()
        factor = lambda count: torch.empty(count, inner // ranks, device="cuda").uniform_(-0.5, 0.5).bfloat16()
        self.left, self.right = factor(rows), factor(columns).t()
        self.own = torch.empty(rows, columns, dtype=torch.bfloat16, device="cuda")
        self.earlier = torch.zeros_like(self.own)
        self.arrived = symm_mem.empty(rows, columns, dtype=torch.bfloat16, device="cuda")
        handle = symm_mem.rendezvous(self.arrived, dist.group.WORLD.group_name)
        self.theirs = handle.get_buffer((rank + 1) % ranks, self.arrived.shape, self.arrived.dtype)
        self.streams = [torch.cuda.Stream(), torch.cuda.Stream()]

    def product(self):
        torch.mm(self.left, self.right, out=self.own)

    def direct(self):
        torch.mm(self.left, self.right, out=self.theirs)

    def copy(self):
        self.theirs.copy_(self.own)

    def behind(self):
        self.product()
        self.copy()

    def beside_copies(self, count):
        main = torch.cuda.current_stream()
        for stream, to, of in zip(self.streams, self.theirs.chunk(count), self.earlier.chunk(count)):
            stream.wait_stream(main)
            with torch.cuda.stream(stream):
                to.copy_(of)
        self.product()
        for stream in self.streams[:count]:
            main.wait_stream(stream)

    def beside(self):
        self.beside_copies(1)

    def halves(self):
        self.beside_copies(2)

    def count_wrong(self, side):
        """How many elements that the rank before stored here differ from its product."""
        self.arrived.fill_(float("nan"))
        torch.cuda.synchronize()
        dist.barrier()
        getattr(self, side)()
        torch.cuda.synchronize()
        dist.barrier()
        self.product()
        ranks, rank = dist.get_world_size(), dist.get_rank()
        products = [torch.empty_like(self.own) for _ in range(ranks)]
        dist.all_gather(products, self.own)
        return int((products[(rank - 1) % ranks].view(torch.int16) != self.arrived.view(torch.int16)).sum())


def measure(args, sizes, lead_in):
    """Times by side, and wrong elements, of this rank."""
    part = Part(*sizes)
    wrong = sum(part.count_wrong(side) for side in ("direct", "behind"))
    graphs = {side: captured(getattr(part, side), args.operations) for side in SIDES}
    torch.cuda.synchronize()
    times = {side: [] for side in SIDES}
    for launch in range(args.launches + 1):
        for side, graph in graphs.items():
            time_us = timed(graph, lead_in, args.operations)
            if launch > 0:
                times[side].append(time_us)
    return times, wrong


def main():
    args = arguments()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", os.environ["RANK"])))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    ranks = dist.get_world_size()
    torch.manual_seed(dist.get_rank() + int.from_bytes(os.urandom(4), "little"))
    meeting = torch.zeros(1, device=device)
    lead_in = captured(lambda: dist.all_reduce(meeting), LEAD_IN)
    rows = []
    for layer, inner, columns in LAYERS:
        for count in args.rows:
            found = [None] * ranks
            dist.all_gather_object(found, measure(args, (count, inner, columns), lead_in))
            slowest = lambda side: statistics.median(max(launch) for launch in zip(*(times[side] for times, _ in found)))
            rows.append({"layer": layer, "rows": count, "inner": inner // ranks, "columns": columns,
                         "time_us": {side: slowest(side) for side in SIDES}, "wrong": sum(wrong for _, wrong in found)})
    if dist.get_rank() == 0:
        report = {"ranks": ranks, "device": "cuda", "about_peers": f"PyTorch {torch.__version__}, multicast off", "rows": rows}
        lines = [" ".join(["layer", "  rows", *(f"{side:>9}" for side in SIDES), "wrong"])]
        for row in rows:
            lines.append(" ".join([f"{row['layer']:5}", f"{row['rows']:6}", *(f"{row['time_us'][side]:9.1f}" for side in SIDES),
                                   f"{row['wrong']:5}"]))
        print(json.dumps(report) if args.json else "\n".join(lines), flush=True)
    torch.cuda.synchronize()
    dist.barrier()
    sys.stdout.flush()
    # Destroying the group waits for ever where a graph holds operations of NCCL.
    os._exit(int(any(row["wrong"] for row in rows)))


if __name__ == "__main__":
    main()
