// A layer of experts over expert parallel ranks, checked by every rank against the whole layer:
//   symmetra launch -n 4 -- mixture_of_experts --experts 16 --top-k 2
// The gate is host arithmetic: a plan needs the routing of the step, so steps are eager calls. Rows, weights and
// products of experts stay on the device: a GPU where the library has them, and with --host the CPU.
// examples/mixture_of_experts.rs pads the rows, and records all of a step after the gate in one graph.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "symmetra/symmetra.hpp"
using namespace symmetra;
using std::size_t;

using Values = std::vector<float>;

// The weights of relu(x W1) W2.
struct Mlp {
  Values first, second;
};

struct Layer {
  size_t experts = 16, top_k = 2, hidden = 64, intermediate = 128, tokens = 16, steps = 10, seed = 7;

  // Uniform in -scale..scale; equal on every rank.
  Values draw(size_t what, size_t count, double scale) const {
    std::mt19937_64 random(seed * 1000003 + what);
    std::uniform_real_distribution<float> uniform(static_cast<float>(-scale), static_cast<float>(scale));
    Values values(count);
    for (float& value : values) value = uniform(random);
    return values;
  }
  // Scaled so that the mean square of a token stays equal.
  Mlp expert(size_t number) const {
    return {draw(2 * number, hidden * intermediate, std::sqrt(3.0 / static_cast<double>(hidden))),
            draw(2 * number + 1, intermediate * hidden, std::sqrt(6.0 / static_cast<double>(intermediate)))};
  }
  Values gate() const { return draw(1 << 20, hidden * experts, std::sqrt(3.0 / static_cast<double>(hidden))); }
  // A rank's tokens in a step: sometimes none.
  Values batch(size_t rank, size_t step) const {
    const size_t what = (1 << 21) + rank * 100003 + step;
    return draw(what, std::mt19937_64(seed + what)() % (tokens + 1) * hidden, std::sqrt(3.0));
  }
  // The largest error of a correct result, in units of the root mean square: examples/mixture_of_experts/layer.rs argues it.
  double bound() const { return 8 * std::sqrt(static_cast<double>(hidden + intermediate + 2 * top_k)) * std::ldexp(1.0, -24); }
};

// x w for one row of x, in double precision.
template <class T>
std::vector<double> reference(const T* x, size_t inner, const Values& w) {
  const size_t width = w.size() / inner;
  std::vector<double> sums(width, 0);
  for (size_t i = 0; i < inner; ++i)
    for (size_t column = 0; column < width; ++column)
      sums[column] += static_cast<double>(x[i]) * static_cast<double>(w[i * width + column]);
  return sums;
}

std::vector<double> reference(const Mlp& mlp, const float* x, size_t hidden, size_t intermediate) {
  std::vector<double> inner = reference(x, hidden, mlp.first);
  for (double& value : inner) value = std::max(value, 0.0);
  return reference(inner.data(), intermediate, mlp.second);
}

// The experts of each token, those with the largest scores, and the softmax of their scores.
struct Routes {
  std::vector<std::int32_t> ids;
  Values weights;
};

Routes route(const Layer& layer, const Values& gate, const Values& x) {
  Routes routes;
  std::vector<std::int32_t> order(layer.experts);
  for (size_t token = 0; token < x.size() / layer.hidden; ++token) {
    const std::vector<double> scores = reference(&x[token * layer.hidden], layer.hidden, gate);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t one, std::int32_t other) {
      return scores[static_cast<size_t>(one)] > scores[static_cast<size_t>(other)];
    });
    float sum = 0;
    for (size_t k = 0; k < layer.top_k; ++k) {
      const auto size = static_cast<float>(std::exp(scores[static_cast<size_t>(order[k])] - scores[static_cast<size_t>(order[0])]));
      routes.ids.push_back(order[k]);
      routes.weights.push_back(size);
      sum += size;
    }
    for (size_t k = 0; k < layer.top_k; ++k) routes.weights[token * layer.top_k + k] /= sum;
  }
  return routes;
}

template <class T>
DeviceBuffer on_device(const std::vector<T>& values, const Device& device, const Stream& stream) {
  DeviceBuffer buffer(device, values.size(), DtypeOf<T>::kValue);
  buffer.write(values, stream);
  return buffer;
}

// The weights of an expert of this rank.
struct Shard {
  DeviceBuffer first, second;
};

// A rank: its experts, and the whole layer for the check.
class Worker {
 public:
  Worker(const Environment& env, const Layer& layer)
      : layer_(layer),
        ep_(env.ep()),
        device_(ep_.device()),
        stream_(device_),
        multiplier_(device_),
        gate_(layer.gate()),
        experts_(ep_.experts(config(layer))) {
    for (size_t number = 0; number < layer.experts; ++number) whole_.push_back(layer.expert(number));
    for (const size_t number : experts_.local_experts())
      own_.push_back({on_device(whole_[number].first, device_, stream_), on_device(whole_[number].second, device_, stream_)});
  }

  // The largest error of all steps.
  double run() const {
    double worst = 0;
    for (size_t number = 0; number < layer_.steps; ++number) worst = std::max(worst, step(number));
    return worst;
  }

