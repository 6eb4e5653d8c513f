// Experts by the public C++ API on the host device, with threads as ranks: every row and every sum equals a model of the definitions, and
// what is refused is a typed error.

#include <algorithm>
#include <optional>
#include <utility>

#include "expert_model.hpp"
#include "expert_ranks.hpp"
#include "refused_experts.hpp"

using namespace symmetra;
using namespace test;

namespace {

/// Dispatch and combine by one setting, with ids of type Id.
template <class Id, class Group>
void round_trip(const Group& group, const ExpertConfig& config, const Lists& lists) {
  const std::size_t rank = group.rank(), tokens = tokens_of(rank);
  const Device device = group.device();
  const Stream stream(device);
  const Experts experts = group.experts(config);
  CHECK(experts.local_experts() == lists[rank]);
  CHECK(experts.method() != Method::kAuto);
  const bool by_rank = config.layout == Layout::kByRank, by_source = config.layout == Layout::kBySource;
  const bool by_token = is_by_token(config.layout), exact = config.determinism == Determinism::kExact && !by_token;

  std::vector<Id> ids;
  std::vector<float> weights, rows;
  for (std::size_t token = 0; token < tokens; ++token) {
    for (std::size_t k = 0; k < kTopK; ++k) ids.push_back(id_of(rank, token, k));
    for (std::size_t k = 0; k < kTopK; ++k) weights.push_back(weight_of(rank, token, k));
    for (std::size_t h = 0; h < kHidden; ++h) rows.push_back(row_of(rank, token, h));
  }
  const DeviceBuffer given_ids = on_device(ids, device, stream), given_weights = on_device(weights, device, stream);
  const DeviceBuffer given_rows = on_device(rows, device, stream);
  const std::size_t capacity = experts.capacity(), pairs = capacity * (by_token ? kTopK : 1), local = lists[rank].size();
  const DeviceBuffer received = filled(capacity * kHidden, kUntouched, device, stream);
  const DeviceBuffer counts = filled<std::uint32_t>(local, 77, device, stream);
  const DeviceBuffer offsets = filled<std::uint32_t>(local + 1, 77, device, stream);
  const DeviceBuffer locals = filled<std::int32_t>(pairs, -7, device, stream);
  const DeviceBuffer factors = filled(pairs, kUntouched, device, stream);
  const DeviceBuffer sources = filled<std::uint32_t>(capacity * 2, 77, device, stream);
  const DeviceBuffer index = filled<std::uint32_t>(pairs, 77, device, stream);
  Received into(received);
  if (!by_source) into.counts = counts;
  if (!by_source) into.offsets = offsets;
  into.ids = locals;
  into.weights = factors;
  into.sources = sources;
  if (by_rank) into.index = index;
  const Routed routed = experts.dispatch(Routing(given_ids, given_weights), given_rows, into, stream);
  group.synchronize(stream);

  const Arrived arrived = arrived_at(rank, lists, config);
  const std::vector<float> came = received.read<float>(stream);
  check_rows(came, arrived, kHidden, kUntouched, [](const std::vector<Pair>& row, std::size_t h) { return row[0].x(h); });
  if (by_source) {
    CHECK_EQ(capacity, kWorld * kMostTokens);
    CHECK(says(CHECK_THROWS(kUnsupported, routed.counts()), "rows by source are not counted"));
  } else {
    CHECK(counts.read<std::uint32_t>(stream) == arrived.counts);
    CHECK(offsets.read<std::uint32_t>(stream) == arrived.offsets);
    const std::vector<std::size_t> host_counts = routed.counts();
    CHECK(std::equal(arrived.counts.begin(), arrived.counts.end(), host_counts.begin(), host_counts.end()));
  }
  // In the by-source layout, unused rows have expert id -1 and weight 0.
  const std::int32_t no_local = by_source ? -1 : -7;
  const float no_factor = by_source ? 0.0f : kUntouched;
  check_rows(locals.read<std::int32_t>(stream), arrived, by_token ? kTopK : 1, no_local, [&](const std::vector<Pair>& row, std::size_t k) {
    const Pair* pair = pair_at(row, k, by_token);
    return pair == nullptr ? -1 : static_cast<std::int32_t>(pair->local);
  });
  check_rows(factors.read<float>(stream), arrived, by_token ? kTopK : 1, no_factor, [&](const std::vector<Pair>& row, std::size_t k) {
    const Pair* pair = pair_at(row, k, by_token);
    return pair == nullptr ? 0.0f : pair->weight();
  });
  check_rows(sources.read<std::uint32_t>(stream), arrived, 2, 77u, [](const std::vector<Pair>& row, std::size_t which) {
    return static_cast<std::uint32_t>(which == 0 ? row[0].source : row[0].token);
  });
  std::vector<std::uint32_t> in_order = index.read<std::uint32_t>(stream);
  in_order.resize(arrived.index.size());
  CHECK(in_order == arrived.index);

  // The results of the experts for the rows; for rows of tokens, the sum of each row.
  const std::vector<Pair> all = pairs_of(lists);
  for (const bool weighted : {true, false}) {
    std::vector<float> results(came);
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (i / kHidden >= arrived.rows.size() || arrived.rows[i / kHidden].empty()) continue;
      const std::vector<Pair>& row = arrived.rows[i / kHidden];
      results[i] = by_token ? 0.0f : row[0].result(i % kHidden);
      if (!by_token) continue;
      for (const Pair& pair : row) results[i] += weighted ? pair.weight() * pair.result(i % kHidden) : pair.result(i % kHidden);
    }
    received.write(results, stream);
    const DeviceBuffer output = filled(tokens * kHidden, weighted ? kUntouched : 1000.0f, device, stream);
    CombineOptions options;
    options.weighted = weighted;
    if (!weighted) options.add = output;
    routed.combine(received, output, stream, options);
    group.synchronize(stream);
    const std::vector<float> sums = output.read<float>(stream);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const float sum = sum_of(all, rank, i / kHidden, i % kHidden, exact, weighted);
      CHECK_EQ(sums[i], weighted ? sum : sum + 1000.0f);
    }
  }
}

