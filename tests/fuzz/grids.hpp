// Grids on one rank, and the calls on them: grid_rank.rs in C++.
#pragma once

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "symmetra/symmetra.hpp"
#include "words.hpp"

namespace fuzz {

/// A call on a grid.
struct Mix {
  std::size_t grid = 0;
  symmetra::MixedOperation operation{};
  symmetra::MixedOptions options{};
  symmetra::Dtype dtype{};
  std::size_t elem_bytes = 0;
  /// 0: symmetric memory, 1: plain, 2: adopted.
  std::size_t kind = 0;
  bool in_place = false;
  /// First elements, and elements of the memory, of input and output.
  std::vector<std::size_t> at{}, rooms{};
  /// Elements of input and output, by rank.
  std::vector<std::vector<std::size_t>> elems{};
};

struct Mixes {
  std::size_t replays = 0;
  /// Whether each eager call goes on the stream after that of the previous call.
  bool spread = false;
  std::vector<Mix> calls{};
};

inline Mixes mixes_of(Words& words) {
  Mixes mixes;
  mixes.replays = words.next();
  mixes.spread = words.next() != 0;
  for (std::size_t calls = words.next(); calls > 0; --calls) {
    Mix call;
    call.grid = words.next();
    call.operation = static_cast<symmetra::MixedOperation>(words.next());
    call.options.mode = static_cast<symmetra::MixedMode>(words.next());
    call.options.reduction = static_cast<symmetra::Reduction>(words.next());
    call.dtype = static_cast<symmetra::Dtype>(words.next());
    call.elem_bytes = words.next();
    call.kind = words.next();
    call.in_place = words.next() != 0;
    if (std::vector<std::size_t> rows = words.list(); !rows.empty()) call.options.rows = std::move(rows);
    call.at = words.list(2);
    call.rooms = words.list(2);
    for (std::size_t members = words.next(); members > 0; --members) call.elems.push_back(words.list(2));
    mixes.calls.push_back(std::move(call));
  }
  return mixes;
}

/// Memory that peers may access until every rank is done.
using Reached = std::vector<std::shared_ptr<symmetra::DeviceBuffer>>;

/// Memory of an operand.
class MixedMemory {
 public:
  /// Collective, except for plain memory.
  MixedMemory(const symmetra::Communicator& local, const Mix& call, std::size_t which, Reached& reached)
      : start_(call.at[which]), bytes_(call.rooms[which] * call.elem_bytes), elem_bytes_(call.elem_bytes) {
    const std::size_t room = call.rooms[which];
    if (call.kind == 0) {
      symmetric_.emplace(local.symmetric(room, call.dtype));
      return;
    }
    plain_ = std::make_shared<symmetra::DeviceBuffer>(local.device(), room, call.dtype);
    reached.push_back(plain_);
    if (call.kind == 2) adopted_.emplace(local.adopt(plain_->data(), room, call.dtype));
  }

  symmetra::Operand first(std::size_t count) const {
    if (symmetric_) return {*symmetric_, start_, count};
    if (adopted_) return {*adopted_, start_, count};
    return {static_cast<char*>(plain_->data()) + start_ * elem_bytes_, count, plain_->dtype()};
  }

  /// Writes all of the memory, from the rank's file.
  void fill(std::ifstream& file, const symmetra::Stream& stream) const {
    std::vector<char> bytes(bytes_);
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    const void* const from = bytes.data();
    symmetric_ ? symmetric_->write(from, stream) : plain_->write(from, stream);
  }

  /// Appends all bytes.
  void read(std::vector<char>& all, const symmetra::Stream& stream) const {
    std::vector<char> bytes(bytes_);
    void* const into = bytes.data();
    symmetric_ ? symmetric_->read(into, stream) : plain_->read(into, stream);
    all.insert(all.end(), bytes.begin(), bytes.end());
  }

 private:
  std::size_t start_, bytes_, elem_bytes_;
  std::optional<symmetra::SymmetricBuffer> symmetric_{};
  std::shared_ptr<symmetra::DeviceBuffer> plain_{};
  std::optional<symmetra::Adopted> adopted_{};
};

/// A grid over the ranks of a group.
class Gridded {
 public:
  /// Collective.
  Gridded(const symmetra::Coordinator& coordinator, const symmetra::MixedConfig& config, std::size_t group)
      : group_(group), coordinator_(coordinator), mixed_(symmetra::Mixed::open(coordinator, config)) {}

  std::size_t group() const { return group_; }
  const symmetra::Coordinator& coordinator() const { return coordinator_; }
  const symmetra::Mixed& mixed() const { return mixed_; }

  /// The operands of a call: input, and output unless the call is in place.
  std::vector<MixedMemory> operands(const Mix& call, Reached& reached) const {
    std::vector<MixedMemory> all;
    for (std::size_t which = 0; which < (call.in_place ? 1 : 2); ++which) all.emplace_back(coordinator_.local(), call, which, reached);
    return all;
  }

  void enqueue(const Mix& call, const std::vector<MixedMemory>& all, symmetra::Queue queue) const {
    const std::vector<std::size_t>& elems = call.elems[coordinator_.rank()];
    mixed_.perform(call.operation, all.front().first(elems[0]), all.back().first(elems[1]), queue, call.options);
  }

 private:
  std::size_t group_;
  const symmetra::Coordinator& coordinator_;
  symmetra::Mixed mixed_;
};

/// Makes the calls, and returns the memory of their operands. The first goes on the stream with the number `on`.
inline std::vector<char> run(const std::map<std::size_t, Gridded>& grids, const Mixes& mixes, const std::vector<symmetra::Stream>& streams,
                             std::size_t on, std::ifstream& file, Reached& reached) {
  std::vector<std::vector<MixedMemory>> all;
  for (const Mix& call : mixes.calls) all.push_back(grids.at(call.grid).operands(call, reached));
  const auto enqueue = [&](std::size_t at, symmetra::Queue queue) {
    grids.at(mixes.calls[at].grid).enqueue(mixes.calls[at], all[at], queue);
  };
  const auto stream = [&](std::size_t at) -> const symmetra::Stream& { return streams[(on + (mixes.spread ? at : 0)) % streams.size()]; };
  std::optional<symmetra::Graph> graph;
  if (mixes.replays > 0) {
    graph.emplace(grids.at(mixes.calls[0].grid).coordinator().capture(streams[on], [&](symmetra::Capture& capture) {
      for (std::size_t at = 0; at < all.size(); ++at) enqueue(at, capture);
    }));
  }
  std::vector<char> found;
  for (std::size_t run = 0; run < std::max<std::size_t>(mixes.replays, 1); ++run) {
    for (const std::vector<MixedMemory>& own : all) {
      for (const MixedMemory& memory : own) memory.fill(file, streams[on]);
    }
    if (graph) graph->launch(streams[on]);
    for (std::size_t at = 0; !graph && at < all.size(); ++at) enqueue(at, stream(at));
    for (std::size_t at = 0; at < all.size(); ++at) {
      const Gridded& grid = grids.at(mixes.calls[at].grid);
      const symmetra::Stream& own = graph ? streams[on] : stream(at);
      grid.mixed().synchronize(own);
      for (const MixedMemory& memory : all[at]) memory.read(found, own);
      grid.coordinator().local().check_guards();
    }
  }
  return found;
}

}  // namespace fuzz
