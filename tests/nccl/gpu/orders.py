"""Three communicators whose calls of 16 MiB begin in rotated order on each rank, on three streams, and graphs: 10,000 replays
with values, and replays after the program has ended the communicator's group. Ranks of torchrun over LD_PRELOAD."""

import os
import time

import torch
import torch.distributed as dist

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def line(name):
    torch.cuda.synchronize()
    if RANK == 0:
        print(f"ok {name}", flush=True)


def rotated(rounds):
    groups = [dist.new_group(list(range(RANKS))) for _ in range(3)]
    streams = [torch.cuda.Stream() for _ in groups]
    tensors = [torch.ones(8 << 20, dtype=torch.bfloat16, device="cuda") for _ in groups]
    for group, tensor in zip(groups, tensors):
        dist.all_reduce(tensor, group=group)
    torch.cuda.synchronize()
    for round in range(rounds):
        start = time.monotonic()
        for index in range(3):
            turn = (index + (round % 3 if RANK % 2 else 0)) % 3
            with torch.cuda.stream(streams[turn]):
                tensors[turn].fill_(RANK + turn)
                dist.all_reduce(tensors[turn], group=groups[turn])
        torch.cuda.synchronize()
        assert time.monotonic() - start < 1, f"round {round} took {time.monotonic() - start} s"
        for turn, tensor in enumerate(tensors):
            expected = sum(rank + turn for rank in range(RANKS))
            assert tensor[0].item() == expected and tensor[-1].item() == expected, (round, turn, tensor[0].item())


def replays(count):
    group = dist.new_group(list(range(RANKS)))
    source, result = torch.zeros(4096, device="cuda"), torch.zeros(4096, device="cuda")
    dist.all_reduce(source, group=group)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result.copy_(source)
        dist.all_reduce(result, group=group)
        source.add_(1)
    source.fill_(RANK)
    for replay in range(count):
        graph.replay()
        if replay % 500 == 0 or replay == count - 1:
            expected = sum(rank + replay for rank in range(RANKS))
            assert result[0].item() == expected and result[-1].item() == expected, (replay, result[0].item())


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rotated(300)
    line("300 rounds of three communicators in rotated order")
    replays(10_000)
    line("10,000 replays")
    dist.destroy_process_group()


main()
