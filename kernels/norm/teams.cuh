// The totals of a row in a cluster of blocks, of which each thread has one packet in registers. One block for each row
// would be slower: one multiprocessor moves a row's operands and packets at 64 bytes a clock.
#pragma once
#include "kernels/norm/epilogue.cuh"
#include "symmetra/device/platform/clusters.cuh"

namespace symmetra::kernels {

static_assert(platform::ClusterWords::kBytes == kClusteredSharedBytes && platform::kTeam == kMostClusteredGroup, "as geometry.hpp assumes");

/// The packet of a row that a thread of a cluster has, among `packets`. The packets of a column are kNormColumns apart,
/// one in each tile of the row. A block has the same columns of every tile, ordered by tile.
template <bool kTiled>
struct Seat {
  uint32_t tiles, columns;  ///< of the row, and of this block
  uint32_t tile, column;    ///< of this thread; the column is an index among the block's columns
  uint32_t packet;

  SYMMETRA_DEVICE explicit Seat(uint32_t packets)
      : tiles(kTiled ? (packets + kNormColumns - 1) / kNormColumns : 1),
        columns(kTiled ? platform::threads() / tiles : platform::threads()),
        tile(kTiled ? platform::thread() / columns : 0),
        column(platform::thread() - tile * columns),
        packet(tile * kNormColumns + platform::cluster_block() * columns + column) {}
};

/// The totals of one row at a time.
template <bool kTiled>
class TeamTotals {
 public:
  /// `shared`: kClusteredSharedBytes of shared memory for the teams' words, followed by the totals of the tiles. All
  /// threads of the cluster call it.
  SYMMETRA_DEVICE TeamTotals(void* shared, const Seat<kTiled>& seat, uint32_t packets, bool wants_largest)
      : seat_(seat),
        behind_(reinterpret_cast<RowTotals*>(static_cast<uint8_t*>(shared) + kClusteredSharedBytes)),
        teams_(((packets < kNormColumns ? packets : kNormColumns) + platform::kTeam - 1) / platform::kTeam),
        team_((platform::cluster_block() * seat.columns + seat.column) / platform::kTeam),
        wants_largest_(wants_largest),
        words_(shared, wants_largest_ ? 2 * teams_ : teams_) {}

  /// All threads call it once, before the first total.
  SYMMETRA_DEVICE void open() const { words_.open(); }

  /// Sends the totals of this thread's packet to all blocks of the cluster. All threads call it.
  SYMMETRA_DEVICE void tell(const RowTotals& mine) { tell<false>(mine, false); }
  /// The totals of all columns, for every thread of the cluster. All threads call it, after `tell`.
  SYMMETRA_DEVICE RowTotals hear() {
    bool unheard = false;
    return hear<false>(unheard);
  }
  /// For threads that may have failed. `failed`: whether this thread has no packet.
  SYMMETRA_DEVICE void tell(const RowTotals& mine, bool failed) { tell<true>(mine, failed); }
  /// `failed`: set to whether any thread of the cluster has no packet.
  SYMMETRA_DEVICE RowTotals hear(bool& failed) { return hear<true>(failed); }

 private:
  /// Replaces a sum, which never has these bits.
  static constexpr uint32_t kFailed = 0xFFFFFFFF;

  template <bool kCares>
  SYMMETRA_DEVICE void tell(RowTotals mine, bool failed) {
    static_assert(2 * kNormColumns / platform::kTeam == platform::ClusterWords::kMost, "a word a team and total");
    if constexpr (kTiled) {
      if (kCares && failed) mine.sum = platform::f32_of(kFailed);
      // A thread writes these places for the next row only after it has received this row's totals from all teams, and
      // every team has read the places by then.
      if (seat_.tile != 0) behind_[(seat_.tile - 1) * seat_.columns + seat_.column] = mine;
      platform::sync_block();
      SYMMETRA_ROLLED
      for (uint32_t tile = 1; seat_.tile == 0 && tile < seat_.tiles; ++tile) {
        const RowTotals behind = behind_[(tile - 1) * seat_.columns + seat_.column];
        if (kCares) failed |= platform::bits_of(behind.sum) == kFailed;
        mine = mine.with(behind);
      }
    }
    if (seat_.tile == 0 && team_ < teams_) {
      uint32_t sum = platform::bits_of(platform::team_sum(mine.sum));
      if (kCares && platform::sync_team_or(failed)) sum = kFailed;
      words_.tell(team_, sum);
      if (wants_largest_) words_.tell(teams_ + team_, platform::team_max(platform::kTeam, platform::bits_of(mine.largest)));
    }
  }

  template <bool kCares>
  SYMMETRA_DEVICE RowTotals hear(bool& failed) {
    const uint32_t* const heard = words_.hear();
    const uint32_t team = platform::thread() % platform::kTeam;
    const uint32_t sum = team < teams_ ? heard[team] : 0;
    if (kCares) failed = platform::sync_team_or(sum == kFailed);
    RowTotals totals{platform::team_sum(platform::f32_of(sum)), 0.0f};
    if (wants_largest_) {
      totals.largest = platform::f32_of(platform::team_max(platform::kTeam, team < teams_ ? heard[teams_ + team] : 0));
    }
    return totals;
  }

  Seat<kTiled> seat_;
  RowTotals* behind_;  ///< of the columns of this block, in the tiles after the first
  uint32_t teams_, team_;
  bool wants_largest_;
  platform::ClusterWords words_;
};

/// Rows that are not quantised.
struct NoFormat : AnyFormat {};

}  // namespace symmetra::kernels
