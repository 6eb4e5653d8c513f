// GEMMs alone, and fused with collectives, against exact sums; and errors.
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "products.hpp"

using namespace symmetra;
using test::Factors;
using test::Kind;
using test::Matrix;
using test::Placed;

namespace {

constexpr std::size_t kInner = 16, kColumns = 32;

/// Enqueues a call on a stream, then records it in a graph that runs twice. The result is right after each, and is spoilt before each.
template <class Group>
void runs(const Group& group, const Stream& stream, const DeviceBuffer& result, const std::function<void(const Queue&)>& enqueue,
          const test::Values& expected) {
  const auto spoil = [&] {
    result.write(static_cast<const void*>(test::stored(result.dtype(), test::Values(expected.size(), 77)).data()), stream);
  };
  const auto right = [&] {
    group.synchronize(stream);
    CHECK(test::loaded(result, stream) == expected);
  };
  spoil();
  enqueue(stream);
  right();
  const Graph graph = stream.capture([&](Capture& capture) { enqueue(capture); });
  graph.register_pointers();
  for (int launch = 0; launch < 2; ++launch) {
    spoil();
    graph.launch(stream);
    right();
  }
}

/// A group, its plans and the expected results.
template <class Group>
class Plans {
 public:
  Plans(const Group& group, Way way, const Kind& kind, std::uint64_t seed)
      : group_(group), device_(group.device()), stream_(device_), options_(way), kind_(kind), seed_(seed) {}

  void run() const {
    // Scales of rows begin at multiples of 16 bytes in each part.
    const std::size_t few = kind_.scaled ? 4 : 2, odd = kind_.scaled ? 8 : 3;
    gathered(odd, false);
    gathered(few, true);
    scattered(few);
    reduced(odd);
  }

 private:
  std::size_t world() const { return group_.world_size(); }
  Factors factors(std::size_t rank, std::size_t rows) const { return Factors(kind_, seed_ + 10 * rank, rows, kInner, kColumns); }
  Dtype result_type() const { return kind_.product(kInner, kColumns).result; }
  void ran(const Planned& planned) const {
    CHECK_EQ(planned.way, options_.way);
    CHECK_EQ(planned.parts, options_.way == Way::kPipeline ? world() : 1);
    CHECK_EQ(planned.library, Multiplier(device_).library());
    CHECK_EQ(planned.reason, "asked for");
    CHECK_EQ(planned.predicted_us.has_value(), device_.kind() != DeviceKind::kHost);
  }

  /// Two GEMMs of one gathered factor. The gathered factor is also an output, on request.
  void gathered(std::size_t rows, bool keeps) const {
    const Product product = kind_.product(kInner, kColumns);
    const AllGatherMatmul plan = group_.plan_all_gather_matmul({rows, kInner}, 0, {product, product}, options_);
    ran(plan.explain());
    const Factors own = factors(group_.rank(), rows), other = factors(20, rows);
    const Placed first(stream_, device_, own, product.result), second(stream_, device_, other, product.result);
    Matrix ones{0, kColumns, {}}, others = ones;
    test::Values whole;
    for (std::size_t rank = 0; rank < world(); ++rank) {
      const Matrix shard = factors(rank, rows).left;
      whole.insert(whole.end(), shard.values.begin(), shard.values.end());
      append(ones, own.product(shard));
      append(others, other.product(shard));
    }
    own.add_bias(ones);
    other.add_bias(others);
    const DeviceBuffer one(device_, ones.values.size(), product.result), two(device_, others.values.size(), product.result);
    const DeviceBuffer all(device_, whole.size(), kind_.factors);
    const auto enqueue = [&](const Queue& queue) {
      plan.enqueue(first.left_factor(), keeps ? std::optional<Operand>(all) : std::nullopt,
                   {{first.right_factor(), one}, {second.right_factor(), two}}, queue);
    };
    runs(group_, stream_, one, enqueue, ones.values);
    runs(group_, stream_, two, enqueue, others.values);
    if (keeps && kind_.factors != Dtype::kF8E4M3) CHECK(test::loaded(all, stream_) == whole);
  }