 private:
  static ExpertConfig config(const Layer& layer) {
    ExpertConfig config(layer.experts, layer.top_k, layer.hidden, layer.tokens);
    config.dtype = Dtype::kF32;
    config.layout = Layout::kByExpert;
    // In packets, routing and rows travel together: nothing can be planned.
    config.method = Method::kDirect;
    return config;
  }

  double step(size_t number) const {
    const Values x = layer_.batch(ep_.rank(), number);
    const Routes routes = route(layer_, gate_, x);
    const DeviceBuffer ids = on_device(routes.ids, device_, stream_), weights = on_device(routes.weights, device_, stream_);
    const DeviceBuffer tokens = on_device(x, device_, stream_), output(device_, x.size(), Dtype::kF32);

    // The row counts are known before the rows arrive, so buffers need no room for the worst case.
    const Routed routed = experts_.plan(Routing(ids, weights), stream_);
    const std::vector<size_t> counts = routed.counts();
    const size_t rows = std::accumulate(counts.begin(), counts.end(), size_t{0});
    const DeviceBuffer received(device_, rows * layer_.hidden, Dtype::kF32);
    routed.dispatch(tokens, Received(received), stream_);
    apply_experts(received, counts);
    routed.combine(received, output, stream_);
    ep_.synchronize(stream_);
    return error(output.read<float>(stream_), x, routes);
  }

  // The rows of each expert, which follow those of the expert before, become the expert's results.
  void apply_experts(const DeviceBuffer& received, const std::vector<size_t>& counts) const {
    Product first(layer_.hidden, layer_.intermediate, Numeric::f32()), second(layer_.intermediate, layer_.hidden, Numeric::f32());
    first.right = second.right = Product::Order::kRows;
    first.relu = true;
    float* at = received.data<float>();
    for (size_t local = 0; local < own_.size(); ++local) {
      const Operand rows(at, counts[local] * layer_.hidden);
      const DeviceBuffer inner(device_, counts[local] * layer_.intermediate, Dtype::kF32);
      multiplier_.enqueue(first, counts[local], rows, own_[local].first, inner, stream_);
      multiplier_.enqueue(second, counts[local], inner, own_[local].second, rows, stream_);
      at += counts[local] * layer_.hidden;
    }
  }

  // The largest difference from the whole layer in double precision, over the root mean square.
  double error(const Values& found, const Values& x, const Routes& routes) const {
    double worst = 0, squares = 0;
    for (size_t token = 0; token < x.size() / layer_.hidden; ++token) {
      std::vector<double> right(layer_.hidden, 0);
      for (size_t pair = token * layer_.top_k; pair < (token + 1) * layer_.top_k; ++pair) {
        const Mlp& mlp = whole_[static_cast<size_t>(routes.ids[pair])];
        const std::vector<double> result = reference(mlp, &x[token * layer_.hidden], layer_.hidden, layer_.intermediate);
        for (size_t h = 0; h < layer_.hidden; ++h) right[h] += static_cast<double>(routes.weights[pair]) * result[h];
      }
      for (size_t h = 0; h < layer_.hidden; ++h) {
        const double off = std::abs(static_cast<double>(found[token * layer_.hidden + h]) - right[h]);
        if (!std::isfinite(off)) return HUGE_VAL;
        worst = std::max(worst, off);
        squares += right[h] * right[h];
      }
    }
    return x.empty() ? 0 : worst / std::sqrt(squares / static_cast<double>(x.size()));
  }

  Layer layer_;
  const Coordinator& ep_;
  Device device_;
  Stream stream_;
  Multiplier multiplier_;
  Values gate_;
  Experts experts_;
  std::vector<Mlp> whole_;
  std::vector<Shard> own_;
};

int main(int count, char** words) try {
  Layer layer;
  const std::map<std::string, size_t*> options = {
      {"--experts", &layer.experts}, {"--top-k", &layer.top_k}, {"--hidden", &layer.hidden}, {"--intermediate", &layer.intermediate},
      {"--tokens", &layer.tokens},   {"--steps", &layer.steps}, {"--seed", &layer.seed}};
  bool host = false;
  for (int word = 1; word < count; ++word) {
    if (words[word] == std::string("--host")) {
      host = true;
      continue;
    }
    const auto option = options.find(words[word]);
    if (option == options.end() || word + 1 == count) throw std::invalid_argument(std::string(words[word]) + " is no option with a number");
    *option->second = std::stoul(words[++word]);
  }
  if (layer.top_k > layer.experts) throw std::invalid_argument("--top-k must be at most --experts");
  EnvConfig config;
  const char* world = std::getenv("WORLD_SIZE");
  config.tensor_parallel_size = world ? std::stoul(world) : 1;
  std::optional<Device> cpu;
  if (host) config.device = &cpu.emplace(Device::host());
  const Environment env = Environment::init(config);
  const Coordinator& everyone = env.world();
  const double error = Worker(env, layer).run();
  char line[100];
  std::snprintf(line, sizeof line, "rank %zu: error %.1e, bound %.1e", everyone.rank(), error, layer.bound());
  const auto lines = everyone.gather_object(line, 0);
  if (lines)
    for (const std::string& text : *lines) std::printf("%s\n", text.c_str());
  std::fflush(stdout);  // before a rank that was wrong ends all of them
  env.close();
  return error <= layer.bound() ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