ExpertConfig layer(Layout layout, Method method = Method::kAuto) {
  ExpertConfig config(kExperts, kTopK, kHidden, kMostTokens);
  config.dtype = Dtype::kF32;
  config.layout = layout;
  config.method = method;
  config.align = 4;
  config.padded_rows = 20;
  return config;
}

/// Every layout, by every method.
void round_trips() {
  const Lists blocks{{0, 1}, {2, 3}, {4, 5, 6}}, turns{{0, 3, 6}, {1, 4}, {2, 5}}, copies{{5, 0, 1}, {2, 3, 5}, {4, 6, 5, 2}};
  test::ranks(kWorld, [&](Bootstrap& bootstrap) {
    const Communicator communicator = Communicator::open(bootstrap, Device::host(), small());
    for (const Method method : {Method::kAuto, Method::kGather, Method::kBroadcast, Method::kPackets}) {
      round_trip<std::int32_t>(communicator, layer(Layout::kByRank, method), blocks);
    }
    for (const Method method : {Method::kAuto, Method::kDirect, Method::kGather, Method::kBroadcast, Method::kPackets}) {
      round_trip<std::int64_t>(communicator, layer(Layout::kBySource, method), blocks);
      ExpertConfig by_source = layer(Layout::kBySource, method);
      by_source.placement = Placement::table(copies);
      by_source.determinism = Determinism::kExact;
      by_source.capacity = 1;  // there is room for all the same
      round_trip<std::int32_t>(communicator, by_source, copies);
    }
    round_trip<std::int64_t>(communicator, layer(Layout::kByExpert), blocks);
    ExpertConfig padded = layer(Layout::kPadded, Method::kGather);
    padded.placement = Placement::round_robin();
    round_trip<std::int32_t>(communicator, padded, turns);
    ExpertConfig exact = layer(Layout::kByExpert, Method::kDirect);
    exact.placement = Placement::table(copies);
    exact.determinism = Determinism::kExact;
    exact.blocks = 2;
    round_trip<std::int32_t>(communicator, exact, copies);
    communicator.close();
  });
  test::ranks(kWorld, [&](Bootstrap& bootstrap) {
    const Device device = Device::host();
    EnvConfig config;
    config.tensor_parallel_size = kWorld;
    config.device = &device;
    config.communicator = small();
    const Environment environment = Environment::init(bootstrap, config);
    round_trip<std::int64_t>(environment.ep(), layer(Layout::kByRank), blocks);
    environment.close();
  });
}

