// Kernels that sum and norm, by RMSNorm and by LayerNorm, on the host platform: ranks as threads over shared memory, among plain
// all-reduces in one region, every bit against the definition, quantised in every format and not. Blocks of several threads, lanes that
// take several packets of a row, rows that do not fit the stage, calls that shrink and grow. Meant to run plainly and under
// ThreadSanitizer, AddressSanitizer and UBSan. Rows are reduced by all ranks, scattered, or scattered and gathered. Prints one line; exits
// 1 when anything is wrong.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <optional>

#include "tests/kernels/norm_codes.hpp"

namespace trial {
namespace {

struct NormCase {
  uint32_t dtype, hidden, rows, width, blocks, threads, lanes_log2;
  bool residual, kept, output, in_place, scattered, gathered;
  bool layer, biased;                      ///< LayerNorm, else RMSNorm; LayerNorm with a bias
  bool wild;                               ///< NaNs, infinities, denormals and zeros
  std::optional<QuantisedRows> quantised;  ///< without addresses

  /// Whether a rank has the codes of its own rows alone.
  bool codes_of_share() const { return quantised && scattered && !gathered; }
};

float wide(uint32_t dtype, Bits bits) {
  if (dtype == kF32) return reference::cast<float>(static_cast<uint32_t>(bits));
  return reference::decode(dtype == kF16 ? reference::kHalf : reference::kBrain, bits);
}
Bits narrow(uint32_t dtype, float value) {
  if (dtype == kF32) return std::isnan(value) ? 0x7FFFFFFF : reference::cast<uint32_t>(value);
  return reference::encode(dtype == kF16 ? reference::kHalf : reference::kBrain, value);
}

/// A tree of sums, whose halves are trees: neighbours are added first.
float tree(const float* values, size_t count) {
  return count == 1 ? *values : tree(values, count / 2) + tree(values + count / 2, count / 2);
}

/// The operands of one call on every rank, and the expected output.
class Norms {
 public:
  Norms(const NormCase& c, uint32_t world, std::mt19937_64& random) : case_(c), terms_(world), wrong_(world) {
    const Case narrow_rows{uint64_t{c.rows} * c.hidden, c.dtype, 1, 1, 0, 0, 0, false, false};
    const Case wide_rows{uint64_t{c.rows} * c.width, c.dtype, 1, 1, 0, 0, 0, false, false};
    const Case one_row{c.hidden, c.dtype, 1, 1, 0, 0, 0, false, false};
    for (uint32_t rank = 0; rank < world; ++rank) {
      inputs_.emplace_back(narrow_rows, static_cast<uint32_t>(random() % 3));
      residuals_.emplace_back(narrow_rows, static_cast<uint32_t>(random() % 3));
      kept_.emplace_back(narrow_rows, static_cast<uint32_t>(random() % 3));
      outputs_.emplace_back(wide_rows, static_cast<uint32_t>(random() % 3));
      weights_.emplace_back(one_row, static_cast<uint32_t>(random() % 3));
      biases_.emplace_back(one_row, static_cast<uint32_t>(random() % 3));
      for (uint64_t i = 0; i < narrow_rows.count; ++i) {
        // A few rows and packets alone, so that others keep their numbers.
        terms_[rank].push_back(element(random, c.dtype, c.wild && i / c.hidden % 3 == 0 && i % 64 < 3));
      }
    }
    for (uint32_t rank = 0; c.quantised && rank < (c.codes_of_share() ? world : 1); ++rank) {
      codes_.emplace_back(*c.quantised, c.width, c.quantised->scaling == kScalingStatic ? 0.011f : 341.3f, world, random);
    }
    for (uint64_t i = 0; i < narrow_rows.count; ++i) before_.push_back(element(random, c.dtype, false));
    for (uint64_t i = 0; i < c.hidden; ++i) {
      weight_.push_back(element(random, c.dtype, false));
      bias_.push_back(element(random, c.dtype, false));
      for (Buffer& weight : weights_) weight.set(i, weight_.back());
      for (Buffer& bias : biases_) bias.set(i, bias_.back());
    }
    for (uint32_t rank = 0; rank < world; ++rank) {
      from_.address[rank] = inputs_[rank].data();
      into_.address[rank] = output(rank).data();
    }
    expect(world);
  }
  Norms(const Norms&) = delete;

