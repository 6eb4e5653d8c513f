// Calls from the public classes into Rust: an error is thrown as symmetra::Error, and shared_ptr owns Rust objects.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "rust/cxx.h"
#include "symmetra/error.hpp"

namespace symmetra {
class Queue;
}

namespace symmetra::core {

struct Queue;

/// The stream or the capture of a call. nvcc takes no such declaration in a header: it drops the namespace before the first Queue.
Queue queue_of(const symmetra::Queue& queue);

/// Parses the text "kind|native code|rank|message" of src/capi/report.rs.
Error decode(const char* text);

/// Calls Rust. Allocates nothing on success.
template <class Function>
decltype(auto) call(Function&& function) {
  try {
    return std::forward<Function>(function)();
  } catch (const rust::Error& error) {
    throw decode(error.what());
  }
}

/// A Rust object, as a member of the public classes.
template <class T>
std::shared_ptr<T> share(rust::Box<T> box) {
  return std::shared_ptr<T>(box.into_raw(), [](T* raw) { rust::Box<T>::from_raw(raw); });
}

/// Throws for an object that was moved from.
[[noreturn]] void throw_moved_from();

/// The Rust object of a public object.
template <class T>
T& live(const std::shared_ptr<T>& core) {
  if (core == nullptr) throw_moved_from();
  return *core;
}

/// Throws kInvalidArgument for null memory.
[[noreturn]] void throw_null(const char* what, std::size_t bytes);

/// Bytes of the program. Throws kInvalidArgument for null, unless there are 0 bytes.
template <class T, class Address>
rust::Slice<T> bytes_at(const char* what, Address address, std::size_t bytes) {
  if (address == nullptr && bytes > 0) throw_null(what, bytes);
  return {static_cast<T*>(address), bytes};
}

/// Bytes of Rust in the type of the public classes.
inline std::string text_of(const rust::Vec<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

/// A duration in milliseconds for the bridge; a negative duration is 0.
inline std::uint64_t milliseconds(std::chrono::milliseconds duration) {
  return duration.count() > 0 ? static_cast<std::uint64_t>(duration.count()) : 0;
}

}  // namespace symmetra::core
