// Experts by the public C++ API on the host device, with threads as ranks: every setting and operand reaches the
// library, results come back, handles own their slots, and errors are typed. tests/fuzz compares values with a model.

#include <algorithm>
#include <optional>
#include <utility>

#include "expert_ranks.hpp"
#include "refused_experts.hpp"

using namespace symmetra;
using namespace test;

namespace {

constexpr std::uint32_t kFree = 77;    ///< words that no call has written
constexpr std::int32_t kNoLocal = -7;  ///< ids that no call has written

/// The outputs of a dispatch on a rank, and the results of the rank's experts: expert e multiplies a row by e + 1.
struct Expected {
  std::vector<float> rows;
  std::vector<std::uint32_t> counts, offsets;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  std::vector<std::uint32_t> sources, index;
  std::vector<float> weighted, plain;
};

/// Rank 0 has experts 0 and 1, rank 1 expert 2. Token 0 of rank 0 has x = 1 and goes to experts 0 and 2 with weights 0.5
/// and 0.25, token 1 has x = 2 and goes to expert 1 with weight 2. Token 0 of rank 1 has x = 3 and goes to experts 2 and 1
/// with weights 4 and 8.
Expected expected(Layout layout, std::size_t rank) {
  constexpr float kNone = kUntouched;
  switch (layout) {
    case Layout::kByRank:
      if (rank == 0) {
        return {{1, 2, 3}, {1, 2},        {0, 1, 3}, {0, -1, 1, -1, -1, 1}, {0.5f, 0, 2, 0, 0, 8}, {0, 0, 0, 1, 1, 0},
                {0, 1, 2}, {0.5f, 8, 48}, {1, 4, 6}};
      }
      return {{1, 3}, {2}, {0, 2}, {-1, 0, 0, -1}, {0, 0.25f, 4, 0}, {0, 0, 1, 0}, {0, 1}, {0.75f, 36}, {3, 9}};
    case Layout::kBySource:
      if (rank == 0) {
        return {{1, 2, 3}, {}, {}, {0, -1, 1, -1, -1, 1}, {0.5f, 0, 2, 0, 0, 8}, {0, 0, 0, 1, 1, 0}, {}, {0.5f, 8, 48}, {1, 4, 6}};
      }
      return {{1, kNone, 3},  {},       {}, {-1, 0, -1, -1, 0, -1}, {0, 0.25f, 0, 0, 4, 0}, {0, 0, kFree, kFree, 1, 0}, {},
              {0.75f, 0, 36}, {3, 0, 9}};
    case Layout::kByExpert:
    case Layout::kPadded:
      // Both begin the rows of expert 1 at row 2.
      if (rank == 0) {
        return {
            {1, kNone, 2, 3}, {1, 2},          {0, 2, 4}, {0, kNoLocal, 1, 1}, {0.5f, kNone, 2, 8}, {0, 0, kFree, kFree, 0, 1, 1, 0}, {},
            {1, kNone, 4, 6}, {1, kNone, 4, 6}};
      }
      return {{1, 3}, {2}, {0, 2}, {0, 0}, {0.25f, 4}, {0, 0, 1, 0}, {}, {3, 9}, {3, 9}};
  }
  return {};
}

/// Whether a buffer has these values first, and after them only `rest`.
template <class T>
bool holds(const DeviceBuffer& buffer, std::vector<T> values, T rest, const Stream& stream) {
  values.resize(buffer.count(), rest);
  return buffer.read<T>(stream) == values;
}

ExpertConfig layer(Layout layout, Method method) {
  ExpertConfig config(3, 2, 1, 2);
  config.dtype = Dtype::kF32;
  config.placement = Placement::table({{0, 1}, {2}});
  config.layout = layout;
  config.method = method;
  config.align = config.padded_rows = 2;
  return config;
}

/// Dispatch and combine with every operand, with ids of type Id. `replica`: rank 1 also has expert 0, which no token uses
/// there.
template <class Id, class Group>
void round_trip(const Group& group, const ExpertConfig& config, bool replica = false) {
  const std::size_t rank = group.rank(), tokens = 2 - rank;
  const Device device = group.device();
  const Stream stream(device);
  const Experts experts = group.experts(config);
  const bool by_source = config.layout == Layout::kBySource, by_token = by_source || config.layout == Layout::kByRank;
  Expected right = expected(config.layout, rank);
  std::vector<std::size_t> locals = rank == 0 ? std::vector<std::size_t>{0, 1} : std::vector<std::size_t>{2};
  if (replica && rank == 1) {
    locals.push_back(0);
    right.counts.push_back(0);
    right.offsets.push_back(right.offsets.empty() ? 0 : right.offsets.back());
  }
  CHECK(experts.local_experts() == locals);
  CHECK(config.method == Method::kAuto ? experts.method() != Method::kAuto : experts.method() == config.method);

  const DeviceBuffer ids = on_device(rank == 0 ? std::vector<Id>{0, 2, 1, -1} : std::vector<Id>{2, 1}, device, stream);
  const DeviceBuffer weights = on_device(rank == 0 ? std::vector<float>{0.5f, 0.25f, 2, 9} : std::vector<float>{4, 8}, device, stream);
  const DeviceBuffer rows = on_device(rank == 0 ? std::vector<float>{1, 2} : std::vector<float>{3}, device, stream);
  const std::size_t capacity = experts.capacity(), pairs = capacity * (by_token ? 2 : 1);
  const DeviceBuffer received = filled(capacity, kUntouched, device, stream);
  const DeviceBuffer counts = filled(locals.size(), kFree, device, stream), offsets = filled(locals.size() + 1, kFree, device, stream);
  const DeviceBuffer own = filled(pairs, kNoLocal, device, stream), factors = filled(pairs, kUntouched, device, stream);
  const DeviceBuffer sources = filled(capacity * 2, kFree, device, stream), index = filled(pairs, kFree, device, stream);
  Received into(received);
  if (!by_source) into.counts = counts;
  if (!by_source) into.offsets = offsets;
  into.ids = own;
  into.weights = factors;
  into.sources = sources;
  if (config.layout == Layout::kByRank) into.index = index;
  const Routed routed = experts.dispatch(Routing(ids, weights), rows, into, stream);
  group.synchronize(stream);
  CHECK(holds(received, right.rows, kUntouched, stream));
  CHECK(holds(sources, right.sources, kFree, stream));
  // In the by-source layout, unused rows have expert id -1 and weight 0.
  CHECK(holds(own, right.ids, by_source ? -1 : kNoLocal, stream));
  CHECK(holds(factors, right.weights, by_source ? 0.0f : kUntouched, stream));
  if (by_source) {
    CHECK_EQ(capacity, 4u);
    CHECK(says(CHECK_THROWS(kUnsupported, routed.counts()), "rows by source are not counted"));
  } else {
    CHECK(holds(counts, right.counts, kFree, stream) && holds(offsets, right.offsets, kFree, stream));
    CHECK(routed.counts() == std::vector<std::size_t>(right.counts.begin(), right.counts.end()));
  }
  if (into.index) CHECK(holds(index, right.index, index.read<std::uint32_t>(stream).back(), stream));

  for (const bool weighted : {true, false}) {
    std::vector<float> results = weighted ? right.weighted : right.plain;
    results.resize(capacity, kUntouched);
    received.write(results, stream);
    const DeviceBuffer output = filled(tokens, 1000.0f, device, stream);
    CombineOptions options;
    options.weighted = weighted;
    if (!weighted) options.add = output;
    routed.combine(received, output, stream, options);
    group.synchronize(stream);
    const std::vector<float> sums = rank == 0 ? (weighted ? std::vector<float>{1.25f, 8} : std::vector<float>{1004, 1004})
                                              : std::vector<float>{weighted ? 84.0f : 1015.0f};
    CHECK(output.read<float>(stream) == sums);
  }
}

/// Every layout, by every method, over a communicator and over a group.
void round_trips() {
  test::ranks(2, [](Bootstrap& bootstrap) {
    const Communicator communicator = Communicator::open(bootstrap, Device::host(), small());
    for (const Layout layout : {Layout::kByRank, Layout::kByExpert, Layout::kPadded, Layout::kBySource}) {
      for (const Method method : {Method::kAuto, Method::kDirect, Method::kGather, Method::kBroadcast, Method::kPackets})
        round_trip<std::int32_t>(communicator, layer(layout, method));
      ExpertConfig exact = layer(layout, Method::kDirect);
      exact.placement = Placement::table({{0, 1}, {2, 0}});
      exact.determinism = Determinism::kExact;
      exact.blocks = 2;
      if (layout == Layout::kBySource) exact.capacity = 1;  // this layout has capacity for all rows
      if (layout != Layout::kPadded) round_trip<std::int64_t>(communicator, exact, true);
    }
    communicator.close();
  });
  test::ranks(2, [](Bootstrap& bootstrap) {
    const Device device = Device::host();
    EnvConfig config;
    config.tensor_parallel_size = 2;
    config.device = &device;
    config.communicator = small();
    const Environment environment = Environment::init(bootstrap, config);
    round_trip<std::int64_t>(environment.ep(), layer(Layout::kByRank, Method::kAuto));
    environment.close();
  });
}

/// The caller's codes with two scales for each row, by a plan, in both orders of scales.
void given_codes(const Two& two, ExpertConfig config) {
  constexpr std::size_t kElems = 130;
  const Stream& stream = two.stream;
  config.hidden = kElems;
  config.wire = Wire::kGivenF8;
  const auto code = [](std::size_t source, std::size_t token) { return static_cast<std::uint8_t>(10 * source + token + 1); };
  const auto scale = [](std::size_t source, std::size_t token, std::size_t group) {
    return static_cast<float>(100 * source + 10 * token + group);
  };
  std::vector<std::uint8_t> own(kElems, code(two.rank, 0));
  own.resize(2 * kElems, code(two.rank, 1));
  const std::vector<float> own_scales{scale(two.rank, 0, 0), scale(two.rank, 0, 1), scale(two.rank, 1, 0), scale(two.rank, 1, 1)};
  const DeviceBuffer rows = on_device(own, two.device, stream), scales = on_device(own_scales, two.device, stream);
  const Experts experts = two.communicator.experts(config);
  const Routed routed = experts.plan(Routing(two.ids), stream);
  CHECK(routed.counts() == std::vector<std::size_t>{2});
  for (const ScaleOrder order : {ScaleOrder::kRows, ScaleOrder::kColumns}) {
    const DeviceBuffer received = filled<std::uint8_t>(2 * kElems, 0, two.device, stream), came = filled(4, 0.0f, two.device, stream);
    Received into(received);
    into.scales = came;
    into.order = order;
    CHECK(says(CHECK_THROWS(kInvalidArgument, routed.dispatch(rows, into, stream)), "the scales"));
    routed.dispatch(rows, into, stream, scales);
    two.communicator.synchronize(stream);
    for (std::size_t source = 0; source < 2; ++source) {
      const std::size_t token = two.token_from(source);
      CHECK_EQ(int{received.read<std::uint8_t>(stream)[source * kElems + 129]}, int{code(source, token)});
      for (std::size_t group = 0; group < 2; ++group) {
        const std::size_t place = order == ScaleOrder::kRows ? source * 2 + group : group * 2 + source;
        CHECK_EQ(came.read<float>(stream)[place], scale(source, token, group));
      }
    }
  }
}

/// Rows as quantised values with scales, of the caller and by the library, and as bytes.
void codes() {
  test::ranks(2, [](Bootstrap& bootstrap) {
    const Two two(bootstrap);
    const Stream& stream = two.stream;
    ExpertConfig config = single(Layout::kByRank);
    given_codes(two, config);
    // The scale of 336 is 336 / 448, or the next power of two, which is 1.
    config.hidden = 2;
    config.wire = Wire::kF8;
    const DeviceBuffer floats = on_device(std::vector<float>{336, 0, 336, 0}, two.device, stream);
    for (const Scales kind : {Scales::kF32, Scales::kPowersOfTwo, Scales::kE8M0}) {
      config.scales = kind;
      const Experts experts = two.communicator.experts(config);
      const DeviceBuffer received = filled<std::uint8_t>(8, 0xEE, two.device, stream);
      const DeviceBuffer came(two.device, 4, kind == Scales::kE8M0 ? Dtype::kU8 : Dtype::kF32);
      Received into(received);
      into.scales = came;
      const Routed routed = experts.dispatch(Routing(two.ids), floats, into, stream);
      two.communicator.synchronize(stream);
      CHECK_EQ(int{received.read<std::uint8_t>(stream)[2]}, kind == Scales::kF32 ? 0x7E : 0x7A);
      if (kind == Scales::kE8M0) CHECK_EQ(int{came.read<std::uint8_t>(stream)[1]}, 127);
      if (kind != Scales::kE8M0) CHECK_EQ(came.read<float>(stream)[1], kind == Scales::kF32 ? 0.75f : 1.0f);
    }
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
