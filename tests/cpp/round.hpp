// Every operation of a group on small data, and the contents of each output by the definition of the operation.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ranks.hpp"

namespace test {

template <class T, class Group = symmetra::Coordinator>
class Round {
 public:
  explicit Round(const Group& group)
      : group_(group),
        stream_(group.device()),
        device_(group.device(), count_ * group.world_size(), symmetra::DtypeOf<T>::kValue),
        output_(count_ * group.world_size()),
        in_place_(count_) {
    for (std::size_t peer = 0; peer < group.world_size(); ++peer) {
      sends_.push_back(pair(group.rank(), peer));
      receives_.push_back(pair(peer, group.rank()));
    }
  }

  /// Runs every operation by `through`, which is the group or one of its backends, and checks the outputs.
  void check(const Group& through) {
    for (const Operation& operation : operations(through)) {
      fill();
      operation.enqueue(stream_);
      group_.synchronize(stream_);
      verify(operation);
      // Peers write into outputs as soon as they come to the next operation.
      group_.barrier();
    }
  }

  /// Checks every operation in a graph, which is launched twice on fresh data.
  void check_captured(const Group& through) {
    for (Operation operation : operations(through)) {
      const symmetra::Graph graph = group_.capture(stream_, [&](symmetra::Capture& capture) { operation.enqueue(capture); });
      for (int launch = 0; launch < 2; ++launch) {
        fill();
        group_.barrier();
        graph.launch(stream_);
        group_.synchronize(stream_);
        verify(operation);
        group_.barrier();
      }
    }
  }

 private:
  struct Operation {
    const char* name;
    std::function<void(symmetra::Queue)> enqueue;
    /// Empty where the output is not this rank's.
    std::function<std::vector<T>()> expected;
  };

  static constexpr std::size_t kRows = 2;
  static constexpr T kUntouched = 99;

  /// The number of elements that rank `from` sends to rank `to` where each pair has its own count.
  std::size_t pair(std::size_t from, std::size_t to) const { return (from + 2 * to) % (count_ + 1); }
  /// Larger on later members.
  T value(std::size_t member, std::size_t index) const { return static_cast<T>(10 * member + index + fresh_); }
  T sum(std::size_t index) const {
    T sum = 0;
    for (std::size_t member = 0; member < group_.world_size(); ++member) sum = static_cast<T>(sum + value(member, index));
    return sum;
  }
  T largest(std::size_t index) const { return value(group_.world_size() - 1, index); }
  template <class Of>
  static std::vector<T> each(std::size_t count, Of of) {
    std::vector<T> values;
    for (std::size_t index = 0; index < count; ++index) values.push_back(of(index));
    return values;
  }

  /// Writes new inputs, and fills outputs with a value that no rank sends.
  void fill() {
    fresh_ = 1 - fresh_;
    const std::size_t all = count_ * group_.world_size();
    const std::vector<T> own = each(all, [&](std::size_t index) { return value(group_.rank(), index); });
    device_.write(own, stream_);
    output_.assign(all, kUntouched);
    in_place_.assign(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(count_));
  }

  symmetra::ConstOperand from(std::size_t count) const {
    const T* const input = device_.template data<T>();
    return {input, count};
  }
  symmetra::Operand to(std::size_t count) { return {output_.data(), count}; }
  symmetra::Operand in_place() { return {in_place_.data(), count_}; }

  void verify(const Operation& operation) const {
    const std::vector<T> expected = operation.expected();
    const bool is_in_place = operation.name[0] == '=';
    const std::vector<T>& found = is_in_place ? in_place_ : output_;
    for (std::size_t index = 0; index < found.size(); ++index) {
      const T wanted = index < expected.size() ? expected[index] : kUntouched;
      if (found[index] == wanted) continue;
      fail(__FILE__, __LINE__,
           std::string(operation.name) + ", rank " + text(group_.rank()) + " of " + text(group_.world_size()) + ", element " + text(index) +
               " of " + text(found.size()) + " is " + text(+found[index]) + " instead of " + text(+wanted));
    }
  }

