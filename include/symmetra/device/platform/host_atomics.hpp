// Atomic accesses with an order on the CPU, which ignores the scope.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "symmetra/device/platform/host.hpp"
#include "symmetra/device/platform/order.hpp"

namespace symmetra::platform {

namespace host {

constexpr std::memory_order order_of(Order order) {
  if (order == Order::kRelaxed) return std::memory_order_relaxed;
  if (order == Order::kAcquire) return std::memory_order_acquire;
  return order == Order::kRelease ? std::memory_order_release : std::memory_order_acq_rel;
}

/// The word that replaces a fence under ThreadSanitizer, which does not support fences. Read-modify-writes of one word
/// are equivalent among the threads of one process.
inline uint32_t fenced = 0;

}  // namespace host

template <Order kOrder, Scope, class T>
SYMMETRA_DEVICE T load_atomic(const T* p) {
  return std::atomic_ref<T>(*const_cast<T*>(p)).load(host::order_of(kOrder));
}
template <Order kOrder, Scope, class T>
SYMMETRA_DEVICE void store_atomic(T* p, T value) {
  std::atomic_ref<T>(*p).store(value, host::order_of(kOrder));
}

/// Changes a word, and returns its previous value.
template <Fetch kFetch, Order kOrder, Scope, class T>
SYMMETRA_DEVICE T fetch(T* p, T value) {
  constexpr std::memory_order order = host::order_of(kOrder);
  std::atomic_ref<T> word(*p);
  if constexpr (kFetch == Fetch::kAdd) return word.fetch_add(value, order);
  if constexpr (kFetch == Fetch::kAnd) return word.fetch_and(value, order);
  if constexpr (kFetch == Fetch::kOr) return word.fetch_or(value, order);
  if constexpr (kFetch == Fetch::kXor) return word.fetch_xor(value, order);
  if constexpr (kFetch == Fetch::kExchange) return word.exchange(value, order);
  if constexpr (kFetch == Fetch::kMin || kFetch == Fetch::kMax) {
    T before = word.load(std::memory_order_relaxed);
    while (!word.compare_exchange_weak(before, (kFetch == Fetch::kMin) == (value < before) ? value : before, order)) pause();
    return before;
  }
}
/// Adds to a word. kOrder is kRelaxed or kRelease.
template <Order kOrder, Scope kScope, class T>
SYMMETRA_DEVICE void add_atomic(T* p, T value) {
  fetch<Fetch::kAdd, kOrder, kScope>(p, value);
}
/// Stores `desired` if the word is `expected`. Returns the previous value of the word.
template <Order kOrder, Scope, class T>
SYMMETRA_DEVICE T compare_exchange(T* p, T expected, T desired) {
  std::atomic_ref<T>(*p).compare_exchange_strong(expected, desired, host::order_of(kOrder));
  return expected;
}

/// Orders the accesses before and after the call, for all threads of the scope.
template <Scope>
SYMMETRA_DEVICE void fence() {
#if defined(__SANITIZE_THREAD__)
  std::atomic_ref<uint32_t>(host::fenced).fetch_add(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace symmetra::platform
