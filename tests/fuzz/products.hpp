// Plans on one rank, and the calls on them: product_rank.rs in C++.
#pragma once

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "symmetra/symmetra.hpp"
#include "words.hpp"

namespace fuzz {

/// The request for a plan, with the numbers of the headers.
struct Asking {
  std::size_t combines = 0, dim = 0;
  symmetra::FusedOptions options{};
  /// The shape that each rank passes.
  std::vector<std::vector<std::size_t>> shapes{};
  std::vector<symmetra::Product> products{};
};

inline Asking asking_of(Words& words) {
  Asking asked;
  asked.combines = words.next();
  const std::vector<std::size_t> types = words.list(3);
  const auto float_of = [&](std::size_t at) { return static_cast<symmetra::F8>(types[at]); };
  const symmetra::Numeric numeric{static_cast<symmetra::Numeric::Kind>(types[0]), float_of(1), float_of(2)};
  const std::size_t inner = words.next();
  const auto scaling = static_cast<symmetra::Product::Scaling>(words.next());
  asked.options.way = static_cast<symmetra::Way>(words.next());
  asked.options.reduction = static_cast<symmetra::Reduction>(words.next());
  asked.dim = words.next();
  if (std::vector<std::size_t> rows = words.list(); !rows.empty()) asked.options.rows = std::move(rows);
  for (std::size_t rest = words.next(); rest > 0; --rest) asked.shapes.push_back(words.list());
  for (std::size_t rest = words.next(); rest > 0; --rest) {
    symmetra::Product product(inner, words.next(), numeric);
    product.scaling = scaling;
    product.right = static_cast<symmetra::Product::Order>(words.next());
    product.result = static_cast<symmetra::Dtype>(words.next());
    product.bias = words.next() != 0;
    product.relu = words.next() != 0;
    asked.products.push_back(product);
  }
  return asked;
}

/// An operand: whether a call has it, its elements, and the elements of its memory.
struct Room {
  symmetra::Dtype dtype;
  std::size_t elem_bytes;
  bool is_given;
  std::size_t elems, room;
};

/// A call on a plan, with the operands of each rank.
struct Multiply {
  std::size_t plan;
  bool reads_symmetric, writes_symmetric;
  std::vector<std::vector<Room>> operands;
};

struct Products {
  std::size_t replays = 0;
  /// Whether each eager call goes on the stream after that of the previous call.
  bool spread = false;
  std::vector<Multiply> calls{};
};

inline Products products_of(Words& words) {
  Products products;
  products.replays = words.next();
  products.spread = words.next() != 0;
  for (std::size_t calls = words.next(); calls > 0; --calls) {
    Multiply call{words.next(), words.next() != 0, words.next() != 0, {}};
    for (std::size_t members = words.next(); members > 0; --members) {
      std::vector<Room> rooms;
      for (std::size_t operands = words.next(); operands > 0; --operands)
        rooms.push_back({static_cast<symmetra::Dtype>(words.next()), words.next(), words.next() != 0, words.next(), words.next()});
      call.operands.push_back(std::move(rooms));
    }
    products.calls.push_back(std::move(call));
  }
  return products;
}

/// Memory of an operand.
class Memory {
 public:
  /// Collective where the memory is symmetric.
  Memory(const symmetra::Communicator& group, const Room& extent, bool symmetric) : extent_(extent) {
    if (symmetric) {
      symmetric_.emplace(group.symmetric(extent.room, extent.dtype));
    } else {
      plain_.emplace(group.device(), extent.room, extent.dtype);
    }
  }

  bool is_given() const { return extent_.is_given; }

  /// The first elements.
  symmetra::Operand operand() const {
    if (symmetric_) return {*symmetric_, 0, extent_.elems};
    return {plain_->data(), extent_.elems, extent_.dtype};
  }

  /// Writes all of the memory, from the rank's file.
  void fill(std::ifstream& file, const symmetra::Stream& stream) const {
    std::vector<char> bytes(extent_.room * extent_.elem_bytes);
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    const void* const from = bytes.data();
    symmetric_ ? symmetric_->write(from, stream) : plain_->write(from, stream);
  }

  /// Appends all bytes.
  void read(std::vector<char>& all, const symmetra::Stream& stream) const {
    std::vector<char> bytes(extent_.room * extent_.elem_bytes);
    void* const into = bytes.data();
    symmetric_ ? symmetric_->read(into, stream) : plain_->read(into, stream);
    all.insert(all.end(), bytes.begin(), bytes.end());
  }

 private:
  Room extent_;
  std::optional<symmetra::SymmetricBuffer> symmetric_{};
  std::optional<symmetra::DeviceBuffer> plain_{};
};

/// A plan of a group.
class Planning {
 public:
  /// Collective.
  Planning(const symmetra::Communicator& communicator, const Asking& asked, std::size_t group)
      : group_(group), communicator_(communicator), plan_(made(communicator, asked)) {}

