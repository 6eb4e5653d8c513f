// Kernels of experts, on the host platform: ranks as threads over shared memory, dispatches and combines in a row with other experts
// each time, every byte against the definition. Packets and direct access, by regions and in place, every layout, rows of values and of
// bytes, placements with replicas and with ranks that have no expert, ranks without tokens, blocks of several threads. Epochs of packets
// and of barriers cross the wrap, and barriers 2^30. Then dispatches whose counts and ids another thread rewrites: they end. Meant to run
// plainly and under ThreadSanitizer, AddressSanitizer and UBSan. Prints one line; exits 1 when anything is wrong.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cstdio>
#include <random>

#include "kernels/experts/geometry.hpp"
#include "tests/kernels/launcher.hpp"

namespace trial {
namespace {

using namespace symmetra::kernels;
using launcher::Launch;
using launcher::Memory;

constexpr uint32_t kCalls = 5;
/// The value of outputs before a call.
constexpr int32_t kUntouched = 7;

/// The parameters that are equal in all calls.
struct Setting {
  uint32_t world, experts, top_k, hidden, max_tokens, payload_bytes, layout, align, blocks, threads, rows_at_once, parts;
  bool packets, bytes, exact, weighs, holds, in_place, metadata;
  std::vector<std::vector<uint32_t>> placed;  ///< the experts of each rank
};

uint64_t up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

/// A number that only its arguments decide, small enough that sums of a few are exact neither always nor never.
float drawn(uint32_t call, uint32_t a, uint32_t b, uint32_t c) {
  std::mt19937 random(call * 7919 + a * 104729 + b * 1299709 + c * 15485863);
  return static_cast<float>(random() % 20011) / 977.0f - 10.0f;
}

/// One group over several calls.
class Trial {
 public:
  Trial(const Setting& setting, std::mt19937_64& random) : set_(setting), random_(random), meet_(setting.world), wrong_(setting.world) {
    begun_ = std::array{0u, (1u << 30) - 2, kEpochModulus - 2}[random_() % 3];
    for (const auto& list : set_.placed) starts_.push_back(starts_.back() + static_cast<uint32_t>(list.size()));
    lay_out();
    for (uint32_t rank = 0; rank < set_.world; ++rank) open(rank);
  }
  Trial(const Trial&) = delete;

  uint64_t run() {
    std::vector<std::vector<Launch>> launches(set_.world);
    routes_.resize(kCalls);
    for (uint32_t call = 0; call < kCalls; ++call) {
      draw_routes(call);
      for (uint32_t rank = 0; rank < set_.world; ++rank) enqueue(call, rank, launches[rank]);
    }
    launcher::run(launches);
    uint64_t wrong = 0;
    for (uint32_t rank = 0; rank < set_.world; ++rank) wrong += wrong_[rank] + (ranks_[rank].status->as<Status>()->code != kStatusOk);
    return wrong;
  }

  /// Runs dispatches while another thread writes the counts of tokens and the ids, as a stream without order may.
  /// Values are undefined and waits may give up, but all threads of all blocks end, and nothing is written outside the
  /// rows.
  uint64_t run_rewritten() {
    std::vector<std::vector<Launch>> launches(set_.world);
    routes_.resize(1);
    draw_routes(0);
    timeout_ns_ = 20'000'000;
    for (uint32_t rank = 0; rank < set_.world; ++rank) {
      produce(0, rank);
      for (uint32_t call = 0; call < kRewritten; ++call) dispatch(0, rank, launches[rank]);
    }
    std::atomic<bool> ended{false};
    std::thread writer([&] {
      for (uint32_t turn = 0; !ended.load(); ++turn) {
        for (const Rank& rank : ranks_) {
          // Also a token count above the capacity, and experts that do not exist.
          std::atomic_ref<uint32_t>(*rank.count->as<uint32_t>()).store(turn % 3 == 0 ? 0 : set_.max_tokens + (turn % 3 == 2));
          std::atomic_ref<int64_t>(rank.ids->as<int64_t>()[turn % (set_.max_tokens * set_.top_k)])
              .store(turn % 5 == 0 ? set_.experts : turn % set_.experts);
        }
      }
    });
    launcher::run(launches);
    ended = true;
    writer.join();
    uint64_t wrong = 0;
    for (uint32_t rank = 0; rank < set_.world; ++rank) {
      wrong += wrong_[rank];
      const uint8_t* const behind = ranks_[rank].region->as() + region_bytes_;
      wrong += static_cast<uint64_t>(std::count_if(behind, behind + kGuardBytes, [](uint8_t byte) { return byte != 0; }));
    }
    return wrong;
  }