/// Rows as quantised values with scales: from the caller, with and without a plan and its counts; and quantised for the
/// transfer.
void codes() {
  test::ranks(2, [](Bootstrap& bootstrap) {
    constexpr std::size_t kElems = 130, kGroups = 2;
    const Two two(bootstrap);
    const Stream& stream = two.stream;
    ExpertConfig config(2, 1, kElems, 2);
    config.dtype = Dtype::kF32;
    config.method = Method::kDirect;
    config.wire = Wire::kGivenF8;
    std::vector<std::uint8_t> own(2 * kElems);
    const auto code = [](std::size_t source, std::size_t i) { return static_cast<std::uint8_t>((source * 50 + i) % 127); };
    for (std::size_t i = 0; i < own.size(); ++i) own[i] = code(two.rank, i);
    const auto scale = [](std::size_t source, std::size_t token, std::size_t group) {
      return static_cast<float>(100 * source + 10 * token + group);
    };
    const std::vector<float> own_scales{scale(two.rank, 0, 0), scale(two.rank, 0, 1), scale(two.rank, 1, 0), scale(two.rank, 1, 1)};
    const DeviceBuffer rows = on_device(own, two.device, stream), scales = on_device(own_scales, two.device, stream);
    {
      const Experts experts = two.communicator.experts(config);
      const Routed routed = experts.plan(Routing(two.ids), stream);
      CHECK_EQ(experts.capacity(), 4u);
      CHECK(routed.counts() == std::vector<std::size_t>{2});
      for (const ScaleOrder order : {ScaleOrder::kRows, ScaleOrder::kColumns}) {
        const DeviceBuffer received = filled<std::uint8_t>(2 * kElems, 0, two.device, stream);
        const DeviceBuffer came = filled(2 * kGroups, 0.0f, two.device, stream);
        Received into(received);
        into.scales = came;
        into.order = order;
        CHECK(says(CHECK_THROWS(kInvalidArgument, routed.dispatch(rows, into, stream)), "the scales"));
        routed.dispatch(rows, into, stream, scales);
        two.communicator.synchronize(stream);
        const std::vector<std::uint8_t> found = received.read<std::uint8_t>(stream);
        const std::vector<float> found_scales = came.read<float>(stream);
        for (std::size_t source = 0; source < 2; ++source) {
          const std::size_t token = two.token_from(source);
          for (std::size_t i = 0; i < kElems; ++i) CHECK_EQ(found[source * kElems + i], code(source, token * kElems + i));
          for (std::size_t group = 0; group < kGroups; ++group) {
            const std::size_t place = order == ScaleOrder::kRows ? source * kGroups + group : group * 2 + source;
            CHECK_EQ(found_scales[place], scale(source, token, group));
          }
        }
      }
    }
    // 448 is the largest code, so the scale is 1 and small integers are codes.
    std::vector<float> values(2 * kElems);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = i % kElems % 128 == 0 ? 448.0f : static_cast<float>(i % 3);
    const DeviceBuffer floats = on_device(values, two.device, stream);
    config.wire = Wire::kF8;
    for (const Scales kind : {Scales::kF32, Scales::kPowersOfTwo, Scales::kE8M0}) {
      config.scales = kind;
      const bool bytes = kind == Scales::kE8M0;
      const Experts experts = two.communicator.experts(config);
      const DeviceBuffer received = filled<std::uint8_t>(4 * kElems, 0xEE, two.device, stream);
      const DeviceBuffer came(two.device, 4 * kGroups, bytes ? Dtype::kU8 : Dtype::kF32);
      Received into(received);
      into.scales = came;
      const Routed routed = experts.dispatch(Routing(two.ids), floats, into, stream);
      two.communicator.synchronize(stream);
      const std::vector<std::uint8_t> found = received.read<std::uint8_t>(stream);
      const std::uint8_t of_small[] = {0x00, 0x38, 0x40};
      for (std::size_t i = 0; i < 2 * kElems; ++i) {
        const float x = values[two.token_from(i / kElems) * kElems + i % kElems];
        CHECK_EQ(int{found[i]}, x > 2.0f ? 0x7E : int{of_small[static_cast<std::size_t>(x)]});
      }
      for (std::size_t i = 0; i < 2 * kGroups; ++i) {
        if (bytes) CHECK_EQ(int{came.read<std::uint8_t>(stream)[i]}, 127);
        if (!bytes) CHECK_EQ(came.read<float>(stream)[i], 1.0f);
      }
    }
    // Bytes, bit for bit.
    config.wire = Wire::kBytes;
    config.row_bytes = 3;
    const Experts experts = two.communicator.experts(config);
    const auto byte = [](std::size_t source, std::size_t i) { return static_cast<std::uint8_t>(0xFA + source - i * 40); };
    std::vector<std::uint8_t> raw;
    for (std::size_t i = 0; i < 6; ++i) raw.push_back(byte(two.rank, i));
    const DeviceBuffer sent = on_device(raw, two.device, stream), received = filled<std::uint8_t>(12, 0, two.device, stream);
    const Routed routed = experts.dispatch(Routing(two.ids), sent, Received(received), stream);
    two.communicator.synchronize(stream);
    const std::vector<std::uint8_t> found = received.read<std::uint8_t>(stream);
    for (std::size_t i = 0; i < 6; ++i) CHECK_EQ(int{found[i]}, int{byte(i / 3, two.token_from(i / 3) * 3 + i % 3)});
    two.communicator.close();
  });
}

