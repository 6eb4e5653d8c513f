// Grids of tensor and data parallelism: every operation in every mode against sums that are exact, on one host and, in builds with an
// engine between hosts (first argument `hosts`), on several by name; and errors.
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ranks.hpp"

using namespace symmetra;

namespace {

/// Ranks a host, tensor ranks of these, hosts, tensor ranks of these.
struct Shape {
  std::size_t local, local_tensor, hosts, across_tensor;

  std::size_t world() const { return local * hosts; }
  std::size_t data() const { return world() / (local_tensor * across_tensor); }
  MixedConfig config() const {
    MixedConfig config;
    config.grid.local_tensor = local_tensor;
    config.grid.across_data = hosts / across_tensor;
    config.most_bytes = 4000;
    return config;
  }
  /// Host h has every rank r with r % hosts = h, so the numbers of ranks do not follow hosts.
  std::size_t data_rank(std::size_t rank) const {
    const std::size_t host = rank % hosts, number = rank / hosts;
    return number / local_tensor + host / across_tensor * (local / local_tensor);
  }
};

/// Small whole numbers of one rank.
std::vector<std::int32_t> input_of(std::size_t rank, std::size_t count) {
  std::vector<std::int32_t> values(count);
  for (std::size_t at = 0; at < count; ++at) values[at] = static_cast<std::int32_t>((rank + 1) * (at % 19)) - 9;
  return values;
}

bool gathers(MixedOperation operation) {
  return operation == MixedOperation::kAllGather || operation == MixedOperation::kAllReduceAllGather;
}
bool scatters(MixedOperation operation) {
  return operation == MixedOperation::kReduceScatter || operation == MixedOperation::kReduceScatterAllReduce;
}

/// One call: the input of each data rank, and the expected output.
struct Case {
  Shape shape;
  MixedOperation operation;
  std::vector<std::size_t> rows;

  /// Elements of the data ranks before this one.
  std::size_t before(std::size_t data) const {
    std::size_t sum = 0;
    for (std::size_t other = 0; other < data; ++other) sum += rows[other];
    return sum;
  }

  std::vector<std::int32_t> input(std::size_t rank) const {
    return input_of(rank, scatters(operation) ? before(rows.size()) : rows[shape.data_rank(rank)]);
  }

  /// By the table of docs/mixed.md.
  std::vector<std::int32_t> output(std::size_t rank) const {
    std::vector<std::int32_t> result;
    if (gathers(operation)) {
      for (std::size_t data = 0; data < rows.size(); ++data) {
        std::vector<std::int32_t> block(rows[data]);
        for (std::size_t other = 0; other < shape.world(); ++other) {
          if (shape.data_rank(other) == data) add(block, input(other), 0);
        }
        result.insert(result.end(), block.begin(), block.end());
      }
      return result;
    }
    const std::size_t own = shape.data_rank(rank);
    result.resize(rows[own]);
    const std::size_t start = scatters(operation) ? before(own) : 0;
    for (std::size_t other = 0; other < shape.world(); ++other) add(result, input(other), start);
    return result;
  }

