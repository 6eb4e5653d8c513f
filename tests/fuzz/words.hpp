// The words of a program, as text.rs writes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fuzz {

/// The operands and messages that a member of a group passes to a call.
struct Part {
  struct Memory {
    /// Whether the operation has the operand, and whether this rank does.
    bool exists, has;
    std::size_t buffer, start, count;
  };
  Memory input, output;
  std::vector<std::size_t> sends, receives;
  /// A message that a rank sends or receives in a call between pairs.
  struct Message {
    bool receives;
    std::size_t peer, start, count;
  };
  std::vector<Message> messages;
  /// Whether the rank makes a call of each message.
  bool is_slow;
};

/// Memory that quantised rows are written into.
struct Extent {
  std::size_t dtype, elem_bytes, elems;
};

/// Quantised rows, as numbers of the headers.
struct Narrow {
  /// Identifies a call.
  std::uint64_t seed;
  /// The bits of the static scale, or of the global one.
  std::uint32_t known;
  std::size_t scaling, to, layout, elems;
  /// First element of the values in their memory.
  std::size_t at;
  bool symmetric;
  Extent values, scales;
};

/// The norm of an operation on rows, in addition to the sum.
struct Norm {
  /// `kept` is the buffer of the residual, and `share` the number of its elements.
  std::size_t hidden, width, weight, kept, share;
  /// Whether the weight is f32.
  bool wide;
  /// `layer`: LayerNorm, else RMSNorm.
  bool gemma, layer, has_output;
  /// First element of the bias in the buffer of the weight, if there is one.
  std::vector<std::size_t> bias;
  /// First element of the residual, if there is one.
  std::vector<std::size_t> residual;
  /// x goes to the whole input; or to a buffer, from a start, with a distance from rank to rank; or is not written.
  bool x_is_input;
  std::vector<std::size_t> x;
  std::optional<Narrow> narrow;
};

struct Call {
  std::string name, algorithm, codec;
  /// The ranks whose bits are 0 bind the call first.
  std::uint64_t binds;
  /// `rows` and `row`: rows of a tensor, and elements of a row of the input, for a call along a dimension.
  std::size_t bench, reduction, root, rows, row;
  bool adopted, symmetric;
  std::vector<Part> parts;
  std::optional<Norm> norm;
};

/// Reads the words of text.rs.
class Words {
 public:
  explicit Words(const std::string& path) : in_(path) {}

  template <class T = std::size_t>
  T next() {
    T value{};
    if (!(in_ >> value)) std::abort();
    return value;
  }
  std::vector<std::size_t> list() { return list(next()); }
  std::vector<std::size_t> list(std::size_t count) {
    std::vector<std::size_t> values(count);
    for (std::size_t& value : values) value = next();
    return values;
  }
  /// A call; `sizes` are those of the groups of benches.
  Call call(const std::map<std::size_t, std::size_t>& sizes) {
    Call call{};
    call.name = next<std::string>();
    call.algorithm = next<std::string>();
    call.codec = next<std::string>();
    call.binds = next<std::uint64_t>();
    call.bench = next();
    call.reduction = next();
    call.root = next();
    call.rows = next();
    call.row = next();
    call.adopted = next() != 0;
    call.symmetric = next() != 0;
    for (std::size_t member = 0; member < sizes.at(call.bench); ++member) {
      Part part{};
      part.input = memory();
      part.output = memory();
      part.sends = list();
      part.receives = list();
      call.parts.push_back(part);
    }
    for (std::size_t member = 0; call.name == "pairs" && member < call.parts.size(); ++member) {
      call.parts[member].is_slow = next() != 0;
      for (std::size_t rest = next(); rest > 0; --rest) call.parts[member].messages.push_back({next() != 0, next(), next(), next()});
    }
    if (next() != 0) call.norm = norm();
    return call;
  }

 private:
  Norm norm() {
    Norm norm{};
    norm.hidden = next();
    norm.width = next();
    norm.weight = next();
    norm.kept = next();
    norm.share = next();
    norm.wide = next() != 0;
    norm.gemma = next() != 0;
    norm.layer = next() != 0;
    norm.has_output = next() != 0;
    norm.bias = list();
    norm.residual = list();
    norm.x_is_input = next() != 0;
    norm.x = list();
    if (next() != 0) norm.narrow = narrow();
    return norm;
  }
  Narrow narrow() {
    Narrow narrow{};
    narrow.seed = next<std::uint64_t>();
    narrow.known = next<std::uint32_t>();
    for (std::size_t* number : {&narrow.scaling, &narrow.to, &narrow.layout, &narrow.elems, &narrow.at}) *number = next();
    narrow.symmetric = next() != 0;
    for (Extent* extent : {&narrow.values, &narrow.scales}) *extent = {next(), next(), next()};
    return narrow;
  }
  Part::Memory memory() {
    const std::size_t there = next();
    Part::Memory memory{there > 0, there == 2, 0, 0, 0};
    memory.buffer = next();
    memory.start = next();
    memory.count = next();
    return memory;
  }

  std::ifstream in_;
};

}  // namespace fuzz
