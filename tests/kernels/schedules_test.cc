// The schedules that the kernels run, played through step by step for every world. Prints one
// line; exits 1 when a rank's part is taken in twice, or not at all, or does not arrive.
#include "kernels/all_reduce/schedules.cuh"

#include <cstdio>
#include <string>
#include <vector>

namespace schedules {
namespace {

using namespace symmetra::kernels;

int checks = 0, failures = 0;

void check(bool holds, const char* what, uint32_t world, uint32_t rank = 0, uint32_t step = 0) {
  ++checks;
  if (holds) return;
  ++failures;
  std::printf("FAILED: %s: world %u, rank %u, step %u\n", what, world, rank, step);
}

/// The composition of a sum: how often each rank's part is in it, and the order of the additions as a formula.
struct Sum {
  std::vector<uint32_t> times;
  std::string order;
  bool whole() const {
    for (uint32_t count : times) {
      if (count != 1) return false;
    }
    return true;
  }
};

Sum part(uint32_t world, uint32_t rank) {
  Sum sum{std::vector<uint32_t>(world), std::to_string(rank)};
  sum.times[rank] = 1;
  return sum;
}

Sum add(const Sum& first, const Sum& second) {
  Sum sum{first.times, "(" + first.order + " " + second.order + ")"};
  for (size_t rank = 0; rank < sum.times.size(); ++rank) sum.times[rank] += second.times[rank];
  return sum;
}

/// All ranks go step by step; a rank's message of a step is there for the next rank's next step.
void test_ring(uint32_t world) {
  std::vector<std::vector<Sum>> outputs(world, std::vector<Sum>(world));  // [rank][chunk]
  std::vector<Sum> sent(world);                                           // by rank, in the step before
  for (uint32_t step = 0; step < RingSchedule{0, world}.steps(); ++step) {
    std::vector<Sum> now(world);
    for (uint32_t rank = 0; rank < world; ++rank) {
      const RingSchedule ring{rank, world};
      const RingSchedule before{ring.previous(), world};
      check(before.next() == rank && RingSchedule{ring.next(), world}.previous() == rank, "neighbours agree", world, rank);
      const uint32_t chunk = ring.chunk(step);
      Sum value = ring.reduces(step) ? part(world, rank) : Sum{};
      if (ring.receives(step)) {
        check(step - 1 < before.sends(), "what is received was sent", world, rank, step);
        check(before.chunk(step - 1) == chunk, "the chunk received is the one of the step", world, rank, step);
        const Sum& received = sent[ring.previous()];
        value = ring.reduces(step) ? add(received, value) : received;
      }
      check(ring.completes(step) == value.whole(), "a chunk is complete when the schedule says so", world, rank, step);
      check((step < ring.partial_sends()) == (step < ring.sends() && !value.whole()), "partial sums come first", world, rank, step);
      if (ring.completes(step)) {
        check(outputs[rank][chunk].order.empty(), "a chunk arrives once", world, rank, step);
        outputs[rank][chunk] = value;
      }
      if (step < ring.sends()) now[rank] = value;
    }
    sent = now;
  }
  for (uint32_t rank = 0; rank < world; ++rank) {
    for (uint32_t chunk = 0; chunk < world; ++chunk) {
      check(outputs[rank][chunk].whole(), "every chunk arrives everywhere", world, rank, chunk);
      check(outputs[rank][chunk].order == outputs[0][chunk].order, "the order of a sum is the same everywhere", world, rank, chunk);
    }
  }
}

void test_doubling(uint32_t world) {
  std::vector<Sum> values;
  for (uint32_t rank = 0; rank < world; ++rank) values.push_back(part(world, rank));
  const DoublingSchedule any{0, world};
  check(any.core() <= world && world < 2 * any.core(), "the core is the largest power of two", world);
  uint32_t folds = 0;
  for (uint32_t rank = 0; rank < world; ++rank) {
    const DoublingSchedule doubling{rank, world};
    if (!doubling.folds()) continue;
    ++folds;
    const DoublingSchedule peer{doubling.fold_peer(), world};
    check(doubling.fold_peer() < world && peer.folds() && peer.fold_peer() == rank && peer.in_core() != doubling.in_core(),
          "who folds in has one partner in the core", world, rank);
    check(doubling.fold_slot() < doubling.slots(), "a fold has a slot", world, rank);
    if (doubling.in_core()) values[rank] = add(values[rank], values[doubling.fold_peer()]);
  }
  check(folds == 2 * (world - any.core()), "all ranks beyond the core fold in", world);
  for (uint32_t step = 0; step < any.steps(); ++step) {
    std::vector<Sum> now = values;
    for (uint32_t rank = 0; rank < any.core(); ++rank) {
      const uint32_t peer = DoublingSchedule{rank, world}.peer(step);
      check(peer < any.core() && peer != rank && DoublingSchedule{peer, world}.peer(step) == rank, "partners agree", world, rank, step);
      now[rank] = rank < peer ? add(values[rank], values[peer]) : add(values[peer], values[rank]);
    }
    values = now;
  }
  for (uint32_t rank = any.core(); rank < world; ++rank) values[rank] = values[DoublingSchedule{rank, world}.fold_peer()];
  for (uint32_t rank = 0; rank < world; ++rank) {
    check(values[rank].whole(), "every part arrives everywhere once", world, rank);
    check(values[rank].order == values[0].order, "the order of a sum is the same everywhere", world, rank);
  }
}

/// Pieces cover a chunk, each packet once.
void test_pieces() {
  for (uint32_t channels : {1, 2, 3, 128}) {
    for (uint32_t slot : {1, 3, 32, 1000, 2048}) {
      for (uint32_t chunk = 1; chunk < 5000; chunk += 1 + chunk / 3) {
        const RingPieces pieces(chunk, channels, slot);
        check(pieces.packets >= 1 && pieces.packets <= slot, "a piece fits a slot", chunk, channels, slot);
        const uint64_t most = uint64_t{channels} * slot;
        check(uint64_t{pieces.rounds} * channels * pieces.packets >= chunk, "rounds cover a chunk", chunk, channels, slot);
        check((pieces.rounds - 1) * most < chunk, "no round is in vain", chunk, channels, slot);
      }
    }
  }
}

}  // namespace
}  // namespace schedules

int main() {
  for (uint32_t world = 1; world <= symmetra::kernels::kMaxWorld; ++world) {
    if (world > 1) schedules::test_ring(world);
    schedules::test_doubling(world);
  }
  schedules::test_pieces();
  std::printf("schedules: %d checks, %d failed\n", schedules::checks, schedules::failures);
  return schedules::failures == 0 ? 0 : 1;
}
