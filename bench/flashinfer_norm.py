#!/usr/bin/env python3
"""FlashInfer's all-reduce with residual and norm, timed as `symmetra-bench all-reduce-norm` times ours.

    symmetra launch -n 4 --no-prefix -- python3 bench/flashinfer_norm.py --output flashinfer.json
    torchrun --nproc-per-node 4 bench/flashinfer_norm.py --hidden 2880 --tokens 1,64 --json

Runs the pattern kARResidualRMSNorm of `trtllm_allreduce_fusion` with sums in f32 and dependent launch, as one-shot and as
two-shot, on a workspace without multicast. The residual is summed in place, and the norm has an output of its own.
Two-shot serves more tokens than there are ranks; one-shot serves messages up to what FlashInfer allows.

Method: that of bench/torch_symm_mem.py. OPERATIONS operations are captured in one CUDA graph. A time is the median over
LAUNCHES launches of the slowest rank's time for one operation; both kinds take turns. One operation is verified on fresh
random data before: the residual may be one unit of the type's last place from the sum in f32, and the norm one unit from the
norm of that residual. Prints a table, or with --json one object with the rows of ours: tokens, bytes, time_us and wrong
by side, and `best_us`, the time of the faster kind. Needs PyTorch 2.9 or newer, the package flashinfer-python and NVLink.
"""
import argparse
import json
import os
import statistics
import sys

try:
    from torch_symm_mem import DTYPES, LEAD_IN, ROUNDOFF, captured, timed
    import torch
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symm_mem
    import flashinfer
    import flashinfer.comm as comm
except ImportError as missing:
    print(f"error: {missing}. bench/flashinfer_norm.py needs PyTorch and FlashInfer: "
          "pip install torch flashinfer-python", file=sys.stderr)
    sys.exit(2)

SIDES = {"flashinfer-one-shot": True, "flashinfer-two-shot": False}
# FlashInfer runs more bytes as two-shot, even if one-shot is requested.
MOST_ONE_SHOT_BYTES = 2147483647 & ~((1 << 21) - 1)
EPSILON = 1e-6


def numbers(text):
    return [int(number) for number in text.split(",")]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=8192)
    parser.add_argument("--tokens", type=numbers, default="1,4,16,64,256,1024")
    parser.add_argument("--dtype", choices=("bf16", "f16"), default="bf16")
    parser.add_argument("--operations", type=int, default=40)
    parser.add_argument("--launches", type=int, default=7)
    parser.add_argument("--early", action="store_true", help="let the next kernel start before the outputs are complete")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--output", metavar="PATH", help="write that object into this file too")
    return parser.parse_args()


class Rows:
    """The operands of one number of tokens."""

    def __init__(self, args, tokens):
        dtype = DTYPES[args.dtype]
        shape = (tokens, args.hidden)
        own = torch.Generator(device="cuda").manual_seed(tokens * 65537 + 1 + dist.get_rank())
        # Weight and residual are equal on all ranks.
        shared = torch.Generator(device="cuda").manual_seed(tokens)
        values = lambda *size: torch.empty(*size, dtype=dtype, device="cuda")
        self.args, self.tokens = args, tokens
        self.given = values(*shape).uniform_(-4, 4, generator=own)
        self.input, self.sum, self.output = self.given.clone(), values(*shape), values(*shape)
        self.start = values(*shape).uniform_(-4, 4, generator=shared)
        self.weight = values(args.hidden).uniform_(0.5, 2, generator=shared)
        self.residual = self.start.clone()

    def enqueue(self, workspace, one_shot):
        comm.trtllm_allreduce_fusion(
            allreduce_in=self.input.view(-1),
            world_size=dist.get_world_size(),
            world_rank=dist.get_rank(),
            token_num=self.tokens,
            hidden_dim=self.args.hidden,
            workspace_ptrs=workspace,
            launch_with_pdl=True,
            trigger_completion_at_end=not self.args.early,
            fp32_acc=True,
            pattern_code=comm.AllReduceFusionPattern.kARResidualRMSNorm,
            use_oneshot=one_shot,
            allreduce_out=self.sum.view(-1),
            residual_in=self.residual.view(-1),
            residual_out=self.residual.view(-1),
            norm_out=self.output.view(-1),
            quant_out=None,
            scale_out=None,
            rms_gamma=self.weight,
            rms_eps=EPSILON,
            scale_factor=None,
            layout_code=None,
        )

    def unwrite(self):
        """Puts the operands as they were, with outputs that no operation leaves."""
        self.input.copy_(self.given)
        self.residual.copy_(self.start)
        self.output.fill_(float("nan"))

    def count_wrong(self):
        """Elements of residual and norm that are more than one unit of the last place off."""
        ranks = dist.get_world_size()
        gathered = self.given.new_empty((ranks * self.tokens, self.args.hidden))
        dist.all_gather_into_tensor(gathered, self.given)
        total = torch.zeros_like(self.given, dtype=torch.float32)
        for part in gathered.view(ranks, self.tokens, self.args.hidden):
            total += part.float()
        total = total.to(self.given.dtype)
        x = (total.float() + self.start.float()).to(total.dtype)
        unit = 2 * ROUNDOFF[self.args.dtype]
        # The sum may be one unit off, and x may be much smaller than the sum.
        wrong = far(self.residual, x, unit * (total.double().abs() + x.double().abs()))
        x = self.residual.double()
        scale = 1 / torch.sqrt(x.square().mean(-1, keepdim=True) + EPSILON)
        y = (x * self.weight.double() * scale).to(total.dtype)
        return wrong + far(self.output, y, unit * y.double().abs())


