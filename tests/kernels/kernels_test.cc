// Every kernel on the host platform: ranks as threads over shared memory, results bit
// for bit against reference.hpp. Prints one line; exits 1 when anything is wrong.
// Meant to run plainly and under ThreadSanitizer, AddressSanitizer and UBSan.
#include <atomic>
#include <chrono>
#include <cstdio>

#include "tests/kernels/exchange.hpp"
#include "tests/kernels/group.hpp"
#include "tests/kernels/user_kernel.cuh"

namespace trial {
namespace {

int checks = 0, failures = 0;

void check(bool holds, const char* what, uint32_t a = 0, uint32_t b = 0, uint32_t c = 0) {
  ++checks;
  if (holds) return;
  ++failures;
  std::printf("FAILED: %s (%u, %u, %u)\n", what, a, b, c);
}

const uint32_t kWorlds[] = {2, 3, 4, 5, 8};
/// Most blocks and threads of a sequence. Ranks of one thread have no barrier inside, whose
/// own atomics could hide a race between ranks from ThreadSanitizer.
const uint32_t kShapes[][2] = {{1, 1}, {3, 1}, {1, 3}, {2, 5}, {3, 3}};
constexpr uint32_t kAlgorithms = kAllReduceAlgorithms, kTypes = kElementTypes, kReductions = 5;
constexpr uint64_t kMostElements = 700;

/// A count at or next to an edge of packets, tiles or shares.
uint64_t edge(std::mt19937_64& random, uint32_t algorithm, uint32_t dtype, uint32_t world, uint32_t lanes_log2) {
  const uint64_t packet = packet_bytes(algorithm) / element_bytes(dtype);
  const uint64_t units[] = {packet, packet << lanes_log2, packet * world, (packet * world) << lanes_log2};
  const uint64_t count = units[random() % 4] * (1 + random() % 3) + random() % 3;
  return std::min(count == 0 ? 0 : count - 1, kMostElements);
}

Case any_case(std::mt19937_64& random, uint32_t algorithm, uint32_t dtype, uint32_t world, const uint32_t (&shape)[2]) {
  Case c{};
  c.dtype = dtype;
  c.blocks = 1 + random() % shape[0];
  c.threads = random() % 3 == 0 ? 1 : shape[1];
  c.lanes_log2 = random() % 4;
  c.count = random() % 3 == 0 ? random() % 41 : edge(random, algorithm, dtype, world, c.lanes_log2);
  c.input_shift = random() % 2 == 0 ? 0 : random() % 9;
  c.output_shift = random() % 2 == 0 ? 0 : random() % 9;
  c.in_place = random() % 3 == 0;
  c.special = random() % 3 == 0;
  c.reduction = random() % 2 == 0 ? kSum : random() % kReductions;
  c.plain = algorithm == kRing && random() % 2 == 0;
  // Partial sums of integers wrap, so they cannot be averaged.
  const bool partial = algorithm == kRing || algorithm == kRecursiveDoubling;
  if (partial && c.reduction == kAverage && !reference::is_float(dtype)) c.reduction = kSum;
  if (has_codecs(algorithm, dtype) && random() % 2 == 0) {
    quantise(random, c);
    if (random() % 2 == 0) c.count = random() % (kMostElements + 1);
  }
  return c;
}

/// Runs `cases` one after another in one region and checks every element.
void sequence(uint32_t algorithm, uint32_t world, const std::vector<Case>& cases, uint32_t epoch, std::mt19937_64& random) {
  const Group group(algorithm, world, kMostElements * 8, epoch);
  std::deque<Operands> operands;
  std::vector<std::vector<Launch>> launches(world);
  for (const Case& c : cases) {
    operands.emplace_back(algorithm, c, world, random);
    for (uint32_t rank = 0; rank < world; ++rank) {
      launches[rank].push_back(operands.back().produce(rank));
      launches[rank].push_back(group.launch(c, operands.back(), rank));
      launches[rank].push_back(operands.back().consume(rank));
    }
  }
  launcher::run(launches);
  uint64_t wrong = 0;
  for (const Operands& o : operands) wrong += o.wrong();
  check(wrong == 0, "all-reduce: algorithm, type, world", algorithm, cases[0].dtype, world);
  for (uint32_t rank = 0; rank < world; ++rank) {
    const auto* progress = group.rank(rank).progress.as<Progress>();
    check(progress->done == cases.size(), "progress counts calls");
    check(progress->failed == 0 && group.rank(rank).why().code == kStatusOk, "no wait gave up", algorithm, world, rank);
  }
}

/// An all-reduce of zero elements, with slots of one packet.
AllReduceArgs nothing(uint32_t algorithm, uint32_t dtype, uint32_t reduction, uint32_t world) {
  AllReduceArgs args{};
  args.algorithm = algorithm;
  args.dtype = dtype;
  args.reduction = reduction;
  args.world = world;
  args.slot_packets = 1;
  return args;
}

/// Whether there is a kernel.
bool kernel(uint32_t algorithm, uint32_t dtype, uint32_t reduction, uint32_t world) {
  const Geometry geometry{1, 1, shared_bytes(algorithm, world, 0), 0};
  return entry_of(nothing(algorithm, dtype, reduction, world), geometry) != nullptr;
}

void test_all_reduce(uint64_t seed) {
  std::mt19937_64 random(seed);
  uint32_t turn = 0;
  for (uint32_t algorithm = 0; algorithm < kAlgorithms; ++algorithm) {
    for (uint32_t dtype = 0; dtype < kTypes; ++dtype) {
      for (uint32_t world : kWorlds) {
        const bool sentinel = algorithm == kOneShotSentinel || algorithm == kTwoShotSentinel;
        bool exists = true;
        for (uint32_t reduction = 0; reduction < kReductions; ++reduction) {
          exists = kernel(algorithm, dtype, reduction, world);
          check(exists == (!sentinel || reference::is_float(dtype)), "a kernel for every type and reduction", algorithm, dtype, reduction);
        }
        if (!exists) continue;
        const auto& shape = kShapes[turn++ % 5];
        const uint32_t epochs[] = {0, 1, kEpochModulus - 7};
        std::vector<Case> cases;
        for (uint32_t i = 0; i < 24; ++i) cases.push_back(any_case(random, algorithm, dtype, world, shape));
        sequence(algorithm, world, cases, epochs[turn % 3], random);
      }
    }
  }
}

ExchangeCase any_exchange(std::mt19937_64& random, uint32_t world, const uint32_t (&shape)[2]) {
  ExchangeCase c{};
  c.algorithm = random() % kExchangeAlgorithms;
  c.told = c.algorithm == kExchangePush && random() % 2 == 0;
  c.blocks = 1 + random() % shape[0];
  c.threads = random() % 3 == 0 ? 1 : shape[1];
  c.lanes_log2 = random() % 4;
  const bool one_row = c.relays() || c.algorithm == kReduceLocal || c.told;
  c.rows = !one_row && random() % 3 == 0 ? 2 + random() % 3 : 1;
  c.root = random() % world;
  c.dtype = random() % 2 == 0 ? kU8 : kI32;
  if (c.algorithm == kReduceSentinels) c.dtype = kFloats[random() % std::size(kFloats)];
  c.reduction = random() % kReductions;
  // Whole packets in aligned memory, which have special kernels, or any bytes.
  const bool whole = random() % 2 == 0;
  c.from_shift = whole ? 8 * (random() % 3) : 4 * (random() % 5);
  c.into_shift = whole ? 8 * (random() % 3) : 4 * (random() % 5);
  // Any number of bytes where they are only moved; several rounds of small slots.
  const bool equal = c.reduces() || c.rows > 1 || c.relays();
  const bool several = c.escaped() && c.rows == 1 && random() % 2 == 0;  // groups of units
  // Ranks may have differently aligned operands if no other rank accesses them.
  if (c.algorithm == kExchangePackets || c.algorithm == kReducePackets || c.by_sentinels()) c.shift_step = 4 * (random() % 3);
  if (c.algorithm == kRelayPackets) c.shift_step = random() % 5;
  const uint64_t unit = whole || c.dtype == kF64 ? 8 : c.reduces() ? 4 : 1;
  const uint64_t most = several ? 450 : random() % 2 == 0 ? 20 : 150, all = random() % most * unit * c.rows;
  // To the root alone, or to every rank.
  const bool to_root = c.algorithm == kReduceSentinels && c.rows == 1 && random() % 2 == 0;
  for (uint32_t from = 0; from < world; ++from) {
    for (uint32_t to = 0; to < world; ++to) c.bytes[from][to] = equal ? all : random() % 3 == 0 ? 0 : random() % (all / unit + 1) * unit;
    for (uint32_t to = 0; to < world; ++to) c.bytes[from][to] = to_root && to != c.root ? 0 : c.bytes[from][to];
  }
  const uint32_t sources = 1 + random() % world;
  const bool has_several = c.algorithm == kReducePackets || c.algorithm == kReduceSentinels;
  if (has_several && !to_root && world % sources == 0 && random() % 2 == 0) c.sources = sources;
  return c;
}

/// Exchanges of every kind in one set of regions, with slots that large strips fill several times.
void test_exchanges(uint64_t seed) {
  std::mt19937_64 random(seed);
  for (uint32_t turn = 0; turn < 25; ++turn) {
    const uint32_t world = kWorlds[turn % 5], epochs[] = {0, 1, kEpochModulus - 7};
    const uint64_t slot = turn % 2 == 0 ? 1 + random() % 40 : kRelayLine * world + random() % 150;
    const ExchangeGroup group(world, slot, epochs[turn % 3]);
    std::deque<ExchangeOperands> operands;
    std::vector<std::vector<Launch>> launches(world);
    for (uint32_t i = 0; i < 20; ++i) {
      ExchangeCase c = any_exchange(random, world, kShapes[turn / 5]);
      const bool relays = slot >= kRelayLine * world && c.largest(world) <= slot * world * 8;
      if (c.algorithm == kRelayPackets && !relays) c.algorithm = kExchangeRelay;
      operands.emplace_back(c, world, random);
      for (uint32_t rank = 0; rank < world; ++rank) {
        launches[rank].push_back(operands.back().produce(rank));
        for (const Launch& launch : group.launch(c, operands.back(), rank)) {
          check(launch.kernel != nullptr, "a kernel for every exchange", c.algorithm, c.dtype, c.reduction);
          launches[rank].push_back(launch);
        }
        launches[rank].push_back(operands.back().consume(rank));
      }
    }
    launcher::run(launches);
    uint32_t wrong = 0;
    for (const ExchangeOperands& o : operands) wrong += o.wrong() != 0;
    check(wrong == 0, "exchanges: turn, world, wrong calls", turn, world, wrong);
    for (uint32_t rank = 0; rank < world; ++rank)
      check(group.rank(rank).why().code == kStatusOk, "no wait of an exchange gave up", turn, rank);
  }
}

/// Counts 0 to 40 in a row, and types that change from call to call in one region.
void test_small_counts(uint64_t seed) {
  std::mt19937_64 random(seed);
  for (uint32_t algorithm = 0; algorithm < kAlgorithms; ++algorithm) {
    const uint32_t world = kWorlds[algorithm % 5];
    const bool sentinel = algorithm == kOneShotSentinel || algorithm == kTwoShotSentinel;
    std::vector<Case> cases;
    for (uint64_t count = 0; count <= 40; ++count) {
      const auto dtype = static_cast<uint32_t>(sentinel ? kFloats[count % std::size(kFloats)] : count % kTypes);
      Case c = any_case(random, algorithm, dtype, world, kShapes[algorithm % 5]);
      c.count = count;
      cases.push_back(c);
    }
    sequence(algorithm, world, cases, kEpochModulus - 20, random);
  }
}

void test_no_kernel() {
  check(!kernel(kAlgorithms, kF32, kSum, 2), "no such algorithm");
  check(!kernel(kOneShotLL, kTypes, kSum, 2), "no such type");
  check(!kernel(kOneShotLL, kF32, kReductions, 2), "no such reduction");
  check(!kernel(kOneShotLL, kF32, kSum, 1) && !kernel(kOneShotLL, kF32, kSum, 17), "no such world");
}

/// A launch that would overstep its memory, or count beyond 32 bits, is refused.
void test_fits() {
  AllReduceArgs args = nothing(kOneShotLL, kF32, kSum, 16);
  const Geometry geometry{1, 1, shared_bytes(kOneShotLL, 16, 0), 0};
  check(entry_of(args, geometry) != nullptr, "a launch that fits");
  check(entry_of(args, {1, 1, 0, 0}) == nullptr, "too little shared memory");
  args.count = 3;
  check(entry_of(args, geometry) == nullptr, "more than a slot");
  args.slot_packets = uint64_t{1} << 28;
  check(entry_of(args, geometry) == nullptr, "a region of more packets than 32 bits count");

  AllReduceArgs coded = nothing(kTwoShotSentinel, kBF16, kSum, 4);
  coded.codec = kCodecInt8;
  coded.count = 4 * kUnitElems;
  // Three sources share the slots of four, at lines of eight packets.
  coded.slot_packets = 30;
  check(quantised_slot(30, 4) == 40 && unit_packets(kCodecInt8) == 34, "a unit fits a source's part");
  const Geometry of_coded{1, 1, kSharedBytes, 0};
  const auto fails = [&](auto change) {
    AllReduceArgs changed = coded;
    change(changed);
    return entry_of(changed, of_coded) == nullptr;
  };
  check(entry_of(coded, of_coded) != nullptr, "a quantised launch that fits");
  check(entry_of(coded, {1, 1, of_coded.shared_bytes - 1, 0}) == nullptr, "no shared memory");
  check(entry_of(coded, {1, kMostQuantisedThreads + 1, of_coded.shared_bytes, 0}) == nullptr, "too many threads");
  check(fails([](AllReduceArgs& args) { ++args.count; }), "more units than a slot");
  check(fails([](AllReduceArgs& args) { args.slot_packets = 29; }), "slots that are too small");
  check(fails([](AllReduceArgs& args) { args.lanes_log2 = 17; }), "too many lanes");
  check(fails([](AllReduceArgs& args) { args.codec = kCodecs; }), "no such codec");
  check(fails([](AllReduceArgs& args) { args.dtype = kF32; }), "a codec of another type");
  check(fails([](AllReduceArgs& args) { args.reduction = kMax; }), "a codec of another reduction");
  check(fails([](AllReduceArgs& args) { args.algorithm = kRing; }), "a codec by another algorithm");
}

/// A packet of an epoch that comes much later.
constexpr uint64_t kStale = uint64_t{12345} << 32;

void make_stale(const RankMemory& memory, uint64_t packets) {
  for (uint64_t i = 0; i < 2 * packets; ++i) memory.region.as<uint64_t>()[i] = kStale;
}

/// The number of packets that are still stale. With a world, in [buffer][source][slot] all but those of the rank itself.
uint64_t still_stale(const RankMemory& memory, uint64_t packets, uint64_t slot = 0, uint32_t world = 0, uint32_t rank = 0) {
  uint64_t stale = 0;
  for (uint64_t i = 0; i < packets; ++i) {
    if (world != 0 && i / slot % world == rank) continue;
    stale += memory.region.as<uint64_t>()[2 * i] == kStale || memory.region.as<uint64_t>()[2 * i + 1] == kStale;
  }
  return stale;
}

/// Packets whose tag a later epoch will bear are gone before it comes, in as many calls of either parity as a
/// slot has packets. One shot also empties the slot of the rank itself, which a relay in its region uses.
void test_scrub() {
  std::mt19937_64 random(7);
  for (uint32_t algorithm : {kOneShotLL, kTwoShotLL, kRecursiveDoubling}) {
    const uint32_t world = algorithm == kRecursiveDoubling ? 4 : 3;  // every rank of which uses every slot
    const Group group(algorithm, world, 8 * 8, 0);
    const uint64_t packets = region_bytes(algorithm, group.slot(), world) / 16;
    for (uint32_t rank = 0; rank < world; ++rank) make_stale(group.rank(rank), packets);
    const Case c{1, kI64, 2, 1, 0, 0, 0, false, false};
    const Operands operands(algorithm, c, world, random);
    std::vector<std::vector<Launch>> launches(world);
    for (uint32_t rank = 0; rank < world; ++rank) launches[rank].assign(2 * group.slot(), group.launch(c, operands, rank));
    launcher::run(launches);
    uint64_t stale = 0;
    for (uint32_t rank = 0; rank < world; ++rank) {
      stale += still_stale(group.rank(rank), packets, group.slot(), algorithm == kTwoShotLL ? world : 0, rank);
    }
    check(stale == 0, "no stale tags", algorithm, static_cast<uint32_t>(stale));
  }
}

/// Stale packets are gone after every exchange by packets: in one round of whole packets or not, and relayed. All share one region.
void test_exchange_scrub() {
  std::mt19937_64 random(11);
  constexpr uint32_t kWorld = 3;
  for (const uint32_t algorithm : {kExchangePackets, kReducePackets, kRelayPackets}) {
    for (const uint64_t bytes : {1, 8}) {
      const ExchangeGroup group(kWorld, kRelayLine * kWorld, 0);
      const uint64_t packets = 2 * kWorld * group.slot();
      for (uint32_t rank = 0; rank < kWorld; ++rank) make_stale(group.rank(rank), packets);
      ExchangeCase c{algorithm, false, 2, 1, 1, 1, 1, kU8, kSum, 0, 0, 0, {}, 0};
      for (auto& strips : c.bytes) std::fill(std::begin(strips), std::end(strips), bytes);
      const ExchangeOperands operands(c, kWorld, random);
      std::vector<std::vector<Launch>> launches(kWorld);
      for (uint32_t rank = 0; rank < kWorld; ++rank) launches[rank].assign(2 * group.slot(), group.launch(c, operands, rank)[0]);
      launcher::run(launches);
      uint64_t stale = 0;
      for (uint32_t rank = 0; rank < kWorld; ++rank) stale += still_stale(group.rank(rank), packets);
      check(stale == 0, "no stale tags in an exchange", algorithm, static_cast<uint32_t>(bytes), static_cast<uint32_t>(stale));
    }
  }
}

/// One rank of four stays away from a broadcast that is relayed or from a reduction: the root, or an owner of a share. The
/// others give up, and afterwards send nothing.
void test_exchange_timeout(uint32_t algorithm, uint32_t missing, uint32_t threads) {
  std::mt19937_64 random(12);
  constexpr uint32_t kWorld = 4, kRoot = 1;
  const ExchangeGroup group(kWorld, 64, 0, 2'000'000'000);
  const bool sums = algorithm == kReduceSentinels;
  ExchangeCase c{algorithm, false, 2, threads, 2, 1, kRoot, sums ? kBF16 : kU8, kSum, 0, 0, 0, {}, 0};
  for (auto& strips : c.bytes) std::fill(std::begin(strips), std::end(strips), sums ? 776 : 777);
  const ExchangeOperands operands(c, kWorld, random);
  std::vector<std::vector<Launch>> launches(kWorld);
  for (uint32_t rank = 0; rank < kWorld; ++rank) {
    if (rank != missing) launches[rank] = group.launch(c, operands, rank);
  }
  launcher::run(launches);
  for (uint32_t rank = 0; rank < kWorld; ++rank) {
    if (rank == missing) continue;
    const Status& why = group.rank(rank).why();
    check(why.code == kStatusTimeout && why.op == kOperation, "a rank missing from an exchange is a timeout", rank, why.code);
    check(why.peer == missing && why.epoch == 0, "the timeout of an exchange names it", rank, why.peer);
  }
  const RankMemory& late = c.by_sentinels() ? group.sentinels(missing) : group.rank(missing);
  const std::vector<uint8_t> before(late.region.as(), late.region.as() + late.region.bytes());
  launcher::run(launches);
  check(std::memcmp(before.data(), late.region.as(), before.size()) == 0, "after a failure nothing is sent", missing);
}

/// Flags of blocks that are not used keep up with the epoch; in a ring also the counts of its channels.
void test_refresh(uint32_t algorithm) {
  std::mt19937_64 random(8);
  const Group group(algorithm, 2, 64, 0);
  const Case c{16, kF32, 1, 1, 0, 0, 0, false, false};
  const Operands operands(algorithm, c, 2, random);
  constexpr uint32_t kCalls = 3 * kMaxBlocks;
  std::vector<std::vector<Launch>> launches(2);
  for (uint32_t rank = 0; rank < 2; ++rank) launches[rank].assign(kCalls, group.launch(c, operands, rank));
  launcher::run(launches);
  uint32_t late = 0;
  for (uint32_t row = 0; row < kMaxBlocks; ++row) late += group.rank(0).region.as<uint32_t>()[row * kMaxWorld + 1] < 4 * kMaxBlocks;
  check(late == 0, "flags of unused blocks keep up", algorithm, late);
  if (algorithm != kRing) return;
  const uint32_t passed = group.rank(0).state.as<BlockState>()->previous;
  for (uint32_t channel = 1; channel < kRingChannels; ++channel) {
    for (const uint32_t which : {0, 1}) late += *group.rank(0).count(channel, which) != passed;
  }
  check(passed >= kCalls && late == 0, "counts of unused channels keep up", passed, late);
}

/// Rank 2 of three stays away. The others give up, name it, and send nothing more. When rank 2 comes late it may
/// finish, but writes into no operand of another rank.
void test_timeout(uint32_t algorithm, uint32_t threads, uint32_t codec = kCodecNone) {
  std::mt19937_64 random(9);
  const Group group(algorithm, 3, 4096, 0, 2'000'000'000);
  Case c{300, kF32, 2, threads, 2, 0, 0, false, false};
  if (codec != kCodecNone) c = {600, kBF16, 2, threads, 3, 0, 0, false, false};
  c.codec = codec;
  const Operands first(algorithm, c, 3, random), second(algorithm, c, 3, random);
  std::vector<std::vector<Launch>> launches(3);
  for (uint32_t rank = 0; rank < 2; ++rank) launches[rank] = {group.launch(c, first, rank)};
  launcher::run(launches);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    const Status& why = group.rank(rank).why();
    check(why.code == kStatusTimeout && why.op == kOpAllReduce, "a missing rank is a timeout", algorithm, why.code);
    // By recursive doubling rank 1 waits for rank 0, which waits for rank 2; hosts follow the chain.
    const uint32_t named = algorithm == kRecursiveDoubling && rank == 1 ? 0 : 2;
    check(why.peer == named && why.epoch == 0 && why.sequence == 0, "the timeout names it", algorithm, why.peer, why.epoch);
    check(why.timeout_ns == 2'000'000'000, "and says how long it was", algorithm);
    check(group.rank(rank).progress.as<Progress>()->failed == 1, "the rank is marked");
  }
  const std::vector<uint8_t> before(group.rank(2).region.as(), group.rank(2).region.as() + group.rank(2).region.bytes());
  for (uint32_t rank = 0; rank < 2; ++rank) launches[rank] = {group.launch(c, second, rank)};
  launcher::run(launches);
  check(std::memcmp(before.data(), group.rank(2).region.as(), before.size()) == 0, "after a failure nothing is sent", algorithm);
  if (algorithm != kTwoShotZeroCopy && algorithm != kRing) return;
  launches = {{}, {}, {group.launch(c, first, 2)}};
  launcher::run(launches);
  check(group.rank(2).why().code == kStatusTimeout, "the late rank is told");
  for (uint32_t rank = 0; rank < 3; ++rank) check(first.output(rank).untouched(), "the late rank writes nothing", rank);
}

void test_abort(uint32_t algorithm) {
  std::mt19937_64 random(10);
  const Group group(algorithm, 2, 4096, 0, ~uint64_t{0});
  const Case c{300, kF32, 1, 3, 2, 0, 0, false, false};
  const Operands operands(algorithm, c, 2, random);
  Status& why = group.rank(0).why();
  std::thread aborter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic_ref<uint32_t>(why.abort).store(1);
  });
  launcher::run({{group.launch(c, operands, 0)}, {}});
  aborter.join();
  check(why.code == kStatusAborted && why.peer == 1, "abort ends a wait", algorithm, why.code, why.peer);
}

/// Signal pads of a group.
struct Pads {
  static constexpr uint32_t kChannels = 2;
  std::deque<RankMemory> ranks;
  std::deque<Memory> counts;
  explicit Pads(uint32_t world) {
    for (uint32_t rank = 0; rank < world; ++rank) {
      ranks.emplace_back(kChannels * world * 4);
      counts.emplace_back(2 * kChannels * world * 4);
    }
  }
  SignalArgs args(uint32_t rank, uint32_t action, uint32_t peer, uint64_t timeout_ns) const {
    SignalArgs args{};
    for (uint32_t r = 0; r < ranks.size(); ++r) args.pads[r] = ranks[r].region.as<uint32_t>();
    args.sent = counts[rank].as<uint32_t>();
    args.awaited = args.sent + kChannels * ranks.size();
    args.wait = {ranks[rank].progress.as<Progress>(), ranks[rank].status.as<Status>(), timeout_ns};
    args.rank = rank;
    args.world = static_cast<uint32_t>(ranks.size());
    args.channel = 1;
    args.op = kOpSignalBarrier;
    args.peer = peer;
    args.action = action;
    return args;
  }
  Launch launch(uint32_t rank, uint32_t action, uint32_t peer, uint32_t threads, uint64_t timeout_ns = 60'000'000'000) const {
    const SignalArgs a = args(rank, action, peer, timeout_ns);
    const Geometry geometry{1, threads, kSharedBytes, 0};
    return {[a, entry = entry_of(a, geometry)] { entry(&a); }, geometry};
  }
};

/// A token goes round three ranks: every hand-over is a plain write, a put and a wait.
void test_signals(uint32_t threads) {
  constexpr uint32_t kWorld = 3, kRounds = 20;
  const Pads pads(kWorld);
  uint64_t token = 0;
  std::vector<std::vector<Launch>> launches(kWorld);
  for (uint32_t rank = 0; rank < kWorld; ++rank) {
    const Launch add{[&token] { ++token; }, {1, 1, kSharedBytes, 0}};
    const Launch await = pads.launch(rank, kSignalWait, (rank + kWorld - 1) % kWorld, threads);
    for (uint32_t round = 0; round < kRounds; ++round) {
      if (rank != 0 || round != 0) launches[rank].push_back(await);
      launches[rank].push_back(add);
      launches[rank].push_back(pads.launch(rank, kSignalPut, (rank + 1) % kWorld, threads));
      launches[rank].push_back(pads.launch(rank, kSignalBarrier, 0, threads));
    }
  }
  launches[0].push_back(pads.launch(0, kSignalWait, kWorld - 1, threads));
  launcher::run(launches);
  check(token == kWorld * kRounds, "signals order plain writes", static_cast<uint32_t>(token));
  launcher::run(
      {{pads.launch(0, kSignalBarrier, 0, threads, 2'000'000'000)}, {pads.launch(1, kSignalBarrier, 0, threads, 2'000'000'000)}, {}});
  for (uint32_t rank = 0; rank < 2; ++rank) {
    const Status& why = pads.ranks[rank].why();
    check(why.code == kStatusTimeout && why.op == kOpSignalBarrier && why.peer == 2, "a barrier times out", why.code, why.op, why.peer);
  }
}

/// A peer's stream stores a word after plain data, and this rank takes the word, which is clear again for the next
/// time.
void test_take(uint32_t threads) {
  constexpr uint32_t kRounds = 50;
  const Pads pads(2);
  constexpr uint32_t kOther = 1u << 1;
  const SignalArgs args = pads.args(0, kSignalTake, kOther, 0);
  std::atomic_ref<uint32_t> word(args.pads[0][args.channel * 2 + 1]);
  uint64_t data = 0, sum = 0;
  std::atomic<uint32_t> turn = 0;
  std::vector<std::vector<Launch>> launches(2);
  for (uint32_t round = 0; round < kRounds; ++round) {
    launches[0].push_back(pads.launch(0, kSignalTake, kOther, threads));
    launches[0].push_back({[&, round] { sum += data, turn.store(round + 1); }, {1, 1, kSharedBytes, 0}});
    launches[1].push_back({[&, round] {
                             while (turn.load() != round) std::this_thread::yield();
                             data = 3 * round + 1;
                             word.store(1, std::memory_order_release);
                           },
                           {1, 1, kSharedBytes, 0}});
  }
  launcher::run(launches);
  check(sum == 3 * kRounds * (kRounds - 1) / 2 + kRounds, "a word that is taken orders plain writes", static_cast<uint32_t>(sum));
  check(word.load() == 0, "a word that is taken is clear", word.load());
  launcher::run({{pads.launch(0, kSignalTake, kOther, threads, 2'000'000)}, {}});
  const Status& why = pads.ranks[0].why();
  check(why.code == kStatusTimeout && why.op == kOpSignalBarrier && why.peer == 1, "a take times out", why.code, why.op, why.peer);
}

void test_user_kernel() {
  constexpr uint32_t kWorld = 3, kCount = 10;
  const Pads pads(kWorld);
  std::deque<Memory> buffers;
  PeerTable table{};
  uint32_t sums[kWorld] = {};
  std::vector<std::vector<Launch>> launches(kWorld);
  for (uint32_t rank = 0; rank < kWorld; ++rank) table.address[rank] = buffers.emplace_back(64).as();
  for (uint32_t rank = 0; rank < kWorld; ++rank) {
    const SignalArgs a = pads.args(rank, 0, 0, 60'000'000'000);
    symmetra::device::SignalPad pad{{}, a.sent, a.awaited, a.wait, rank, kWorld};
    std::copy(std::begin(a.pads), std::end(a.pads), pad.pads);
    const symmetra::device::PeerView<uint32_t> view(&table, 0, rank, kWorld);
    launches[rank].assign(2, {[=, &sums] { meet_neighbours(pad, view, &sums[rank], kCount); }, {1, 3, kSharedBytes, 0}});
  }
  launcher::run(launches);
  for (uint32_t rank = 0; rank < kWorld; ++rank) {
    const uint32_t once = 45 + kCount * ((rank + kWorld - 1) % kWorld);
    check(sums[rank] == 3 * once, "a user's kernel meets its peers", rank, sums[rank], 3 * once);
  }
}

void test_agree() {
  constexpr uint32_t kWorld = 3;
  for (const bool same : {true, false}) {
    std::deque<RankMemory> ranks;
    std::vector<std::vector<Launch>> launches(kWorld);
    for (uint32_t rank = 0; rank < kWorld; ++rank) ranks.emplace_back(2 * kWorld * 2 * 16);
    for (uint32_t rank = 0; rank < kWorld; ++rank) {
      for (uint64_t call = 0; call < 5; ++call) {
        AgreeArgs args{};
        for (uint32_t peer = 0; peer < kWorld; ++peer) args.peers[peer] = ranks[peer].region.as();
        args.state = ranks[rank].state.as<BlockState>();
        args.ours[0] = 1000 + call;
        args.ours[1] = !same && rank == 1 && call == 3 ? (uint64_t{7} << 40 | 5) : 4;
        args.wait = {ranks[rank].progress.as<Progress>(), ranks[rank].status.as<Status>(), 60'000'000'000};
        args.rank = rank;
        args.world = kWorld;
        const Geometry geometry{1, rank + 1, kSharedBytes, 0};
        launches[rank].push_back({[args, entry = entry_of(args, geometry)] { entry(&args); }, geometry});
      }
    }
    launcher::run(launches);
    for (uint32_t rank = 0; rank < kWorld; ++rank) {
      const Status& why = ranks[rank].why();
      check(why.code == (same ? kStatusOk : kStatusMismatch), "ranks agree or all learn", rank, why.code);
      if (same) continue;
      check(rank == 1 ? why.theirs[1] == 4 : why.peer == 1 && why.theirs[1] == (uint64_t{7} << 40 | 5), "the mismatch names the peer",
            rank);
      check(why.theirs[0] == 1003 && why.epoch == 3 && why.sequence == 0 && why.op == kOpAgree, "the mismatch shows what they called",
            rank);
    }
  }
}

}  // namespace
}  // namespace trial

int main(int argc, char** argv) {
  using namespace trial;
  const auto begin = std::chrono::steady_clock::now();
  const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  test_no_kernel();
  test_fits();
  test_all_reduce(seed);
  test_small_counts(seed);
  test_exchanges(seed);
  test_scrub();
  test_exchange_scrub();
  for (uint32_t missing = 0; missing < 3; ++missing) {
    test_exchange_timeout(kRelayPackets, missing, kShapes[missing + 2][1]);
    test_exchange_timeout(kReduceSentinels, missing, kShapes[missing + 2][1]);
    test_exchange_timeout(kExchangeEscaped, missing, kShapes[missing + 2][1]);
  }
  test_refresh(kTwoShotZeroCopy);
  test_refresh(kRing);
  for (uint32_t algorithm = 0; algorithm < kAlgorithms; ++algorithm) {
    test_timeout(algorithm, kShapes[algorithm % 5][1]);
    test_abort(algorithm);
  }
  for (const uint32_t algorithm : {kOneShotSentinel, kTwoShotSentinel}) {
    test_timeout(algorithm, 1, kCodecInt6);
    test_timeout(algorithm, 3, kCodecFp8);
  }
  test_signals(1);
  test_signals(3);
  test_take(1);
  test_take(3);
  test_user_kernel();
  test_agree();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("kernels: %d checks, %d failed, seed %llu, %.1f s\n", checks, failures, static_cast<unsigned long long>(seed), seconds);
  return failures == 0 ? 0 : 1;
}