/// A graph owns its buffers and the parts of its experts that it needs. A replay reads ids and the count of tokens anew.
void graphs() {
  test::ranks(2, [](Bootstrap& bootstrap) {
    const Two two(bootstrap);
    const Stream& stream = two.stream;
    const DeviceBuffer rows(two.device, 2, Dtype::kF32), output(two.device, 2, Dtype::kF32), count(two.device, 1, Dtype::kU32);
    const DeviceBuffer added = on_device(std::vector<float>{0.5f, 0.25f}, two.device, stream);
    std::optional<Experts> experts(two.communicator.experts(single()));
    std::optional<DeviceBuffer> received(filled(experts->capacity(), 0.0f, two.device, stream));
    std::optional<Routed> escaped;
    Routing routing(two.ids);
    routing.tokens = count;
    CombineOptions options;
    options.add = added;
    const Graph graph = stream.capture([&](const Capture& capture) {
      const Routed routed = experts->dispatch(routing, rows, Received(*received), capture);
      routed.combine(*received, output, capture, options);
    });
    graph.register_pointers();
    // A handle beyond its capture serves nothing, and holds its slot.
    const Graph other = stream.capture([&](const Capture& capture) { escaped.emplace(experts->plan(routing, capture)); });
    CHECK(says(CHECK_THROWS(kInvalidArgument, escaped->combine(*received, output, stream)), "the dispatch went to capture"));
    stream.capture([&](const Capture& capture) { CHECK_THROWS(kInvalidArgument, escaped->combine(*received, output, capture)); });
    CHECK(says(CHECK_THROWS(kUnsupported, escaped->counts()), "the counts of a captured dispatch"));
    CHECK(says(CHECK_THROWS(kUnsupported, experts->plan(routing, stream)), "1 of 1 slots"));
    escaped.reset();

    for (int replay = 0; replay < 8; ++replay) {
      const auto first = static_cast<float>(10 * replay + static_cast<int>(two.rank));
      const std::uint32_t live = replay % 3 == 0 ? 1 : 2;
      const auto to = static_cast<std::int32_t>((static_cast<std::size_t>(replay) + two.rank) % 2);
      two.ids.write(std::vector<std::int32_t>{to, replay % 4 == 0 ? -1 : 1 - to}, stream);
      count.write(std::vector<std::uint32_t>{live}, stream);
      rows.write(std::vector<float>{first, first + 0.5f}, stream);
      output.write(std::vector<float>{-1.0f, -1.0f}, stream);
      if (replay == 2) {
        // An eager handle holds the graph's slot.
        const Routed eager = experts->plan(routing, stream);
        CHECK(says(CHECK_THROWS(kUnsupported, graph.launch(stream)), "which the graph would overwrite"));
      }
      if (replay == 4) {
        received.reset();
        experts.reset();
      }
      graph.launch(stream);
      two.communicator.synchronize(stream);
      const std::vector<float> found = output.read<float>(stream);
      CHECK_EQ(found[0], first + 0.5f);
      CHECK_EQ(found[1], live == 1 ? -1.0f : replay % 4 == 0 ? 0.25f : first + 0.75f);
    }
    two.communicator.close();
    CHECK_THROWS(kClosed, graph.launch(stream));
  });
}

