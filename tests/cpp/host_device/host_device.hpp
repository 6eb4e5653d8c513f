// Helpers of the tests of the host device: checks, stand-in kernels, gates.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "cpp/device/device.hpp"

namespace symmetra::tests {

using std::chrono::milliseconds;

/// Counts a check, and prints its place on failure.
void check(bool good, const char* what, const char* file, int line);
#define CHECK(condition) ::symmetra::tests::check((condition), #condition, __FILE__, __LINE__)

/// The kind of the error that `body` throws; nothing when it throws none.
template <typename Body>
std::optional<ErrorKind> kind_of(Body&& body) {
  try {
    body();
  } catch (const symmetra::Error& error) {
    return error.kind();
  }
  return std::nullopt;
}

// Stand-in kernels, chosen by AllReduceArgs::algorithm.
constexpr uint32_t kGate = 0;      // waits for the word at input, then adds 1 at output
constexpr uint32_t kBlockSum = 1;  // output[block] = sum over the block of the values of its threads in shared memory
constexpr uint32_t kMeeting = 2;   // every thread of every block waits for all others
constexpr uint32_t kMissing = 9;   // no such kernel

using Word = std::atomic<uint32_t>;

/// The channels of the signal kernels that ran. Plain memory: a race is one that
/// ThreadSanitizer sees.
extern std::vector<uint32_t> log_of_signals;
/// The threads that ran agree kernels; read it when they are done.
extern std::vector<std::thread::id> threads_seen;

constexpr kernels::Geometry kOneThread{1, 1, 0, 0};

std::shared_ptr<device::Device> open_host(int32_t ordinal = 0);
int32_t append(const device::Stream& stream, uint32_t channel);
int32_t launch(const device::Stream& stream, uint32_t algorithm, void* output, uint64_t count, const kernels::Geometry& geometry);
/// Adds 1 to `released`.
device::Keepalive keepalive(Word& released);
size_t open_descriptors();

/// A kernel that holds up a stream until it is opened; opens at the end of its life, so
/// that a failed check cannot leave a stream waiting.
class Gate {
 public:
  ~Gate() { open(); }
  void open() { word_.store(1, std::memory_order_release); }
  void close() { word_.store(0, std::memory_order_release); }
  uint32_t passed() const { return passed_.load(std::memory_order_acquire); }
  int32_t launch(const device::Stream& stream) {
    kernels::AllReduceArgs args{};
    args.algorithm = kGate;
    args.input = &word_;
    args.output = &passed_;
    return stream.launch(args, kOneThread);
  }

 private:
  Word word_{0};
  Word passed_{0};
};

void test_streams();
void test_guests();
void test_events();
void test_graphs();
void test_launches();
void test_sleep();
void test_memory();
void test_device();

}  // namespace symmetra::tests