 private:
  static void add(std::vector<std::int32_t>& sums, const std::vector<std::int32_t>& values, std::size_t start) {
    for (std::size_t at = 0; at < sums.size(); ++at) sums[at] += values[start + at];
  }
};

void check(const Mixed& mixed, const Coordinator& group, const Case& all, MixedMode mode) {
  const Stream stream(group.device());
  const std::vector<std::int32_t> input = all.input(group.rank()), expected = all.output(group.rank());
  const DeviceBuffer from(group.device(), input.size(), Dtype::kI32);
  const DeviceBuffer into(group.device(), expected.size(), Dtype::kI32);
  from.write(input, stream);
  MixedOptions options;
  options.mode = mode;
  if (all.rows.front() != all.rows.back()) options.rows = all.rows;
  mixed.perform(all.operation, from, into, stream, options);
  mixed.synchronize(stream);
  CHECK(into.read<std::int32_t>(stream) == expected);
  if (all.shape.hosts > 1) return;
  into.write(std::vector<std::int32_t>(expected.size(), 77), stream);
  const Graph graph = group.capture(stream, [&](Capture& capture) { mixed.perform(all.operation, from, into, capture, options); });
  graph.launch(stream);
  graph.launch(stream);
  mixed.synchronize(stream);
  CHECK(into.read<std::int32_t>(stream) == expected);
}

/// Runs `body` on every rank of a new group.
void grouped(const Shape& shape, const std::function<void(const Coordinator&)>& body) {
  auto all = bootstrap::threads(shape.world());
  test::ranks(shape.world(), [&](Bootstrap& bootstrap) {
    const std::size_t rank = bootstrap.rank();
    GroupConfig config;
    config.communicator.heap_bytes = 4 << 20;
    config.host = "host-" + std::to_string(rank % shape.hosts);
    config.interface = "127.0.0.1";
    const Coordinator group = Coordinator::open(std::move(all[rank]), Device::host(), config);
    body(group);
    group.close();
  });
}

void run(const Shape& shape) {
  std::size_t calls = 0;
  grouped(shape, [&](const Coordinator& group) {
    const Mixed mixed = Mixed::open(group, shape.config());
    CHECK_EQ(mixed.data_rank(), shape.data_rank(group.rank()));
    CHECK_EQ(mixed.data_size(), shape.data());
    CHECK_EQ(mixed.tensor_size(), shape.world() / shape.data());
    CHECK(mixed.tensor_rank() < mixed.tensor_size());
    std::size_t own = 0;
    for (const MixedOperation operation : mixed.operations()) {
      std::vector<MixedMode> modes = mixed.modes(operation);
      modes.push_back(MixedMode::kAuto);
      for (const MixedMode mode : modes) {
        CHECK(!mixed.explain(operation, mode).empty());
        const std::vector<std::size_t> equal(shape.data(), 130), pieces(shape.data(), 2500);
        std::vector<std::size_t> unequal(shape.data());
        for (std::size_t data = 0; data < unequal.size(); ++data) unequal[data] = data * 70 % 200;
        for (const auto& rows : {equal, pieces, unequal}) check(mixed, group, Case{shape, operation, rows}, mode), ++own;
      }
    }
    mixed.close();
    CHECK_THROWS(kClosed, mixed.close());
    if (group.rank() == 0) calls = own;
  });
  std::printf("%zu x %zu ranks, %zu calls ok\n", shape.hosts, shape.local, calls);
}

void refused() {
  const Shape shape{4, 2, 1, 1};
  grouped(shape, [&](const Coordinator& group) {
    MixedConfig wrong;
    wrong.grid.local_tensor = 3;
    const Error error = CHECK_THROWS(kInvalidArgument, Mixed::open(group, wrong));
    CHECK(std::string(error.what()).find("3 x ?, but there are 4 ranks of a host") != std::string::npos);
    CHECK_THROWS(kInvalidArgument, wrong.required_bytes(4, 1));
    CHECK_THROWS(kInvalidArgument, shape.config().required_bytes(0, 2));
    CHECK_THROWS(kInvalidArgument, shape.config().required_bytes(17, 1));
    CHECK(shape.config().required_bytes(4, 1) > 2 * 4000u);
    MixedConfig other = shape.config();
    other.most_bytes += group.rank() == 1;
    CHECK_EQ(CHECK_THROWS(kMismatch, Mixed::open(group, other)).rank(), 1);
    const Mixed mixed = Mixed::open(group, shape.config());
    const Stream stream(group.device());
    const DeviceBuffer one(group.device(), 10, Dtype::kF32), two(group.device(), 20, Dtype::kF32);
    const DeviceBuffer whole(group.device(), 20, Dtype::kI32);
    const auto gathered = MixedOperation::kAllReduceAllGather;
    CHECK_THROWS(kUnsupported, mixed.all_reduce(one, one, stream));
    CHECK_THROWS(kUnsupported, mixed.all_reduce_all_gather(one, two, stream, {MixedMode::kTwoShotAcross}));
    CHECK_THROWS(kUnsupported, mixed.explain(gathered, MixedMode::kTwoShotAcross));
    CHECK_THROWS(kInvalidArgument, mixed.all_reduce_all_gather(one, one, stream));
    CHECK_THROWS(kInvalidArgument, mixed.all_reduce_all_gather(one, whole, stream));
    CHECK_THROWS(kInvalidArgument, mixed.all_reduce_all_gather(one, two, stream, {MixedMode::kAuto, Reduction::kSum, {{10, 11}}}));
    CHECK_THROWS(kInvalidArgument, mixed.explain(static_cast<MixedOperation>(5), MixedMode::kAuto));
    CHECK_THROWS(kInvalidArgument, mixed.explain(gathered, static_cast<MixedMode>(6)));
    CHECK(mixed.modes(MixedOperation::kAllGather).empty());
    CHECK_EQ(mixed.select(gathered, Dtype::kF32, true, 40), MixedMode::kOneShot);
    CHECK_EQ(mixed.select(gathered, Dtype::kF32, true, 1 << 20), MixedMode::kTwoCollectives);
    CHECK_EQ(mixed.select(gathered, Dtype::kF32, true, 8 << 20), MixedMode::kTwoShot);
    // Nothing was enqueued, so the ranks still agree.
    mixed.all_reduce_all_gather(one, two, stream);
    mixed.synchronize(stream);
    // A graph keeps the workspace.
    std::optional<Graph> graph;
    {
      const Mixed short_lived = Mixed::open(group, shape.config());
      graph = group.capture(stream, [&](Capture& capture) { short_lived.all_reduce_all_gather(one, two, capture, {MixedMode::kTwoShot}); });
      group.barrier();
    }
    one.write(std::vector<float>(10, 1.0f), stream);
    graph->launch(stream);
    mixed.synchronize(stream);
    CHECK(two.read<float>(stream) == std::vector<float>(20, 2.0f));
    graph.reset();
    mixed.close();
    CHECK_THROWS(kClosed, mixed.all_reduce_all_gather(one, two, stream));
  });
  CHECK_EQ(name(MixedOperation::kReduceScatterAllReduce), "reduce-scatter-all-reduce");
  CHECK_EQ(name(MixedMode::kTwoShotAcross), "two-shot-across");
  std::printf("refused ok\n");
}

}  // namespace

int main(int count, char**) {
  run({3, 1, 1, 1});
  run({4, 2, 1, 1});
  if (count > 1) {
    run({2, 2, 2, 2});
    run({2, 1, 2, 1});
    run({2, 2, 3, 1});
  }
  refused();
}