def far(found, right, slack):
    off = (found.double() - right.double()).abs() > slack
    return int((off | ~torch.isfinite(found)).sum())


def serves(one_shot, args, tokens):
    if one_shot:
        return tokens * args.hidden * 2 * dist.get_world_size() <= MOST_ONE_SHOT_BYTES
    return tokens > dist.get_world_size()


def measure(args, tokens, workspace, lead_in):
    """Times of this rank by side, and wrong elements, for one number of tokens."""
    rows, found = Rows(args, tokens), []
    for name, one_shot in SIDES.items():
        if not serves(one_shot, args, tokens):
            continue
        rows.unwrite()
        torch.cuda.synchronize()
        dist.barrier()
        rows.enqueue(workspace, one_shot)
        torch.cuda.synchronize()
        wrong = rows.count_wrong()
        # Sums of sums would overflow: zeros leave the residual as it is.
        rows.input.zero_()
        dist.barrier()
        found.append((name, captured(lambda kind=one_shot: rows.enqueue(workspace, kind), args.operations), wrong))
    times = {name: [] for name, _, _ in found}
    for launch in range(args.launches + 1):
        for name, graph, _ in found:
            time_us = timed(graph, lead_in, args.operations)
            if launch > 0:
                times[name].append(time_us)
    return times, {name: wrong for name, _, wrong in found}


def row(args, tokens, gathered):
    """From what every rank found."""
    time_us, wrong = {}, {}
    for name in gathered[0][0]:
        slowest = [max(launch) for launch in zip(*(times[name] for times, _ in gathered))]
        time_us[name] = statistics.median(slowest)
        wrong[name] = sum(counts[name] for _, counts in gathered)
    nbytes = tokens * args.hidden * DTYPES[args.dtype].itemsize
    return {"tokens": tokens, "bytes": nbytes, "mode": "graph", "operations": args.operations, "time_us": time_us,
            "best_us": min(time_us.values(), default=None), "wrong": wrong}


def table(rows):
    yield "  ".join(["tokens", "     bytes", *(f"{name + ' us':>22}" for name in SIDES), "wrong"])
    for row in rows:
        cells = [f"{row['time_us'][name]:22.2f}" if name in row["time_us"] else f"{'-':>22}" for name in SIDES]
        yield "  ".join([f"{row['tokens']:>6}", f"{row['bytes']:>10}", *cells, f"{sum(row['wrong'].values()):5}"])


def main():
    args = arguments()
    local = int(os.environ.get("LOCAL_RANK", os.environ["RANK"]))
    torch.cuda.set_device(local)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    rank, ranks = dist.get_rank(), dist.get_world_size()
    meeting = symm_mem.empty(1024, dtype=torch.float32, device="cuda")
    handle = symm_mem.rendezvous(meeting, dist.group.WORLD.group_name)
    lead_in = captured(lambda: handle.barrier(channel=0), LEAD_IN)
    handles, workspace = comm.trtllm_create_ipc_workspace_for_all_reduce_fusion(
        rank, ranks, max(args.tokens), args.hidden, group=dist.group.WORLD)
    rows = []
    for tokens in args.tokens:
        gathered = [None] * ranks
        dist.all_gather_object(gathered, measure(args, tokens, workspace, lead_in))
        rows.append(row(args, tokens, gathered))
    report = {"ranks": ranks, "device": "cuda", "ranks_as": "processes", "dtype": args.dtype, "hidden": args.hidden,
              "launches": args.launches, "sides": list(SIDES), "rows": rows,
              "about_peers": f"FlashInfer {flashinfer.__version__}, PyTorch {torch.__version__}, multicast off"}
    if rank == 0:
        if args.output:
            with open(args.output, "w", encoding="utf-8") as file:
                json.dump(report, file, indent=2)
                file.write("\n")
        print(json.dumps(report) if args.json else "\n".join(table(rows)), flush=True)
    torch.cuda.synchronize()
    dist.barrier()
    comm.trtllm_destroy_ipc_workspace_for_all_reduce_fusion(handles, group=dist.group.WORLD)
    dist.destroy_process_group()
    sys.exit(1 if any(sum(row["wrong"].values()) for row in rows) else 0)


if __name__ == "__main__":
    main()