  std::vector<Operation> operations(const Group& group) {
    using symmetra::Queue;
    constexpr auto kMax = symmetra::Reduction::kMax;
    const std::size_t world = group.world_size(), rank = group.rank(), all = count_ * world, width = count_ / kRows;
    const std::size_t root = world - 1;
    const bool mine = rank == root;
    const auto at_root = [mine](auto operand) { return mine ? std::optional(operand) : std::nullopt; };
    const auto if_mine = [mine](std::vector<T> values) { return mine ? values : std::vector<T>(); };
    const auto part_of = [this](std::size_t index) { return value(index / count_, index % count_); };
    std::vector<Operation> all_of;
    const auto add = [&](const char* name, std::function<void(Queue)> enqueue, std::function<std::vector<T>()> expected) {
      all_of.push_back({name, std::move(enqueue), std::move(expected)});
    };
    add(
        "all_reduce", [=, &group](Queue queue) { group.all_reduce(from(count_), to(count_), queue, kMax); },
        [=] { return each(count_, [=](std::size_t index) { return largest(index); }); });
    add(
        "= all_reduce", [=, &group](Queue queue) { group.all_reduce(in_place(), queue); },
        [=] { return each(count_, [=](std::size_t index) { return sum(index); }); });
    add(
        "reduce_scatter", [=, &group](Queue queue) { group.reduce_scatter(from(all), to(count_), kMax, queue); },
        [=] { return each(count_, [=](std::size_t index) { return largest(rank * count_ + index); }); });
    add(
        "reduce_scatter_along",
        [=, &group](Queue queue) {
          group.reduce_scatter_along(1, {kRows, width * world}, from(all), to(count_), kMax, queue);
        },
        [=] { return each(count_, [=](std::size_t index) { return largest((index / width * world + rank) * width + index % width); }); });
    add(
        "all_gather", [=, &group](Queue queue) { group.all_gather(from(count_), to(all), queue); }, [=] { return each(all, part_of); });
    add(
        "all_gather_v",
        [=, &group](Queue queue) {
          const std::vector<std::size_t> parts = all_parts();
          group.all_gather_v(from(parts[rank]), to(total(parts)), parts, queue);
        },
        [=] {
          std::vector<T> values;
          for (std::size_t peer = 0; peer < world; ++peer) {
            for (std::size_t index = 0; index < pair(peer, peer); ++index) values.push_back(value(peer, index));
          }
          return values;
        });
    add(
        "reduce_scatter_v",
        [=, &group](Queue queue) {
          const std::vector<std::size_t> parts = all_parts();
          group.reduce_scatter_v(from(total(parts)), to(parts[rank]), parts, kMax, queue);
        },
        [=] {
          std::size_t start = 0;
          for (std::size_t peer = 0; peer < rank; ++peer) start += pair(peer, peer);
          return each(pair(rank, rank), [=](std::size_t index) { return largest(start + index); });
        });
    add(
        "all_gather_along",
        [=, &group](Queue queue) {
          group.all_gather_along(1, {kRows, width}, from(count_), to(all), queue);
        },
        [=] {
          return each(all, [=](std::size_t index) {
            const std::size_t row = index / (width * world), column = index % (width * world);
            return value(column / width, row * width + column % width);
          });
        });
    add(
        "all_to_all", [=, &group](Queue queue) { group.all_to_all(from(all), to(all), queue); },
        [=] { return each(all, [=](std::size_t index) { return value(index / count_, rank * count_ + index % count_); }); });
    add(
        "all_to_all_v",
        [=, &group](Queue queue) { group.all_to_all_v(from(total(sends_)), sends_, to(total(receives_)), receives_, queue); },
        [=] { return strips(); });
    add(
        "= broadcast", [=, &group](Queue queue) { group.broadcast(in_place(), root, queue); },
        [=] { return each(count_, [=](std::size_t index) { return value(root, index); }); });
    add(
        "reduce", [=, &group](Queue queue) { group.reduce(from(count_), at_root(to(count_)), kMax, root, queue); },
        [=] { return if_mine(each(count_, [=](std::size_t index) { return largest(index); })); });
    add(
        "gather", [=, &group](Queue queue) { group.gather(from(count_), at_root(to(all)), root, queue); },
        [=] { return if_mine(each(all, part_of)); });
    add(
        "scatter", [=, &group](Queue queue) { group.scatter(at_root(from(all)), to(count_), root, queue); },
        [=] { return each(count_, [=](std::size_t index) { return value(root, rank * count_ + index); }); });
    const std::ptrdiff_t by = -20;
    const auto size = static_cast<std::ptrdiff_t>(world), place = static_cast<std::ptrdiff_t>(rank);
    const auto source = static_cast<std::size_t>(((place - by) % size + size) % size);
    add(
        "shift", [=, &group](Queue queue) { group.shift(from(count_), to(count_), by, queue); },
        [=] { return each(count_, [=](std::size_t index) { return value(source, index); }); });
    add(
        "batch",
        [=, &group](Queue queue) {
          using symmetra::Message;
          group.batch({Message::send(from(count_), (rank + 1) % world), Message::receive(to(count_), (rank + world - 1) % world)}, queue);
        },
        [=] { return each(count_, [=](std::size_t index) { return value((rank + world - 1) % world, index); }); });
    return all_of;
  }

  /// Elements of each rank's part, where each rank has its own count.
  std::vector<std::size_t> all_parts() const {
    std::vector<std::size_t> parts;
    for (std::size_t rank = 0; rank < group_.world_size(); ++rank) parts.push_back(pair(rank, rank));
    return parts;
  }

  static std::size_t total(const std::vector<std::size_t>& counts) {
    std::size_t sum = 0;
    for (const std::size_t count : counts) sum += count;
    return sum;
  }

  /// The data that arrive where each pair has its own count.
  std::vector<T> strips() const {
    std::vector<T> values;
    for (std::size_t peer = 0; peer < group_.world_size(); ++peer) {
      std::size_t start = 0;
      for (std::size_t other = 0; other < group_.rank(); ++other) start += pair(peer, other);
      for (std::size_t index = 0; index < pair(peer, group_.rank()); ++index) values.push_back(value(peer, start + index));
    }
    return values;
  }

  const Group& group_;
  symmetra::Stream stream_;
  /// Elements of a part, in rows of three.
  std::size_t count_ = 3 * kRows;
  symmetra::DeviceBuffer device_;
  /// The outputs of graphs, which keep their addresses.
  std::vector<T> output_, in_place_;
  std::vector<std::size_t> sends_, receives_;
  /// Input data change by 1 from call to call.
  std::size_t fresh_ = 0;
};

}  // namespace test
