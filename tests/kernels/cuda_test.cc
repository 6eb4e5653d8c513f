// Every kernel on GPUs with peer access, ranks in one process: results bit for bit against reference.hpp, then waits
// that must give up. With fewer than two GPUs the test prints a line and exits with status 0. First, on one GPU: the
// chip's conversions of narrow formats against integer arithmetic.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>

#include "kernels/cuda/kernels.hpp"
#include "tests/kernels/group.hpp"
#include "tests/kernels/narrow_kernels.hpp"
#include "tests/kernels/user_kernel.hpp"

namespace trial {
namespace {

int checks = 0, failures = 0;

void check(bool holds, const char* what, uint64_t a = 0, uint64_t b = 0, uint64_t c = 0) {
  ++checks;
  if (holds) return;
  if (++failures < 40) {
    std::printf("FAILED: %s (%llu, %llu, %llu)\n", what, static_cast<unsigned long long>(a), static_cast<unsigned long long>(b),
                static_cast<unsigned long long>(c));
  }
}

void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("FAILED: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}
#define MUST(call) must(call, #call)

/// Memory of one GPU, or of the host at the same address everywhere.
struct Block {
  uint8_t* data = nullptr;
  Block(int gpu, size_t bytes, int fill) {
    MUST(cudaSetDevice(gpu));
    MUST(cudaMalloc(reinterpret_cast<void**>(&data), bytes));
    MUST(cudaMemset(data, fill, bytes));
  }
  Block(const Block&) = delete;
  ~Block() { cudaFree(data); }
};

struct Pinned {
  Status* status = nullptr;
  Pinned() {
    MUST(cudaHostAlloc(reinterpret_cast<void**>(&status), sizeof(Status), cudaHostAllocPortable | cudaHostAllocMapped));
    *status = Status{};
  }
  Pinned(const Pinned&) = delete;
  ~Pinned() { cudaFreeHost(status); }
};

constexpr uint64_t kMostElements = 60000;
constexpr uint32_t kTeam = 32;  // threads

/// Operands of a call on every GPU: guards around them as on the host.
struct Call {
  Case c;
  std::deque<Block> inputs, outputs, tables;
  std::vector<std::vector<uint8_t>> image;
  std::vector<Bits> expected;
  PeerTable in{}, out{};
  size_t bytes, begin_in, begin_out;

  Call(uint32_t algorithm, const Case& made, uint32_t world, std::mt19937_64& random) : c(made) {
    const uint32_t size = element_bytes(c.dtype);
    bytes = 2 * kGuardBytes + (c.count + 16) * size;
    begin_in = kGuardBytes + c.input_shift * size;
    begin_out = c.in_place ? begin_in : kGuardBytes + c.output_shift * size;
    image.assign(world, std::vector<uint8_t>(bytes, 0x5A));
    for (uint64_t i = 0; i < c.count; ++i) {
      std::vector<Bits> terms;
      for (uint32_t rank = 0; rank < world; ++rank) {
        terms.push_back(term(random, c, i, rank, world));
        std::memcpy(&image[rank][begin_in + i * size], &terms.back(), size);
      }
      expected.push_back(reference::result(algorithm, c.dtype, c.reduction, terms, i, c.count));
    }
    for (uint32_t rank = 0; rank < world; ++rank) {
      const int gpu = static_cast<int>(rank);
      inputs.emplace_back(gpu, bytes, 0x5A);
      outputs.emplace_back(gpu, bytes, 0x5A);
      MUST(cudaMemcpy(inputs[rank].data, image[rank].data(), bytes, cudaMemcpyHostToDevice));
      in.address[rank] = inputs[rank].data + begin_in;
      out.address[rank] = (c.in_place ? inputs[rank].data : outputs[rank].data) + begin_out;
    }
    for (uint32_t rank = 0; rank < world; ++rank) {
      tables.emplace_back(static_cast<int>(rank), 2 * sizeof(PeerTable), 0);
      MUST(cudaMemcpy(tables[rank].data, &in, sizeof(in), cudaMemcpyHostToDevice));
      MUST(cudaMemcpy(tables[rank].data + sizeof(in), &out, sizeof(out), cudaMemcpyHostToDevice));
    }
  }

  /// Wrong elements, plus one for every byte outside that changed.
  uint64_t wrong() const {
    uint64_t wrong = 0;
    const uint32_t size = element_bytes(c.dtype);
    std::vector<uint8_t> got(bytes);
    for (uint32_t rank = 0; rank < inputs.size(); ++rank) {
      MUST(cudaMemcpy(got.data(), (c.in_place ? inputs : outputs)[rank].data, bytes, cudaMemcpyDeviceToHost));
      for (size_t at = 0; at < bytes; ++at) {
        const bool inside = at >= begin_out && at < begin_out + c.count * size;
        if (!inside) wrong += got[at] != 0x5A;
      }
      for (uint64_t i = 0; i < c.count; ++i) {
        Bits bits = 0;
        std::memcpy(&bits, &got[begin_out + i * size], size);
        wrong += bits != expected[i];
      }
    }
    return wrong;
  }
  bool untouched() const {
    std::vector<uint8_t> got(bytes);
    for (const Block& output : outputs) {
      MUST(cudaMemcpy(got.data(), output.data, bytes, cudaMemcpyDeviceToHost));
      for (uint8_t byte : got) {
        if (byte != 0x5A) return false;
      }
    }
    return true;
  }
};

/// The ranks of one region, one a GPU.
struct Ranks {
  uint32_t algorithm, world;
  uint64_t slot, timeout_ns;
  std::deque<Block> regions, states, progress;
  std::deque<Pinned> status;
  std::vector<cudaStream_t> streams;

  Ranks(uint32_t algorithm, uint32_t world, uint32_t epoch, uint64_t timeout_ns)
      : algorithm(algorithm),
        world(world),
        slot(algorithm == kRing ? 50 : slot_packets(algorithm, kMostElements * 8, world)),
        timeout_ns(timeout_ns) {
    const bool ones = algorithm == kOneShotSentinel || algorithm == kTwoShotSentinel;
    const std::vector<BlockState> state(kMaxBlocks, BlockState{epoch, 0});
    const std::vector<uint32_t> flags(kMaxBlocks * kMaxWorld, 2 * epoch);
    for (uint32_t rank = 0; rank < world; ++rank) {
      const int gpu = static_cast<int>(rank);
      regions.emplace_back(gpu, region_bytes(algorithm, slot, world), ones ? 0xFF : 0);
      if (algorithm == kTwoShotZeroCopy || algorithm == kRing) {
        MUST(cudaMemcpy(regions[rank].data, flags.data(), flags.size() * 4, cudaMemcpyHostToDevice));
      }
      states.emplace_back(gpu, kMaxBlocks * sizeof(BlockState), 0);
      MUST(cudaMemcpy(states[rank].data, state.data(), state.size() * sizeof(BlockState), cudaMemcpyHostToDevice));
      progress.emplace_back(gpu, sizeof(Progress), 0);
      status.emplace_back();
      MUST(cudaStreamCreateWithFlags(&streams.emplace_back(), cudaStreamNonBlocking));
    }
  }
  ~Ranks() {
    for (cudaStream_t stream : streams) cudaStreamDestroy(stream);
  }

  void launch(const Call& call, uint32_t rank, uint32_t programmatic) const {
    AllReduceArgs args{};
    args.input = call.in.address[rank];
    args.output = call.out.address[rank];
    args.count = call.c.count;
    for (uint32_t peer = 0; peer < world; ++peer) args.peers[peer] = regions[peer].data;
    args.slot_packets = slot;
    args.state = reinterpret_cast<BlockState*>(states[rank].data);
    args.inputs = reinterpret_cast<const PeerTable*>(call.tables[rank].data);
    args.outputs = call.c.plain ? nullptr : args.inputs + 1;
    args.wait = {reinterpret_cast<Progress*>(progress[rank].data), status[rank].status, timeout_ns};
    args.rank = rank;
    args.world = world;
    args.dtype = call.c.dtype;
    args.algorithm = algorithm;
    args.reduction = call.c.reduction;
    args.codec = call.c.codec;
    args.lanes_log2 = call.c.lanes_log2;
    const Geometry geometry{call.c.blocks, call.c.threads, shared_bytes_of(call.c, algorithm, world), programmatic};
    MUST(cudaSetDevice(static_cast<int>(rank)));
    MUST(static_cast<cudaError_t>(cuda::launch(streams[rank], kind_of(args), &args, geometry)));
  }
  void join() const {
    for (cudaStream_t stream : streams) MUST(cudaStreamSynchronize(stream));
  }
};

Case any_case(std::mt19937_64& random, uint32_t algorithm, uint32_t dtype, uint32_t world) {
  Case c{};
  c.dtype = dtype;
  c.blocks = 1 + random() % 20;
  c.lanes_log2 = random() % 7;
  c.threads = algorithm == kRing ? 1 + random() % 512 : items(algorithm, world, c.lanes_log2) + random() % 2;
  const uint64_t packet = packet_bytes(algorithm) / element_bytes(dtype);
  const uint64_t units[] = {1, packet, packet << c.lanes_log2, packet * world, (packet * world) << c.lanes_log2};
  c.count = std::min(units[random() % 5] * (random() % 40) + random() % 3, kMostElements);
  c.input_shift = random() % 2 == 0 ? 0 : random() % 9;
  c.output_shift = random() % 2 == 0 ? 0 : random() % 9;
  c.in_place = random() % 3 == 0;
  c.special = random() % 3 == 0;
  c.reduction = random() % 2 == 0 ? kSum : random() % (kAverage + 1);
  c.plain = algorithm == kRing && random() % 2 == 0;
  // Partial sums of integers wrap, so they cannot be averaged.
  const bool partial = algorithm == kRing || algorithm == kRecursiveDoubling;
  if (partial && c.reduction == kAverage && !reference::is_float(dtype)) c.reduction = kSum;
  if (has_codecs(algorithm, dtype) && random() % 2 == 0) {
    quantise(random, c);
    c.threads = std::max(items(algorithm, world, c.lanes_log2), kTeam) + random() % 2;
  }
  return c;
}

void test_all_reduce(uint32_t world, uint32_t calls, std::mt19937_64& random) {
  for (uint32_t algorithm = 0; algorithm < 7; ++algorithm) {
    const bool sentinel = algorithm == kOneShotSentinel || algorithm == kTwoShotSentinel;
    for (uint32_t dtype = 0; dtype < kElementTypes; ++dtype) {
      if (sentinel && !reference::is_float(dtype)) continue;
      const uint32_t epochs[] = {0, 1, kEpochModulus - 7};
      const Ranks ranks(algorithm, world, epochs[random() % 3], 5'000'000'000);
      std::deque<Call> made;
      for (uint32_t i = 0; i < calls; ++i) made.emplace_back(algorithm, any_case(random, algorithm, dtype, world), world, random);
      for (const Call& call : made) {
        for (uint32_t rank = 0; rank < world; ++rank) ranks.launch(call, rank, random() % 4 != 0);
      }
      ranks.join();
      uint64_t wrong = 0;
      for (const Call& call : made) wrong += call.wrong();
      check(wrong == 0, "all-reduce: algorithm, type, world", algorithm, dtype, world);
      for (uint32_t rank = 0; rank < world; ++rank) {
        const Status& why = *ranks.status[rank].status;
        check(why.code == kStatusOk, "no wait gave up", algorithm, why.peer, why.epoch);
      }
    }
  }
}

/// The last rank stays away, then comes late; contexts stay usable.
void test_timeout(uint32_t world, std::mt19937_64& random) {
  for (uint32_t algorithm = 0; algorithm < 7; ++algorithm) {
    const Ranks ranks(algorithm, world, 0, 100'000'000);
    const Case c{3000, kF32, 4, world << 4, 4, 0, 0, false, false};
    const Call call(algorithm, c, world, random);
    const auto begin = std::chrono::steady_clock::now();
    for (uint32_t rank = 0; rank + 1 < world; ++rank) ranks.launch(call, rank, 0);
    ranks.join();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    check(seconds < 1, "a wait ends within its time", algorithm);
    for (uint32_t rank = 0; rank + 1 < world; ++rank) {
      const Status& why = *ranks.status[rank].status;
      check(why.code == kStatusTimeout && (why.peer == world - 1 || algorithm == kRecursiveDoubling), "a missing rank is named", algorithm,
            why.code, why.peer);
    }
    if (algorithm != kTwoShotZeroCopy && algorithm != kRing) continue;
    ranks.launch(call, world - 1, 0);
    ranks.join();
    check(call.untouched(), "the late rank writes nothing");
  }
}

void test_abort(std::mt19937_64& random) {
  const Ranks ranks(kOneShotSentinel, 2, 0, ~uint64_t{0});
  const Call call(kOneShotSentinel, Case{3000, kF32, 4, 32, 4, 0, 0, false, false}, 2, random);
  ranks.launch(call, 0, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  Status& why = *ranks.status[0].status;
  check(why.code == kStatusOk, "without abort a wait lasts");
  std::atomic_ref<uint32_t>(why.abort).store(1);
  ranks.join();
  check(why.code == kStatusAborted && why.peer == 1, "abort ends a wait", why.code, why.peer);
}

void test_signals(uint32_t world) {
  std::deque<Block> pads, counts, progress;
  std::deque<Pinned> status;
  for (uint32_t rank = 0; rank < world; ++rank) {
    pads.emplace_back(static_cast<int>(rank), 2 * kMaxWorld * 4, 0);
    counts.emplace_back(static_cast<int>(rank), 4 * kMaxWorld * 4, 0);
    progress.emplace_back(static_cast<int>(rank), sizeof(Progress), 0);
    status.emplace_back();
  }
  std::vector<cudaStream_t> streams(world);
  const auto signal = [&](uint32_t rank, uint32_t action, uint32_t peer) {
    SignalArgs args{};
    for (uint32_t p = 0; p < world; ++p) args.pads[p] = reinterpret_cast<uint32_t*>(pads[p].data);
    args.sent = reinterpret_cast<uint32_t*>(counts[rank].data);
    args.awaited = args.sent + 2 * kMaxWorld;
    args.wait = {reinterpret_cast<Progress*>(progress[rank].data), status[rank].status, 500'000'000};
    args.rank = rank;
    args.world = world;
    args.channel = 1;
    args.peer = peer;
    args.action = action;
    MUST(cudaSetDevice(static_cast<int>(rank)));
    MUST(static_cast<cudaError_t>(cuda::launch(streams[rank], kind_of(args), &args, Geometry{1, 32, kSharedBytes, 1})));
  };
  for (uint32_t rank = 0; rank < world; ++rank) {
    MUST(cudaSetDevice(static_cast<int>(rank)));
    MUST(cudaStreamCreateWithFlags(&streams[rank], cudaStreamNonBlocking));
  }
  for (uint32_t round = 0; round < 10; ++round) {
    for (uint32_t rank = 0; rank < world; ++rank) {
      signal(rank, kSignalPut, (rank + 1) % world);
      signal(rank, kSignalWait, (rank + world - 1) % world);
      signal(rank, kSignalBarrier, 0);
    }
  }
  for (cudaStream_t stream : streams) MUST(cudaStreamSynchronize(stream));
  for (uint32_t rank = 0; rank < world; ++rank) check(status[rank].status->code == kStatusOk, "signals arrive", rank);
  signal(0, kSignalWait, 1);
  MUST(cudaStreamSynchronize(streams[0]));
  check(status[0].status->code == kStatusTimeout && status[0].status->op == kOpSignalWait, "a signal that is not put times out");
  for (cudaStream_t stream : streams) cudaStreamDestroy(stream);
}

/// A user's own kernel, launched as users do.
void test_user_kernel(uint32_t world) {
  constexpr uint32_t kCount = 100, kOffsetBytes = 64, kRounds = 6;
  std::deque<Block> pads, counts, progress, buffers, tables, sums;
  std::deque<Pinned> status;
  PeerTable table{};
  for (uint32_t rank = 0; rank < world; ++rank) {
    const int gpu = static_cast<int>(rank);
    pads.emplace_back(gpu, 2 * kMaxWorld * 4, 0);
    counts.emplace_back(gpu, 4 * kMaxWorld * 4, 0);
    progress.emplace_back(gpu, sizeof(Progress), 0);
    buffers.emplace_back(gpu, kOffsetBytes + kCount * 4, 0);
    tables.emplace_back(gpu, sizeof(PeerTable), 0);
    sums.emplace_back(gpu, 4, 0);
    status.emplace_back();
    table.address[rank] = buffers[rank].data;
  }
  for (Block& copy : tables) MUST(cudaMemcpy(copy.data, &table, sizeof(table), cudaMemcpyHostToDevice));
  for (uint32_t round = 0; round < kRounds; ++round) {
    for (uint32_t rank = 0; rank < world; ++rank) {
      symmetra::device::SignalPad pad{};
      for (uint32_t peer = 0; peer < world; ++peer) pad.pads[peer] = reinterpret_cast<uint32_t*>(pads[peer].data);
      pad.sent = reinterpret_cast<uint32_t*>(counts[rank].data);
      pad.awaited = pad.sent + 2 * kMaxWorld;
      pad.wait = {reinterpret_cast<Progress*>(progress[rank].data), status[rank].status, 2'000'000'000};
      pad.rank = rank;
      pad.world = world;
      MUST(cudaSetDevice(static_cast<int>(rank)));
      MUST(launch_user_kernel(pad, reinterpret_cast<const PeerTable*>(tables[rank].data), kOffsetBytes,
                              reinterpret_cast<uint32_t*>(sums[rank].data), kCount, round % 2 == 0 ? 96 : 1));
    }
  }
  for (uint32_t rank = 0; rank < world; ++rank) {
    uint32_t sum = 0;
    MUST(cudaSetDevice(static_cast<int>(rank)));
    MUST(cudaMemcpy(&sum, sums[rank].data, 4, cudaMemcpyDeviceToHost));
    const uint32_t once = kCount * (kCount - 1) / 2 + kCount * ((rank + world - 1) % world);
    check(status[rank].status->code == kStatusOk, "a user's kernel gives up nothing", rank, status[rank].status->code);
    check(sum == kRounds * (kRounds + 1) / 2 * once, "a user's kernel meets its peers", rank, sum);
  }
}

void test_agree(uint32_t world) {
  std::deque<Block> regions, states, progress;
  std::deque<Pinned> status;
  for (uint32_t rank = 0; rank < world; ++rank) {
    regions.emplace_back(static_cast<int>(rank), 4 * kMaxWorld * 16, 0);
    states.emplace_back(static_cast<int>(rank), kMaxBlocks * sizeof(BlockState), 0);
    progress.emplace_back(static_cast<int>(rank), sizeof(Progress), 0);
    status.emplace_back();
  }
  for (uint32_t call = 0; call < 4; ++call) {
    for (uint32_t rank = 0; rank < world; ++rank) {
      AgreeArgs args{};
      for (uint32_t peer = 0; peer < world; ++peer) args.peers[peer] = regions[peer].data;
      args.state = reinterpret_cast<BlockState*>(states[rank].data);
      args.ours[0] = call == 3 && rank == 1 ? 77 : 5;
      args.wait = {reinterpret_cast<Progress*>(progress[rank].data), status[rank].status, 2'000'000'000};
      args.rank = rank;
      args.world = world;
      MUST(cudaSetDevice(static_cast<int>(rank)));
      MUST(static_cast<cudaError_t>(cuda::launch(nullptr, kind_of(args), &args, Geometry{1, 32, kSharedBytes, 0})));
    }
  }
  for (uint32_t rank = 0; rank < world; ++rank) {
    MUST(cudaSetDevice(static_cast<int>(rank)));
    MUST(cudaDeviceSynchronize());
    const Status& why = *status[rank].status;
    check(why.code == kStatusMismatch && why.epoch == 3, "ranks that differ all learn", rank, why.code, why.epoch);
    check(rank == 1 ? why.theirs[0] == 5 : why.peer == 1 && why.theirs[0] == 77, "and whom from", rank, why.peer);
  }
}

/// The chip's conversions of all floats, and of all pairs of codes.
void test_narrow() {
  const Block count(0, sizeof(unsigned long long), 0);
  auto* wrong = reinterpret_cast<unsigned long long*>(count.data);
  const std::pair<const char*, cudaError_t (*)(unsigned long long*)> conversions[] = {{"e4m3 of all floats", count_e4m3},
                                                                                      {"e5m2 of all floats", count_e5m2},
                                                                                      {"e2m1 of all floats", count_e2m1},
                                                                                      {"values of all pairs of e4m3", count_e4m3_values}};
  for (const auto& [what, launch] : conversions) {
    unsigned long long found = 0;
    MUST(cudaMemset(wrong, 0, sizeof(found)));
    MUST(launch(wrong));
    MUST(cudaMemcpy(&found, wrong, sizeof(found), cudaMemcpyDeviceToHost));
    check(found == 0, what, found);
  }
}

}  // namespace
}  // namespace trial

int main(int argc, char** argv) {
  using namespace trial;
  const auto begin = std::chrono::steady_clock::now();
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) == cudaSuccess && gpus > 0) test_narrow();
  if (gpus < 2) {
    std::printf("kernels on GPUs: skipped but for narrow formats, %d GPUs, %d failed\n", gpus, failures);
    return failures == 0 ? 0 : 1;
  }
  const uint32_t calls = argc > 1 ? static_cast<uint32_t>(std::atoi(argv[1])) : 12;
  for (int gpu = 0; gpu < gpus; ++gpu) {
    MUST(cudaSetDevice(gpu));
    for (int peer = 0; peer < gpus; ++peer) {
      if (peer != gpu) MUST(cudaDeviceEnablePeerAccess(peer, 0));
    }
  }
  std::mt19937_64 random(1);
  for (uint32_t world : {2, 3, 4, 5, 7, 8}) {
    if (static_cast<int>(world) > gpus) break;
    test_all_reduce(world, calls, random);
    test_signals(world);
    test_user_kernel(world);
    test_agree(world);
  }
  test_timeout(static_cast<uint32_t>(gpus), random);
  test_abort(random);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("kernels on %d GPUs: %d checks, %d failed, %.1f s\n", gpus, checks, failures, seconds);
  return failures == 0 ? 0 : 1;
}