 private:
  static constexpr uint32_t kRewritten = 40;
  /// Block states by number: those of the kernels of packets, then those of barriers with their turns.
  static constexpr uint32_t kSendCalls = 0, kReceiveCalls = 1, kReturnCalls = 2, kSumCalls = 3, kBarrierCalls = 4;
  /// Guard bytes after the region of each rank.
  static constexpr uint64_t kGuardBytes = 1 << 16;
  /// Whether a token has one row on a rank.
  bool is_by_token() const { return set_.layout == kRowsByRank || set_.layout == kRowsBySource; }
  /// The tokens of one call on one rank.
  struct Tokens {
    uint32_t count;
    std::vector<int64_t> ids;
    std::vector<float> weights;
    std::vector<uint8_t> rows;
  };
  struct Rank {
    std::unique_ptr<Memory> region, table, state, places, calls, progress, status, ids, weights, rows, count, output, sums;
    std::unique_ptr<Memory> counts, offsets, sources;
  };

  void lay_out() {
    const uint32_t replicas = starts_.back(), pairs = set_.max_tokens * set_.top_k;
    part_bytes_ = up(set_.hidden * 4, 16);
    row_bytes_ = up(set_.payload_bytes, 16);
    replicas_offset_ = up(sizeof(RoutingHeader) + 4 * (replicas + set_.world), 16);
    weights_offset_ = up(replicas_offset_ + 2 * pairs, 16);
    header_bytes_ = up(weights_offset_ + 4 * pairs, 16);
    capacity_ = is_by_token() ? set_.world * set_.max_tokens : set_.world * pairs + replicas * (set_.align - 1);
    control_packets_ = sizeof(RoutingHeader) / 8 + (set_.layout == kRowsBySource ? pairs : (pairs + 3) / 4 + (pairs + 1) / 2);
    control_at_ = up(set_.world * header_bytes_, 256);
    rows_at_ = control_at_ + up(set_.world * control_packets_ * 16, 256);
    const uint64_t per_row = row_bytes_ * (set_.bytes ? 2 : 1), parts = set_.exact ? pairs : uint64_t{set_.world} * set_.max_tokens;
    const uint64_t most = std::max(set_.world * set_.max_tokens * std::max(per_row, part_bytes_), parts * part_bytes_);
    buffer_bytes_ = rows_at_ + up(most, 256) - control_at_;
    flags_at_ = control_at_ + 4 * buffer_bytes_;  // two buffers of dispatches, then two of combines
    received_at_ = flags_at_ + kStartFlagBytes + kVerdictBytes + kMaxBlocks * kMaxWorld * 4;
    uint64_t rows = 0;
    for (uint32_t rank = 0; rank < set_.world; ++rank) rows = std::max(rows, most_rows(rank));
    results_at_ = received_at_ + up(rows * set_.payload_bytes, 256);
    ids_at_ = up(results_at_ + rows * set_.hidden * 4, 4);
    weights_at_ = ids_at_ + rows * set_.top_k * 4;
    region_bytes_ = weights_at_ + rows * set_.top_k * 4;
  }

