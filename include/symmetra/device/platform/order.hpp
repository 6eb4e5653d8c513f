// The order of an atomic access, and the threads for which it holds.
#pragma once

namespace symmetra::platform {

/// The order of an atomic access relative to the other accesses of its thread.
enum class Order {
  kRelaxed,        ///< no order
  kAcquire,        ///< a thread that reads a released value sees the writes before that release
  kRelease,        ///< the writes before are visible to each thread that acquires this value
  kAcquireRelease  ///< both
};

/// The threads for which an access is atomic and ordered: threads outside the scope may see neither the value nor the
/// order.
enum class Scope {
  kBlock,   ///< the threads of the block
  kDevice,  ///< the threads of the device
  kSystem   ///< all devices, and the CPU
};

/// The change of a word by `fetch`.
enum class Fetch { kAdd, kAnd, kOr, kXor, kMin, kMax, kExchange };

}  // namespace symmetra::platform
