"""PyTorch's distributed operations over the library that `LD_PRELOAD` names, or over NCCL. Ranks of torchrun. Prints one line
a check on rank 0; a wrong value ends the process."""

import os

import torch
import torch.distributed as dist

DEVICE = int(os.environ["LOCAL_RANK"])
RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def line(name):
    torch.cuda.synchronize()
    if RANK == 0:
        print(f"ok {name}", flush=True)


def values(rank, count, dtype):
    return ((torch.arange(count, device="cuda") + rank * 7) % 5).to(dtype)


def total(count, dtype):
    return sum(values(rank, count, torch.float64) for rank in range(RANKS)).to(dtype)


def equal(found, expected, name):
    assert torch.equal(found, expected), f"{name}: rank {RANK}: {found.flatten()[:8]} for {expected.flatten()[:8]}"


def collectives(dtype, count):
    name = f"{dtype} {count}"
    own = values(RANK, count, dtype)
    out = own.clone()
    dist.all_reduce(out)
    equal(out, total(count, dtype), f"all_reduce {name}")
    for op, reduce in [(dist.ReduceOp.MAX, torch.amax), (dist.ReduceOp.MIN, torch.amin)]:
        out = own.clone()
        dist.all_reduce(out, op=op)
        stacked = torch.stack([values(rank, count, torch.float32) for rank in range(RANKS)])
        equal(out, reduce(stacked, 0).to(dtype), f"all_reduce {op} {name}")
    everyone = torch.cat([values(rank, count, dtype) for rank in range(RANKS)])
    gathered = torch.empty(count * RANKS, dtype=dtype, device="cuda")
    dist.all_gather_into_tensor(gathered, own)
    equal(gathered, everyone, f"all_gather_into_tensor {name}")
    parts = [torch.empty_like(own) for _ in range(RANKS)]
    dist.all_gather(parts, own)
    equal(torch.cat(parts), everyone, f"all_gather {name}")
    unequal = [torch.empty(rank + 3, dtype=dtype, device="cuda") for rank in range(RANKS)]
    dist.all_gather(unequal, values(RANK, RANK + 3, dtype))
    equal(torch.cat(unequal), torch.cat([values(rank, rank + 3, dtype) for rank in range(RANKS)]), "unequal all_gather")
    whole = values(RANK, count * RANKS, dtype)
    part = torch.empty(count, dtype=dtype, device="cuda")
    dist.reduce_scatter_tensor(part, whole)
    equal(part, total(count * RANKS, dtype)[RANK * count : (RANK + 1) * count], f"reduce_scatter {name}")
    for root in range(RANKS):
        out = own.clone()
        dist.broadcast(out, root)
        equal(out, values(root, count, dtype), f"broadcast {name}")
        out = own.clone()
        dist.reduce(out, root)
        if RANK == root:
            equal(out, total(count, dtype), f"reduce {name}")
        lists = [torch.empty_like(own) for _ in range(RANKS)] if RANK == root else None
        dist.gather(own, lists, dst=root)
        if RANK == root:
            equal(torch.cat(lists), everyone, f"gather {name}")
        lists = list(values(root, count * RANKS, dtype).chunk(RANKS)) if RANK == root else None
        part = torch.empty_like(own)
        dist.scatter(part, lists, src=root)
        equal(part, values(root, count * RANKS, dtype)[RANK * count : (RANK + 1) * count], f"scatter {name}")
    out = torch.empty_like(whole)
    dist.all_to_all_single(out, whole)
    pieces = [values(rank, count * RANKS, dtype)[RANK * count : (RANK + 1) * count] for rank in range(RANKS)]
    equal(out, torch.cat(pieces), f"all_to_all_single {name}")


def unequal_all_to_all():
    sizes = [[(source + 2 * target) % 4 for target in range(RANKS)] for source in range(RANKS)]
    send = values(RANK, sum(sizes[RANK]), torch.float32)
    receive = torch.empty(sum(sizes[source][RANK] for source in range(RANKS)), device="cuda")
    dist.all_to_all_single(receive, send, [sizes[source][RANK] for source in range(RANKS)], sizes[RANK])
    pieces = []
    for source in range(RANKS):
        start = sum(sizes[source][:RANK])
        pieces.append(values(source, sum(sizes[source]), torch.float32)[start : start + sizes[source][RANK]])
    equal(receive, torch.cat(pieces), "unequal all_to_all_single")


def messages():
    after, before = (RANK + 1) % RANKS, (RANK - 1) % RANKS
    for count in (1, 1 << 16, 1 << 22):
        out, into = values(RANK, count, torch.float32), torch.empty(count, device="cuda")
        work = dist.batch_isend_irecv([dist.P2POp(dist.isend, out, after), dist.P2POp(dist.irecv, into, before)])
        for one in work:
            one.wait()
        equal(into, values(before, count, torch.float32), "batch_isend_irecv")
    if RANKS > 1 and RANK < 2:
        buffer = values(RANK, 1000, torch.float32)
        if RANK == 0:
            dist.send(buffer, 1)
        else:
            dist.recv(buffer, 0)
            equal(buffer, values(0, 1000, torch.float32), "send, recv")


def coalesced():
    tensors = [values(RANK, 100 * (index + 1), torch.bfloat16) for index in range(4)]
    with dist._coalescing_manager(device=torch.device("cuda", DEVICE)):
        for tensor in tensors:
            dist.all_reduce(tensor)
    for index, tensor in enumerate(tensors):
        equal(tensor, total(100 * (index + 1), torch.bfloat16), "coalesced all_reduce")


