// Every collective of a communicator.
#include "cpp/core/exchange.hpp"

#include "cpp/core/call.hpp"
#include "symmetra/device/abi.hpp"

namespace symmetra::core {

void enqueue_all_reduce(Group group, const symmetra::Operand& input, const symmetra::Operand& output, const symmetra::Queue& queue,
                        const AllReduceOptions& options) {
  const Options numbers{static_cast<std::uint32_t>(options.reduction), static_cast<std::uint32_t>(options.algorithm)};
  call([&] { all_reduce(group, numbers, operand_of(input), operand_of(output), queue_of(queue)); });
}

Exchange exchange_of(std::uint32_t operation, Reduction reduction, std::size_t root) {
  Exchange exchange{};
  exchange.operation = operation;
  exchange.reduction = static_cast<std::uint32_t>(reduction);
  exchange.root = root;
  return exchange;
}

Exchange along(std::size_t dim, Exchange exchange) {
  exchange.along = true;
  exchange.dim = dim;
  return exchange;
}

void enqueue(Group group, Exchange asked, const std::optional<symmetra::Operand>& input, const std::optional<symmetra::Operand>& output,
             const symmetra::Queue& queue, const Numbers& numbers) {
  asked.has_input = input.has_value();
  asked.has_output = output.has_value();
  call([&] {
    const Operand from = input ? operand_of(*input) : Operand{}, to = output ? operand_of(*output) : Operand{};
    exchange(group, asked, from, to, numbers.first, numbers.second, queue_of(queue));
  });
}

void enqueue_all_to_all_v(Group group, const symmetra::Operand& input, const std::vector<std::size_t>& send_counts,
                          const symmetra::Operand& output, const std::vector<std::size_t>& receive_counts, const symmetra::Queue& queue) {
  Exchange asked = exchange_of(kernels::kOpAllToAll);
  asked.variable = true;
  enqueue(group, asked, input, output, queue, {slice(send_counts), slice(receive_counts)});
}

void enqueue_batch(Group group, const std::vector<symmetra::Communicator::Message>& messages, const symmetra::Queue& queue) {
  call([&] {
    std::vector<Message> all;
    all.reserve(messages.size());
    for (const symmetra::Communicator::Message& message : messages) {
      all.push_back({operand_of(message.operand), message.peer, message.sends});
    }
    batch(group, rust::Slice<const Message>(all.data(), all.size()), queue_of(queue));
  });
}

}  // namespace symmetra::core

namespace symmetra {

using core::along;
using core::call;
using core::enqueue;
using core::exchange_of;
using core::group_of;
using core::live;
using core::slice;

void Communicator::all_reduce(Operand input, Operand output, Queue queue, AllReduceOptions options) const {
  core::enqueue_all_reduce(group_of(live(core_)), input, output, queue, options);
}

void Communicator::all_reduce(Operand buffer, Queue queue, AllReduceOptions options) const { all_reduce(buffer, buffer, queue, options); }

void Communicator::all_gather(Operand input, Operand output, Queue queue) const {
  enqueue(group_of(live(core_)), exchange_of(kernels::kOpAllGather), input, output, queue);
}

void Communicator::all_gather_along(std::size_t dim, const std::vector<std::size_t>& shape, Operand input, Operand output,
                                    Queue queue) const {
  enqueue(group_of(live(core_)), along(dim, exchange_of(kernels::kOpAllGather)), input, output, queue, {slice(shape), {}});
}

void Communicator::reduce_scatter(Operand input, Operand output, Reduction reduction, Queue queue) const {
  enqueue(group_of(live(core_)), exchange_of(kernels::kOpReduceScatter, reduction), input, output, queue);
}

void Communicator::reduce_scatter_along(std::size_t dim, const std::vector<std::size_t>& shape, Operand input, Operand output,
                                        Reduction reduction, Queue queue) const {
  enqueue(group_of(live(core_)), along(dim, exchange_of(kernels::kOpReduceScatter, reduction)), input, output, queue, {slice(shape), {}});
}

void Communicator::all_to_all(Operand input, Operand output, Queue queue) const {
  enqueue(group_of(live(core_)), exchange_of(kernels::kOpAllToAll), input, output, queue);
}

void Communicator::all_to_all_v(Operand input, const std::vector<std::size_t>& send_counts, Operand output,
                                const std::vector<std::size_t>& receive_counts, Queue queue) const {
  core::enqueue_all_to_all_v(group_of(live(core_)), input, send_counts, output, receive_counts, queue);
}

void Communicator::broadcast(Operand buffer, std::size_t root, Queue queue) const {
  enqueue(group_of(live(core_)), exchange_of(kernels::kOpBroadcast, Reduction::kSum, root), std::nullopt, buffer, queue);
}

void Communicator::reduce(Operand input, std::optional<Operand> output, Reduction reduction, std::size_t root, Queue queue) const {
  enqueue(group_of(live(core_)), exchange_of(kernels::kOpReduce, reduction, root), input, output, queue);
}

void Communicator::gather(Operand input, std::optional<Operand> output, std::size_t root, Queue queue) const {
  enqueue(group_of(live(core_)), exchange_of(kernels::kOpGather, Reduction::kSum, root), input, output, queue);
}

void Communicator::scatter(std::optional<Operand> input, Operand output, std::size_t root, Queue queue) const {
  enqueue(group_of(live(core_)), exchange_of(kernels::kOpScatter, Reduction::kSum, root), input, output, queue);
}

void Communicator::reduce(Operand buffer, Reduction reduction, std::size_t root, Queue queue) const {
  call([&] {
    core::reduce_in_place(live(core_), static_cast<std::uint32_t>(reduction), root, core::operand_of(buffer), core::queue_of(queue));
  });
}

void Communicator::batch(const std::vector<Message>& messages, Queue queue) const {
  core::enqueue_batch(group_of(live(core_)), messages, queue);
}

}  // namespace symmetra