  void open(uint32_t number) {
    const auto memory = [](uint64_t bytes) { return std::make_unique<Memory>(bytes); };
    const uint64_t pairs = set_.max_tokens * set_.top_k, local = set_.placed[number].size(), rows = most_rows(number);
    Rank& rank = ranks_.emplace_back();
    rank.region = memory(region_bytes_ + kGuardBytes);
    rank.state = memory((2 + 2 * local) * 4);
    rank.places = memory(set_.world * set_.max_tokens * (set_.top_k + 2) * 4);
    rank.calls = memory((5 * kMaxBlocks + 1) * sizeof(BlockState));
    rank.progress = memory(sizeof(Progress));
    rank.status = memory(sizeof(Status));
    rank.ids = memory(pairs * 8);
    rank.weights = memory(pairs * 4);
    rank.count = memory(4);
    rank.rows = memory(set_.max_tokens * set_.payload_bytes);
    rank.output = memory(set_.max_tokens * set_.hidden * 4);
    rank.sums = memory(set_.max_tokens * up(set_.hidden, 4) * 4);
    rank.counts = memory(local * 4);
    rank.offsets = memory((local + 1) * 4);
    rank.sources = memory(rows * 8);
    // Memory that no kernel has written is not zero.
    std::memset(rank.places->as(), 0x7C, set_.world * set_.max_tokens * (set_.top_k + 2) * 4);
    const std::vector<uint32_t> table = table_of(number);
    rank.table = memory(table.size() * 4);
    std::copy(table.begin(), table.end(), rank.table->as<uint32_t>());
    for (uint32_t i = 0; i < 5 * kMaxBlocks; ++i) rank.calls->as<BlockState>()[i].epoch = i < 4 * kMaxBlocks ? kEpochModulus - 2 : begun_;
    // The state after earlier calls: start flags hold the step from bit 10 on.
    auto* const flags = reinterpret_cast<uint32_t*>(rank.region->as() + flags_at_);
    std::fill_n(flags, kStartFlagBytes / 4, begun_ << 10);
    std::fill_n(flags + (kStartFlagBytes + kVerdictBytes) / 4, kMaxBlocks * kMaxWorld, begun_);
  }

  /// Rows that operands of a rank have room for.
  uint64_t most_rows(uint32_t rank) const { return set_.layout == kRowsPadded ? capacity_ * set_.placed[rank].size() : capacity_; }

  uint8_t* received(uint32_t rank) const { return ranks_[rank].region->as() + received_at_; }
  uint64_t received_bytes(uint32_t rank) const { return most_rows(rank) * set_.payload_bytes; }
  int32_t* got_ids(uint32_t rank) const { return reinterpret_cast<int32_t*>(ranks_[rank].region->as() + ids_at_); }
  float* got_weights(uint32_t rank) const { return reinterpret_cast<float*>(ranks_[rank].region->as() + weights_at_); }
  float* results(uint32_t rank) const { return reinterpret_cast<float*>(ranks_[rank].region->as() + results_at_); }

  std::vector<uint32_t> table_of(uint32_t rank) const {
    std::vector<uint32_t> table = starts_, choices;
    for (uint32_t expert = 0; expert < set_.experts; ++expert) {
      std::vector<uint32_t> found;
      for (uint32_t holder = 0; holder < set_.world; ++holder) {
        const auto& list = set_.placed[holder];
        const auto at = static_cast<uint32_t>(std::find(list.begin(), list.end(), expert) - list.begin());
        if (at == list.size()) continue;
        if (holder == rank) found.clear();
        found.push_back(holder << 16 | (starts_[holder] + at));
        if (holder == rank) break;
      }
      const uint32_t word = found.size() == 1 ? found[0] : static_cast<uint32_t>(choices.size());
      if (found.size() > 1) choices.insert(choices.end(), found.begin(), found.end());
      table.push_back(static_cast<uint32_t>(found.size()) << 20 | word);
    }
    choices.resize(starts_.back());
    table.insert(table.end(), choices.begin(), choices.end());
    return table;
  }

  void draw_routes(uint32_t call) {
    for (uint32_t rank = 0; rank < set_.world; ++rank) {
      Tokens tokens{static_cast<uint32_t>(random_() % (set_.max_tokens + 1)), {}, {}, {}};
      for (uint32_t i = 0; i < tokens.count * set_.top_k; ++i) {
        tokens.ids.push_back(random_() % 6 == 0 ? -1 : static_cast<int64_t>(random_() % set_.experts));
        tokens.weights.push_back(drawn(call, rank, i, 1));
      }
      for (uint32_t i = 0; i < tokens.count * set_.payload_bytes / 4; ++i) {
        const uint32_t bits =
            set_.bytes ? static_cast<uint32_t>(random_() % 3 == 0 ? ~0u : random_()) : static_cast<uint32_t>(random_() >> 40);
        const auto* const first = reinterpret_cast<const uint8_t*>(&bits);
        tokens.rows.insert(tokens.rows.end(), first, first + 4);
      }
      routes_[call].push_back(std::move(tokens));
    }
  }

