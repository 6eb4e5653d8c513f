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

/// What a member of a group passes to a call.
struct Part {
  struct Memory {
    /// Whether the operation has the operand, and whether this rank does.
    bool exists, has;
    std::size_t buffer, start, count;
  };
  Memory input, output;
  std::vector<std::size_t> sends, receives;
};

/// What an operation of rows does beside the sum. Operands are starts in the buffers that ranks have in common.
struct Norm {
  std::size_t hidden, width, weight;
  bool gemma, has_output;
  /// The residual, if there is one.
  std::vector<std::size_t> residual;
  /// x goes to the input, or to a start, or nowhere.
  bool x_in_input;
  std::vector<std::size_t> x;
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
    if (next() != 0) call.norm = norm();
    return call;
  }

 private:
  Norm norm() {
    Norm norm{};
    norm.hidden = next();
    norm.width = next();
    norm.weight = next();
    norm.gemma = next() != 0;
    norm.has_output = next() != 0;
    norm.residual = list();
    norm.x_in_input = next() != 0;
    norm.x = list();
    return norm;
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
