// GEMMs alone and fused with collectives: every operand and option reaches the library, results come back, and errors are
// typed. tests/fuzz compares values of random plans with a model.
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "products.hpp"

using namespace symmetra;
using test::kColumns;
using test::Kind;
using test::kInner;
using test::Placed;

namespace {

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
  Plans(const Group& group, Way way, const Kind& kind)
      : group_(group), device_(group.device()), stream_(device_), options_(way), kind_(kind), product_(kind.product()) {}

  void run() const {
    gathered(false);
    gathered(true);
    const Placed own(stream_, device_, kind_, group_.rank(), 4 * world());
    test::Values sums(4 * world() * kColumns);
    for (std::size_t rank = 0; rank < world(); ++rank) {
      const test::Values partial = kind_.result(rank, 4 * world(), 0);
      for (std::size_t at = 0; at < sums.size(); ++at) sums[at] += partial[at];
    }
    kind_.add_bias(sums);
    const MatmulReduceScatter scatter = group_.plan_matmul_reduce_scatter({4 * world(), kInner}, 0, product_, options_);
    ran(scatter.explain());
    const auto start = sums.begin() + static_cast<std::ptrdiff_t>(group_.rank() * 4 * kColumns);
    const DeviceBuffer part(device_, 4 * kColumns, product_.result), whole(device_, sums.size(), product_.result);
    const auto scattered = [&](const Queue& queue) { scatter.enqueue(own.left_factor(), own.right_factor(), part, queue); };
    runs(group_, stream_, part, scattered, test::Values(start, start + 4 * kColumns));
    const MatmulAllReduce reduce = group_.plan_matmul_all_reduce({world(), 4, kInner}, product_, options_);
    ran(reduce.explain());
    const auto reduced = [&](const Queue& queue) { reduce.enqueue(own.left_factor(), own.right_factor(), whole, queue); };
    runs(group_, stream_, whole, reduced, sums);
  }

 private:
  std::size_t world() const { return group_.world_size(); }
  void ran(const Planned& planned) const {
    CHECK_EQ(planned.way, options_.way);
    CHECK_EQ(planned.parts, options_.way == Way::kPipeline ? world() : 1);
    CHECK_EQ(planned.library, Multiplier(device_).library());
    CHECK_EQ(planned.reason, "asked for");
    CHECK_EQ(planned.predicted_us.has_value(), device_.kind() != DeviceKind::kHost);
  }

  /// Two GEMMs of one gathered factor. The gathered factor is also an output, on request.
  void gathered(bool keeps) const {
    const AllGatherMatmul plan = group_.plan_all_gather_matmul({4, kInner}, 0, {product_, product_}, options_);
    ran(plan.explain());
    const Placed first(stream_, device_, kind_, group_.rank(), 4), second(stream_, device_, kind_, group_.rank(), 4, 1);
    test::Values whole, right[2];
    for (std::size_t rank = 0; rank < world(); ++rank) {
      const test::Values shard = test::each(4, kInner, [&](auto row, auto) { return test::left_of(rank, row); });
      whole.insert(whole.end(), shard.begin(), shard.end());
      for (std::size_t which : {0u, 1u}) {
        const test::Values rows = kind_.result(rank, 4, which);
        right[which].insert(right[which].end(), rows.begin(), rows.end());
      }
    }
    for (test::Values& values : right) kind_.add_bias(values);
    const DeviceBuffer one(device_, right[0].size(), product_.result), two(device_, right[1].size(), product_.result);
    const DeviceBuffer all(device_, whole.size(), kind_.factors);
    const auto enqueue = [&](const Queue& queue) {
      plan.enqueue(first.left_factor(), keeps ? std::optional<Operand>(all) : std::nullopt,
                   {{first.right_factor(), one}, {second.right_factor(), two}}, queue);
    };
    runs(group_, stream_, one, enqueue, right[0]);
    runs(group_, stream_, two, enqueue, right[1]);
    if (keeps && kind_.factors != Dtype::kF8E4M3) CHECK(test::loaded(all, stream_) == whole);
  }

  const Group& group_;
  Device device_;
  Stream stream_;
  FusedOptions options_;
  Kind kind_;
  Product product_;
};

Config small() {
  Config config;
  config.heap_bytes = 1 << 20;
  return config;
}

template <class Group>
void every_plan(const Group& group) {
  for (const Kind& kind : test::kinds()) {
    for (const Way way : {Way::kSequence, Way::kPipeline}) Plans(group, way, kind).run();
  }
}

