// Clusters of NVIDIA GPUs, from sm_90 on: blocks that run at once and write each other's shared memory. Code for older
// chips includes this file but does not use it.
#pragma once
#include "symmetra/device/platform/cuda.cuh"

namespace symmetra::platform {

/// Clusters of the grid, and this block's cluster.
SYMMETRA_DEVICE uint32_t clusters() {
  uint32_t value;
  asm("mov.u32 %0, %%nclusterid.x;" : "=r"(value));
  return value;
}
SYMMETRA_DEVICE uint32_t cluster() {
  uint32_t value;
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(value));
  return value;
}
/// Blocks of a cluster, and this block's index among them.
SYMMETRA_DEVICE uint32_t cluster_blocks() {
  uint32_t value;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(value));
  return value;
}
SYMMETRA_DEVICE uint32_t cluster_block() {
  uint32_t value;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(value));
  return value;
}

/// Words that the teams of a cluster send to all its blocks, in rounds. Words are sent by st.async, and a barrier of
/// each block counts their bytes. A store and a poll would wait until the earlier stores of the block have reached the
/// peers, which takes a microsecond; so would a barrier of the cluster.
class ClusterWords {
 public:
  /// Most words of a round.
  static constexpr uint32_t kMost = 64;
  /// Shared memory: two barriers, and words of two rounds.
  static constexpr uint32_t kBytes = 2 * (8 + kMost * 4);

  /// `expected`: words of a round, each sent by one team. All threads of the cluster call it.
  SYMMETRA_DEVICE ClusterWords(void* shared, uint32_t expected)
      : barriers_(static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
        words_(static_cast<uint32_t*>(shared) + 4),
        expected_bytes_(expected * 4) {
    if (thread() == 0) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier(0)) : "memory");
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier(1)) : "memory");
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
      expect(0);
      expect(1);
    }
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");  // the fence has released
  }

  /// Waits until all blocks of the cluster have begun. All threads call it once, before the first word is sent.
  SYMMETRA_DEVICE void open() const { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

  /// Sends a word of the round to all blocks. All threads of the team call it.
  SYMMETRA_DEVICE void tell(uint32_t place, uint32_t word) const {
    const uint32_t block = thread() % kTeam;
    if (block >= cluster_blocks()) return;
    const uint32_t here = barriers_ + 16 + (round_ % 2 * kMost + place) * 4;
    uint32_t there, counted;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(block));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(counted) : "r"(barrier(round_)), "r"(block));
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(there), "r"(word), "r"(counted)
                 : "memory");
  }

  /// Waits for all words of the round, and begins the next round. All threads of the block call it. The words stay
  /// valid until all teams have sent the words of the next round.
  SYMMETRA_DEVICE const uint32_t* hear() {
    const uint32_t* const heard = words_ + round_ % 2 * kMost;
    uint32_t complete = 0;
    while (complete == 0) {
      asm volatile(
          "{\n.reg .pred complete;\n"
          "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;\n"
          "selp.u32 %0, 1, 0, complete;\n}"
          : "=r"(complete)
          : "r"(barrier(round_)), "r"(round_ / 2 % 2)
          : "memory");
    }
    // Arms the barrier for the round after the next. Words of that round are sent only after this block has sent its
    // words of the next round, so the round does not end before every thread has seen the end of this one.
    if (thread() == 0) expect(round_);
    ++round_;
    return heard;
  }

 private:
  /// The barrier of a round; consecutive rounds alternate between two barriers.
  SYMMETRA_DEVICE uint32_t barrier(uint32_t round) const { return barriers_ + round % 2 * 8; }
  SYMMETRA_DEVICE void expect(uint32_t round) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier(round)), "r"(expected_bytes_) : "memory");
  }

  uint32_t barriers_;
  uint32_t* words_;
  uint32_t expected_bytes_;
  uint32_t round_ = 0;
};

}  // namespace symmetra::platform
