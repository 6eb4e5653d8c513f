// Helpers that the programs of these tests share: checks, how their ranks meet, and device memory.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "p2p_allreduce.hpp"

using namespace p2p_allreduce;

#define CHECK(condition)                                           \
  do {                                                             \
    if (!(condition)) fail(__LINE__, #condition " does not hold"); \
  } while (false)
#define HIP(call) CHECK((call) == hipSuccess)

[[noreturn]] inline void fail(int line, const std::string& words) {
  std::fprintf(stderr, "line %d: %s\n", line, words.c_str());
  std::fflush(stderr);
  std::_Exit(1);
}

#ifdef MPI_VERSION
using Meeting = MPIBootstrap;
#else
/// A bootstrap of the program's own.
class Meeting : public Bootstrap {
 public:
  void Initialize() override {
    if (!ranks_) ranks_ = symmetra::bootstrap::tcp_from_env();
  }
  void Finalize() override { ranks_.reset(); }
  int GetWorldSize() const override { return ranks_ ? static_cast<int>(ranks_->world_size()) : 0; }
  int GetRank() const override { return ranks_ ? static_cast<int>(ranks_->rank()) : 0; }
  void Allgather(const void* sendbuf, void* recvbuf, size_t sendcount) override { ranks_->all_gather(sendbuf, recvbuf, sendcount, soon()); }
  void Barrier() override { ranks_->barrier(soon()); }

 private:
  static symmetra::Bootstrap::Deadline soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(60); }

  std::unique_ptr<symmetra::Bootstrap> ranks_;
};
#endif

/// Expects symmetra::Error of a kind whose message has a word.
template <class Call>
void refused(int line, symmetra::ErrorKind kind, const std::string& word, Call call) {
  try {
    call();
  } catch (const symmetra::Error& error) {
    const bool right = error.kind() == kind && std::string(error.what()).find(word) != std::string::npos;
    if (!right) fail(line, "kind " + std::to_string(static_cast<int>(error.kind())) + ": " + error.what());
    return;
  }
  fail(line, "nothing was thrown");
}
#define REFUSED(kind, word, ...) refused(__LINE__, symmetra::ErrorKind::kind, word, [&] { __VA_ARGS__; })

/// Copies to the device, where peers may look next: a copy from pageable memory may return before its bytes arrive.
inline void upload(void* to, const void* from, size_t bytes) {
  HIP(hipMemcpy(to, from, bytes, hipMemcpyHostToDevice));
  HIP(hipDeviceSynchronize());
}

/// Device memory of the program's own.
template <class T>
class Array {
 public:
  explicit Array(size_t count) : count_(count) { HIP(hipMalloc(&data_, count * sizeof(T))); }
  Array(const Array&) = delete;
  ~Array() { HIP(hipFree(data_)); }
  T* data() const { return data_; }
  void set(const std::vector<T>& values) { upload(data_, values.data(), values.size() * sizeof(T)); }
  std::vector<T> get() const {
    std::vector<T> values(count_);
    HIP(hipMemcpy(values.data(), data_, count_ * sizeof(T), hipMemcpyDeviceToHost));
    return values;
  }

 private:
  size_t count_;
  T* data_ = nullptr;
};