  /// The sum of all partial products, with the bias once.
  Matrix sum(std::size_t rows) const {
    Matrix result{rows, kColumns, test::Values(rows * kColumns)};
    for (std::size_t rank = 0; rank < world(); ++rank) {
      const Factors of_rank = factors(rank, rows);
      const test::Values partial = of_rank.product(of_rank.left).values;
      for (std::size_t at = 0; at < partial.size(); ++at) result.values[at] += partial[at];
    }
    factors(0, rows).add_bias(result);
    return result;
  }

  void scattered(std::size_t rows) const {
    const std::size_t all = rows * world();
    const Product product = kind_.product(kInner, kColumns);
    const MatmulReduceScatter plan = group_.plan_matmul_reduce_scatter({all, kInner}, 0, product, options_);
    ran(plan.explain());
    const Placed own(stream_, device_, factors(group_.rank(), all), product.result);
    const DeviceBuffer result(device_, rows * kColumns, product.result);
    const test::Values sums = sum(all).values;
    const auto start = sums.begin() + static_cast<std::ptrdiff_t>(group_.rank() * result.count());
    const test::Values expected(start, start + static_cast<std::ptrdiff_t>(result.count()));
    runs(
        group_, stream_, result, [&](const Queue& queue) { plan.enqueue(own.left_factor(), own.right_factor(), result, queue); }, expected);
  }

  void reduced(std::size_t rows) const {
    const std::size_t all = rows * world();
    const Product product = kind_.product(kInner, kColumns);
    const MatmulAllReduce plan = group_.plan_matmul_all_reduce({world(), rows, kInner}, product, options_);
    ran(plan.explain());
    const Placed own(stream_, device_, factors(group_.rank(), all), product.result);
    const DeviceBuffer result(device_, all * kColumns, product.result);
    runs(
        group_, stream_, result, [&](const Queue& queue) { plan.enqueue(own.left_factor(), own.right_factor(), result, queue); },
        sum(all).values);
  }

  static void append(Matrix& to, const Matrix& rows) {
    to.rows += rows.rows;
    to.values.insert(to.values.end(), rows.values.begin(), rows.values.end());
  }

