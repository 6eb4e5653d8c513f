// The one way of collectives into Rust: those of communicators and those of coordinators.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "symmetra/communicator.hpp"
#include "symmetra/src/ffi/export.rs.h"

namespace symmetra::core {

inline Group group_of(const Communicator& communicator) { return {&communicator, nullptr}; }
inline Group group_of(const Coordinator& coordinator) { return {nullptr, &coordinator}; }

void enqueue_all_reduce(Group group, const symmetra::Operand& input, const symmetra::Operand& output, const symmetra::Queue& queue,
                        const AllReduceOptions& options);

/// A collective that is a kOp*.
Exchange exchange_of(std::uint32_t operation, Reduction reduction = Reduction::kSum, std::size_t root = 0);
/// The same along a dimension.
Exchange along(std::size_t dim, Exchange exchange);

/// Counts or a shape, where there are any.
struct Numbers {
  rust::Slice<const std::size_t> first;
  rust::Slice<const std::size_t> second;
};

inline rust::Slice<const std::size_t> slice(const std::vector<std::size_t>& values) { return {values.data(), values.size()}; }

void enqueue(Group group, Exchange exchange, const std::optional<symmetra::Operand>& input, const std::optional<symmetra::Operand>& output,
             const symmetra::Queue& queue, const Numbers& numbers = {});
/// Of variable counts.
void enqueue_all_to_all_v(Group group, const symmetra::Operand& input, const std::vector<std::size_t>& send_counts,
                          const symmetra::Operand& output, const std::vector<std::size_t>& receive_counts, const symmetra::Queue& queue);
void enqueue_batch(Group group, const std::vector<symmetra::Communicator::Message>& messages, const symmetra::Queue& queue);

}  // namespace symmetra::core