  /// The replica of an expert that a token takes: rank, and number there.
  std::pair<uint32_t, uint32_t> taken(uint32_t rank, uint32_t token, int64_t expert) const {
    std::vector<std::pair<uint32_t, uint32_t>> found;
    for (uint32_t holder = 0; holder < set_.world; ++holder) {
      const auto& list = set_.placed[holder];
      for (uint32_t at = 0; at < list.size(); ++at) {
        if (list[at] != expert) continue;
        if (holder == rank) return {holder, at};
        found.emplace_back(holder, at);
      }
    }
    return found[(rank + token) % found.size()];
  }

  /// Fills the fields that all kernels read.
  void fill(ExpertArgs& args, uint32_t number) const {
    const Rank& rank = ranks_[number];
    args.wait = {rank.progress->as<Progress>(), rank.status->as<Status>(), timeout_ns_};
    args.rank = number;
    args.world = set_.world;
    args.top_k = set_.top_k;
    args.tokens = args.max_tokens = set_.max_tokens;
    args.hidden = set_.hidden;
    args.layout = set_.layout;
    args.align = set_.align;
    args.experts = set_.experts;
    args.replicas = starts_.back();
    args.first_replica = starts_[number];
    args.local = static_cast<uint32_t>(set_.placed[number].size());
    args.table = rank.table->as<uint32_t>();
    args.headers = rank.region->as();
    args.state = rank.state->as<uint32_t>();
    args.places = rank.places->as<uint32_t>();
    args.header_bytes = header_bytes_;
    args.replicas_offset = replicas_offset_;
    args.weights_offset = weights_offset_;
    args.capacity = capacity_;
  }
  /// A block of a kernel that moves rows. `kernel`: the number of its block states; kNone: it has none.
  template <class Args>
  Args rows_of(uint32_t number, uint32_t kernel) const {
    Args args{};
    fill(args, number);
    args.calls = calls_of(number, kernel);
    args.row_bytes = args.scales_offset = row_bytes_;
    args.payload_bytes = set_.payload_bytes;
    args.wire = set_.bytes ? kWireBytes : kWireSame;
    args.dtype = kF32;
    return args;
  }
  /// A block of a kernel of a combine.
  template <class Args>
  Args parts_of(uint32_t number, uint32_t kernel, uint32_t task) const {
    const Rank& rank = ranks_[number];
    Args args{};
    fill(args, number);
    args.calls = calls_of(number, kernel);
    args.results = results(number);
    args.output = rank.output->as();
    args.sums = rank.sums->as<float>();
    args.part_bytes = part_bytes_;
    args.weighs = set_.weighs;
    args.exact = set_.exact;
    args.sharers = set_.parts;
    args.dtype = kF32;
    args.task = task;
    return args;
  }
  BlockState* calls_of(uint32_t number, uint32_t kernel) const {
    return kernel == kNone ? nullptr : ranks_[number].calls->as<BlockState>() + kernel * kMaxBlocks;
  }
  ExpertRouting routing(uint32_t number) const {
    const Rank& rank = ranks_[number];
    return {rank.ids->as(), rank.weights->as<float>(), rank.count->as<uint32_t>(), 8, 0};
  }
  ExpertCounts counts(uint32_t number) const {
    if (set_.layout == kRowsBySource) return {};
    return {ranks_[number].counts->as<uint32_t>(), ranks_[number].offsets->as<uint32_t>()};
  }
  ExpertOutputs outputs(uint32_t number) const {
    ExpertOutputs into{};
    into.rows = received(number);
    into.ids = got_ids(number);
    into.weights = got_weights(number);
    into.sources = ranks_[number].sources->as<uint32_t>();
    return into;
  }
  ExpertPeers peers() const {
    ExpertPeers peers{};
    peers.barrier_offset = flags_at_;
    for (uint32_t rank = 0; rank < set_.world; ++rank) peers.regions[rank] = ranks_[rank].region->as();
    return peers;
  }
  /// The packets of dispatches, or of combines, whose buffers follow.
  ExpertPacketArea packets(bool combine) const {
    const uint64_t before = combine ? 2 * buffer_bytes_ : 0;
    ExpertPacketArea area{};
    area.buffer_bytes = buffer_bytes_;
    area.control_offset = control_at_ + before;
    area.data_offset = rows_at_ + before;
    area.buffers = 2;
    area.control_packets = combine ? 1 : static_cast<uint32_t>(control_packets_);
    for (uint32_t rank = 0; rank < set_.world; ++rank) area.regions[rank] = ranks_[rank].region->as();
    return area;
  }

