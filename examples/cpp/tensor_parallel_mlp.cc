// An MLP over tensor, pipeline and data parallel ranks; the C++ version of examples/tensor_parallel_mlp.rs:
//   symmetra launch -n 8 -- tensor_parallel_mlp --tp 2 --pp 2 --dp 2
// With --fp8 the first product of a block is W8A8: the norm before the block writes e4m3 codes with a static scale, W1 is e4m3 codes with
// one scale a matrix, and stages send codes. W2 stays f32. GPUs from compute capability 8.9 on have FP8.
// Runs on GPUs where the library has them, and with --host on the CPU.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "symmetra/symmetra.hpp"
using namespace symmetra;
using std::size_t;

// The epsilon that norms add to a mean square.
constexpr float kEpsilon = 1e-6f;

// Codes of e4m3: a sign, 4 bits of exponent, 3 of fraction.
using Codes = std::vector<std::uint8_t>;

float decode(std::uint8_t code) {
  const int exponent = code >> 3 & 15, fraction = code & 7;
  const float size =
      exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9) : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
  return code < 128 ? size : -size;
}

// The nearest code, of two the even one; saturates.
std::uint8_t encode(float value) {
  static const std::vector<float> sizes = [] {
    std::vector<float> all;
    for (std::uint8_t code = 0; code < 0x7f; ++code) all.push_back(decode(code));
    return all;
  }();
  const float size = std::min(std::abs(value), sizes.back());
  const auto above = static_cast<size_t>(std::lower_bound(sizes.begin(), sizes.end(), size) - sizes.begin());
  const size_t below = above > 0 ? above - 1 : 0;
  const float up = sizes[above] - size, down = size - sizes[below];
  const size_t nearest = up < down || (up == down && above % 2 == 0) ? above : below;
  return static_cast<std::uint8_t>(nearest | (std::signbit(value) ? 128 : 0));
}

// The least power of two that brings numbers up to `largest` into the range of e4m3, which ends at 448.
float scale_for(float largest) { return std::exp2(std::ceil(std::log2(largest / 448))); }

// Blocks of x -> x + relu(norm(x) W1) W2, as around the MLP of a decoder, and a norm at the end.
struct Model {
  size_t blocks = 4, hidden = 512, intermediate = 2048, batch = 16;
  std::uint64_t seed = 0;  // 0: rank 0 draws one
  bool fp8 = false;

  // Part of a matrix. Each element depends only on its place, so that a rank can make its shard alone.
  std::vector<float> draw(std::uint64_t matrix, size_t row, size_t rows, size_t column, size_t columns, size_t width, float scale) const {
    std::vector<float> values;
    for (size_t r = row; r < row + rows; ++r)
      for (size_t c = column; c < column + columns; ++c) {
        std::uint64_t bits = (seed ^ matrix << 40) + (r * width + c) * 0x9e3779b97f4a7c15;  // the finaliser of SplitMix64
        bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9;
        bits = (bits ^ bits >> 27) * 0x94d049bb133111eb;
        values.push_back(scale * (static_cast<float>((bits ^ bits >> 31) >> 40) / (1 << 23) - 1.0f));
      }
    return values;
  }
  // Scaled so that the mean square of the normed rows stays equal. With fp8 the weights are those that the codes stand for.
  std::vector<float> first(size_t block, size_t column, size_t columns) const {
    std::vector<float> weights = draw(2 * block, 0, hidden, column, columns, intermediate, largest_first());
    if (fp8)
      for (float& weight : weights) weight = decode(encode(weight / weight_scale())) * weight_scale();
    return weights;
  }
  // The codes of columns of W1, column after column.
  Codes first_codes(size_t block, size_t column, size_t columns) const {
    const std::vector<float> weights = first(block, column, columns);
    Codes codes;
    for (size_t c = 0; c < columns; ++c)
      for (size_t r = 0; r < hidden; ++r) codes.push_back(encode(weights[r * columns + c] / weight_scale()));
    return codes;
  }
  float largest_first() const { return std::sqrt(3.0f / static_cast<float>(hidden)); }
  float weight_scale() const { return scale_for(largest_first()); }
  // No code of a normed row saturates: an element over the root mean square is at most the root of the row's length, and a norm's weight
  // is at most 1.25.
  float row_scale() const { return scale_for(1.25f * std::sqrt(static_cast<float>(hidden))); }
  std::vector<float> second(size_t block, size_t row, size_t rows) const {
    return draw(2 * block + 1, row, rows, 0, hidden, hidden, std::sqrt(6.0f / static_cast<float>(intermediate)));
  }
  // The weight of a norm, about 1: norm b is before block b, and the last norm after all blocks.
  std::vector<float> norm(size_t index) const {
    std::vector<float> weight = draw((1 << 21) + index, 0, 1, 0, hidden, hidden, 0.25f);
    for (float& value : weight) value += 1;
    return weight;
  }
  std::vector<float> input(size_t replica) const { return draw((1 << 20) + replica, 0, batch, 0, hidden, hidden, std::sqrt(3.0f)); }

