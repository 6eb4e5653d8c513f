#include "symmetra/bound.hpp"

#include "cpp/core/call.hpp"
#include "symmetra/communicator.hpp"
#include "symmetra/src/ffi/export.rs.h"

namespace symmetra {

using core::call;
using core::live;
using core::operand_of;
using core::queue_of;
using core::share;

BoundAllReduce Communicator::bind_all_reduce(Operand input, Operand output, AllReduceOptions options) const {
  const core::Options numbers{static_cast<std::uint32_t>(options.reduction), static_cast<std::uint32_t>(options.algorithm)};
  return BoundAllReduce(share(call([&] { return core::bind_all_reduce(live(core_), numbers, operand_of(input), operand_of(output)); })));
}

void BoundAllReduce::enqueue(Queue queue) const {
  call([&] { core::bound_enqueue(live(core_), queue_of(queue)); });
}

}  // namespace symmetra