  template <class Args>
  void kernel(const Args& args, std::vector<Launch>& launches, bool one_block = false) {
    // Ranks may have different grids. Some have more blocks than start flags.
    const uint32_t blocks = one_block ? 1 : set_.blocks / 3 * 8 + 1 + (set_.blocks + args.rank) % 3;
    const Geometry geometry{blocks, set_.threads, kSharedBytes + 4 * static_cast<uint32_t>(expert_words(args, set_.threads)), 0};
    const host::Entry entry = host::kernel(kind_of(args), &args, geometry);
    if (entry == nullptr) {
      ++wrong_[args.rank];
      return;
    }
    launches.push_back({[entry, args] { entry(&args); }, geometry});
  }

  void alone(std::vector<Launch>& launches, std::function<void()> body) { launches.push_back({std::move(body), {1, 1, kSharedBytes, 0}}); }

  void dispatch(uint32_t call, uint32_t number, std::vector<Launch>& launches) {
    const ExpertRows rows{ranks_[number].rows->as(), nullptr};
    if (set_.packets) {
      auto send = rows_of<SendArgs>(number, kSendCalls);
      send.rows = rows;
      send.routing = routing(number);
      send.packets = packets(false);
      kernel(send, launches);
      auto receive = rows_of<ReceiveArgs>(number, kReceiveCalls);
      receive.rows_at_once = set_.rows_at_once;
      receive.follows = call % 2;
      receive.holds_replicas = set_.holds;
      receive.packets = packets(false);
      receive.counts = counts(number);
      receive.into = outputs(number);
      kernel(receive, launches);
      return;
    }
    // By source pairs go with rows.
    if (set_.layout != kRowsBySource) route(number, launches);
    auto push = rows_of<PushArgs>(number, kBarrierCalls);
    push.rows = rows;
    push.routing = routing(number);
    push.staged_offset = rows_at_;
    push.placed = {set_.in_place ? received_at_ : kStaged, kStaged, set_.metadata ? ids_at_ : kStaged,
                   set_.metadata ? weights_at_ : kStaged};
    push.peers = peers();
    kernel(push, launches);
    if (set_.metadata) return;
    auto move = rows_of<MoveArgs>(number, kNone);
    move.staged = ranks_[number].region->as() + rows_at_;
    move.into = outputs(number);
    move.task = set_.in_place ? kMoveMetadata : kMoveCopy;
    kernel(move, launches);
  }

  /// Routing headers, an all-gather of them, and places.
  void route(uint32_t number, std::vector<Launch>& launches) {
    RouteArgs args{};
    fill(args, number);
    args.routing = routing(number);
    args.counts = counts(number);
    args.pair_places = !is_by_token();
    for (args.task = 0; args.task < kRouteTasks; ++args.task) {
      if (args.task == kRouteCount) alone(launches, [this, number] { gather_headers(number); });
      kernel(args, launches, args.task == kRouteCount);
    }
  }

  void enqueue(uint32_t call, uint32_t number, std::vector<Launch>& launches) {
    alone(launches, [this, call, number] { produce(call, number); });
    dispatch(call, number, launches);
    alone(launches, [this, call, number] { check_received(call, number); });
    combine(call, number, launches);
    alone(launches, [this, call, number] { check_summed(call, number); });
  }