def products():
    """Sums of products with a factor of each rank, given as a number and as memory of the device; all values are exact."""
    # Not for bfloat16: PyTorch passes the factor as a float32, of which NCCL reads the first half, which is zero.
    for dtype in (torch.float32, torch.float16, torch.float64):
        for factor in (0.5, torch.tensor([0.5], dtype=dtype, device="cuda")):
            op = dist._make_nccl_premul_sum(factor)
            for count in (1, 1000, (1 << 20) + 3):
                name = f"{dtype} {count} {factor}"
                half = total(count * RANKS, torch.float64).div(2).to(dtype)
                out = values(RANK, count * RANKS, dtype)
                dist.all_reduce(out, op=op)
                equal(out, half, f"all_reduce of products {name}")
                whole, part = values(RANK, count * RANKS, dtype), torch.empty(count, dtype=dtype, device="cuda")
                dist.reduce_scatter_tensor(part, whole, op=op)
                equal(part, half[RANK * count : (RANK + 1) * count], f"reduce_scatter of products {name}")
                out = values(RANK, count * RANKS, dtype)
                dist.reduce(out, RANKS - 1, op=op)
                if RANK == RANKS - 1:
                    equal(out, half, f"reduce of products {name}")


def products_in_graphs():
    """A factor of the device is read at each replay."""
    factor, tensor = torch.ones(1, device="cuda"), torch.zeros(4096, device="cuda")
    op = dist._make_nccl_premul_sum(factor)
    dist.all_reduce(tensor, op=op)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(tensor, op=op)
    for replay in range(20):
        tensor.fill_(RANK + 1)
        factor.fill_(replay)
        graph.replay()
        equal(tensor[:1], torch.full((1,), float(replay * RANKS * (RANKS + 1) // 2), device="cuda"), "products in a graph")


def objects_and_groups():
    found = [None] * RANKS
    dist.all_gather_object(found, {"rank": RANK})
    assert found == [{"rank": rank} for rank in range(RANKS)], found
    group = dist.new_group(list(range(RANKS)))
    out = values(RANK, 64, torch.float32)
    dist.all_reduce(out, group=group)
    equal(out, total(64, torch.float32), "new_group")
    dist.barrier()


def graphs():
    """Replays with new values, and eager calls between."""
    group = dist.new_group(list(range(RANKS)))
    tensor, other = torch.zeros(4096, device="cuda"), torch.zeros(4096, device="cuda")
    group_stream = torch.cuda.Stream()
    with torch.cuda.stream(group_stream):
        dist.all_reduce(torch.ones(1, device="cuda"), group=group)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(tensor, group=group)
        tensor.add_(1)
        dist.all_reduce(tensor, group=group)
        other.copy_(tensor)
    for replay in range(200):
        tensor.fill_(RANK + replay)
        graph.replay()
        expected = (sum(rank + replay for rank in range(RANKS)) + 1) * RANKS
        assert other[0].item() == expected, (replay, other[0].item(), expected)
        if replay % 10 == 0:
            eager = values(RANK, 1000, torch.float32)
            dist.all_reduce(eager, group=group)
            equal(eager, total(1000, torch.float32), "eager between replays")


def orders():
    """Graphs and eager calls of a group on unlike streams, which only the group's communicator orders. Values pass through three
    tensors. The first calls of the group are captured when it opens with a device."""
    for mode in ("global", "thread_local", "relaxed"):
        group = dist.new_group(list(range(RANKS)))
        one, two = (torch.ones(4096, dtype=torch.float64, device="cuda") for _ in range(2))
        whole = torch.ones(4096 * RANKS, dtype=torch.float64, device="cuda")
        lanes = [torch.cuda.Stream() for _ in range(4)]
        if not os.environ.get("EAGER_INIT"):
            dist.all_reduce(torch.ones(1, device="cuda"), group=group)
        torch.cuda.synchronize()
        graphs = [torch.cuda.CUDAGraph() for _ in range(2)]
        with torch.cuda.graph(graphs[0], stream=lanes[0], capture_error_mode=mode):
            dist.all_gather_into_tensor(whole, one, group=group)
        with torch.cuda.graph(graphs[1], stream=lanes[1], capture_error_mode=mode):
            dist.reduce_scatter_tensor(two, whole, group=group)
        for round in range(10):
            for tensor in (one, two, whole):
                tensor.fill_(1)
            torch.cuda.synchronize()
            for step in range(100):
                for number in range(2):
                    with torch.cuda.stream(lanes[(step + number) % 4]):
                        graphs[number].replay()
                with torch.cuda.stream(lanes[(step + 2) % 4]):
                    dist.all_to_all_single(one, two, group=group)
            torch.cuda.synchronize()
            equal(one, torch.full_like(one, float(RANKS) ** 100), f"graphs and eager calls, mode {mode}, round {round}")


def main():
    torch.cuda.set_device(DEVICE)
    dist.init_process_group("nccl", device_id=torch.device("cuda", DEVICE) if os.environ.get("EAGER_INIT") else None)
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.int64, torch.uint8):
        for count in (1, 1000, 1 << 20):
            collectives(dtype, count)
        line(f"collectives of {dtype}")
    checks = (unequal_all_to_all, messages, coalesced, products, products_in_graphs, objects_and_groups, graphs, orders)
    for check in checks:
        check()
        line(check.__name__)
    dist.destroy_process_group()
    if RANK == 0:
        print("ok destroy", flush=True)


main()