  const PeerTable* inputs() const { return &from_; }
  const PeerTable* outputs() const { return &into_; }
  const void* bias(uint32_t rank) const { return case_.biased ? biases_[rank].data() : nullptr; }

  NormArgs args(uint32_t rank) const {
    NormArgs args{};
    args.input = inputs_[rank].data();
    args.residual = case_.residual ? residuals_[rank].data() : nullptr;
    args.weight = weights_[rank].data();
    args.residual_out = case_.kept ? kept(rank).data() : nullptr;
    args.output = case_.output ? output(rank).data() : nullptr;
    args.rows = case_.rows;
    args.input_pitch = args.hidden = case_.hidden;
    args.width = case_.width;
    args.dtype = args.weight_dtype = case_.dtype;
    args.epsilon = kEpsilon;
    args.weight_offset = kOffset;
    if (case_.quantised) args.quantised = codes(rank).args(rank);
    if (case_.codes_of_share()) args.quantised.first_row -= rank * share();
    return args;
  }

  Launch produce(uint32_t rank) {
    return {[this, rank] {
              for (uint64_t i = 0; i < before_.size(); ++i) {
                inputs_[rank].set(i, terms_[rank][i]);
                residuals_[rank].set(i, before_[i]);
              }
            },
            {1, 1, kSharedBytes, 0}};
  }
  Launch consume(uint32_t rank) {
    return {[this, rank] {
              for (uint64_t i = 0; i < x_.size() && case_.kept; ++i) {
                wrong_[rank] += owns(rank, i / case_.hidden) && kept(rank).get(i) != x_[i];
              }
              for (uint64_t i = 0; i < y_.size() && case_.output; ++i) {
                wrong_[rank] += (case_.gathered || owns(rank, i / case_.width)) && output(rank).get(i) != y_[i];
              }
              for (const auto* buffers : {&inputs_, &residuals_, &kept_, &outputs_, &weights_, &biases_}) {
                wrong_[rank] += !(*buffers)[rank].guards_hold();
              }
              if (case_.quantised) wrong_[rank] += codes(rank).wrong(rank);
              for (uint64_t i = 0; i < x_.size(); ++i) inputs_[rank].set(i, 0xC3C3C3C3);
            },
            {1, 1, kSharedBytes, 0}};
  }
  uint64_t wrong() const {
    uint64_t wrong = 0;
    for (const uint64_t of_rank : wrong_) wrong += of_rank;
    return wrong;
  }

 private:
  static constexpr float kEpsilon = 1e-5f, kOffset = 1.0f;

  const Buffer& kept(uint32_t rank) const { return case_.in_place && case_.residual ? residuals_[rank] : kept_[rank]; }
  const Buffer& output(uint32_t rank) const { return case_.in_place && case_.width == case_.hidden ? inputs_[rank] : outputs_[rank]; }

  /// Rows of a rank.
  uint64_t share() const { return case_.rows / terms_.size(); }
  /// Whether a rank reduces a row, or all ranks do.
  bool owns(uint32_t rank, uint64_t row) const { return !case_.scattered || row / share() == rank; }
  const Codes& codes(uint32_t rank) const { return codes_[case_.codes_of_share() ? rank : 0]; }

  /// The sum of a row: packets are added into columns in turn.
  float sum(std::vector<float> row) const {
    const uint64_t packet = 16 / element_bytes(case_.dtype);
    std::vector<float> columns(kNormColumns, 0.0f);
    row.resize((row.size() + packet - 1) / packet * packet, 0.0f);
    for (uint64_t first = 0; first < row.size(); first += packet) columns[first / packet % kNormColumns] += tree(&row[first], packet);
    return tree(columns.data(), kNormColumns);
  }