  void combine(uint32_t call, uint32_t number, std::vector<Launch>& launches) {
    if (set_.packets) {
      for (const uint32_t task : {kCombineSend, kCombineReceive}) {
        auto args = parts_of<CombinePacketArgs>(number, task == kCombineSend ? kReturnCalls : kSumCalls, task);
        // Whole calls leave own parts where they are, and calls in halves do not.
        args.own_stays = is_by_token() && call % 3 != 0;
        args.follows = task == kCombineReceive && call % 2;
        args.packets = packets(true);
        kernel(args, launches);
      }
      return;
    }
    if (set_.in_place) {
      auto pull = parts_of<CombineDirectArgs>(number, kBarrierCalls, kCombineReceive);
      pull.results_offset = results_at_;
      pull.peers = peers();
      kernel(pull, launches);
      return;
    }
    auto deliver = parts_of<CombineDirectArgs>(number, kBarrierCalls, kCombineSend);
    deliver.parts_offset = rows_at_;
    deliver.peers = peers();
    auto take = parts_of<CombineArgs>(number, kNone, kCombineReceive);
    take.received = ranks_[number].region->as() + rows_at_;
    for (uint32_t step = 0; step < (set_.exact ? set_.top_k : 1); ++step) {
      deliver.step = take.step = step;
      kernel(deliver, launches);
      kernel(take, launches);
    }
  }

  void produce(uint32_t call, uint32_t number) {
    const Tokens& tokens = routes_[call][number];
    Rank& rank = ranks_[number];
    *rank.count->as<uint32_t>() = tokens.count;
    std::copy(tokens.ids.begin(), tokens.ids.end(), rank.ids->as<int64_t>());
    std::copy(tokens.weights.begin(), tokens.weights.end(), rank.weights->as<float>());
    std::copy(tokens.rows.begin(), tokens.rows.end(), rank.rows->as());
    std::memset(received(number), 0x5A, received_bytes(number));
    const uint64_t metadata = most_rows(number) * set_.top_k;
    std::fill_n(got_ids(number), metadata, kUntouched);
    std::fill_n(got_weights(number), metadata, static_cast<float>(kUntouched));
  }

  /// An all-gather of routing headers.
  void gather_headers(uint32_t number) {
    meet_.arrive_and_wait();
    for (uint32_t other = 0; other < set_.world; ++other) {
      if (other == number) continue;
      const uint64_t at = other * header_bytes_;
      std::memcpy(ranks_[number].region->as() + at, ranks_[other].region->as() + at, header_bytes_);
    }
    meet_.arrive_and_wait();
  }

  /// Calls `body(place, source, token, k, local expert)` for every row that a rank receives; with a row a token, k and expert are 0.
  template <class Body>
  void each_row(uint32_t call, uint32_t number, Body body) const {
    const auto& routes = routes_[call];
    uint32_t next = 0;
    const auto here = [&](uint32_t source, uint32_t token, uint32_t k, uint32_t local) {
      const int64_t expert = routes[source].ids[token * set_.top_k + k];
      return expert >= 0 && taken(source, token, expert) == std::pair{number, local};
    };
    const auto locals = static_cast<uint32_t>(set_.placed[number].size());
    for (uint32_t local = 0; local < (is_by_token() ? 1 : locals); ++local) {
      if (set_.layout == kRowsPadded) next = local * static_cast<uint32_t>(capacity_);
      if (set_.layout == kRowsByExpert) next = static_cast<uint32_t>(up(next, set_.align));
      for (uint32_t source = 0; source < set_.world; ++source) {
        for (uint32_t token = 0; token < routes[source].count; ++token) {
          bool any = false;
          for (uint32_t k = 0; k < set_.top_k; ++k) {
            if (!is_by_token()) {
              if (here(source, token, k, local)) body(next++, source, token, k, local);
              continue;
            }
            for (uint32_t other = 0; other < locals; ++other) any |= here(source, token, k, other);
          }
          if (set_.layout == kRowsBySource) next = source * set_.max_tokens + token;
          if (any) body(next++, source, token, 0, 0);
        }
      }
    }
  }

