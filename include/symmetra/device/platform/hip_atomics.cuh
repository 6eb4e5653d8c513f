// Atomic accesses with an order and a scope on AMD GPUs, by clang's builtins.
#pragma once

#include <cstdint>
#include <type_traits>

#include "symmetra/device/platform/hip.cuh"
#include "symmetra/device/platform/order.hpp"

// BUILTIN(.., order, scope) for kOrder and kScope: the builtins take constants.
#define SYMMETRA_SCOPE                                    \
  (kScope == Scope::kBlock ? __HIP_MEMORY_SCOPE_WORKGROUP \
                           : (kScope == Scope::kDevice ? __HIP_MEMORY_SCOPE_AGENT : __HIP_MEMORY_SCOPE_SYSTEM))
#define SYMMETRA_ORDER                            \
  (kOrder == Order::kRelaxed   ? __ATOMIC_RELAXED \
   : kOrder == Order::kAcquire ? __ATOMIC_ACQUIRE \
   : kOrder == Order::kRelease ? __ATOMIC_RELEASE \
                               : __ATOMIC_ACQ_REL)

namespace symmetra::platform {

namespace hip {

/// The compiler waits for the stores that it knows of. Those of inline assembly it does not know.
template <Order kOrder>
SYMMETRA_DEVICE void wait_before() {
  if constexpr (kOrder == Order::kRelease || kOrder == Order::kAcquireRelease) wait_for_memory();
}

}  // namespace hip

template <Order kOrder, Scope kScope, class T>
SYMMETRA_DEVICE T load_atomic(const T* p) {
  return __hip_atomic_load((hip::Global<const T>)p, SYMMETRA_ORDER, SYMMETRA_SCOPE);
}
template <Order kOrder, Scope kScope, class T>
SYMMETRA_DEVICE void store_atomic(T* p, T value) {
  hip::wait_before<kOrder>();
  __hip_atomic_store((hip::Global<T>)p, value, SYMMETRA_ORDER, SYMMETRA_SCOPE);
}

/// Changes a word, and returns what it was before.
template <Fetch kFetch, Order kOrder, Scope kScope, class T>
SYMMETRA_DEVICE T fetch(T* generic, T value) {
  hip::wait_before<kOrder>();
  const auto p = (hip::Global<T>)generic;
  if constexpr (kFetch == Fetch::kAdd) return __hip_atomic_fetch_add(p, value, SYMMETRA_ORDER, SYMMETRA_SCOPE);
  if constexpr (kFetch == Fetch::kAnd) return __hip_atomic_fetch_and(p, value, SYMMETRA_ORDER, SYMMETRA_SCOPE);
  if constexpr (kFetch == Fetch::kOr) return __hip_atomic_fetch_or(p, value, SYMMETRA_ORDER, SYMMETRA_SCOPE);
  if constexpr (kFetch == Fetch::kXor) return __hip_atomic_fetch_xor(p, value, SYMMETRA_ORDER, SYMMETRA_SCOPE);
  if constexpr (kFetch == Fetch::kExchange) return __hip_atomic_exchange(p, value, SYMMETRA_ORDER, SYMMETRA_SCOPE);
  if constexpr (kFetch == Fetch::kMin) return __hip_atomic_fetch_min(p, value, SYMMETRA_ORDER, SYMMETRA_SCOPE);
  if constexpr (kFetch == Fetch::kMax) return __hip_atomic_fetch_max(p, value, SYMMETRA_ORDER, SYMMETRA_SCOPE);
}
/// Adds to a word. kOrder is kRelaxed or kRelease.
template <Order kOrder, Scope kScope, class T>
SYMMETRA_DEVICE void add_atomic(T* p, T value) {
  fetch<Fetch::kAdd, kOrder, kScope>(p, value);
}
/// Stores `desired` if the word is `expected`. Returns what the word was before.
template <Order kOrder, Scope kScope, class T>
SYMMETRA_DEVICE T compare_exchange(T* p, T expected, T desired) {
  constexpr int kFailed = kOrder == Order::kAcquire || kOrder == Order::kAcquireRelease ? __ATOMIC_ACQUIRE : __ATOMIC_RELAXED;
  hip::wait_before<kOrder>();
  __hip_atomic_compare_exchange_strong((hip::Global<T>)p, &expected, desired, SYMMETRA_ORDER, kFailed, SYMMETRA_SCOPE);
  return expected;
}

/// Orders the accesses before it and after it, for all threads of the scope alike.
template <Scope kScope>
SYMMETRA_DEVICE void fence() {
  hip::wait_for_memory();
  if constexpr (kScope == Scope::kBlock) {
    __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup");
  } else if constexpr (kScope == Scope::kDevice) {
    __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent");
  } else {
    __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "");
  }
}

}  // namespace symmetra::platform

#undef SYMMETRA_SCOPE
#undef SYMMETRA_ORDER