  // Eight standard deviations of u sqrt(n), and of codes: examples/tensor_parallel_mlp/model.rs argues it.
  double bound() const {
    const size_t roundings = blocks * (hidden + intermediate) + (blocks + 1) * 8;
    double squares = static_cast<double>(roundings) * std::ldexp(1.0, -48);
    for (size_t block = 0; fp8 && block < blocks; ++block) squares += 1.0 / (64.0 * 12.0) / static_cast<double>(block + 2);
    return 8 * std::sqrt(squares);
  }
};

// x w in double precision, of row-major matrices, where x has rows of `inner` elements: what the step is compared with.
std::vector<double> reference(const std::vector<double>& x, const std::vector<float>& w, size_t inner) {
  const size_t rows = x.size() / inner, width = w.size() / inner;
  std::vector<double> product(rows * width);
  for (size_t row = 0; row < rows; ++row)
    for (size_t k = 0; k < inner; ++k)
      for (size_t column = 0; column < width; ++column)
        product[row * width + column] += x[row * inner + k] * static_cast<double>(w[k * width + column]);
  return product;
}

// Each row of x over its root mean square, times the weight.
std::vector<double> rms_norm(std::vector<double> x, const std::vector<float>& weight) {
  const size_t hidden = weight.size();
  for (size_t row = 0; row < x.size(); row += hidden) {
    double squares = 0;
    for (size_t column = 0; column < hidden; ++column) squares += x[row + column] * x[row + column];
    const double root = std::sqrt(squares / static_cast<double>(hidden) + static_cast<double>(kEpsilon));
    for (size_t column = 0; column < hidden; ++column) x[row + column] *= static_cast<double>(weight[column]) / root;
  }
  return x;
}

// The largest error of an element against the whole model on one rank in double, in units of the root mean square.
double error(const Model& model, size_t replica, const std::vector<float>& found) {
  const std::vector<float> input = model.input(replica);
  std::vector<double> x(input.begin(), input.end());
  for (size_t block = 0; block < model.blocks; ++block) {
    std::vector<double> inner = reference(rms_norm(x, model.norm(block)), model.first(block, 0, model.intermediate), model.hidden);
    for (double& value : inner) value = std::max(value, 0.0);
    const std::vector<double> sums = reference(inner, model.second(block, 0, model.intermediate), model.intermediate);
    for (size_t i = 0; i < x.size(); ++i) x[i] += sums[i];
  }
  x = rms_norm(x, model.norm(model.blocks));
  double worst = 0, squares = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double off = std::abs(found[i] - x[i]);
    worst = std::isnan(off) ? INFINITY : std::max(worst, off);
    squares += x[i] * x[i];
  }
  return worst / std::sqrt(squares / static_cast<double>(x.size()));
}

// The weights of a block that this rank holds; with fp8 the first are codes.
struct Shard {
  DeviceBuffer first, second;
};

