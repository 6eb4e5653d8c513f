// Errors of experts, at opening, at a call, and on the device.
#pragma once

#include "expert_ranks.hpp"

namespace test {

/// Names of backends, limits of settings, and the room that experts take.
inline void settings() {
  const ExpertConfig base(8, 2, 64, 16);
  CHECK(base.backend("naive", 4).method == Method::kBroadcast);
  CHECK(base.backend("allgather_reducescatter", 4).method == Method::kGather);
  CHECK(base.backend("mori", 4).layout == Layout::kByRank);
  const ExpertConfig low_latency = base.backend("deepep_low_latency", 4);
  CHECK(low_latency.layout == Layout::kPadded && low_latency.hidden == 64);
  CHECK_EQ(low_latency.padded_rows, 4u * 16);
  CHECK(says(CHECK_THROWS(kInvalidArgument, base.backend("deepest", 4)), "deepep_high_throughput"));
  ExpertConfig two_slots = base;
  two_slots.in_flight = 2;
  CHECK(expert_bytes(4, small(), two_slots) > expert_bytes(4, small(), base));

  const auto refused = [](const char* words, const std::function<void(ExpertConfig&)>& change) {
    ExpertConfig config(8, 2, 64, 16);
    change(config);
    CHECK(says(CHECK_THROWS(kInvalidArgument, expert_bytes(2, small(), config)), words));
  };
  refused("the number of experts is 0", [](ExpertConfig& config) { config.experts = 0; });
  refused("the number of experts of a token is 65", [](ExpertConfig& config) { config.top_k = 65; });
  refused("the elements of a row is 65537", [](ExpertConfig& config) { config.hidden = 65537; });
  refused("max_tokens is 0", [](ExpertConfig& config) { config.max_tokens = 0; });
  refused("in_flight is 4", [](ExpertConfig& config) { config.in_flight = 4; });
  refused("blocks is 0", [](ExpertConfig& config) { config.blocks = 0; });
  refused("the capacity is 0", [](ExpertConfig& config) { config.capacity = 0; });
  refused("the type of rows is i32", [](ExpertConfig& config) { config.dtype = Dtype::kI32; });
  refused("the alignment of rows is 0", [](ExpertConfig& config) {
    config.layout = Layout::kByExpert;
    config.align = 0;
  });
  refused("the rows of an expert is 0", [](ExpertConfig& config) { config.layout = Layout::kPadded; });
  refused("the bytes of a row is 0", [](ExpertConfig& config) { config.wire = Wire::kBytes; });
  refused("the number of a Layout is 4", [](ExpertConfig& config) { config.layout = static_cast<Layout>(4); });
  refused("the number of a Wire is 4", [](ExpertConfig& config) { config.wire = static_cast<Wire>(4); });
  refused("listed twice", [](ExpertConfig& config) { config.placement = Placement::table({{0, 1, 2, 3, 3}, {4, 5, 6, 7}}); });
  refused("an expert of rank 1 is 8", [](ExpertConfig& config) { config.placement = Placement::table({{0, 1, 2, 3}, {8}}); });

  ranks(2, [](Bootstrap& bootstrap) {
    const Two two(bootstrap);
    ExpertConfig config(8, 2, 64 + two.rank, 16);
    CHECK_EQ(CHECK_THROWS(kMismatch, two.communicator.experts(config)).rank(), 1);
    config = ExpertConfig(8, 2, 4096, 256);
    CHECK(expert_bytes(2, small(), config) > small().heap_bytes);
    CHECK_THROWS(kOutOfMemory, two.communicator.experts(config));
    two.communicator.close();
  });
}

/// Errors of a call, before anything runs.
inline void refused() {
  ranks(2, [](Bootstrap& bootstrap) {
    const Two two(bootstrap);
    const Stream& stream = two.stream;
    const Experts experts = two.communicator.experts(single());
    const DeviceBuffer rows(two.device, 2, Dtype::kF32), received(two.device, 4, Dtype::kF32), output(two.device, 2, Dtype::kF32);
    const DeviceBuffer doubles(two.device, 8, Dtype::kF64), one(two.device, 1, Dtype::kF32);
    const auto bad = [&](const char* said, const ConstOperand& sent, const Received& into) {
      CHECK(says(CHECK_THROWS(kInvalidArgument, experts.dispatch(Routing(two.ids), sent, into, stream)), said));
    };
    bad("the type of the rows is f64", doubles, Received(received));
    bad("the length of the received rows is 1", rows, Received(one));
    bad("overlap", ConstOperand(received.data(), 2, Dtype::kF32), Received(received));
    Received wrong(received);
    wrong.index = Operand(received.data(), 4, Dtype::kU32);
    bad("the index of rows in the order of experts is given", rows, wrong);
    const Routed routed = experts.dispatch(Routing(two.ids), rows, Received(received), stream);
    CHECK(says(CHECK_THROWS(kInvalidArgument, routed.combine(doubles, output, stream)), "the type of the results is f64"));
    CHECK(says(CHECK_THROWS(kInvalidArgument, routed.dispatch(doubles, Received(received), stream)), "the type of the rows is f64"));
    const Experts by_source = two.communicator.experts(single(Layout::kBySource));
    CHECK(says(CHECK_THROWS(kUnsupported, by_source.plan(Routing(two.ids), stream)), "a plan by source"));
    // Nothing of that ended the group.
    routed.combine(received, output, stream);
    two.communicator.synchronize(stream);
    two.communicator.close();
  });
}

/// An error that only the device detects is one error on all ranks, and no row is written.
inline void found_on_the_device() {
  struct Case {
    ErrorKind kind;
    std::int32_t rank;
    const char* words;
    std::int32_t last_id;  ///< of rank 1
    std::uint32_t count;   ///< of rank 1
    std::optional<std::size_t> capacity;
  };
  const Case cases[] = {{ErrorKind::kRouting, 1, "token 1 of rank 1 goes to expert 9, but there are 2", 9, 2, std::nullopt},
                        {ErrorKind::kCapacity, 0, "rank 0 would receive 2 rows, but has capacity for 1", 0, 2, 1},
                        {ErrorKind::kCapacity, 1, "rank 1 counts 3 tokens on the device, but has expert ids of 2", 0, 3, std::nullopt}};
  for (const Case& one : cases) {
    ranks(2, [&](Bootstrap& bootstrap) {
      const Two two(bootstrap);
      const Stream& stream = two.stream;
      ExpertConfig config = single(Layout::kByRank);
      config.capacity = one.capacity;
      const Experts experts = two.communicator.experts(config);
      const DeviceBuffer rows = filled(2, 1.0f, two.device, stream), received = filled(4, kUntouched, two.device, stream);
      const DeviceBuffer count = filled<std::uint32_t>(1, two.rank == 1 ? one.count : 2, two.device, stream);
      if (two.rank == 1) two.ids.write(std::vector<std::int32_t>{1, one.last_id}, stream);
      Routing routing(two.ids);
      routing.tokens = count;
      const auto fails = [&](const std::function<void()>& run) {
        try {
          run();
          fail(__FILE__, __LINE__, std::string("nothing said: ") + one.words);
        } catch (const Error& error) {
          CHECK_EQ(error.kind(), one.kind);
          CHECK_EQ(error.rank(), one.rank);
          CHECK(says(error, one.words));
        }
      };
      // The other rank may end the group before the call has enqueued all.
      std::optional<Routed> routed;
      fails([&] {
        routed.emplace(experts.dispatch(routing, rows, Received(received), stream));
        two.communicator.synchronize(stream);
      });
      if (routed) fails([&] { (void)routed->counts(); });
      fails([&] { two.communicator.check(); });
      CHECK(received.read<float>(stream) == std::vector<float>(4, kUntouched));
      fails([&] { two.communicator.close(); });
    });
  }
}

}  // namespace test