  void expect(uint32_t world) {
    const uint32_t dtype = case_.dtype;
    const auto hidden = static_cast<float>(case_.hidden);
    for (uint64_t i = 0; i < before_.size(); ++i) {
      float sum = wide(dtype, terms_[0][i]);
      for (uint32_t rank = 1; rank < world; ++rank) sum += wide(dtype, terms_[rank][i]);
      Bits x = narrow(dtype, sum);
      if (case_.residual) x = narrow(dtype, wide(dtype, x) + wide(dtype, before_[i]));
      x_.push_back(x);
    }
    for (uint64_t row = 0; row < case_.rows; ++row) {
      std::vector<float> values, squares;
      for (uint64_t i = 0; i < case_.hidden; ++i) values.push_back(wide(dtype, x_[row * case_.hidden + i]));
      const float mean = case_.layer ? sum(values) / hidden : 0.0f;
      for (float& value : values) {
        if (case_.layer) value -= mean;
        squares.push_back(value * value);
      }
      const float scale = 1.0f / std::sqrt(sum(squares) / hidden + kEpsilon);
      for (uint64_t i = 0; i < case_.hidden; ++i) {
        const float scaled = values[i] * (wide(dtype, weight_[i]) + kOffset) * scale;
        y_.push_back(narrow(dtype, case_.biased ? scaled + wide(dtype, bias_[i]) : scaled));
      }
      y_.resize((row + 1) * case_.width, 0);
      if (!case_.quantised) continue;
      std::vector<float> y;
      for (uint64_t i = y_.size() - case_.width; i < y_.size(); ++i) y.push_back(wide(dtype, y_[i]));
      const uint64_t owner = case_.codes_of_share() ? row / share() : 0;
      codes_[owner].expect(row - owner * share(), y);
    }
  }

