// Atomic accesses with an order and a scope on NVIDIA GPUs: one instruction each.
#pragma once

#include <cstdint>
#include <type_traits>

#include "symmetra/device/platform/cuda.cuh"
#include "symmetra/device/platform/order.hpp"

// INSTRUCTION("order and scope", ...) for kOrder and kScope, which are template arguments.
#define SYMMETRA_IN_SCOPE(INSTRUCTION, order, ...) \
  if constexpr (kScope == Scope::kBlock) {         \
    INSTRUCTION(order ".cta.global", __VA_ARGS__); \
  } else if constexpr (kScope == Scope::kDevice) { \
    INSTRUCTION(order ".gpu.global", __VA_ARGS__); \
  } else {                                         \
    INSTRUCTION(order ".sys.global", __VA_ARGS__); \
  }
#define SYMMETRA_IN_ORDER(INSTRUCTION, ...)                 \
  if constexpr (kOrder == Order::kRelaxed) {                \
    SYMMETRA_IN_SCOPE(INSTRUCTION, ".relaxed", __VA_ARGS__) \
  } else if constexpr (kOrder == Order::kAcquire) {         \
    SYMMETRA_IN_SCOPE(INSTRUCTION, ".acquire", __VA_ARGS__) \
  } else if constexpr (kOrder == Order::kRelease) {         \
    SYMMETRA_IN_SCOPE(INSTRUCTION, ".release", __VA_ARGS__) \
  } else {                                                  \
    SYMMETRA_IN_SCOPE(INSTRUCTION, ".acq_rel", __VA_ARGS__) \
  }
// Instructions: how, type with operation, and the letter of the registers. The names are those of the functions below.
#define SYMMETRA_LD(how, type, letter) asm volatile("ld" how type " %0, [%1];" : "=" letter(before) : "l"(p) : "memory")
#define SYMMETRA_ST(how, type, letter) asm volatile("st" how type " [%0], %1;" ::"l"(p), letter(value) : "memory")
#define SYMMETRA_RED(how, type, letter) asm volatile("red" how type " [%0], %1;" ::"l"(p), letter(value) : "memory")
#define SYMMETRA_ATOM(how, type, letter) \
  asm volatile("atom" how type " %0, [%1], %2;" : "=" letter(before) : "l"(p), letter(value) : "memory")
#define SYMMETRA_CAS(how, type, letter) \
  asm volatile("atom" how type " %0, [%1], %2, %3;" : "=" letter(before) : "l"(p), letter(expected), letter(desired) : "memory")

