// How an atomic access is ordered, and for whom.
#pragma once

namespace symmetra::platform {

/// What an atomic access promises of the accesses around it in its thread.
enum class Order {
  kRelaxed,        ///< nothing
  kAcquire,        ///< who reads what a release wrote sees what came before that release
  kRelease,        ///< what came before is seen by whoever acquires this
  kAcquireRelease  ///< both
};

/// Who takes part: threads outside the scope may see neither the value nor the order.
enum class Scope {
  kBlock,   ///< the threads of the block
  kDevice,  ///< the threads of the device
  kSystem   ///< all devices, and the CPU
};

/// What `fetch` does with a word.
enum class Fetch { kAdd, kAnd, kOr, kXor, kMin, kMax, kExchange };

}  // namespace symmetra::platform
