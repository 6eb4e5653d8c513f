// Sums and prefix sums of integers over a block. All teams of the block but the last must be whole. The order of
// integer additions does not matter.
#pragma once
#include "kernels/args.hpp"
#include "symmetra/device/platform.hpp"

namespace symmetra::kernels {

/// For each value, the sum over the threads before this one, and the sum over all threads.
template <uint32_t kCount>
struct Scanned {
  uint32_t before[kCount];
  uint32_t all[kCount];
};

/// Adds values: within teams, then over the teams. All threads of the block call it. `words` may be reused when it
/// returns.
template <uint32_t kCount>
SYMMETRA_DEVICE Scanned<kCount> block_scan(const uint32_t (&values)[kCount], uint32_t* words) {
  static_assert(kCount <= kScanWords);
  const uint32_t threads = platform::threads(), mine = platform::thread(), team = mine / platform::kTeam;
  const bool last = mine % platform::kTeam == platform::kTeam - 1 || mine == threads - 1;
  Scanned<kCount> scanned;
  SYMMETRA_UNROLL
  for (uint32_t i = 0; i < kCount; ++i) {
    scanned.before[i] = platform::team_before(values[i]);
    scanned.all[i] = 0;
    if (last) words[team * kCount + i] = scanned.before[i] + values[i];
  }
  platform::sync_block();
  const uint32_t teams = (threads + platform::kTeam - 1) / platform::kTeam;
  if constexpr (platform::kTeam * platform::kTeam >= 1024) {
    // Every team adds the sums of all teams, of which there are at most as many as a team has threads.
    const uint32_t other = mine % platform::kTeam;
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kCount; ++i) {
      const uint32_t of_other = other < teams ? words[other * kCount + i] : 0, before = platform::team_before(of_other);
      scanned.before[i] += platform::team_get(before, team);
      scanned.all[i] = platform::team_get(before + of_other, teams - 1);
    }
  } else {
    SYMMETRA_ROLLED
    for (uint32_t other = 0; other < teams; ++other) {
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kCount; ++i) {
        const uint32_t of_other = words[other * kCount + i];
        scanned.before[i] += other < team ? of_other : 0;
        scanned.all[i] += of_other;
      }
    }
  }
  platform::sync_block();  // all threads have read the words
  return scanned;
}

/// The sum over all threads of the block, which all call it. `words` may be reused when it returns.
SYMMETRA_DEVICE uint32_t block_sum(uint32_t value, uint32_t* words) {
  const uint32_t values[1] = {value};
  return block_scan(values, words).all[0];
}

/// The sum over the threads before this one. All threads of the block call it. `words` may be reused when it returns.
SYMMETRA_DEVICE uint32_t block_before(uint32_t value, uint32_t* words) {
  const uint32_t values[1] = {value};
  return block_scan(values, words).before[0];
}

/// The largest value of a thread. All threads of the block call it. `words` may be reused when it returns.
SYMMETRA_DEVICE uint32_t block_max(uint32_t value, uint32_t* words) {
  const uint32_t teams = (platform::threads() + platform::kTeam - 1) / platform::kTeam;
  uint32_t largest = platform::team_max(platform::kTeam, value);
  if (platform::thread() % platform::kTeam == 0) words[platform::thread() / platform::kTeam] = largest;
  platform::sync_block();
  SYMMETRA_ROLLED
  for (uint32_t other = 0; other < teams; ++other) largest = words[other] > largest ? words[other] : largest;
  platform::sync_block();  // all threads have read the words
  return largest;
}

/// The items of this thread among `count` items. Shares are equal, except at the end.
struct Run {
  uint32_t begin;
  uint32_t end;

  SYMMETRA_DEVICE explicit Run(uint32_t count) {
    uint32_t each = 1;  // found without a division, which is slow
    SYMMETRA_ROLLED
    while (each * platform::threads() < count) ++each;
    begin = platform::thread() * each < count ? platform::thread() * each : count;
    end = count - begin < each ? count : begin + each;
  }
};

}  // namespace symmetra::kernels
