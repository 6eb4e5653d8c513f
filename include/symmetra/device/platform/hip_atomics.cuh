// Atomic accesses with an order and a scope on AMD GPUs, by clang's builtins.
#pragma once

#include <cstdint>
#include <type_traits>

#include "symmetra/device/platform/hip.cuh"
#include "symmetra/device/platform/order.hpp"

// Scope and order for kScope and kOrder: the builtins take constants. The fence of a release precedes the access, so
// the access itself only acquires.
#define SYMMETRA_SCOPE                                    \
  (kScope == Scope::kBlock ? __HIP_MEMORY_SCOPE_WORKGROUP \
                           : (kScope == Scope::kDevice ? __HIP_MEMORY_SCOPE_AGENT : __HIP_MEMORY_SCOPE_SYSTEM))
#define SYMMETRA_ORDER (kOrder == Order::kAcquire || kOrder == Order::kAcquireRelease ? __ATOMIC_ACQUIRE : __ATOMIC_RELAXED)

namespace symmetra::platform {

namespace hip {

/// Makes earlier writes visible in the scope. The compiler's own release at system scope omits the wait for the
/// write-back where it knows of no earlier store.
template <Order kOrder, Scope kScope>
SYMMETRA_DEVICE void release() {
  if constexpr (kOrder == Order::kRelaxed || kOrder == Order::kAcquire) {
    return;
  } else if constexpr (kScope == Scope::kBlock) {
    wait_for_memory();
  } else if constexpr (kScope == Scope::kDevice) {
    release_device();
  } else {
    release_system();
  }
}

}  // namespace hip

template <Order kOrder, Scope kScope, class T>
SYMMETRA_DEVICE T load_atomic(const T* p) {
  return __hip_atomic_load((hip::Global<const T>)p, SYMMETRA_ORDER, SYMMETRA_SCOPE);
}
template <Order kOrder, Scope kScope, class T>
SYMMETRA_DEVICE void store_atomic(T* p, T value) {
  hip::release<kOrder, kScope>();
  __hip_atomic_store((hip::Global<T>)p, value, SYMMETRA_ORDER, SYMMETRA_SCOPE);
}

/// Changes a word, and returns its previous value.
template <Fetch kFetch, Order kOrder, Scope kScope, class T>
SYMMETRA_DEVICE T fetch(T* generic, T value) {
  hip::release<kOrder, kScope>();
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
/// Stores `desired` if the word is `expected`. Returns the previous value of the word.
template <Order kOrder, Scope kScope, class T>
SYMMETRA_DEVICE T compare_exchange(T* p, T expected, T desired) {
  hip::release<kOrder, kScope>();
  __hip_atomic_compare_exchange_strong((hip::Global<T>)p, &expected, desired, SYMMETRA_ORDER, SYMMETRA_ORDER, SYMMETRA_SCOPE);
  return expected;
}

/// Orders the accesses before and after the call, for all threads of the scope.
template <Scope kScope>
SYMMETRA_DEVICE void fence() {
  hip::release<Order::kRelease, kScope>();
  if constexpr (kScope == Scope::kBlock) {
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
  } else if constexpr (kScope == Scope::kDevice) {
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
  } else {
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "");
  }
}

}  // namespace symmetra::platform

#undef SYMMETRA_SCOPE
#undef SYMMETRA_ORDER