/// A handle may outlive its experts, and its slots are its own until it is destroyed.
void handles() {
  test::ranks(2, [](Bootstrap& bootstrap) {
    const Two two(bootstrap);
    const Stream& stream = two.stream;
    const DeviceBuffer rows = on_device(std::vector<float>{3.0f, 5.0f}, two.device, stream);
    const DeviceBuffer output(two.device, 2, Dtype::kF32);
    ExpertConfig config = single(Layout::kByRank);
    config.in_flight = 2;
    std::optional<Experts> experts(two.communicator.experts(config));
    const DeviceBuffer received = filled(experts->capacity(), 0.0f, two.device, stream);
    std::optional<Routed> planned(experts->plan(Routing(two.ids), stream));
    Routed first = experts->dispatch(Routing(two.ids), rows, Received(received), stream);
    CHECK(says(CHECK_THROWS(kUnsupported, experts->plan(Routing(two.ids), stream)), "2 of 2 slots (`in_flight`) are held"));
    // Ranks drop the handle of the first dispatch, whose slot is the next: rank 0 before another refusal, rank 1 after
    // it.
    if (two.rank == 0) planned.reset();
    if (two.rank == 1) {
      CHECK(says(CHECK_THROWS(kUnsupported, experts->plan(Routing(two.ids), stream)), "slot 0 is the next"));
      planned.reset();
    }
    planned.emplace(experts->plan(Routing(two.ids), stream));
    const Routed taken = std::move(first);
    CHECK(says(CHECK_THROWS(kInvalidArgument, first.counts()), "moved from"));
    Experts moved = std::move(*experts);
    CHECK(says(CHECK_THROWS(kInvalidArgument, experts->capacity()), "moved from"));
    experts.emplace(std::move(moved));
    experts.reset();
    CHECK(taken.counts() == std::vector<std::size_t>{2});
    taken.combine(received, output, stream);
    two.communicator.synchronize(stream);
    CHECK((output.read<float>(stream) == std::vector<float>{3.0f, 5.0f}));
    two.communicator.close();
    CHECK_THROWS(kClosed, taken.combine(received, output, stream));
  });
}