  const Group& group_;
  Device device_;
  Stream stream_;
  FusedOptions options_;
  Kind kind_;
  std::uint64_t seed_;
};

Config small() {
  Config config;
  config.heap_bytes = 1 << 20;
  return config;
}

template <class Group>
void every_plan(const Group& group, std::uint64_t seed) {
  for (const Kind& kind : test::kinds()) {
    Plans(group, Way::kSequence, kind, seed).run();
    if (group.world_size() > 1) Plans(group, Way::kPipeline, kind, seed).run();
  }
}

void plans(std::size_t world, std::uint64_t seed) {
  test::ranks(world, [&](Bootstrap& bootstrap) {
    const Communicator group = Communicator::open(bootstrap, Device::host(), small());
    every_plan(group, seed);
    group.close();
  });
  auto all = bootstrap::threads(world);
  test::ranks(world, [&](Bootstrap& bootstrap) {
    GroupConfig config;
    config.communicator = small();
    const Coordinator group = Coordinator::open(std::move(all[bootstrap.rank()]), Device::host(), config);
    every_plan(group, seed);
    group.close();
  });
  std::printf("plans of %zu ranks ok\n", world);
}

/// GEMMs alone: both layouts, bias, relu, and several in one call.
void products(std::uint64_t seed) {
  const Device device = Device::host();
  const Stream stream(device);
  std::optional<Multiplier> multiplier(device);
  CHECK_EQ(multiplier->library(), "matrixmultiply");
  for (const Kind& kind : test::kinds()) {
    const Factors factors(kind, seed, 5, kInner, kColumns);
    Product product = kind.product(kInner, kColumns);
    const Placed in(stream, device, factors, product.result);
    const DeviceBuffer result(device, 5 * kColumns, product.result);
    Matrix expected = factors.product(factors.left);
    factors.add_bias(expected);
    multiplier->enqueue(product, 5, in.left_factor(), in.right_factor(), result, stream);
    CHECK(test::loaded(result, stream) == expected.values);
    if (kind.scaled) continue;
    const DeviceBuffer by_rows = test::placed(stream, device, kind.factors, factors.right.values);
    product.right = Product::Order::kRows;
    product.relu = true;
    for (double& value : expected.values) value = std::max(value, 0.0);
    const Factor right = kind.bias ? Factor(by_rows).biased(in.bias) : Factor(by_rows);
    multiplier->enqueue(product, 5, in.left, right, result, stream);
    CHECK(test::loaded(result, stream) == expected.values);
  }
  // Two GEMMs of one call, by address.
  Product both(2, 1, Numeric::f32());
  both.count = 2;
  const std::vector<float> left = {1, 2, 3, 4}, right = {5, 6, 7, 8};
  std::vector<float> result(2);
  multiplier->enqueue(both, 1, ConstOperand(left.data(), 4), ConstOperand(right.data(), 4), Operand(result.data(), 2), stream);
  device.synchronize();
  CHECK(result == (std::vector<float>{17, 53}));
  // A graph keeps its operands and the GEMM handle.
  std::optional<Graph> graph;
  const DeviceBuffer kept(device, 1, Dtype::kF32);
  {
    const DeviceBuffer one = test::placed(stream, device, Dtype::kF32, {1, 2}), two = test::placed(stream, device, Dtype::kF32, {3, 4});
    graph = stream.capture([&](Capture& capture) { multiplier->enqueue(Product(2, 1, Numeric::f32()), 1, one, two, kept, capture); });
  }
  multiplier.reset();
  graph->launch(stream);
  CHECK(test::loaded(kept, stream) == test::Values{11});
  std::printf("products ok\n");
}

/// Shapes that the plans of `plans` do not have: dimensions after the first, unequal parts, an average.
void shapes() {
  test::ranks(3, [&](Bootstrap& bootstrap) {
    const Communicator group = Communicator::open(bootstrap, Device::host(), small());
    const Device device = group.device();
    const Stream stream(device);
    const auto rank = static_cast<double>(group.rank());
    const DeviceBuffer ones = test::placed(stream, device, Dtype::kF32, test::Values(6, 1));
    // A shard [2, 1, 2], gathered to [2, 3, 2], and columns [3][2].
    const DeviceBuffer shard = test::placed(stream, device, Dtype::kF32, test::Values(4, rank)), wide(device, 2 * 3 * 3, Dtype::kF32);
    const AllGatherMatmul middle = group.plan_all_gather_matmul({2, 1, 2}, 1, {Product(2, 3, Numeric::f32())});
    middle.enqueue(shard, std::nullopt, {{ones, wide}}, stream);
    group.synchronize(stream);
    CHECK(test::loaded(wide, stream) == (test::Values{0, 0, 0, 2, 2, 2, 4, 4, 4, 0, 0, 0, 2, 2, 2, 4, 4, 4}));
    // A shard [2, 1] of columns, gathered to [2, 3].
    const DeviceBuffer column = test::placed(stream, device, Dtype::kF32, test::Values(2, rank)), narrow(device, 4, Dtype::kF32);
    const AllGatherMatmul last = group.plan_all_gather_matmul({2, 1}, 1, {Product(3, 2, Numeric::f32())});
    last.enqueue(column, std::nullopt, {{ones, narrow}}, stream);
    group.synchronize(stream);
    CHECK(test::loaded(narrow, stream) == test::Values(4, 3));
    // Rank r has r rows of 2, and an average of three equal GEMMs keeps the bias.
    FusedOptions unequal(Way::kAuto, Reduction::kAverage);
    unequal.rows = {0, 1, 2};
    Product biased(2, 2, Numeric::f32());
    biased.bias = true;
    const DeviceBuffer left = test::placed(stream, device, Dtype::kF32, {1, 0, 0, 2, 3, 0}),
                       bias = test::placed(stream, device, Dtype::kF32, {10, 20});
    const DeviceBuffer square = test::placed(stream, device, Dtype::kF32, {1, 0, 0, 1}), own(device, group.rank() * 2, Dtype::kF32);
    const MatmulReduceScatter uneven = group.plan_matmul_reduce_scatter({3, 2}, 0, biased, unequal);
    uneven.enqueue(left, Factor(square).biased(bias), own, stream);
    group.synchronize(stream);
    const std::vector<test::Values> parts = {{}, {11, 20}, {10, 22, 13, 20}};
    CHECK(test::loaded(own, stream) == parts[group.rank()]);
    group.close();
  });
  std::printf("shapes ok\n");
}

/// A heap of `heap_bytes` bytes has room for the plan.
void heaps() {
  constexpr std::size_t kWorld = 3;
  const Product product(64, 96, Numeric::f32());
  for (const Way way : {Way::kSequence, Way::kPipeline}) {
    const std::vector<std::uint64_t> bytes = {AllGatherMatmul::heap_bytes(kWorld, {11, 64}, 0, {product}, way),
                                              MatmulReduceScatter::heap_bytes(kWorld, {33, 64}, 0, product, way),
                                              MatmulAllReduce::heap_bytes(kWorld, {33, 64}, product, way)};
    for (std::size_t which = 0; which < bytes.size(); ++which)
      test::ranks(kWorld, [&](Bootstrap& bootstrap) {
        Config config;
        config.heap_bytes = bytes[which];
        const Communicator group = Communicator::open(bootstrap, Device::host(), config);
        if (which == 0) group.plan_all_gather_matmul({11, 64}, 0, {product}, way);
        if (which == 1) group.plan_matmul_reduce_scatter({33, 64}, 0, product, way);
        if (which == 2) group.plan_matmul_all_reduce({33, 64}, product, way);
        group.close();
      });
  }
  std::printf("heaps ok\n");
}

/// Whether the words of an error are those of Rust.
void says(const Error& error, const std::string& words) {
  if (std::string(error.what()).find(words) == std::string::npos)
    test::fail(__FILE__, __LINE__, std::string(error.what()) + "\nis not: " + words);
}

void refused_products() {
  const Device device = Device::host();
  const Stream stream(device);
  const Multiplier multiplier(device);
  const DeviceBuffer left(device, 6, Dtype::kF32), right(device, 12, Dtype::kF32), result(device, 8, Dtype::kF32);
  const auto changed = [&](const std::function<void(Product&)>& change) {
    Product product(3, 4, Numeric::f32());
    change(product);
    multiplier.enqueue(product, 2, left, right, result, stream);
  };
  const auto codes = [&](const std::function<void(Product&)>& change) {
    Product product(32, 32, Numeric::f8());
    change(product);
    multiplier.enqueue(product, 2, left, right, result, stream);
  };
  using Change = Product&;
  says(CHECK_THROWS(kInvalidArgument, changed([](Change p) { p.inner = 0; })), "inner is 0, but a product takes 1 to 2147483647");
  says(CHECK_THROWS(kInvalidArgument, changed([](Change p) { p.count = 0; })), "count is 0, but");
  says(CHECK_THROWS(kUnsupported, changed([](Change p) { p.result = Dtype::kBF16; })),
       "a product of f32 as bf16 is not supported: results are f32");
  says(CHECK_THROWS(kInvalidArgument, changed([](Change p) { p.scaling = Product::Scaling::kTensor; })),
       "scaling is Tensor, but f32 has no scales");
  says(CHECK_THROWS(kInvalidArgument, changed([](Change p) { p.bias = true; })), "the bias is not given, but the product has 4 elements");
  says(CHECK_THROWS(kInvalidArgument, changed([](Change p) { p.numeric = Numeric::f16(), p.result = Dtype::kF16; })),
       "the left factor's type is f32, but the product has f16");
  says(CHECK_THROWS(kInvalidArgument, changed([](Change p) { p.inner = 2; })),
       "the left factor's length is 6, but the product has 4 elements");
  says(CHECK_THROWS(kInvalidArgument, codes([](Change p) { p.inner = 24; })),
       "inner is 24, but a product of f8e4m3 must have multiples of 16");
  says(CHECK_THROWS(kUnsupported, codes([](Change p) { p.numeric = Numeric::f8(F8::kE5M2, F8::kE5M2); })),
       "one of the factors must be e4m3");
  says(CHECK_THROWS(kInvalidArgument,
                    multiplier.enqueue(Product(3, 4, Numeric::f32()), 2, Factor(left).scaled(right), right, result, stream)),
       "the left factor's scales is given, but the product has none");
  says(CHECK_THROWS(kInvalidArgument, multiplier.enqueue(Product(2, 3, Numeric::f32()), 2, result, left, result, stream)),
       "the left factor's length is 8");
  says(CHECK_THROWS(kInvalidArgument, changed([](Change p) { p.left = static_cast<Product::Order>(2); })),
       "the number of a Product::Order is 2, but it must be less than 2");
  says(CHECK_THROWS(kInvalidArgument, changed([](Change p) { p.scaling = static_cast<Product::Scaling>(3); })),
       "the number of a Product::Scaling is 3");
  CHECK_THROWS(kInvalidArgument, Product(1, 1, Numeric{static_cast<Numeric::Kind>(5)}));
  says(CHECK_THROWS(kInvalidArgument, Product(1, 1, Numeric::f8(static_cast<F8>(2)))), "the number of an F8 is 2");
  // Memory given by address is checked too: here the result is a part of the left factor.
  float* const at = left.data<float>();
  const Error overlap = CHECK_THROWS(kInvalidArgument, multiplier.enqueue(Product(1, 1, Numeric::f32()), 2, ConstOperand(at, 2),
                                                                          ConstOperand(at + 4, 1), Operand(at + 1, 2), stream));
  says(overlap, "they may not overlap");
  Multiplier moved(device);
  const Multiplier taken(std::move(moved));
  CHECK_THROWS(kInvalidArgument, moved.library());
  std::printf("refused products ok\n");
}

void refused_plans() {
  test::ranks(2, [&](Bootstrap& bootstrap) {
    const Communicator group = Communicator::open(bootstrap, Device::host(), small());
    const Device device = group.device();
    const Stream stream(device);
    const Product product(4, 4, Numeric::f32());
    Product relu = product;
    relu.relu = true;
    says(CHECK_THROWS(kInvalidArgument, group.plan_all_gather_matmul({4}, 0, {product})),
         "the number of dimensions is 1, but a matrix has 2 or more");
    says(CHECK_THROWS(kInvalidArgument, group.plan_all_gather_matmul({2, 4}, 2, {product})),
         "the dimension is 2, but the shape [2, 4] has 2");
    says(CHECK_THROWS(kInvalidArgument, group.plan_all_gather_matmul({2, 4}, 0, {})),
         "the number of products is 0, but a plan has 1 or more");
    says(CHECK_THROWS(kInvalidArgument, group.plan_all_gather_matmul({2, 3}, 0, {product})),
         "inner of product 0 is 4, but the gathered rows have 3 elements");
    says(CHECK_THROWS(kUnsupported, group.plan_matmul_reduce_scatter({2, 4}, 0, relu)),
         "relu of a partial product is not supported: the sum over the ranks comes after");
    says(CHECK_THROWS(kUnsupported, group.plan_matmul_all_reduce({2, 4}, product, {Way::kAuto, Reduction::kMax})),
         "the max of partial products is not supported: they are summed or averaged");
    says(CHECK_THROWS(kUnsupported, group.plan_matmul_reduce_scatter({2, 4}, 1, product, Way::kPipeline)),
         "a plan of matmul + reduce-scatter part by part is not supported: the last dimension is cut");
    says(CHECK_THROWS(kInvalidArgument, group.plan_matmul_all_reduce({2, 4}, product, static_cast<Way>(3))),
         "the number of a Way is 3, but it must be less than 3");
    const std::size_t huge = std::size_t{1} << 59;
    const std::string limit = "4 bytes an element for each of 2 ranks must be at most 2305843009213693951";
    says(CHECK_THROWS(kInvalidArgument, AllGatherMatmul::heap_bytes(2, {huge, 4}, 0, {product})), limit);
    says(CHECK_THROWS(kInvalidArgument, MatmulReduceScatter::heap_bytes(2, {huge, 4}, 0, product)), limit);
    says(CHECK_THROWS(kInvalidArgument, MatmulAllReduce::heap_bytes(2, {huge, 4}, product)), limit);
    says(CHECK_THROWS(kInvalidArgument, MatmulAllReduce::heap_bytes(0, {2, 4}, product)), "the world size is 0, but a group has 1 to");
    FusedOptions rows;
    rows.rows = {1, 1, 1};
    says(CHECK_THROWS(kInvalidArgument, group.plan_matmul_reduce_scatter({3, 4}, 0, product, rows)),
         "the length of rows is 3, but the world size is 2");
    CHECK_THROWS(kMismatch, group.plan_matmul_all_reduce({2 + group.rank(), 4}, product));
    says(CHECK_THROWS(kOutOfMemory, group.plan_matmul_all_reduce({1 << 20, 4}, product)), "bytes");

    const DeviceBuffer left(device, 8, Dtype::kF32), right(device, 16, Dtype::kF32), result(device, 8, Dtype::kF32);
    std::optional<MatmulAllReduce> plan(group.plan_matmul_all_reduce({2, 4}, product));
    CHECK_EQ(plan->explain().way, Way::kSequence);
    CHECK_EQ(plan->explain().reason, "the CPU multiplies and copies with the same processors");
    says(CHECK_THROWS(kInvalidArgument, plan->enqueue(left, right, right, stream)),
         "the result's length is 16, but the plan has 8 elements");
    says(CHECK_THROWS(kInvalidArgument, plan->enqueue(right, right, result, stream)),
         "the left factor's length is 16, but the product has 8 elements");
    const AllGatherMatmul gather = group.plan_all_gather_matmul({2, 4}, 0, {product});
    says(CHECK_THROWS(kInvalidArgument, gather.enqueue(left, std::nullopt, {}, stream)), "the number of products is 0, but the plan has 1");
    says(CHECK_THROWS(kInvalidArgument, gather.enqueue(right, std::nullopt, {{right, right}}, stream)),
         "the shard's length is 16, but the plan has 8 elements");
    // The shard is the first half of the result.
    const Operand first(result.data<float>(), 8);
    const DeviceBuffer wide(device, 16, Dtype::kF32);
    says(CHECK_THROWS(kInvalidArgument, gather.enqueue(ConstOperand(wide.data<float>(), 8), std::nullopt, {{right, wide}}, stream)),
         "they may not overlap");
    says(CHECK_THROWS(kInvalidArgument, plan->enqueue(result, right, first, stream)), "they may not overlap");
    says(CHECK_THROWS(kInvalidArgument, plan->enqueue(left, Factor(right).biased(left), result, stream)),
         "the bias is given, but the product has none");
    says(CHECK_THROWS(kInvalidArgument, gather.enqueue(Factor(left).biased(left), std::nullopt, {{right, wide}}, stream)),
         "a bias of the shard");

    // Nothing was enqueued, so the ranks still agree; and a graph keeps the plan.
    left.write(std::vector<float>(8, 1), stream);
    right.write(std::vector<float>(16, 1), stream);
    const Graph graph = stream.capture([&](Capture& capture) { plan->enqueue(left, right, result, capture); });
    graph.register_pointers();
    plan.reset();
    graph.launch(stream);
    group.synchronize(stream);
    CHECK(test::loaded(result, stream) == test::Values(8, 8));
    plan.emplace(group.plan_matmul_all_reduce({2, 4}, product));
    const MatmulAllReduce taken(std::move(*plan));
    CHECK_THROWS(kInvalidArgument, plan->explain());
    group.close();
    CHECK_THROWS(kClosed, taken.enqueue(left, right, result, stream));
  });
  test::ranks(1, [&](Bootstrap& bootstrap) {
    const Communicator group = Communicator::open(bootstrap, Device::host(), small());
    says(CHECK_THROWS(kUnsupported, group.plan_all_gather_matmul({2, 4}, 0, {Product(4, 4, Numeric::f32())}, Way::kPipeline)),
         "a plan of all-gather + matmul part by part is not supported: there is one rank");
    group.close();
  });
  CHECK_EQ(name(Way::kPipeline), "pipeline");
  CHECK_THROWS(kInvalidArgument, name(static_cast<Way>(3)));
  std::printf("refused plans ok\n");
}

}  // namespace

int main() {
  const std::uint64_t seed = std::random_device()();
  std::fprintf(stderr, "seed %llu\n", static_cast<unsigned long long>(seed));
  products(seed);
  for (std::size_t world = 1; world <= 4; ++world) plans(world, seed);
  shapes();
  heaps();
  refused_products();
  refused_plans();
}
