// Every collective but all-reduce.
#include "cpp/core/call.hpp"
#include "symmetra/communicator.hpp"
#include "symmetra/device/abi.hpp"
#include "symmetra/src/ffi/export.rs.h"

namespace symmetra {

using core::call;
using core::live;
using core::operand_of;
using core::queue_of;

namespace {

core::Exchange exchange_of(std::uint32_t operation, Reduction reduction = Reduction::kSum, std::size_t root = 0) {
  core::Exchange exchange{};
  exchange.operation = operation;
  exchange.reduction = static_cast<std::uint32_t>(reduction);
  exchange.root = root;
  return exchange;
}

rust::Slice<const std::size_t> slice(const std::vector<std::size_t>& values) { return {values.data(), values.size()}; }

/// Counts or a shape, where there are any.
struct Numbers {
  rust::Slice<const std::size_t> first;
  rust::Slice<const std::size_t> second;
};

void enqueue(const core::Communicator& communicator, core::Exchange exchange, const std::optional<Operand>& input,
             const std::optional<Operand>& output, const Queue& queue, const Numbers& numbers = {}) {
  exchange.has_input = input.has_value();
  exchange.has_output = output.has_value();
  call([&] {
    const core::Operand from = input ? operand_of(*input) : core::Operand{}, to = output ? operand_of(*output) : core::Operand{};
    core::exchange(communicator, exchange, from, to, numbers.first, numbers.second, queue_of(queue));
  });
}

}  // namespace

void Communicator::all_gather(Operand input, Operand output, Queue queue) const {
  enqueue(live(core_), exchange_of(kernels::kOpAllGather), input, output, queue);
}

void Communicator::all_gather_along(std::size_t dim, const std::vector<std::size_t>& shape, Operand input, Operand output,
                                    Queue queue) const {
  core::Exchange exchange = exchange_of(kernels::kOpAllGather);
  exchange.along = true;
  exchange.dim = dim;
  enqueue(live(core_), exchange, input, output, queue, {slice(shape), {}});
}

void Communicator::reduce_scatter(Operand input, Operand output, Reduction reduction, Queue queue) const {
  enqueue(live(core_), exchange_of(kernels::kOpReduceScatter, reduction), input, output, queue);
}

void Communicator::reduce_scatter_along(std::size_t dim, const std::vector<std::size_t>& shape, Operand input, Operand output,
                                        Reduction reduction, Queue queue) const {
  core::Exchange exchange = exchange_of(kernels::kOpReduceScatter, reduction);
  exchange.along = true;
  exchange.dim = dim;
  enqueue(live(core_), exchange, input, output, queue, {slice(shape), {}});
}

void Communicator::all_to_all(Operand input, Operand output, Queue queue) const {
  enqueue(live(core_), exchange_of(kernels::kOpAllToAll), input, output, queue);
}

void Communicator::all_to_all_v(Operand input, const std::vector<std::size_t>& send_counts, Operand output,
                                const std::vector<std::size_t>& receive_counts, Queue queue) const {
  core::Exchange exchange = exchange_of(kernels::kOpAllToAll);
  exchange.variable = true;
  enqueue(live(core_), exchange, input, output, queue, {slice(send_counts), slice(receive_counts)});
}

void Communicator::broadcast(Operand buffer, std::size_t root, Queue queue) const {
  enqueue(live(core_), exchange_of(kernels::kOpBroadcast, Reduction::kSum, root), std::nullopt, buffer, queue);
}

void Communicator::reduce(Operand input, std::optional<Operand> output, Reduction reduction, std::size_t root, Queue queue) const {
  enqueue(live(core_), exchange_of(kernels::kOpReduce, reduction, root), input, output, queue);
}

void Communicator::reduce(Operand buffer, Reduction reduction, std::size_t root, Queue queue) const {
  enqueue(live(core_), exchange_of(kernels::kOpReduce, reduction, root), std::nullopt, buffer, queue);
}

void Communicator::gather(Operand input, std::optional<Operand> output, std::size_t root, Queue queue) const {
  enqueue(live(core_), exchange_of(kernels::kOpGather, Reduction::kSum, root), input, output, queue);
}

void Communicator::scatter(std::optional<Operand> input, Operand output, std::size_t root, Queue queue) const {
  enqueue(live(core_), exchange_of(kernels::kOpScatter, Reduction::kSum, root), input, output, queue);
}

void Communicator::batch(const std::vector<Message>& messages, Queue queue) const {
  call([&] {
    std::vector<core::Message> all;
    all.reserve(messages.size());
    for (const Message& message : messages) all.push_back({operand_of(message.operand), message.peer, message.sends});
    core::batch(live(core_), rust::Slice<const core::Message>(all.data(), all.size()), queue_of(queue));
  });
}

}  // namespace symmetra