/// Two dispatches in flight, in two halves each; the data of a destroyed handle are discarded.
void halves() {
  test::ranks(2, [](Bootstrap& bootstrap) {
    const Two two(bootstrap);
    const Stream& stream = two.stream;
    const auto first = static_cast<float>(10 * two.rank);
    const DeviceBuffer rows = on_device(std::vector<float>{first + 1.0f, first + 2.0f}, two.device, stream);
    const DeviceBuffer more = on_device(std::vector<float>{first + 3.0f, first + 4.0f}, two.device, stream);
    const DeviceBuffer output = filled(2, kUntouched, two.device, stream), other = filled(2, kUntouched, two.device, stream);
    ExpertConfig config = single();
    config.method = Method::kPackets;
    config.in_flight = 2;
    const Experts experts = two.communicator.experts(config);
    const Routing routing(two.ids);
    const DeviceBuffer received = filled(experts.capacity(), kUntouched, two.device, stream);
    const DeviceBuffer later = filled(experts.capacity(), kUntouched, two.device, stream);
    {
      Arriving one = experts.dispatch_begin(routing, rows, stream), second = experts.dispatch_begin(routing, more, stream);
      CHECK(says(CHECK_THROWS(kUnsupported, experts.dispatch_begin(routing, rows, stream)), "2 of 2 slots (`in_flight`) are held"));
      CHECK(says(CHECK_THROWS(kUnsupported, std::move(second).receive(Received(later), stream)), "is to be received first"));
      CHECK(says(CHECK_THROWS(kInvalidArgument, std::move(second).receive(Received(later), stream)), "moved from"));
      const Routed routed = std::move(one).receive(Received(received), stream);
      Returning returning = routed.combine_begin(received, stream);
      CHECK(says(CHECK_THROWS(kUnsupported, routed.combine(received, output, stream)), "the whole of a combine"));
      CombineOptions options;
      options.add = more;
      std::move(returning).receive(output, stream, options);
      CombineOptions unweighted;
      unweighted.weighted = false;
      Returning again = routed.combine_begin(received, stream);
      CHECK(says(CHECK_THROWS(kUnsupported, std::move(again).receive(other, stream, unweighted)), "ranks weighed the results"));
    }
    // Both slots are free: the dispatch that was refused is received into nothing.
    experts.place(Placement::blocks(), stream);
    two.communicator.synchronize(stream);
    CHECK((output.read<float>(stream) == std::vector<float>{2 * first + 4.0f, 2 * first + 6.0f}));
    CHECK((other.read<float>(stream) == std::vector<float>{kUntouched, kUntouched}));
    CHECK(later.read<float>(stream) == std::vector<float>(experts.capacity(), kUntouched));

    // A dispatch that outlives its capture was received when the capture ended.
    std::optional<Arriving> escaped;
    const Graph graph = stream.capture([&](const Capture& capture) {
      Arriving arriving = experts.dispatch_begin(routing, rows, capture);
      const Routed routed = std::move(arriving).receive(Received(received), capture);
      routed.combine_begin(received, capture).receive(output, capture);
      escaped.emplace(experts.dispatch_begin(routing, more, capture));
    });
    graph.register_pointers();
    for (int replay = 0; replay < 3; ++replay) {
      output.write(std::vector<float>{kUntouched, kUntouched}, stream);
      graph.launch(stream);
      two.communicator.synchronize(stream);
      CHECK((output.read<float>(stream) == std::vector<float>{first + 1.0f, first + 2.0f}));
    }
    CHECK(says(CHECK_THROWS(kInvalidArgument, std::move(*escaped).receive(Received(later), stream)), "the dispatch went to capture"));
    escaped.reset();
    // A dispatch that outlives a failed capture holds no slot.
    CHECK_THROWS(kUnsupported, stream.capture([&](const Capture& capture) {
      escaped.emplace(experts.dispatch_begin(routing, more, capture));
      const Arriving second = experts.dispatch_begin(routing, rows, capture);
      const Arriving refused = experts.dispatch_begin(routing, rows, capture);
    }));
    experts.place(Placement::blocks(), stream);
    CHECK(says(CHECK_THROWS(kInvalidArgument, std::move(*escaped).receive(Received(later), stream)), "the dispatch went to capture"));
    escaped.reset();
    config.method = Method::kDirect;
    const Experts direct = two.communicator.experts(config);
    CHECK(says(CHECK_THROWS(kUnsupported, direct.dispatch_begin(routing, rows, stream)), "the method is Direct"));
    const std::vector<MethodExplanation> explained = direct.explain();
    CHECK_EQ(explained.size(), 4u);
    for (const MethodExplanation& explanation : explained) {
      CHECK_EQ(explanation.serves, explanation.method == Method::kDirect);
      CHECK_EQ(explanation.reason, "the settings name Direct");
    }
    two.communicator.close();
  });
}

void places() {
  test::ranks(2, [](Bootstrap& bootstrap) {
    const Two two(bootstrap);
    const Stream& stream = two.stream;
    const Experts experts = two.communicator.experts(single());
    const DeviceBuffer rows = on_device(std::vector<float>{10.0f * static_cast<float>(two.rank), 1.0f}, two.device, stream);
    const DeviceBuffer received = filled(experts.capacity(), kUntouched, two.device, stream);
    const DeviceBuffer to_zero = filled<std::int32_t>(2, 0, two.device, stream);
    CHECK(experts.local_experts() == std::vector<std::size_t>{two.rank});
    experts.place(Placement::table({{1}, {0}}), stream);
    CHECK(experts.local_experts() == std::vector<std::size_t>{1 - two.rank});
    {
      const Routed routed = experts.dispatch(Routing(to_zero), rows, Received(received), stream);
      CHECK(routed.counts() == std::vector<std::size_t>{two.rank == 1 ? 4u : 0u});
      const std::vector<float> right =
          two.rank == 1 ? std::vector<float>{0.0f, 1.0f, 10.0f, 1.0f} : std::vector<float>(experts.capacity(), kUntouched);
      CHECK(received.read<float>(stream) == right);
      CHECK(says(CHECK_THROWS(kUnsupported, experts.place(Placement::blocks(), stream)), "a placement of experts"));
    }
    two.communicator.close();
  });
  test::ranks(2, [](Bootstrap& bootstrap) {
    const Two two(bootstrap);
    const Experts experts = two.communicator.experts(single());
    const auto place = [&](const Placement& placement) { experts.place(placement, two.stream); };
    CHECK(says(CHECK_THROWS(kInvalidArgument, place(Placement::table({{0, 1}, {}}))), "the number of experts of rank 0 is 2"));
    CHECK(says(CHECK_THROWS(kInvalidArgument, place(Placement::table({{0}, {0}}))), "an expert that no rank has is 1"));
    CHECK(says(CHECK_THROWS(kInvalidArgument, place(Placement::table({{0, 1}}))), "the number of lists of experts is 1"));
    CHECK(says(CHECK_THROWS(kMismatch, place(two.rank == 0 ? Placement::blocks() : Placement::round_robin())), "the placement of experts"));
    std::optional<Routed> routed(experts.plan(Routing(two.ids), two.stream));
    if (two.rank == 0) routed.reset();
    if (two.rank == 0) CHECK_EQ(CHECK_THROWS(kPeer, place(Placement::blocks())).rank(), 1);
    if (two.rank == 1) CHECK_THROWS(kUnsupported, place(Placement::blocks()));
    routed.reset();
    place(Placement::table({{1}, {0}}));
    two.communicator.close();
  });
}