namespace symmetra::platform {

namespace cuda {

/// The registers of a T: those of its size, and those of floats.
template <class T>
using Word = std::conditional_t<std::is_same_v<T, float>, float, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;

template <Order kOrder, Scope kScope, class Word>
SYMMETRA_DEVICE Word load(const void* p) {
  Word before;
  if constexpr (std::is_same_v<Word, float>) {
    SYMMETRA_IN_ORDER(SYMMETRA_LD, ".f32", "f")
  } else if constexpr (sizeof(Word) == 4) {
    SYMMETRA_IN_ORDER(SYMMETRA_LD, ".u32", "r")
  } else {
    SYMMETRA_IN_ORDER(SYMMETRA_LD, ".u64", "l")
  }
  return before;
}

template <Order kOrder, Scope kScope, class Word>
SYMMETRA_DEVICE void store(void* p, Word value) {
  if constexpr (std::is_same_v<Word, float>) {
    SYMMETRA_IN_ORDER(SYMMETRA_ST, ".f32", "f")
  } else if constexpr (sizeof(Word) == 4) {
    SYMMETRA_IN_ORDER(SYMMETRA_ST, ".u32", "r")
  } else {
    SYMMETRA_IN_ORDER(SYMMETRA_ST, ".u64", "l")
  }
}

template <Order kOrder, Scope kScope>
SYMMETRA_DEVICE float add(void* p, float value) {
  float before;
  SYMMETRA_IN_ORDER(SYMMETRA_ATOM, ".add.f32", "f")
  return before;
}

/// `kSigned` matters for the smaller and the larger.
template <Fetch kFetch, bool kSigned, Order kOrder, Scope kScope>
SYMMETRA_DEVICE uint32_t fetch(void* p, uint32_t value) {
  uint32_t before;
  if constexpr (kFetch == Fetch::kAdd) {
    SYMMETRA_IN_ORDER(SYMMETRA_ATOM, ".add.u32", "r")
  } else if constexpr (kFetch == Fetch::kAnd) {
    SYMMETRA_IN_ORDER(SYMMETRA_ATOM, ".and.b32", "r")
  } else if constexpr (kFetch == Fetch::kOr) {
    SYMMETRA_IN_ORDER(SYMMETRA_ATOM, ".or.b32", "r")
  } else if constexpr (kFetch == Fetch::kXor) {
    SYMMETRA_IN_ORDER(SYMMETRA_ATOM, ".xor.b32", "r")
  } else if constexpr (kFetch == Fetch::kExchange) {
    SYMMETRA_IN_ORDER(SYMMETRA_ATOM, ".exch.b32", "r")
  } else if constexpr (kFetch == Fetch::kMin && kSigned) {
    SYMMETRA_IN_ORDER(SYMMETRA_ATOM, ".min.s32", "r")
  } else if constexpr (kFetch == Fetch::kMin) {
    SYMMETRA_IN_ORDER(SYMMETRA_ATOM, ".min.u32", "r")
  } else if constexpr (kSigned) {
    SYMMETRA_IN_ORDER(SYMMETRA_ATOM, ".max.s32", "r")
  } else {
    SYMMETRA_IN_ORDER(SYMMETRA_ATOM, ".max.u32", "r")
  }
  return before;
}
template <Fetch kFetch, bool kSigned, Order kOrder, Scope kScope>
SYMMETRA_DEVICE uint64_t fetch(void* p, uint64_t value) {
  uint64_t before;
  if constexpr (kFetch == Fetch::kAdd) {
    SYMMETRA_IN_ORDER(SYMMETRA_ATOM, ".add.u64", "l")
  } else if constexpr (kFetch == Fetch::kAnd) {
    SYMMETRA_IN_ORDER(SYMMETRA_ATOM, ".and.b64", "l")
  } else if constexpr (kFetch == Fetch::kOr) {
    SYMMETRA_IN_ORDER(SYMMETRA_ATOM, ".or.b64", "l")
  } else if constexpr (kFetch == Fetch::kXor) {
    SYMMETRA_IN_ORDER(SYMMETRA_ATOM, ".xor.b64", "l")
  } else if constexpr (kFetch == Fetch::kExchange) {
    SYMMETRA_IN_ORDER(SYMMETRA_ATOM, ".exch.b64", "l")
  } else if constexpr (kFetch == Fetch::kMin && kSigned) {
    SYMMETRA_IN_ORDER(SYMMETRA_ATOM, ".min.s64", "l")
  } else if constexpr (kFetch == Fetch::kMin) {
    SYMMETRA_IN_ORDER(SYMMETRA_ATOM, ".min.u64", "l")
  } else if constexpr (kSigned) {
    SYMMETRA_IN_ORDER(SYMMETRA_ATOM, ".max.s64", "l")
  } else {
    SYMMETRA_IN_ORDER(SYMMETRA_ATOM, ".max.u64", "l")
  }
  return before;
}

}  // namespace cuda

template <Order kOrder, Scope kScope, class T>
SYMMETRA_DEVICE T load_atomic(const T* p) {
  return static_cast<T>(cuda::load<kOrder, kScope, cuda::Word<T>>(p));
}
template <Order kOrder, Scope kScope, class T>
SYMMETRA_DEVICE void store_atomic(T* p, T value) {
  cuda::store<kOrder, kScope>(p, static_cast<cuda::Word<T>>(value));
}

/// Changes a word, and returns its previous value.
template <Fetch kFetch, Order kOrder, Scope kScope, class T>
SYMMETRA_DEVICE T fetch(T* p, T value) {
  if constexpr (std::is_same_v<T, float>) {
    if constexpr (kFetch == Fetch::kAdd) return cuda::add<kOrder, kScope>(p, value);
    return f32_of(cuda::fetch<kFetch, false, kOrder, kScope>(p, bits_of(value)));
  } else {
    return static_cast<T>(cuda::fetch<kFetch, std::is_signed_v<T>, kOrder, kScope>(p, static_cast<cuda::Word<T>>(value)));
  }
}
/// Adds to a word. kOrder is kRelaxed or kRelease.
template <Order kOrder, Scope kScope, class T>
SYMMETRA_DEVICE void add_atomic(T* p, T addend) {
  const auto value = static_cast<cuda::Word<T>>(addend);
  if constexpr (std::is_same_v<T, float>) {
    SYMMETRA_IN_ORDER(SYMMETRA_RED, ".add.f32", "f")
  } else if constexpr (sizeof(T) == 4) {
    SYMMETRA_IN_ORDER(SYMMETRA_RED, ".add.u32", "r")
  } else {
    SYMMETRA_IN_ORDER(SYMMETRA_RED, ".add.u64", "l")
  }
}
/// Stores `replacement` if the word is `wanted`. Returns the previous value of the word.
template <Order kOrder, Scope kScope, class T>
SYMMETRA_DEVICE T compare_exchange(T* p, T wanted, T replacement) {
  const auto expected = static_cast<cuda::Word<T>>(wanted), desired = static_cast<cuda::Word<T>>(replacement);
  cuda::Word<T> before;
  if constexpr (sizeof(T) == 4) {
    SYMMETRA_IN_ORDER(SYMMETRA_CAS, ".cas.b32", "r")
  } else {
    SYMMETRA_IN_ORDER(SYMMETRA_CAS, ".cas.b64", "l")
  }
  return static_cast<T>(before);
}

/// Orders the accesses before and after the call, for all threads of the scope.
template <Scope kScope>
SYMMETRA_DEVICE void fence() {
  if constexpr (kScope == Scope::kBlock) {
    asm volatile("fence.sc.cta;" ::: "memory");
  } else if constexpr (kScope == Scope::kDevice) {
    asm volatile("fence.sc.gpu;" ::: "memory");
  } else {
    asm volatile("fence.sc.sys;" ::: "memory");
  }
}

}  // namespace symmetra::platform

#undef SYMMETRA_IN_SCOPE
#undef SYMMETRA_IN_ORDER
#undef SYMMETRA_LD
#undef SYMMETRA_ST
#undef SYMMETRA_RED
#undef SYMMETRA_ATOM
#undef SYMMETRA_CAS
