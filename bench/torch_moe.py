#!/usr/bin/env python3
"""Other libraries' dispatch and combine of a layer of experts, timed as `symmetra-bench moe` times ours.

    symmetra launch -n 4 --no-prefix -- python3 bench/torch_moe.py --phase both --output torch.json
    torchrun --nproc-per-node 4 bench/torch_moe.py --shape mixtral --wire same --tokens 1,128 --json

Sides:
  nccl              all_to_all_single: each row once to each rank; a gather packs rows, a gather and a sum unpack results
  nccl-all-gather   all-gather of all rows; reduce-scatter of the ranks' sums
  torch-vdev-2d     PyTorch's all_to_all_vdev_2d and its _offset form, over NVSHMEM: a row for each pair, at most 16 experts
                    of a rank; a gather packs rows, a gather and a sum unpack results
  flashinfer        FlashInfer's one-sided all-to-all (moe_a2a), results in its workspace, expert ids beside the rows
  deepep            DeepEP's kernels inside one host, a cached dispatch; 2, 4 or 8 ranks
A side that cannot run is named on stderr, with the reason, and the others run.

What favours them: nccl, nccl-all-gather and deepep know for nothing how many rows go where; results come back without
weights, which the caller's experts have applied. No side but torch-vdev-2d puts rows into the order of experts, and e4m3
codes and scales (--wire f8) are made beforehand, so `symmetra-bench moe --layout by-rank --wire given-f8` does the same
work, or with `--layout by-source` that of flashinfer.

Method: that of bench/torch_symm_mem.py; the ranks meet in all-reduces. OPERATIONS operations are captured in one CUDA graph:
dispatches, combines, or both in turn. A time is the median over LAUNCHES launches of the slowest rank's time for one
operation; the sides take turns. FlashInfer's combine is the time of both less that of a dispatch, since its combines need
dispatches between them. Before, a dispatch and a combine of random rows are verified: the bytes of the rows that came
are those that were sent here, in any order, and each element of the sums is within what rounding after each addition may do.
Experts of tokens are drawn from --seed, or read from a .npy file, [ranks, tokens, experts of a token]; --save writes the
drawn ones, for `symmetra-bench moe --routing`. Prints a table, or with --json one object with rows like ours. Multicast stays
off. Needs PyTorch 2.9 or newer and NVLink. Exit status: 0, 1 when an element is wrong, 2 when no side runs.
"""
import argparse
import importlib.metadata
import json
import os
import statistics
import sys

try:
    # Also sets what PyTorch, NCCL and NVSHMEM read from the environment.
    from torch_symm_mem import LEAD_IN, captured, timed
    from torch_moe_sides import SIDES, FlashInfer, Task
    import torch
    import torch.distributed as dist
except ImportError as missing:
    print(f"error: {missing}. bench/torch_moe.py needs PyTorch: pip install torch", file=sys.stderr)
    sys.exit(2)

SHAPES = {"deepseek": "256,8,7168", "mixtral": "8,2,4096"}
LOADS = {"decode": [1, 2, 4, 8, 16, 32, 64, 128], "prefill": [4096]}
PHASES = ("dispatch", "combine", "both")


def numbers(text):
    return [int(number) for number in text.split(",")]


def shape(text):
    """Experts, experts of a token, elements of a row."""
    experts, top_k, hidden = numbers(SHAPES.get(text, text))
    if not 1 <= top_k <= experts or hidden < 1:
        raise ValueError("a token goes to different experts")
    return experts, top_k, hidden


