// Collectives beside the caller's streams.
#include "cpp/core/call.hpp"
#include "symmetra/communicator.hpp"
#include "symmetra/device/abi.hpp"
#include "symmetra/src/ffi/export.rs.h"

namespace symmetra {

using core::call;
using core::live;
using core::operand_of;
using core::queue_of;
using core::share;

namespace {

std::shared_ptr<core::Pending> start(const core::Communicator& communicator, std::uint32_t operation, Reduction reduction,
                                     const Operand& input, const Operand& output, const Queue& queue) {
  core::Exchange asked{};
  asked.operation = operation;
  asked.reduction = static_cast<std::uint32_t>(reduction);
  return share(call([&] { return core::low_contention(communicator, asked, operand_of(input), operand_of(output), queue_of(queue)); }));
}

}  // namespace

Pending Communicator::low_contention_all_gather(Operand input, Operand output, Queue queue) const {
  return Pending(start(live(core_), kernels::kOpAllGather, Reduction::kSum, input, output, queue));
}

Pending Communicator::low_contention_reduce_scatter(Operand input, Operand output, Reduction reduction, Queue queue) const {
  return Pending(start(live(core_), kernels::kOpReduceScatter, reduction, input, output, queue));
}

void Communicator::reserve_workspace(std::size_t bytes) const {
  call([&] { core::communicator_reserve_workspace(live(core_), bytes); });
}

void Pending::wait(Queue queue) const {
  call([&] { core::pending_wait(live(core_), queue_of(queue)); });
}

}  // namespace symmetra
