// A round of every operation of a parallel group on random data, and the contents of each output: by the definition of
// the operation, from the inputs of every rank.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "ranks.hpp"

namespace test {

/// The finaliser of SplitMix64.
inline std::uint64_t mix(std::uint64_t bits) {
  bits += 0x9e3779b97f4a7c15;
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111eb;
  return bits ^ bits >> 31;
}

template <class T>
T sample(std::uint64_t bits) {
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(static_cast<std::int32_t>(bits >> 32)) / (1 << 20);
  return static_cast<T>(bits >> 16);
}

/// The reduction in rank order, rounded at every step as the type requires; integers wrap, except in averages.
template <class T>
T reduced(symmetra::Reduction reduction, const std::vector<T>& values) {
  using symmetra::Reduction;
  using Wide = std::conditional_t<std::is_floating_point_v<T>, T, std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>;
  using Wrap = std::conditional_t<std::is_floating_point_v<T>, T, std::uint64_t>;
  if (reduction == Reduction::kMin) return *std::min_element(values.begin(), values.end());
  if (reduction == Reduction::kMax) return *std::max_element(values.begin(), values.end());
  Wrap result = static_cast<Wrap>(values[0]);
  for (std::size_t rank = 1; rank < values.size(); ++rank) {
    const Wrap value = static_cast<Wrap>(values[rank]);
    result = reduction == Reduction::kProduct ? result * value : result + value;
  }
  if (reduction != Reduction::kAverage) return static_cast<T>(result);
  return static_cast<T>(static_cast<Wide>(result) / static_cast<Wide>(values.size()));
}

template <class T>
class Round {
 public:
  /// `seed` is equal on every rank of `group`.
  Round(const symmetra::Coordinator& group, std::uint64_t seed)
      : group_(group),
        stream_(group.device()),
        seed_(mix(seed)),
        rows_(1 + seed_ % 3),
        count_(std::vector<std::size_t>{0, 1, 3, 17, 100, 700}[seed_ / 3 % 6] * rows_),
        root_(seed_ / 18 % group.world_size()),
        reduction_(static_cast<symmetra::Reduction>(seed_ / 997 % 5)),
        device_(group.device(), count_ * group.world_size(), symmetra::DtypeOf<T>::kValue),
        output_(count_ * group.world_size()),
        in_place_(count_) {
    for (std::size_t peer = 0; peer < group.world_size(); ++peer) {
      sends_.push_back(pair(group.rank(), peer));
      receives_.push_back(pair(peer, group.rank()));
    }
  }

