// Two-shot all-reduces by multicast on the host platform: ranks as threads over memory of one process, whose multicast accesses go to the
// memory of every rank. Ranges begin and end anywhere; each rank makes its input before a call and spoils its memory after it, so a kernel
// that begins too early or ends too late is found, by value or by ThreadSanitizer. Epochs cross the wrap. Prints one line; exits 1 when
// anything is wrong. With the argument `without-exit` the kernel is one without its exit barrier, so ThreadSanitizer must find a race.
#include <cstdio>
#include <cstring>
#include <random>

#include "kernels/multicast/range.cuh"
#include "tests/kernels/launcher.hpp"

namespace trial {
namespace {

using namespace symmetra::kernels;
using launcher::Launch;
using launcher::Memory;

constexpr uint32_t kCalls = 12;
constexpr uint64_t kFlagBytes = kMaxBlocks * kMaxWorld * 4, kRoom = 4096, kArena = kFlagBytes + 2 * kRoom;

/// The value of an element, whose sums are exact in any order.
float value(uint32_t call, uint32_t rank, uint64_t i) { return static_cast<float>((call * 31 + rank * 7 + i) % 97); }

/// The kernel, without its exit barrier.
void without_exit(const MulticastArgs& args) {
  const Call call = begin_call(args.state, args.wait);
  const Range<F32, kMulticastSumToAll> range(args);
  BlockBarrier<MulticastArgs, AllFlags> barrier(args, args.world, call, args.op);
  if (barrier.enter()) range.move();
  end_call(args.state, args.wait, call.epoch, 0);
}

uint64_t run(uint32_t world, uint32_t threads, bool whole, std::mt19937_64& random) {
  std::deque<Memory> arenas, states, progress, status;
  PeerTable table{};
  std::vector<uint64_t> wrong(world);
  const uint32_t epoch = kEpochModulus - 5;
  for (uint32_t rank = 0; rank < world; ++rank) {
    arenas.emplace_back(kArena);
    states.emplace_back(kMaxBlocks * sizeof(BlockState));
    progress.emplace_back(sizeof(Progress));
    status.emplace_back(sizeof(Status));
    table.address[rank] = arenas[rank].as();
    for (uint32_t block = 0; block < kMaxBlocks; ++block) states[rank].as<BlockState>()[block].epoch = epoch;
    for (uint32_t flag = 0; flag < kMaxBlocks * kMaxWorld; ++flag) arenas[rank].as<uint32_t>()[flag] = 2 * epoch;
  }
  std::vector<std::vector<Launch>> launches(world);
  for (uint32_t call = 0; call < kCalls; ++call) {
    const uint64_t count = 1 + random() % 600, from = random() % 8, into = random() % 2 == 0 ? from : random() % 8;
    const uint32_t blocks = 1 + random() % 3;
    for (uint32_t rank = 0; rank < world; ++rank) {
      float* const input = reinterpret_cast<float*>(arenas[rank].as() + kFlagBytes) + from;
      float* const output = reinterpret_cast<float*>(arenas[rank].as() + kFlagBytes + kRoom) + into;
      // Shares of whole elements that are not whole packets: their ends go by ordinary accesses.
      const uint64_t begin = count * rank / world, end = count * (rank + 1) / world;
      launches[rank].push_back({[=] {
                                  for (uint64_t i = 0; i < count; ++i) input[i] = value(call, rank, i);
                                },
                                {1, 1, kSharedBytes, 0}});
      MulticastArgs args{};
      args.state = states[rank].as<BlockState>();
      args.wait = {progress[rank].as<Progress>(), status[rank].as<Status>(), 60'000'000'000};
      args.rank = rank;
      args.world = world;
      args.lanes_log2 = 4;
      args.task = kMulticastSumToAll;
      args.dtype = kF32;
      args.op = kOpAllReduce;
      args.bytes = (end - begin) * 4;
      args.arenas = {nullptr, &table, 0, world, 0};
      args.flags = args.arenas;
      args.from_bytes = kFlagBytes + (from + begin) * 4;
      args.into_bytes = kFlagBytes + kRoom + (into + begin) * 4;
      for (uint32_t peer = 0; peer < world; ++peer) args.peers[peer] = arenas[peer].as();
      const Geometry geometry{blocks, threads, kSharedBytes, 0};
      const host::Entry entry = host::kernel(Kind::multicast, &args, geometry);
      if (entry == nullptr) return 1;
      if (whole) {
        launches[rank].push_back({[args, entry] { entry(&args); }, geometry});
      } else {
        launches[rank].push_back({[args] { without_exit(args); }, geometry});
      }
      launches[rank].push_back({[=, &wrong] {
                                  for (uint64_t i = 0; i < count; ++i) {
                                    float sum = 0;
                                    for (uint32_t peer = 0; peer < world; ++peer) sum += value(call, peer, i);
                                    wrong[rank] += output[i] != sum;
                                    input[i] = output[i] = -1;
                                  }
                                },
                                {1, 1, kSharedBytes, 0}});
    }
  }
  launcher::run(launches);
  uint64_t all = 0;
  for (uint32_t rank = 0; rank < world; ++rank) all += wrong[rank] + (status[rank].as<Status>()->code != kStatusOk);
  return all;
}

}  // namespace
}  // namespace trial

int main(int count, char** words) {
  const bool whole = count < 2 || std::strcmp(words[1], "without-exit") != 0;
  std::mt19937_64 random(20);
  uint64_t wrong = 0;
  for (const uint32_t world : {2, 3, 4}) {
    for (const uint32_t threads : {1, 3, 5}) wrong += trial::run(world, threads, whole, random);
  }
  std::printf("multicast: %llu wrong\n", static_cast<unsigned long long>(wrong));
  return wrong == 0 ? 0 : 1;
}