// A rank: its share of the model, and the memory that steps run in.
struct Worker {
  Worker(const Environment& env, const Model& of)
      : world(env.world()),
        tp(env.tp()),
        pp(env.pp()),
        device(tp.device()),
        model(of),
        width(model.intermediate / tp.world_size()),
        stream(device),
        multiplier(device),
        input(tp.local().symmetric<float>(model.batch * model.hidden)),
        inner(tp.local().symmetric<float>(model.batch * width)),
        x(tp.local().symmetric<float>(model.batch * model.hidden)),
        normed(tp.local().symmetric<float>(model.batch * model.hidden)) {
    const size_t mine = tp.rank() * width;
    for (size_t block = 0; block < model.blocks; ++block) {
      shards.emplace_back();
      if (block % pp.world_size() != pp.rank()) continue;
      const Dtype first = model.fp8 ? Dtype::kF8E4M3 : Dtype::kF32;
      shards[block] = {DeviceBuffer(device, model.hidden * width, first), DeviceBuffer(device, width * model.hidden, Dtype::kF32)};
      if (model.fp8)
        shards[block]->first.write(static_cast<const void*>(model.first_codes(block, mine, width).data()), stream);
      else
        shards[block]->first.write(model.first(block, mine, width), stream);
      shards[block]->second.write(model.second(block, mine, width), stream);
    }
    for (size_t index = 0; index <= model.blocks; ++index) {
      norms.emplace_back(device, model.hidden, Dtype::kF32);
      norms.back().write(model.norm(index), stream);
    }
    if (model.fp8) {
      codes.emplace(tp.local().symmetric(model.batch * model.hidden, Dtype::kF8E4M3));
      for (auto [scale, value] : {std::pair(&row_scale, model.row_scale()), std::pair(&weight_scale, model.weight_scale())}) {
        scale->emplace(device, 1, Dtype::kF32);
        (*scale)->write(std::vector<float>{value}, stream);
      }
    }
    // As from an embedding that is divided among the ranks: one rank has a row, and the others have zeros.
    std::vector<float> part = model.input(env.dp().rank());
    for (size_t i = 0; i < part.size(); ++i)
      if (i / model.hidden % tp.world_size() != tp.rank()) part[i] = 0;
    input.write(part, stream);
  }

  // The products of a block, if this rank has a shard of it.
  void multiply(size_t block, Queue queue) const {
    if (!shards[block]) return;
    const auto& [first, second] = *shards[block];
    Product product(model.hidden, width, codes ? Numeric::f8() : Numeric::f32());
    product.relu = true;
    if (codes) {
      product.scaling = Product::Scaling::kTensor;
      product.result = Dtype::kF32;
      multiplier.enqueue(product, model.batch, Factor(*codes).scaled(*row_scale), Factor(first).scaled(*weight_scale), inner, queue);
    } else {
      product.right = Product::Order::kRows;
      multiplier.enqueue(product, model.batch, normed, first, inner, queue);
    }
    product = Product(width, model.hidden, Numeric::f32());
    product.right = Product::Order::kRows;
    multiplier.enqueue(product, model.batch, inner, second, normed, queue);
  }

  // A norm, on the stage of the block before; then x and the normed rows go to the next stage, or the last normed rows to all. One call
  // sums the products over the ranks that share the block, adds x, and norms the new x.
  void norm(size_t index, Queue queue) const {
    const size_t stage = pp.rank(), stages = pp.world_size(), owner = (index == 0 ? 0 : index - 1) % stages, next = index % stages;
    if (stage == owner) {
      RowNorm rows(index == 0 ? input : normed, norms[index], RmsNorm{kEpsilon});
      if (index > 0) rows.residual = x;
      rows.residual_out = x;
      // Only a product takes codes, and none is after the last norm.
      if (codes && index < model.blocks) {
        rows.quantised.emplace(Scaling::kStatic, Narrow::kE4M3, *codes);
        rows.quantised->known_scale = *row_scale;
      } else {
        rows.output = normed;
      }
      tp.all_reduce_norm(rows, queue);
    }
    if (stages == 1 || index == 0) return;
    if (index == model.blocks) return pp.broadcast(normed, owner, queue);
    for (const SymmetricBuffer* rows : {&x, codes ? &*codes : &normed}) {  // a batch holds one message to a rank
      std::vector<Coordinator::Message> messages;
      if (stage == owner) messages.push_back(pp.to_next(*rows));
      if (stage == next) messages.push_back(pp.from_previous(*rows));
      pp.batch(messages, queue);
    }
  }

  // A step, enqueued or recorded.
  void step(Queue queue) const {
    norm(0, queue);
    for (size_t block = 0; block < model.blocks; ++block) {
      multiply(block, queue);
      norm(block + 1, queue);
    }
  }