  /// Runs every operation by `through`, which is the group or one of its backends, and checks the outputs.
  void check(const symmetra::Coordinator& through) {
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
  void check_captured(const symmetra::Coordinator& through) {
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

  /// The number of elements that rank `from` sends to rank `to` where each pair has its own count.
  std::size_t pair(std::size_t from, std::size_t to) const { return mix(seed_ ^ (from * 16 + to) << 20) % (count_ + 1); }
  T value(std::size_t member, std::size_t index) const {
    return sample<T>(mix(mix(seed_ ^ fresh_ << 40) ^ group_.ranks()[member] << 24 ^ index));
  }
  T over_ranks(symmetra::Reduction reduction, std::size_t index) const {
    std::vector<T> values;
    for (std::size_t member = 0; member < group_.world_size(); ++member) values.push_back(value(member, index));
    return reduced(reduction, values);
  }
  template <class Of>
  static std::vector<T> each(std::size_t count, Of of) {
    std::vector<T> values;
    for (std::size_t index = 0; index < count; ++index) values.push_back(of(index));
    return values;
  }

  /// Writes new inputs, and fills outputs with values that no rank sends.
  void fill() {
    ++fresh_;
    const std::size_t all = count_ * group_.world_size();
    const std::vector<T> own = each(all, [&](std::size_t index) { return value(group_.rank(), index); });
    device_.write(own, stream_);
    output_.assign(all, sample<T>(mix(fresh_)));
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
      const T wanted = index < expected.size() ? expected[index] : sample<T>(mix(fresh_));
      if (found[index] == wanted) continue;
      fail(__FILE__, __LINE__,
           std::string(operation.name) + " of " + group_.name() + ", rank " + text(group_.rank()) + " of " + text(group_.world_size()) +
               ", seed " + text(seed_) + ", element " + text(index) + " of " + text(found.size()) + " is " + text(+found[index]) +
               " instead of " + text(+wanted));
    }
  }

  std::vector<Operation> operations(const symmetra::Coordinator& group) {
    using symmetra::Queue;
    const std::size_t world = group.world_size(), rank = group.rank(), all = count_ * world, width = count_ / rows_;
    const bool mine = rank == root_;
    const auto at_root = [mine](auto operand) { return mine ? std::optional(operand) : std::nullopt; };
    const auto if_mine = [mine](std::vector<T> values) { return mine ? values : std::vector<T>(); };
    const auto part_of = [this](std::size_t index) { return value(index / count_, index % count_); };
    std::vector<Operation> all_of;
    const auto add = [&](const char* name, std::function<void(Queue)> enqueue, std::function<std::vector<T>()> expected) {
      all_of.push_back({name, std::move(enqueue), std::move(expected)});
    };
    add(
        "all_reduce", [=, &group](Queue queue) { group.all_reduce(from(count_), to(count_), queue, reduction_); },
        [=] { return each(count_, [=](std::size_t index) { return over_ranks(reduction_, index); }); });
    add(
        "= all_reduce", [=, &group](Queue queue) { group.all_reduce(in_place(), queue); },
        [=] { return each(count_, [=](std::size_t index) { return over_ranks(symmetra::Reduction::kSum, index); }); });
    add(
        "reduce_scatter", [=, &group](Queue queue) { group.reduce_scatter(from(all), to(count_), reduction_, queue); },
        [=] { return each(count_, [=](std::size_t index) { return over_ranks(reduction_, rank * count_ + index); }); });
    add(
        "reduce_scatter_along",
        [=, &group](Queue queue) {
          group.reduce_scatter_along(1, {rows_, width * world}, from(all), to(count_), reduction_, queue);
        },
        [=] {
          return each(count_,
                      [=](std::size_t index) { return over_ranks(reduction_, (index / width * world + rank) * width + index % width); });
        });
    add(
        "all_gather", [=, &group](Queue queue) { group.all_gather(from(count_), to(all), queue); }, [=] { return each(all, part_of); });
    add(
        "all_gather_along",
        [=, &group](Queue queue) {
          group.all_gather_along(1, {rows_, width}, from(count_), to(all), queue);
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
        "= broadcast", [=, &group](Queue queue) { group.broadcast(in_place(), root_, queue); },
        [=] { return each(count_, [=](std::size_t index) { return value(root_, index); }); });
    add(
        "reduce", [=, &group](Queue queue) { group.reduce(from(count_), at_root(to(count_)), reduction_, root_, queue); },
        [=] { return if_mine(each(count_, [=](std::size_t index) { return over_ranks(reduction_, index); })); });
    add(
        "gather", [=, &group](Queue queue) { group.gather(from(count_), at_root(to(all)), root_, queue); },
        [=] { return if_mine(each(all, part_of)); });
    add(
        "scatter", [=, &group](Queue queue) { group.scatter(at_root(from(all)), to(count_), root_, queue); },
        [=] { return each(count_, [=](std::size_t index) { return value(root_, rank * count_ + index); }); });
    const std::ptrdiff_t by = static_cast<std::ptrdiff_t>(mix(seed_) % 41) - 20;
    const auto size = static_cast<std::ptrdiff_t>(world), place = static_cast<std::ptrdiff_t>(rank);
    const auto source = static_cast<std::size_t>(((place - by) % size + size) % size);
    add(
        "shift", [=, &group](Queue queue) { group.shift(from(count_), to(count_), by, queue); },
        [=] { return each(count_, [=](std::size_t index) { return value(source, index); }); });
    add(
        "batch",
        [=, &group](Queue queue) {
          group.batch({group.to_next(from(count_)), group.from_previous(to(count_))}, queue);
        },
        [=] { return each(count_, [=](std::size_t index) { return value((rank + world - 1) % world, index); }); });
    return all_of;
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

  const symmetra::Coordinator& group_;
  symmetra::Stream stream_;
  std::uint64_t seed_;
  /// Of elements of a part, `count_`.
  std::size_t rows_, count_, root_;
  symmetra::Reduction reduction_;
  symmetra::DeviceBuffer device_;
  /// The outputs of graphs, which keep their addresses.
  std::vector<T> output_, in_place_;
  std::vector<std::size_t> sends_, receives_;
  std::uint64_t fresh_ = 0;
};

}  // namespace test