def words(known):
    def parse(text):
        unknown = [word for word in text.split(",") if word not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]} is not one of {', '.join(known)}")
        return text.split(",")
    return parse


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", type=shape, default="deepseek", help="deepseek, mixtral or E,K,H")
    parser.add_argument("--phase", choices=(*LOADS, "both"), default="decode", help="numbers of tokens of a rank")
    parser.add_argument("--tokens", type=numbers, help="numbers of tokens of a rank, separated by commas")
    parser.add_argument("--wire", choices=("same", "f8"), default="f8")
    parser.add_argument("--routing", default="uniform", metavar="uniform|FILE.npy")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", metavar="FILE.npy", help="write the experts of tokens into this file")
    parser.add_argument("--sides", type=words(SIDES), default=",".join(SIDES), metavar="LIST")
    parser.add_argument("--timed", type=words(PHASES), default=",".join(PHASES), metavar="LIST", help="of dispatch,combine,both")
    parser.add_argument("--operations", type=int, default=40)
    parser.add_argument("--launches", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--output", metavar="PATH", help="write that object into this file too")
    return parser.parse_args()


def drawn(seed, ranks, tokens, experts, top_k):
    """Different experts for each token, [ranks, tokens, top_k]."""
    def rank_ids(rank):
        random = torch.Generator().manual_seed(seed * 65537 + rank)
        return torch.rand(tokens, experts, generator=random).topk(top_k).indices
    return torch.stack([rank_ids(rank) for rank in range(ranks)])


def read(path, ranks, tokens, top_k):
    import numpy
    ids = torch.from_numpy(numpy.load(path).astype("int64"))
    if ids.dim() != 3 or ids.shape[0] != ranks or ids.shape[1] < tokens or ids.shape[2] != top_k:
        raise SystemExit(f"error: {path} has {list(ids.shape)}, but it must have [{ranks}, {tokens} or more, {top_k}]")
    return ids[:, :tokens]


def agreed(make):
    """What `make` returns, or why some rank has nothing."""
    made, why = None, None
    try:
        made = make()
    except Exception as error:  # any failure of a library must not stop the other sides
        why = f"{type(error).__name__}: {error}"
    whys = [None] * dist.get_world_size()
    dist.all_gather_object(whys, why)
    return made, next((why for why in whys if why), None)


def launched(phases, side):
    """The phases to launch for the times of these."""
    if side.combines_alone or "combine" not in phases:
        return phases
    return [phase for phase in PHASES if phase != "combine"]


def ready(args, task, name, most_tokens):
    """The graphs of a side by phase, and how many elements were wrong."""
    side = FlashInfer(task, most_tokens) if name == "flashinfer" else SIDES[name](task)
    wrong = side.count_wrong()
    dist.barrier()
    graphs = {phase: captured(lambda phase=phase: side.run(phase), args.operations) for phase in launched(args.timed, side)}
    # Graphs use the memory of their side.
    return side, graphs, wrong


def measure(args, task, lead_in, missing):
    """A row for each side that runs, on every rank."""
    sides = {}
    for name in args.sides:
        if name in missing:
            continue
        made, why = agreed(lambda name=name: ready(args, task, name, max(args.tokens)))
        if why is None:
            sides[name] = made
            continue
        missing[name] = why
        if task.rank == 0:
            print(f"{name} does not run: {why}", file=sys.stderr, flush=True)
    times = {name: {phase: [] for phase in graphs} for name, (_, graphs, _) in sides.items()}
    for launch in range(args.launches + 1):
        for phase in PHASES:
            for name, (_, graphs, _) in sides.items():
                if phase not in graphs:
                    continue
                time_us = timed(graphs[phase], lead_in, args.operations)
                if launch > 0:
                    times[name][phase].append(time_us)
    gathered = [None] * task.ranks
    dist.all_gather_object(gathered, (times, {name: wrong for name, (_, _, wrong) in sides.items()}))
    return [row(args, task.tokens, name, side.layout, gathered) for name, (side, _, _) in sides.items()]


def row(args, tokens, name, layout, gathered):
    """From what every rank found."""
    def time(phase):
        if phase not in gathered[0][0][name]:
            return time("both") - time("dispatch")
        return statistics.median(max(launch) for launch in zip(*(times[name][phase] for times, _ in gathered)))

    return {"tokens": tokens, "mode": "graph", "layout": layout, "method": name, "operations": args.operations,
            "time_us": {phase: time(phase) for phase in args.timed},
            "wrong": sum(wrong[name] for _, wrong in gathered)}


def about_peers():
    """The packages of the libraries that were loaded, by name and version."""
    packages = importlib.metadata.packages_distributions()

    def about(library):
        found = sorted(set(packages.get(library, [])))
        return " and ".join(f"{package} {importlib.metadata.version(package)}" for package in found) or library

    loaded = [about(library) for library in ("flashinfer", "deep_ep") if library in sys.modules]
    return ", ".join([f"PyTorch {torch.__version__}", *loaded, "multicast off"])


def table(rows):
    yield "  ".join(["tokens", f"{'method':16}", f"{'layout':9}", *(f"{phase + ' us':>12}" for phase in PHASES), "wrong"])
    for row in rows:
        cells = [f"{row['time_us'][phase]:12.2f}" if phase in row["time_us"] else f"{'-':>12}" for phase in PHASES]
        yield "  ".join([f"{row['tokens']:>6}", f"{row['method']:16}", f"{row['layout']:9}", *cells, f"{row['wrong']:5}"])


def main():
    args = arguments()
    local = int(os.environ.get("LOCAL_RANK", os.environ["RANK"]))
    device = torch.device("cuda", local)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    experts, top_k, hidden = args.shape
    args.tokens = args.tokens or [tokens for load in LOADS if args.phase in (load, "both") for tokens in LOADS[load]]
    most = max(args.tokens)
    if args.routing == "uniform":
        ids = drawn(args.seed, ranks, most, experts, top_k)
    else:
        ids = read(args.routing, ranks, most, top_k)
    if args.save and rank == 0:
        import numpy
        numpy.save(args.save, ids.to(torch.int32).numpy())
    meeting = torch.zeros(1, device=device)
    lead_in = captured(lambda: dist.all_reduce(meeting), LEAD_IN)
    rows, missing = [], {}
    for tokens in args.tokens:
        rows += measure(args, Task(args, ids[:, :tokens], device), lead_in, missing)
    report = {"ranks": ranks, "device": "cuda", "ranks_as": "processes",
              "shape": {"experts": experts, "top_k": top_k, "hidden": hidden}, "wire": args.wire, "routing": args.routing, "seed": args.seed, "launches": args.launches,
              "about_peers": about_peers(), "missing": missing, "rows": rows}
    if rank == 0:
        if args.output:
            with open(args.output, "w", encoding="utf-8") as file:
                json.dump(report, file, indent=2)
                file.write("\n")
        print(json.dumps(report) if args.json else "\n".join(table(rows)), flush=True)
    torch.cuda.synchronize()
    dist.barrier()
    # Destroying the group waits for ever where a graph holds operations of NCCL, as the lead-in does.
    os._exit(2 if not rows else int(any(row["wrong"] for row in rows)))


if __name__ == "__main__":
    main()