  /// Compares the received rows, and computes results from them.
  void check_received(uint32_t call, uint32_t number) {
    Rank& rank = ranks_[number];
    const uint32_t bytes = set_.payload_bytes;
    std::vector<uint8_t> all(received_bytes(number), 0x5A);
    std::vector<uint32_t> counts(set_.placed[number].size());
    // Ids and weights of layouts with one row a token; the by-source layout also writes them for unused rows.
    std::vector<int32_t> ids(capacity_ * set_.top_k, set_.layout == kRowsBySource ? -1 : kUntouched);
    std::vector<float> weights(capacity_ * set_.top_k, set_.layout == kRowsBySource ? 0.0f : kUntouched);
    each_row(call, number, [&](uint32_t place, uint32_t source, uint32_t token, uint32_t k, uint32_t local) {
      std::memcpy(&all[uint64_t{place} * bytes], &routes_[call][source].rows[uint64_t{token} * bytes], bytes);
      const uint32_t* const from = rank.sources->as<uint32_t>() + 2 * place;
      wrong_[number] += !set_.metadata && (from[0] != source || from[1] != token);
      for (uint32_t i = 0; i < set_.hidden; ++i)
        results(number)[uint64_t{place} * set_.hidden + i] = result(call, number, source, token, local, i);
      for (uint32_t j = 0; j < set_.top_k && is_by_token(); ++j) {
        const uint32_t pair = token * set_.top_k + j;
        const int64_t expert = routes_[call][source].ids[pair];
        const auto [holder, its] = expert >= 0 ? taken(source, token, expert) : std::pair{set_.world, 0u};
        ids[place * set_.top_k + j] = holder == number ? static_cast<int32_t>(its) : -1;
        weights[place * set_.top_k + j] = holder == number ? routes_[call][source].weights[pair] : 0.0f;
      }
      if (is_by_token()) return;
      ++counts[local];
      wrong_[number] += got_ids(number)[place] != static_cast<int32_t>(local);
      wrong_[number] += got_weights(number)[place] != routes_[call][source].weights[token * set_.top_k + k];
    });
    wrong_[number] += !std::equal(all.begin(), all.end(), received(number));  // there may be none
    for (uint32_t local = 0; local < counts.size() && !is_by_token(); ++local) {
      wrong_[number] += rank.counts->as<uint32_t>()[local] != counts[local];
    }
    if (!is_by_token()) return;
    wrong_[number] += !std::equal(ids.begin(), ids.end(), got_ids(number));
    wrong_[number] += !std::equal(weights.begin(), weights.end(), got_weights(number));
  }

  /// An element of the result of an expert for a token; with one row a token, of all experts of a rank.
  float result(uint32_t call, uint32_t holder, uint32_t source, uint32_t token, uint32_t local, uint32_t i) const {
    return drawn(call, holder * 64 + local, source * 512 + token, i + 2);
  }

  void check_summed(uint32_t call, uint32_t number) {
    const Tokens& tokens = routes_[call][number];
    const bool by_token = is_by_token(), exact = set_.exact && !by_token;
    for (uint32_t token = 0; token < tokens.count; ++token) {
      for (uint32_t i = 0; i < set_.hidden; ++i) {
        std::vector<float> parts(set_.world);
        std::vector<bool> has_part(set_.world);
        float sum = 0;
        for (uint32_t k = 0; k < set_.top_k; ++k) {
          const uint32_t pair = token * set_.top_k + k;
          if (tokens.ids[pair] < 0) continue;
          const auto [holder, local] = taken(number, token, tokens.ids[pair]);
          const float value = result(call, holder, number, token, by_token ? 0 : local, i);
          const float term = set_.weighs && !by_token ? value * tokens.weights[pair] : value;
          parts[holder] = by_token ? value : parts[holder] + term;
          has_part[holder] = true;
          if (exact) sum += term;
        }
        for (uint32_t holder = 0; holder < set_.world && !exact; ++holder) {
          if (has_part[holder]) sum += parts[holder];
        }
        wrong_[number] += ranks_[number].output->as<float>()[token * set_.hidden + i] != sum;
      }
    }
  }