  std::size_t group() const { return group_; }
  const symmetra::Communicator& communicator() const { return communicator_; }

  /// The operands of a call. Collective where they are symmetric.
  std::vector<Memory> operands(const Multiply& call) const {
    std::vector<Memory> all;
    const std::vector<Room>& rooms = call.operands[communicator_.rank()];
    const std::size_t written = first_written(rooms.size());
    for (std::size_t at = 0; at < rooms.size(); ++at)
      all.emplace_back(communicator_, rooms[at], at < 2 ? call.reads_symmetric : at >= written && call.writes_symmetric);
    return all;
  }

  /// The number of the gathered factor, which results follow. Before it are a factor with scales, and for each result a factor
  /// with scales and bias.
  static std::size_t first_written(std::size_t operands) { return 2 + (operands - 3) / 4 * 3; }

  void enqueue(const std::vector<Memory>& all, symmetra::Queue queue) const {
    const std::size_t written = first_written(all.size());
    const auto factor = [&](std::size_t at) {
      const symmetra::Factor plain(all[at].operand());
      return all[at + 1].is_given() ? plain.scaled(all[at + 1].operand()) : plain;
    };
    const auto right = [&](std::size_t number) {
      const std::size_t at = 2 + 3 * number;
      const symmetra::Factor scaled = factor(at);
      return all[at + 2].is_given() ? scaled.biased(all[at + 2].operand()) : scaled;
    };
    if (const auto* const gathering = std::get_if<symmetra::AllGatherMatmul>(&plan_)) {
      std::vector<std::pair<symmetra::Factor, symmetra::Operand>> products;
      for (std::size_t at = written + 1; at < all.size(); ++at) products.emplace_back(right(at - written - 1), all[at].operand());
      gathering->enqueue(factor(0), all[written].is_given() ? std::optional(all[written].operand()) : std::nullopt, products, queue);
    } else if (const auto* const scattering = std::get_if<symmetra::MatmulReduceScatter>(&plan_)) {
      scattering->enqueue(factor(0), right(0), all[written + 1].operand(), queue);
    } else {
      std::get<symmetra::MatmulAllReduce>(plan_).enqueue(factor(0), right(0), all[written + 1].operand(), queue);
    }
  }

 private:
  using Plan = std::variant<symmetra::AllGatherMatmul, symmetra::MatmulReduceScatter, symmetra::MatmulAllReduce>;

  static Plan made(const symmetra::Communicator& communicator, const Asking& asked) {
    const std::vector<std::size_t>& shape = asked.shapes[communicator.rank()];
    if (asked.combines == 0) return communicator.plan_all_gather_matmul(shape, asked.dim, asked.products, asked.options);
    if (asked.combines == 1) return communicator.plan_matmul_reduce_scatter(shape, asked.dim, asked.products[0], asked.options);
    return communicator.plan_matmul_all_reduce(shape, asked.products[0], asked.options);
  }

  std::size_t group_;
  const symmetra::Communicator& communicator_;
  Plan plan_;
};

/// Makes the calls, and returns their outputs. The first goes on the stream with the number `on`.
inline std::vector<char> run(const std::map<std::size_t, Planning>& plans, const Products& products,
                             const std::vector<symmetra::Stream>& streams, std::size_t on, std::ifstream& file) {
  std::vector<std::vector<Memory>> all;
  for (const Multiply& call : products.calls) all.push_back(plans.at(call.plan).operands(call));
  const auto enqueue = [&](std::size_t at, symmetra::Queue queue) { plans.at(products.calls[at].plan).enqueue(all[at], queue); };
  const auto stream = [&](std::size_t at) -> const symmetra::Stream& {
    return streams[(on + (products.spread ? at : 0)) % streams.size()];
  };
  std::optional<symmetra::Graph> graph;
  if (products.replays > 0) {
    graph.emplace(streams[on].capture([&](symmetra::Capture& capture) {
      for (std::size_t at = 0; at < all.size(); ++at) enqueue(at, capture);
    }));
    graph->register_pointers();
  }
  std::vector<char> found;
  for (std::size_t run = 0; run < std::max<std::size_t>(products.replays, 1); ++run) {
    for (const std::vector<Memory>& own : all) {
      for (const Memory& memory : own) memory.fill(file, streams[on]);
    }
    if (graph) graph->launch(streams[on]);
    for (std::size_t at = 0; !graph && at < all.size(); ++at) enqueue(at, stream(at));
    for (std::size_t at = 0; at < all.size(); ++at) {
      plans.at(products.calls[at].plan).communicator().synchronize(stream(at));
      for (std::size_t written = Planning::first_written(all[at].size()); written < all[at].size(); ++written)
        all[at][written].read(found, stream(at));
      plans.at(products.calls[at].plan).communicator().check_guards();
    }
  }
  return found;
}

}  // namespace fuzz
