"""How other libraries exchange the rows of a layer of experts: the sides of bench/torch_moe.py, and what is right."""
import os

# Also sets the variables that PyTorch, NCCL and NVSHMEM read from the environment.
from torch_symm_mem import ROUNDOFF
import torch
import torch.distributed as dist

# Otherwise NVSHMEM looks for adapters of other hosts.
os.environ.setdefault("NVSHMEM_REMOTE_TRANSPORT", "none")

# Elements of a row with one scale.
GROUP = 128
VDEV_EXPERTS = 16


def homes(experts, ranks):
    """The rank of each expert: neighbours together."""
    first = [rank * experts // ranks for rank in range(ranks + 1)]
    return torch.repeat_interleave(torch.arange(ranks), torch.tensor(first).diff())


def goes(ids, home, ranks):
    """Whether a token of a rank goes to a rank: [source, token, rank]."""
    target = torch.where(ids >= 0, home[ids.clamp(min=0)], ranks)
    return torch.nn.functional.one_hot(target, ranks + 1).amax(2)[..., :ranks].bool()


def rows_of(owner, tokens):
    """The numbers of each token's rows, [tokens, most], where `owner` is the token of each row. Behind a token's last row
    stands the number of rows."""
    order = torch.argsort(owner, stable=True)
    counts = torch.bincount(owner, minlength=tokens)
    place = torch.arange(len(owner)) - (counts.cumsum(0) - counts)[owner[order]]
    found = torch.full((tokens, max(1, int(counts.max()))), len(owner))
    found[owner[order], place] = order
    return found


def encoded(rows):
    """Rows as e4m3 codes in bytes, and scales in f32."""
    groups = torch.nn.functional.pad(rows.float(), (0, -rows.shape[1] % GROUP)).unflatten(1, (-1, GROUP))
    most = groups.abs().amax(2, keepdim=True).clamp(min=1e-4)
    codes = (groups * (448 / most)).clamp(-448, 448).to(torch.float8_e4m3fn)
    return [codes.view(torch.uint8).flatten(1)[:, : rows.shape[1]].contiguous(), (most / 448).squeeze(2)]


def decoded(payloads):
    """The rows in bf16, of any leading shape, that payloads stand for."""
    if len(payloads) == 1:
        return payloads[0]
    codes, scales = payloads
    scales = scales.repeat_interleave(GROUP, -1)[..., : codes.shape[-1]]
    return (codes.view(torch.float8_e4m3fn).float() * scales).to(torch.bfloat16)


def prints(payloads):
    """A number for each row, by all its bytes, in ascending order."""
    parts = [part.contiguous().view(torch.uint8).flatten(1) for part in payloads]
    random = torch.Generator().manual_seed(7)
    # Sums of products stay below 2^53, so doubles are exact.
    weights = torch.randint(1, 1 << 30, (sum(part.shape[1] for part in parts),), generator=random).double()
    weights = weights.to(parts[0].device)
    chunks = zip(*(part.split(1024) for part in parts))
    return torch.cat([torch.cat(chunk, 1).double() @ weights for chunk in chunks]).sort().values


class Task:
    """What travels for one number of tokens. Rows of all ranks: `sent`, payloads of [ranks, tokens, ...]."""

    def __init__(self, args, ids, device):
        self.experts, self.top_k, self.hidden = args.shape
        self.rank, self.ranks, self.tokens = dist.get_rank(), dist.get_world_size(), ids.shape[1]
        self.device, self.ids, self.home = device, ids, homes(self.experts, self.ranks)
        self.goes = goes(ids, self.home, self.ranks)
        random = torch.Generator(device=device).manual_seed(args.seed * 1000 + self.rank)
        rows = torch.empty(self.tokens, self.hidden, device=device).uniform_(-4, 4, generator=random).to(torch.bfloat16)
        self.own = [rows] if args.wire == "same" else encoded(rows)
        self.sent = [self.gathered(part) for part in self.own]

    def gathered(self, part):
        every = part.new_empty(self.ranks * self.tokens, part.shape[1])
        dist.all_gather_into_tensor(every, part)
        return every

    def like(self, count, zeros=False):
        """Memory for the payloads of so many rows."""
        make = torch.zeros if zeros else torch.empty
        return [make(count, part.shape[1], dtype=part.dtype, device=self.device) for part in self.own]

    def results(self, count):
        return torch.zeros(count, self.hidden, dtype=torch.bfloat16, device=self.device)

    def on_device(self, indices):
        return indices.to(self.device)

    def comes(self, layout):
        """The numbers, in `sent`, of the rows that this rank receives."""
        if layout == "all":
            return torch.arange(self.ranks * self.tokens)
        if layout == "by-rank":
            return self.goes[:, :, self.rank].flatten().nonzero().squeeze(1)
        here = (self.ids >= 0) & (self.home[self.ids.clamp(min=0)] == self.rank)
        return here.flatten().nonzero().squeeze(1) // self.top_k

    def factor(self, rank):
        """What the experts of a rank multiply rows by: a power of two, so that results are exact."""
        return 2.0 ** -(rank % 3)

    def sum(self, layout):
        """The right sums of this rank's tokens."""
        factors = torch.tensor([self.factor(rank) for rank in range(self.ranks)])
        if layout == "by-expert":
            own = self.ids[self.rank]
            times = torch.where(own >= 0, factors[self.home[own.clamp(min=0)]], 0.0).sum(1)
        else:
            times = (self.goes[self.rank] * factors).sum(1)
        return decoded(self.own).double() * times.double()[:, None].to(self.device)


class Side:
    """One way to exchange rows. After `dispatch`, `received` has the payloads and `results` has room for as many rows; after
    `combine`, `output` has the sums."""

    layout = "by-rank"
    # Whether combines may follow each other without a dispatch between them.
    combines_alone = True

    def __init__(self, task):
        self.task = task

    def arrived(self):
        """The payloads of the rows that came."""
        return self.received

    def run(self, phase):
        if phase != "combine":
            self.dispatch()
        if phase != "dispatch":
            self.combine()

    def apply_experts(self):
        self.results.copy_(decoded(self.received) * self.task.factor(self.task.rank))

    def count_wrong(self):
        """Of a dispatch and a combine of random rows."""
        self.dispatch()
        torch.cuda.synchronize()
        came = self.task.on_device(self.task.comes(self.layout))
        right, found = prints([part[came] for part in self.task.sent]), prints(self.arrived())
        wrong = abs(len(right) - len(found)) or int((right != found).sum())
        self.apply_experts()
        self.combine()
        torch.cuda.synchronize()
        right, found = self.task.sum(self.layout), self.output.double()
        far = (found - right).abs() > self.task.ranks * ROUNDOFF["bf16"] * right.abs()
        return wrong + int((far | ~torch.isfinite(found)).sum())


class Packed(Side):
    """A side that sends rows which a gather has put one after the other. `order`: the token of each."""

    def pack(self, order):
        task = self.task
        self.order, self.table = task.on_device(order), task.on_device(rows_of(order, task.tokens).flatten())
        self.spread = task.results(len(self.table))
        self.output = task.results(task.tokens)

    def gather(self, into):
        for part, packed in zip(self.task.own, into):
            torch.index_select(part, 0, self.order, out=packed[: len(self.order)])

    def unpack(self, returned):
        """Behind the returned rows lies a row of zeros."""
        torch.index_select(returned, 0, self.table, out=self.spread)
        torch.sum(self.spread.view(self.task.tokens, -1, self.task.hidden), 1, out=self.output)


class Nccl(Packed):
    def __init__(self, task):
        super().__init__(task)
        goes = task.goes
        self.there, self.here = goes[task.rank].sum(0).tolist(), goes[:, :, task.rank].sum(1).tolist()
        self.pack(goes[task.rank].T.nonzero()[:, 1])
        self.packed, self.received = task.like(sum(self.there)), task.like(sum(self.here))
        self.results, self.returned = task.results(sum(self.here)), task.results(sum(self.there) + 1)

    def dispatch(self):
        self.gather(self.packed)
        for part, into in zip(self.packed, self.received):
            dist.all_to_all_single(into, part, self.here, self.there)

    def combine(self):
        dist.all_to_all_single(self.returned[:-1], self.results, self.there, self.here)
        self.unpack(self.returned)


class NcclAllGather(Side):
    layout = "all"

    def __init__(self, task):
        super().__init__(task)
        every = task.ranks * task.tokens
        self.received, self.results, self.output = task.like(every), task.results(every), task.results(task.tokens)
        self.mine = task.on_device(task.goes[:, :, task.rank].flatten()[:, None])

    def dispatch(self):
        for part, into in zip(self.task.own, self.received):
            dist.all_gather_into_tensor(into, part)

    def apply_experts(self):
        super().apply_experts()
        self.results.mul_(self.mine)

    def combine(self):
        dist.reduce_scatter_tensor(self.output, self.results)


class Vdev(Packed):
    layout = "by-expert"

    def __init__(self, task):
        import torch.distributed._symmetric_memory as symm_mem
        super().__init__(task)
        if task.experts % task.ranks or task.experts // task.ranks > VDEV_EXPERTS:
            raise ValueError(f"each rank has as many experts, at most {VDEV_EXPERTS}; there are {task.experts}")
        if not symm_mem.is_nvshmem_available():
            raise ImportError("PyTorch finds no NVSHMEM")
        symm_mem.set_backend("NVSHMEM")
        self.group, self.ops = dist.group.WORLD.group_name, torch.ops.symm_mem

        def shared(dtype, *size):
            memory = symm_mem.empty(*size, dtype=dtype, device=task.device)
            symm_mem.rendezvous(memory, self.group)
            return memory.zero_()

        pairs = task.ids.flatten(1)
        experts, order = torch.where(pairs >= 0, pairs, task.experts)[task.rank].sort(stable=True)
        live = int((experts < task.experts).sum())
        self.pack(order[:live] // task.top_k)
        counts = torch.bincount(pairs[pairs >= 0], minlength=task.experts).view(task.ranks, -1)
        # Equal on all ranks; an expert without rows has a row.
        room, most = int(counts.clamp(min=1).sum(1).max()), task.tokens * task.top_k
        self.packed = [shared(part.dtype, most, part.shape[1]) for part in task.own]
        self.received = [shared(part.dtype, room, part.shape[1]) for part in task.own]
        self.results = shared(torch.bfloat16, room, task.hidden)
        self.returned = shared(torch.bfloat16, most + 1, task.hidden)
        self.splits = shared(torch.int64, task.experts)
        self.splits.copy_(torch.bincount(experts[:live], minlength=task.experts))
        self.came, self.back = shared(torch.int64, 2, task.experts), shared(torch.int64, 2, task.experts)

    def dispatch(self):
        self.gather(self.packed)
        for part, into in zip(self.packed, self.received):
            self.ops.all_to_all_vdev_2d(part, into, self.splits, self.came, self.group)

    def arrived(self):
        counts, offsets = self.came.tolist()
        rows = [row for count, offset in zip(counts, offsets) for row in range(offset, offset + count)]
        rows = torch.tensor(rows, dtype=torch.int64, device=self.task.device)
        return [part[rows] for part in self.received]

    def combine(self):
        self.ops.all_to_all_vdev_2d_offset(self.results, self.returned, self.came, self.back, self.group)
        self.unpack(self.returned)


class FlashInfer(Side):
    # Blocks of a combine wait until a flag is its number, and the peer's next combine may overwrite it before they look.
    combines_alone = False
    opened = {}

    def __init__(self, task, most_tokens):
        import flashinfer.comm.trtllm_moe_alltoall as library
        from flashinfer.comm.mapping import Mapping
        from flashinfer.comm.mnnvl import MnnvlConfig, TorchDistBackend
        super().__init__(task)
        if task.experts % task.ranks:
            raise ValueError(f"each rank has as many experts; there are {task.experts}")
        self.library, self.ids = library, task.ids[task.rank].to(torch.int32).to(task.device)
        bytes_there = sum(part[0].nbytes for part in task.own) + 4 * task.top_k
        self.bytes_back = task.hidden * 2
        if "workspace" not in self.opened:
            size = library.moe_a2a_get_workspace_size_per_rank(task.ranks, most_tokens, bytes_there, self.bytes_back)
            mapping = Mapping(task.ranks, task.rank, task.ranks, tp_size=task.ranks, moe_ep_size=task.ranks)
            self.opened["workspace"] = library.MoeAlltoAll(
                mapping, most_tokens, task.top_k, task.experts, workspace_size_per_rank=size,
                mnnvl_config=MnnvlConfig(comm_backend=TorchDistBackend(dist.group.WORLD)))
        shared = self.opened["workspace"]
        self.workspace, self.metainfo = shared.workspace, shared.metainfo
        self.place = (task.rank, task.ranks, task.top_k)

    def dispatch(self):
        task = self.task
        payloads, self.offset, *_ = self.library.moe_a2a_dispatch(
            self.ids, [*task.own, self.ids], self.workspace, self.metainfo, task.tokens, *self.place, task.experts)
        self.received = payloads[: len(task.own)]

    def arrived(self):
        """The rows of each source come first in its part of the workspace."""
        counts = self.task.goes[:, :, self.task.rank].sum(1).tolist()
        return [torch.cat([rows[:count] for rows, count in zip(part, counts)]) for part in self.received]

    @property
    def results(self):
        task = self.task
        return self.library.moe_a2a_wrap_payload_tensor_in_workspace(
            self.workspace[task.rank, :], [task.ranks, task.tokens], self.offset,
            self.offset + task.ranks * task.tokens * self.bytes_back, torch.bfloat16)

    def combine(self):
        task = self.task
        self.output = self.library.moe_a2a_combine(
            self.results, task.tokens, self.workspace, self.metainfo, task.tokens, *self.place, self.offset, True)


class DeepEp(Side):
    opened = {}

    def __init__(self, task):
        import deep_ep
        super().__init__(task)
        if task.experts % task.ranks:
            raise ValueError(f"each rank has as many experts; there are {task.experts}")
        if "buffer" not in self.opened:
            configs = [make(task.ranks) for make in (deep_ep.Buffer.get_dispatch_config, deep_ep.Buffer.get_combine_config)]
            size = max(config.get_nvl_buffer_size_hint(task.hidden * 2, task.ranks) for config in configs)
            self.opened["buffer"] = deep_ep.Buffer(dist.group.WORLD, size, 0)
        self.buffer = self.opened["buffer"]
        self.rows = task.own[0] if len(task.own) == 1 else (task.own[0].view(torch.float8_e4m3fn), task.own[1])
        ids = task.ids[task.rank].to(task.device)
        to_ranks, _, to_experts, whether, _ = self.buffer.get_dispatch_layout(ids, task.experts)
        *_, self.handle, _ = self.buffer.dispatch(
            self.rows, num_tokens_per_rank=to_ranks, is_token_in_rank=whether, num_tokens_per_expert=to_experts)
        self.results = task.results(len(task.comes("by-rank")))

    def dispatch(self):
        rows = self.buffer.dispatch(self.rows, handle=self.handle)[0]
        self.received = [rows[0].view(torch.uint8), rows[1]] if isinstance(rows, tuple) else [rows]

    def combine(self):
        self.output = self.buffer.combine(self.results, self.handle)[0]


SIDES = {"nccl": Nccl, "nccl-all-gather": NcclAllGather, "torch-vdev-2d": Vdev, "flashinfer": FlashInfer, "deepep": DeepEp}
