#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <utility>
#include <vector>

#include "tests/cpp/host_device/host_device.hpp"

namespace symmetra::tests {
namespace {

void test_blocks_and_threads() {
  const auto host = open_host();
  const auto stream = host->create_stream();
  for (const auto& [blocks, threads] : std::vector<std::pair<uint32_t, uint32_t>>{{1, 1}, {1, 3}, {4, 1}, {3, 5}, {2, 3}, {8, 4}}) {
    const kernels::Geometry geometry{blocks, threads, threads * 8, 0};
    std::vector<uint64_t> sums(blocks);
    for (uint64_t count = 0; count < 20; ++count) {
      CHECK(launch(*stream, kBlockSum, sums.data(), count, geometry) == 0);
      stream->synchronize();
      bool right = true;
      for (uint64_t block = 0; block < blocks; ++block) {
        right = right && sums[block] == threads * (count + block + 2) + threads * (threads - 1) / 2;
      }
      CHECK(right);
    }
    Word met{0};
    CHECK(launch(*stream, kMeeting, &met, 0, geometry) == 0);
    stream->synchronize();
    CHECK(met.load() == blocks * threads);
  }
}

void test_the_threads_of_a_stream_are_reused() {
  const auto host = open_host();
  const auto stream = host->create_stream();
  threads_seen.clear();
  for (int round = 0; round < 10; ++round) CHECK(stream->launch(kernels::AgreeArgs{}, {2, 3, 0, 0}) == 0);
  for (int round = 0; round < 10; ++round) CHECK(stream->launch(kernels::AgreeArgs{}, {1, 2, 0, 0}) == 0);
  stream->synchronize();
  CHECK(threads_seen.size() == 80);
  std::sort(threads_seen.begin(), threads_seen.end());
  const auto distinct = std::unique(threads_seen.begin(), threads_seen.end()) - threads_seen.begin();
  CHECK(distinct == 6);
}

void test_ranks_meet_across_streams() {
  const auto first_rank = open_host(0);
  const auto second_rank = open_host(1);
  const auto first = first_rank->create_stream();
  const auto second = second_rank->create_stream();
  Gate gate;
  Word passed{0};
  kernels::AllReduceArgs args{};
  args.algorithm = kGate;
  args.input = &passed;
  Word last{0};
  args.output = &last;
  CHECK(first->launch(args, {2, 2, 0, 0}) == 0);  // waits for what the second does
  args.output = &passed;
  Word open{1};
  args.input = &open;
  CHECK(second->launch(args, kOneThread) == 0);
  first->synchronize();
  second->synchronize();
  CHECK(last.load() == 4);
}

// The sanitizers need the whole address space.
#ifdef __has_feature
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/// While it lives the process can map hardly more than it has.
class AddressSpaceLimit {
 public:
  explicit AddressSpaceLimit(size_t more_bytes) {
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    getrlimit(RLIMIT_AS, &before_);
    rlimit limit = before_;
    limit.rlim_cur = pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) + more_bytes;
    setrlimit(RLIMIT_AS, &limit);
  }
  ~AddressSpaceLimit() { setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_{};
};

void test_a_launch_without_threads_to_run_it() {
  if (SANITIZED) return;
  const auto host = open_host();
  const auto other = host->create_stream();
  Word met{0};
  {
    const auto stream = host->create_stream();
    const auto event = host->create_event();
    int32_t recorded = 0;
    {
      const AddressSpaceLimit limit(size_t{32} << 20);
      CHECK(launch(*stream, kMeeting, &met, 0, {256, 2, 0, 0}) == 0);
      recorded = stream->record(*event);  // refused where the launch has failed already
      CHECK(kind_of([&] { stream->synchronize(); }) == ErrorKind::kDevice);
    }
    CHECK(met.load() == 0);  // all of it runs or nothing
    CHECK(kind_of([&] { stream->done(); }) == ErrorKind::kDevice);
    CHECK(recorded == 0 || recorded == EAGAIN || recorded == ENOMEM);
    if (recorded == 0) CHECK(kind_of([&] { event->synchronize(); }) == ErrorKind::kDevice);
    CHECK(kind_of([&] { host->synchronize(); }) == ErrorKind::kDevice);
    const int32_t code = launch(*stream, kMeeting, &met, 0, kOneThread);
    CHECK(code == EAGAIN || code == ENOMEM);
  }
  CHECK(launch(*other, kMeeting, &met, 0, {4, 2, 0, 0}) == 0);  // the others go on
  other->synchronize();
  CHECK(met.load() == 8);
}

}  // namespace

void test_launches() {
  test_blocks_and_threads();
  test_the_threads_of_a_stream_are_reused();
  test_ranks_meet_across_streams();
  test_a_launch_without_threads_to_run_it();
}

}  // namespace symmetra::tests