  // The result, after the step is done without an error.
  std::vector<float> result() const {
    tp.synchronize(stream);
    pp.synchronize(stream);
    return normed.read<float>(stream);
  }

  const Coordinator &world, &tp, &pp;
  Device device;
  Model model;
  size_t width;
  Stream stream;
  Multiplier multiplier;
  std::vector<std::optional<Shard>> shards;  // none where another stage has the block
  std::vector<DeviceBuffer> norms;           // the weights of all norms
  SymmetricBuffer input, inner;              // input: this rank's part of the first x
  SymmetricBuffer x, normed;                 // x: the residual; normed: the rows, and before a norm the products of the block
  std::optional<SymmetricBuffer> codes;      // with fp8: of the normed rows before a block
  std::optional<DeviceBuffer> row_scale;     // of these codes
  std::optional<DeviceBuffer> weight_scale;  // of the codes of W1
};

// The result of a rank: the larger error of the eager step and of the last replay.
struct Finding {
  double error, step_us;
};

Finding run(const Worker& worker, const Environment& env, int steps) {
  worker.step(worker.stream);
  const std::vector<float> eager = worker.result();
  const Graph graph = worker.world.capture(worker.stream, [&](Capture& capture) { worker.step(capture); });
  env.world().barrier();
  const auto start = std::chrono::steady_clock::now();
  for (int step = 0; step < steps; ++step) graph.launch(worker.stream);
  const std::vector<float> replayed = worker.result();
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  const size_t replica = env.dp().rank();
  return {std::max(error(worker.model, replica, eager), error(worker.model, replica, replayed)), took.count() / steps};
}

int main(int count, char** words) try {
  EnvConfig config;
  config.tensor_parallel_size = 0;
  Model model;
  bool host = false;
  const std::map<std::string, size_t*> options = {{"--tp", &config.tensor_parallel_size},
                                                  {"--pp", &config.pipeline_parallel_size},
                                                  {"--dp", &config.data_parallel_size},
                                                  {"--blocks", &model.blocks},
                                                  {"--hidden", &model.hidden},
                                                  {"--intermediate", &model.intermediate},
                                                  {"--batch", &model.batch},
                                                  {"--seed", &model.seed}};
  const std::map<std::string, bool*> flags = {{"--fp8", &model.fp8}, {"--host", &host}};
  for (int word = 1; word < count; ++word) {
    if (const auto flag = flags.find(words[word]); flag != flags.end()) {
      *flag->second = true;
      continue;
    }
    const auto option = options.find(words[word]);
    if (option == options.end() || word + 1 == count) throw std::invalid_argument(std::string(words[word]) + " is no option with a number");
    *option->second = std::stoul(words[++word]);
  }
  const char* world = std::getenv("WORLD_SIZE");
  const size_t others = std::max<size_t>(1, config.pipeline_parallel_size * config.data_parallel_size);
  if (config.tensor_parallel_size == 0) config.tensor_parallel_size = (world ? std::stoul(world) : 1) / others;

  std::optional<Device> cpu;
  if (host) config.device = &cpu.emplace(Device::host());
  const Environment env = Environment::init(config);
  const Coordinator& everyone = env.world();
  if (model.intermediate % env.tp().world_size() != 0)
    throw std::invalid_argument("the intermediate columns do not divide among the ranks");
  if (model.seed == 0) {
    const std::string drawn = std::to_string(std::random_device()());
    model.seed = std::stoul(everyone.broadcast_object(everyone.is_first_rank() ? &drawn : nullptr, 0));
  }
  const Finding finding = run(Worker(env, model), env, 20);
  if (everyone.is_first_rank())
    std::printf("%s, seed %llu\n", everyone.device().name().c_str(), static_cast<unsigned long long>(model.seed));
  char line[100];
  std::snprintf(line, sizeof line, "rank %zu: error %.1e, bound %.1e, %.1f us a step", everyone.rank(), finding.error, model.bound(),
                finding.step_us);
  const auto lines = everyone.gather_object(line, 0);
  if (lines)
    for (const std::string& text : *lines) std::printf("%s\n", text.c_str());
  std::fflush(stdout);  // before a rank that was wrong ends all of them
  env.close();
  return finding.error <= model.bound() ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
