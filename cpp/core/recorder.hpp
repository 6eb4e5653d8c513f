// Passes the function given to Stream::capture through Rust, and returns its exception.
#pragma once

#include <exception>
#include <functional>

#include "symmetra/capture.hpp"

namespace symmetra::core {

class Recorder {
 public:
  explicit Recorder(const std::function<void(symmetra::Capture&)>& record) : record_(record) {}

  /// Called by Rust, once. Throws if the function threw, only to end the capture.
  void record(const Capture& core);
  /// Rethrows the function's exception, if any.
  void rethrow() const {
    if (thrown_ != nullptr) std::rethrow_exception(thrown_);
  }

 private:
  const std::function<void(symmetra::Capture&)>& record_;
  std::exception_ptr thrown_;
};

}  // namespace symmetra::core