/// Over a communicator and over a coordinator.
void plans() {
  auto all = bootstrap::threads(2);
  test::ranks(2, [&](Bootstrap& bootstrap) {
    const Communicator communicator = Communicator::open(bootstrap, Device::host(), small());
    every_plan(communicator);
    communicator.close();
    GroupConfig config;
    config.communicator = small();
    const Coordinator group = Coordinator::open(std::move(all[bootstrap.rank()]), Device::host(), config);
    every_plan(group);
    group.close();
  });
  std::printf("plans ok\n");
}

/// GEMMs alone: both layouts, bias, relu, and several in one call.
void products() {
  const Device device = Device::host();
  const Stream stream(device);
  std::optional<Multiplier> multiplier(device);
  CHECK_EQ(multiplier->library(), "matrixmultiply");
  for (const Kind& kind : test::kinds()) {
    const Product product = kind.product();
    const Placed in(stream, device, kind, 0, 5);
    const DeviceBuffer result(device, 5 * kColumns, product.result);
    test::Values expected = kind.result(0, 5, 0);
    kind.add_bias(expected);
    multiplier->enqueue(product, 5, in.left_factor(), in.right_factor(), result, stream);
    CHECK(test::loaded(result, stream) == expected);
  }
  // The right factor is row after row; results are 4, 6, -7 and -8 without the bias.
  Product rows(2, 2, Numeric::f32());
  rows.right = Product::Order::kRows;
  rows.relu = rows.bias = true;
  const auto four = [&](const test::Values& values) { return test::placed(stream, device, Dtype::kF32, values); };
  const DeviceBuffer signs = four({1, 1, 2, -3}), by_rows = four({1, 2, 3, 4}), bias = four({1, 2}), positive(device, 4, Dtype::kF32);
  multiplier->enqueue(rows, 2, signs, Factor(by_rows).biased(bias), positive, stream);
  CHECK((test::loaded(positive, stream) == test::Values{5, 8, 0, 0}));
  rows.relu = false;
  multiplier->enqueue(rows, 2, signs, Factor(by_rows).biased(bias), positive, stream);
  CHECK((test::loaded(positive, stream) == test::Values{5, 8, -6, -6}));
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

/// Whether the words of an error are those of Rust.
void says(const Error& error, const std::string& words) {
  if (std::string(error.what()).find(words) == std::string::npos)
    test::fail(__FILE__, __LINE__, std::string(error.what()) + "\nis not: " + words);
}

/// One refusal for each field of a GEMM, and for each kind of operand.
void refused_products() {
  const Device device = Device::host();
  const Stream stream(device);
  const Multiplier multiplier(device);
  const DeviceBuffer left(device, 6, Dtype::kF32), right(device, 12, Dtype::kF32), result(device, 8, Dtype::kF32);
  const struct {
    const char* words;
    std::function<void(Product&)> change;
  } fields[] = {
      {"inner is 0, but a product takes 1 to 2147483647", [](Product& p) { p.inner = 0; }},
      {"count is 0, but", [](Product& p) { p.count = 0; }},
      {"the bias is not given, but the product has 4 elements", [](Product& p) { p.bias = true; }},
      {"scaling is Tensor, but f32 has no scales", [](Product& p) { p.scaling = Product::Scaling::kTensor; }},
      {"the left factor's type is f32, but the product has f16", [](Product& p) { p.numeric = Numeric::f16(), p.result = Dtype::kF16; }},
      {"the number of a Product::Order is 2, but it must be less than 2", [](Product& p) { p.left = static_cast<Product::Order>(2); }},
      {"the number of a Product::Scaling is 3", [](Product& p) { p.scaling = static_cast<Product::Scaling>(3); }},
  };
  for (const auto& [words, change] : fields) {
    Product product(3, 4, Numeric::f32());
    change(product);
    says(CHECK_THROWS(kInvalidArgument, multiplier.enqueue(product, 2, left, right, result, stream)), words);
  }
  const Product product(3, 4, Numeric::f32());
  says(CHECK_THROWS(kInvalidArgument, multiplier.enqueue(product, 2, Factor(left).scaled(right), right, result, stream)),
       "the left factor's scales is given, but the product has none");
  Product bf16 = product;
  bf16.result = Dtype::kBF16;
  says(CHECK_THROWS(kUnsupported, multiplier.enqueue(bf16, 2, left, right, result, stream)),
       "a product of f32 as bf16 is not supported: results are f32");
  says(CHECK_THROWS(kUnsupported, multiplier.enqueue(Product(16, 16, Numeric::f8(F8::kE5M2, F8::kE5M2)), 1, left, right, result, stream)),
       "one of the factors must be e4m3");
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

/// One refusal for each argument of a plan and of its call.
void refused_plans() {
  test::ranks(2, [&](Bootstrap& bootstrap) {
    const Communicator group = Communicator::open(bootstrap, Device::host(), small());
    const Device device = group.device();
    const Stream stream(device);
    const Product product(4, 4, Numeric::f32());
    says(CHECK_THROWS(kInvalidArgument, group.plan_all_gather_matmul({2, 4}, 2, {product})),
         "the dimension is 2, but the shape [2, 4] has 2");
    says(CHECK_THROWS(kInvalidArgument, group.plan_all_gather_matmul({2, 4}, 0, {})),
         "the number of products is 0, but a plan has 1 or more");
    says(CHECK_THROWS(kUnsupported, group.plan_matmul_reduce_scatter({2, 4}, 1, product, Way::kPipeline)),
         "a plan of matmul + reduce-scatter part by part is not supported: the last dimension is cut");
    says(CHECK_THROWS(kUnsupported, group.plan_matmul_all_reduce({2, 4}, product, {Way::kAuto, Reduction::kMax})),
         "the max of partial products is not supported: they are summed or averaged");
    says(CHECK_THROWS(kInvalidArgument, group.plan_matmul_all_reduce({2, 4}, product, static_cast<Way>(3))),
         "the number of a Way is 3, but it must be less than 3");
    const std::size_t huge = std::size_t{1} << 59;
    const std::string limit = "4 bytes an element for each of 2 ranks must be at most 2305843009213693951";
    says(CHECK_THROWS(kInvalidArgument, AllGatherMatmul::heap_bytes(2, {huge, 4}, 0, {product})), limit);
    says(CHECK_THROWS(kInvalidArgument, MatmulReduceScatter::heap_bytes(2, {huge, 4}, 0, product)), limit);
    says(CHECK_THROWS(kInvalidArgument, MatmulAllReduce::heap_bytes(2, {huge, 4}, product)), limit);
    says(CHECK_THROWS(kInvalidArgument, MatmulAllReduce::heap_bytes(0, {2, 4}, product)), "the world size is 0, but a group has 1 to");
    CHECK(MatmulReduceScatter::heap_bytes(2, {4, 4}, 0, product, Way::kPipeline) > 0);
    FusedOptions rows;
    rows.rows = {1, 1, 1};
    says(CHECK_THROWS(kInvalidArgument, group.plan_matmul_reduce_scatter({3, 4}, 0, product, rows)),
         "the length of rows is 3, but the world size is 2");
    CHECK_THROWS(kMismatch, group.plan_matmul_all_reduce({2 + group.rank(), 4}, product));

    const DeviceBuffer left(device, 8, Dtype::kF32), right(device, 16, Dtype::kF32), result(device, 8, Dtype::kF32);
    std::optional<MatmulAllReduce> plan(group.plan_matmul_all_reduce({2, 4}, product));
    CHECK_EQ(plan->explain().way, Way::kSequence);
    CHECK_EQ(plan->explain().reason, "the CPU multiplies and copies with the same processors");
    says(CHECK_THROWS(kInvalidArgument, plan->enqueue(left, right, right, stream)),
         "the result's length is 16, but the plan has 8 elements");
    says(CHECK_THROWS(kInvalidArgument, plan->enqueue(left, Factor(right).biased(left), result, stream)),
         "the bias is given, but the product has none");
    const AllGatherMatmul gather = group.plan_all_gather_matmul({2, 4}, 0, {product});
    says(CHECK_THROWS(kInvalidArgument, gather.enqueue(left, std::nullopt, {}, stream)), "the number of products is 0, but the plan has 1");
    // The shard is the first half of the result.
    const DeviceBuffer wide(device, 16, Dtype::kF32);
    says(CHECK_THROWS(kInvalidArgument, gather.enqueue(ConstOperand(wide.data<float>(), 8), std::nullopt, {{right, wide}}, stream)),
         "they may not overlap");

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
  products();
  plans();
  shapes();
  refused_products();
  refused_plans();
}
