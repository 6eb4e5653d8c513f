// The host device by itself: streams, events, graphs, launches, memory. Build it from this
// file, tests/cpp/host_device/*.cc, cpp/device/host/*.cc and cpp/device/open.cc.
#include "tests/cpp/host_device/host_device.hpp"

#include <atomic>
#include <cstdio>

namespace symmetra::tests {
namespace {

std::atomic<int> checks{0};
std::atomic<int> failures{0};

}  // namespace

void check(bool good, const char* what, const char* file, int line) {
  ++checks;
  if (good) return;
  ++failures;
  std::fprintf(stderr, "%s:%d: failed: %s\n", file, line, what);
}

}  // namespace symmetra::tests

int main() {
  using namespace symmetra::tests;
  const size_t descriptors = open_descriptors();
  test_streams();
  test_guests();
  test_events();
  test_graphs();
  test_launches();
  test_sleep();
  test_memory();
  test_device();
  CHECK(open_descriptors() == descriptors);
  std::printf("host device: %d checks, %d failed\n", checks.load(), failures.load());
  return failures.load() == 0 ? 0 : 1;
}
