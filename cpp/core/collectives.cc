// The operations of a group: every collective calls Rust here.
#include "symmetra/collectives.hpp"

#include "cpp/core/call.hpp"
#include "symmetra/src/capi/mod.rs.h"

namespace symmetra {

using core::call;
using core::live;
using core::operand_of;
using core::queue_of;
using core::share;

namespace {

using Numbers = std::vector<std::size_t>;

/// The settings of a call other than operands.
struct How {
  AllReduceOptions options{};
  std::size_t parameter = 0;
  std::optional<std::size_t> dim{};
};

/// A call of the operation with this name, for Rust.
struct Call {
  const core::GroupHandle& group;
  core::Asked asked{};
  core::Operand input{}, output{};

  Call(const std::shared_ptr<core::GroupHandle>& handle, const char* operation, const std::optional<ConstOperand>& from,
       const std::optional<ConstOperand>& to, const How& how = {})
      : group(live(handle)) {
    asked.operation = operation;
    asked.reduction = static_cast<std::uint32_t>(how.options.reduction);
    asked.algorithm = static_cast<std::uint32_t>(how.options.algorithm);
    asked.codec = static_cast<std::uint32_t>(how.options.codec);
    asked.parameter = how.parameter;
    asked.has_input = from.has_value();
    asked.has_output = to.has_value();
    asked.along = how.dim.has_value();
    asked.dim = how.dim.value_or(0);
    if (from) input = operand_of(*from);
    if (to) output = operand_of(*to);
  }

  /// `first` is a shape, the counts of parts, or the counts to each rank; `second` the counts from each.
  void run(const Queue& queue, const Numbers& first = {}, const Numbers& second = {}) const {
    const auto slice = [](const Numbers& numbers) { return rust::Slice<const std::size_t>(numbers.data(), numbers.size()); };
    call([&] { core::run(group, asked, input, output, slice(first), slice(second), queue_of(queue)); });
  }

  std::shared_ptr<core::Pending> run_low_contention(const Queue& queue) const {
    return share(call([&] { return core::run_low_contention(group, asked, input, output, queue_of(queue)); }));
  }
};

How reduced(Reduction reduction, std::size_t parameter = 0) {
  How how{};
  how.options.reduction = reduction;
  how.parameter = parameter;
  return how;
}

How along(std::size_t dim, How how = {}) {
  how.dim = dim;
  return how;
}

}  // namespace

void Collectives::all_reduce(ConstOperand input, Operand output, Queue queue, AllReduceOptions options) const {
  Call(group_, "all-reduce", input, output, {options}).run(queue);
}

BoundAllReduce Collectives::bind_all_reduce(ConstOperand input, Operand output, AllReduceOptions options) const {
  const Call asked(group_, "all-reduce", input, output, {options});
  return BoundAllReduce(share(call([&] { return core::bind(asked.group, asked.asked, asked.input, asked.output); })));
}

void Collectives::run(const char* operation, const std::optional<ConstOperand>& input, const std::optional<Operand>& output,
                      const Queue& queue, Reduction reduction, std::size_t parameter, const std::vector<std::size_t>& counts) const {
  Call(group_, operation, input, output, reduced(reduction, parameter)).run(queue, counts);
}

void Collectives::all_gather_along(std::size_t dim, const std::vector<std::size_t>& shape, ConstOperand input, Operand output,
                                   Queue queue) const {
  Call(group_, "all-gather", input, output, along(dim)).run(queue, shape);
}

void Collectives::reduce_scatter_along(std::size_t dim, const std::vector<std::size_t>& shape, ConstOperand input, Operand output,
                                       Reduction reduction, Queue queue) const {
  Call(group_, "reduce-scatter", input, output, along(dim, reduced(reduction))).run(queue, shape);
}

void Collectives::all_to_all_v(ConstOperand input, const std::vector<std::size_t>& send_counts, Operand output,
                               const std::vector<std::size_t>& receive_counts, Queue queue) const {
  Call(group_, "all-to-all-v", input, output).run(queue, send_counts, receive_counts);
}

void Collectives::run(const std::vector<Message>& messages, bool in_pairs, const Queue& queue) const {
  const core::GroupHandle& group = live(group_);
  call([&] {
    std::vector<core::Message> all;
    all.reserve(messages.size());
    for (const Message& message : messages) all.push_back({operand_of(message.operand_), message.peer_, message.sends_});
    core::run_messages(group, rust::Slice<const core::Message>(all.data(), all.size()), in_pairs, queue_of(queue));
  });
}

Pending Collectives::low_contention_all_gather(ConstOperand input, Operand output, Queue queue) const {
  return Pending(Call(group_, "all-gather", input, output).run_low_contention(queue));
}

Pending Collectives::low_contention_reduce_scatter(ConstOperand input, Operand output, Reduction reduction, Queue queue) const {
  return Pending(Call(group_, "reduce-scatter", input, output, reduced(reduction)).run_low_contention(queue));
}

void Collectives::reserve_workspace(std::size_t bytes) const {
  call([&] { core::reserve_workspace(live(group_), bytes); });
}

void BoundAllReduce::enqueue(Queue queue) const {
  call([&] { core::bound_enqueue(live(core_), queue_of(queue)); });
}

void Pending::wait(Queue queue) const {
  call([&] { core::pending_wait(live(core_), queue_of(queue)); });
}

}  // namespace symmetra