  const Setting& set_;
  std::mt19937_64& random_;
  std::barrier<> meet_;
  std::vector<uint64_t> wrong_;
  std::deque<Rank> ranks_;
  std::vector<uint32_t> starts_{0};  ///< the first replica of each rank
  std::vector<std::vector<Tokens>> routes_;
  uint32_t begun_ = 0;  ///< the epoch of the first barrier
  uint64_t timeout_ns_ = 100'000'000'000;
  uint64_t part_bytes_ = 0, row_bytes_ = 0, replicas_offset_ = 0, weights_offset_ = 0, header_bytes_ = 0, capacity_ = 0;
  uint64_t control_packets_ = 0, control_at_ = 0, rows_at_ = 0, buffer_bytes_ = 0, flags_at_ = 0, received_at_ = 0, results_at_ = 0,
           ids_at_ = 0, weights_at_ = 0, region_bytes_ = 0;
};

Setting draw(uint32_t trial, std::mt19937_64& random) {
  const auto below = [&](uint32_t count) { return static_cast<uint32_t>(random() % count); };
  Setting set{};
  set.world = 2 + below(3);
  set.experts = 1 + below(9);
  set.top_k = 1 + below(4);
  set.hidden = 1 + below(11);
  set.max_tokens = 1 + below(7);
  set.bytes = below(3) == 0;
  set.payload_bytes = set.bytes ? 4 + 4 * below(9) : 4 * set.hidden;
  set.layout = below(kRowLayouts);
  set.align = set.layout == kRowsByExpert ? 1 + below(4) : 1;
  set.blocks = below(4);
  set.threads = std::vector<uint32_t>{1, 3, 5}[trial % 3];
  set.rows_at_once = 1 + below(3);
  set.parts = 1 + below(3);
  set.packets = trial % 2 == 0;
  const bool by_token = set.layout == kRowsByRank || set.layout == kRowsBySource;
  set.exact = !by_token && below(3) == 0;
  set.weighs = !by_token && below(4) != 0;
  set.holds = below(2) == 0;
  set.in_place = !set.packets && by_token && below(2) == 0;
  set.metadata = set.in_place && set.layout == kRowsBySource && below(2) == 0;
  if (set.in_place) {
    set.hidden = static_cast<uint32_t>(up(set.hidden, 4));
    set.payload_bytes = set.bytes ? static_cast<uint32_t>(up(set.payload_bytes, 16)) : 4 * set.hidden;
  }
  set.placed.resize(set.world);
  for (uint32_t expert = 0; expert < set.experts; ++expert) {
    set.placed[below(set.world)].push_back(expert);
    auto& another = set.placed[below(set.world)];
    if (below(3) == 0 && std::find(another.begin(), another.end(), expert) == another.end()) another.push_back(expert);
  }
  return set;
}

}  // namespace
}  // namespace trial

int main(int count, char** arguments) {
  const uint32_t trials = count > 1 ? static_cast<uint32_t>(std::atoi(arguments[1])) : 48;
  const uint64_t seed = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 15;
  std::mt19937_64 random(seed);
  uint64_t failed = 0;
  const auto note = [&](const trial::Setting& setting, uint32_t trial, uint64_t wrong) {
    if (wrong == 0) return;
    ++failed;
    std::printf("trial %u of seed %llu: %llu wrong (world %u, layout %u, packets %d, threads %u)\n", trial,
                static_cast<unsigned long long>(seed), static_cast<unsigned long long>(wrong), setting.world, setting.layout,
                setting.packets, setting.threads);
  };
  for (uint32_t trial = 0; trial < trials; ++trial) {
    const trial::Setting setting = trial::draw(trial, random);
    note(setting, trial, trial::Trial(setting, random).run());
  }
#if !defined(__SANITIZE_THREAD__)  // the race is the test
  alarm(300);                      // a block that waits for ever ends the program
  for (uint32_t trial = 0; trial < (trials + 3) / 4; ++trial) {
    const trial::Setting setting = trial::draw(trial, random);
    note(setting, trial, trial::Trial(setting, random).run_rewritten());
  }
#endif
  std::printf("experts: %u trials of %u calls, %llu failed\n", trials, trial::kCalls, static_cast<unsigned long long>(failed));
  return failed == 0 ? 0 : 1;
}