void survivors() {
  test::ranks(2, [](Bootstrap& bootstrap) {
    const Two two(bootstrap);
    const Experts experts = two.communicator.experts(single());
    // Two dispatches that have ended on both ranks, and one whose handle is held.
    const DeviceBuffer none = on_device(std::vector<std::int32_t>{-1, -1}, two.device, two.stream);
    const DeviceBuffer nothing = filled(2, 0.0f, two.device, two.stream);
    const DeviceBuffer into = filled(experts.capacity(), kUntouched, two.device, two.stream);
    const auto dispatch = [&] { return experts.dispatch(Routing(none), nothing, Received(into), two.stream); };
    const std::uint64_t ended = 2;
    for (std::uint64_t i = 0; i < ended; ++i) (void)dispatch();
    const Routed held = dispatch();
    experts.synchronize(two.stream);
    CHECK(says(CHECK_THROWS(kInvalidArgument, experts.without({2})), "a rank that is lost is 2"));
    CHECK(says(CHECK_THROWS(kInvalidArgument, experts.without({two.rank})), "it is another rank than the calling rank"));
    if (two.rank == 0) {
      const Survivors left = experts.without({1});
      CHECK(left.lost == std::vector<std::size_t>({1}));
      CHECK_EQ(left.ended, ended);
      const Experts& alone = left.experts;
      CHECK(alone.local_experts() == std::vector<std::size_t>({0, 1}));
      const DeviceBuffer ids = on_device(std::vector<std::int32_t>{1, 0}, two.device, two.stream);
      const DeviceBuffer rows = on_device(std::vector<float>{5.0f, 7.0f}, two.device, two.stream);
      const DeviceBuffer received = filled(alone.capacity(), kUntouched, two.device, two.stream);
      const Routed routed = alone.dispatch(Routing(ids), rows, Received(received), two.stream);
      alone.synchronize(two.stream);
      CHECK(routed.counts() == std::vector<std::size_t>({1, 1}));
      CHECK_EQ(received.read<float>(two.stream)[0] + received.read<float>(two.stream)[1], 12.0f);
      // The new group is this rank's alone, and closes without the other.
      const Communicator communicator = alone.communicator();
      CHECK_EQ(communicator.world_size(), 1u);
      communicator.close();
      CHECK_THROWS(kClosed, alone.synchronize(two.stream));
      CHECK_EQ(experts.communicator().world_size(), 2u);
    }
    two.communicator.close();
  });
}

}  // namespace

int main() {
  const struct {
    const char* name;
    void (*run)();
  } cases[] = {{"round_trips", round_trips}, {"codes", codes},
               {"graphs", graphs},           {"handles", handles},
               {"halves", halves},           {"places", places},
               {"survivors", survivors},     {"settings", settings},
               {"refused", refused},         {"found_on_the_device", found_on_the_device}};
  for (const auto& test : cases) {
    test.run();
    std::printf("%s ok\n", test.name);
    std::fflush(stdout);
  }
}