  NormCase case_;
  std::vector<Buffer> inputs_, residuals_, kept_, outputs_, weights_, biases_;
  std::vector<std::vector<Bits>> terms_;
  std::vector<Bits> before_, weight_, bias_, x_, y_;
  std::vector<uint64_t> wrong_;
  std::deque<Codes> codes_;  ///< of all ranks alike, or of each rank
  PeerTable from_{}, into_{};
};

NormCase any_norm(std::mt19937_64& random, uint32_t algorithm, uint32_t dtype, uint32_t world, const uint32_t (&shape)[2]) {
  const uint32_t lengths[] = {1, 3, 8, 31, 64, 65, 200, 513};
  NormCase c{};
  c.dtype = dtype;
  c.hidden = random() % 10 == 0 ? 9001 : lengths[random() % 8];
  c.rows = c.hidden > 1000 ? 1 + random() % 2 : 1 + random() % 9;
  c.width = random() % 3 == 0 ? c.hidden + random() % 40 : c.hidden;
  c.blocks = 1 + random() % shape[0];
  c.threads = random() % 3 == 0 ? 1 : shape[1];
  c.lanes_log2 = random() % 5;
  c.residual = random() % 3 != 0;
  c.kept = random() % 2 == 0;
  c.output = !c.kept || random() % 3 != 0;
  c.in_place = random() % 2 == 0;
  c.scattered = algorithm == kTwoShotZeroCopy || (algorithm == kTwoShotSentinel && random() % 2 == 0);
  c.gathered = algorithm == kTwoShotZeroCopy || random() % 2 == 0;
  if (c.scattered) c.rows = (c.rows + world - 1) / world * world;
  if (algorithm == kTwoShotZeroCopy) c.output = true;
  c.wild = random() % 3 == 0;
  c.layer = random() % 2 == 0;
  c.biased = c.layer && random() % 2 == 0;
  if (algorithm != kTwoShotZeroCopy && random() % 3 != 0) {
    c.quantised = any_format(random, c.scattered && !c.gathered ? c.rows / world : c.rows, c.width);
    if (random() % 3 == 0) c.kept = c.output = false;
  }
  return c;
}

/// Fused norms and all-reduces, plain and by codecs, in one region; how many elements and launches were wrong.
uint64_t sequence(uint32_t algorithm, uint32_t dtype, uint32_t world, const uint32_t (&shape)[2], std::mt19937_64& random) {
  const Group group(algorithm, world, world * 80'000, 0xFFFFFFF4u);
  std::deque<Norms> norms;
  std::deque<Operands> sums;
  std::vector<std::vector<Launch>> launches(world);
  uint64_t wrong = 0, calls = 0;
  for (uint32_t turn = 0; turn < 24; ++turn, ++calls) {
    if (random() % 3 == 0) {
      Case c{};
      c.dtype = dtype;
      c.count = random() % 3000;
      c.blocks = 1 + random() % shape[0];
      c.threads = shape[1];
      c.lanes_log2 = random() % 4;
      if (has_codecs(algorithm, dtype) && random() % 2 == 0) {
        quantise(random, c);
        if (random() % 3 == 0) c.count = random() % 60'000;
      }
      sums.emplace_back(algorithm, c, world, random);
      for (uint32_t rank = 0; rank < world; ++rank) {
        launches[rank].push_back(sums.back().produce(rank));
        launches[rank].push_back(group.launch(c, sums.back(), rank));
        launches[rank].push_back(sums.back().consume(rank));
      }
      continue;
    }
    const NormCase c = any_norm(random, algorithm, dtype, world, shape);
    norms.emplace_back(c, world, random);
    for (uint32_t rank = 0; rank < world; ++rank) {
      FusedLayerNormArgs args{};
      args.norm = norms.back().args(rank);
      for (uint32_t peer = 0; peer < world; ++peer) args.sum.peers[peer] = group.rank(peer).region.as();
      args.sum.slot_packets = group.slot();
      args.sum.state = group.rank(rank).state.as<BlockState>();
      args.sum.wait = {group.rank(rank).progress.as<Progress>(), group.rank(rank).status.as<Status>(), 60'000'000'000};
      args.sum.rank = rank;
      args.sum.world = world;
      args.sum.algorithm = algorithm;
      args.sum.lanes_log2 = c.lanes_log2;
      args.sum.inputs = norms.back().inputs();
      args.sum.outputs = norms.back().outputs();
      args.share_rows = c.scattered ? c.rows / world : 0;
      args.gathers = c.gathered;
      args.op = kOpAllReduceNorm;
      args.bias = norms.back().bias(rank);
      const auto shared = static_cast<uint32_t>(norm_shared_bytes(args));
      const Geometry geometry{c.blocks, c.threads, shared, 0};
      const host::Entry entry = c.layer ? entry_of(args, geometry) : entry_of(static_cast<const FusedNormArgs&>(args), geometry);
      if (entry == nullptr) {
        std::printf("FAILED: no kernel for %u rows of %u\n", c.rows, c.hidden);
        return 1;
      }
      launches[rank].push_back(norms.back().produce(rank));
      launches[rank].push_back({[args, entry] { entry(&args); }, geometry});
      launches[rank].push_back(norms.back().consume(rank));
    }
  }
  launcher::run(launches);
  for (const Norms& norm : norms) wrong += norm.wrong();
  for (const Operands& sum : sums) wrong += sum.wrong();
  for (uint32_t rank = 0; rank < world; ++rank) {
    wrong += group.rank(rank).progress.as<Progress>()->done != calls;
    wrong += group.rank(rank).why().code != kStatusOk;
  }
  return wrong;
}

}  // namespace
}  // namespace trial

int main(int argc, char** argv) {
  using namespace trial;
  const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  const uint32_t shapes[][2] = {{1, 1}, {3, 1}, {1, 3}, {2, 5}, {3, 3}};
  std::mt19937_64 random(seed);
  int checks = 0, failures = 0;
  for (const uint32_t algorithm : {kOneShotSentinel, kTwoShotSentinel, kTwoShotZeroCopy}) {
    for (const uint32_t dtype : {kF32, kF16, kBF16}) {
      for (const uint32_t world : {2, 3, 5}) {
        const uint64_t wrong = sequence(algorithm, dtype, world, shapes[checks % 5], random);
        ++checks;
        if (wrong == 0) continue;
        ++failures;
        std::printf("FAILED: algorithm %u, type %u, world %u: %llu wrong\n", algorithm, dtype, world,
                    static_cast<unsigned long long>(wrong));
      }
    }
  }
  std::printf("norms: %d checks, %d failed, seed %llu\n", checks, failures, static_cast<unsigned long long>(seed));
  return failures == 0 ? 0 : 1;
}
