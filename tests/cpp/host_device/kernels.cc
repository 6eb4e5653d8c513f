// Stand-in kernels: this program links without the real ones.
#include "kernels/host/kernels.hpp"

#include <filesystem>
#include <iterator>
#include <mutex>

#include "symmetra/device/platform/host.hpp"
#include "tests/cpp/host_device/host_device.hpp"

namespace symmetra::tests {

std::vector<uint32_t> log_of_signals;
std::vector<std::thread::id> threads_seen;

namespace {

void gate(const void* args) {
  const auto* own = static_cast<const kernels::AllReduceArgs*>(args);
  auto* open = static_cast<const Word*>(own->input);
  while (open->load(std::memory_order_acquire) == 0) std::this_thread::sleep_for(milliseconds(1));
  static_cast<Word*>(own->output)->fetch_add(1, std::memory_order_acq_rel);
}

void block_sum(const void* args) {
  const auto* own = static_cast<const kernels::AllReduceArgs*>(args);
  const auto& me = symmetra::platform::host::current;
  auto* shared = reinterpret_cast<uint64_t*>(me.shared);
  for (uint32_t round = 0; round < 3; ++round) {
    shared[me.thread] = own->count + me.thread + me.block + round;
    if (me.barrier) me.barrier->arrive_and_wait();
    if (me.thread == 0) {
      uint64_t sum = 0;
      for (uint32_t thread = 0; thread < me.threads; ++thread) sum += shared[thread];
      static_cast<uint64_t*>(own->output)[me.block] = sum;
    }
    if (me.barrier) me.barrier->arrive_and_wait();
  }
}

void meeting(const void* args) {
  const auto* own = static_cast<const kernels::AllReduceArgs*>(args);
  const auto& me = symmetra::platform::host::current;
  auto* met = static_cast<Word*>(own->output);
  met->fetch_add(1, std::memory_order_acq_rel);
  while (met->load(std::memory_order_acquire) % (me.blocks * me.threads) != 0) std::this_thread::yield();
}

void append_channel(const void* args) { log_of_signals.push_back(static_cast<const kernels::SignalArgs*>(args)->channel); }

std::mutex threads_mutex;

void note_thread(const void*) {
  const std::lock_guard lock(threads_mutex);
  threads_seen.push_back(std::this_thread::get_id());
}

void release_counted(void* data) { static_cast<Word*>(data)->fetch_add(1, std::memory_order_acq_rel); }

}  // namespace

std::shared_ptr<device::Device> open_host(int32_t ordinal) { return device::open(device::kKindHost, ordinal); }

int32_t append(const device::Stream& stream, uint32_t channel) {
  kernels::SignalArgs args{};
  args.channel = channel;
  return stream.launch(args, kOneThread);
}

int32_t launch(const device::Stream& stream, uint32_t algorithm, void* output, uint64_t count, const kernels::Geometry& geometry) {
  kernels::AllReduceArgs args{};
  args.algorithm = algorithm;
  args.output = output;
  args.count = count;
  return stream.launch(args, geometry);
}

device::Keepalive keepalive(Word& released) { return device::Keepalive{&released, release_counted}; }

size_t open_descriptors() {
  const std::filesystem::directory_iterator entries("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

}  // namespace symmetra::tests

namespace symmetra::kernels::host {

Entry kernel(Kind kind, const void* args, const Geometry&) noexcept {
  if (kind == Kind::signal) return tests::append_channel;
  if (kind == Kind::agree) return tests::note_thread;
  if (kind != Kind::all_reduce) return nullptr;
  switch (static_cast<const AllReduceArgs*>(args)->algorithm) {
    case tests::kGate:
      return tests::gate;
    case tests::kBlockSum:
      return tests::block_sum;
    case tests::kMeeting:
      return tests::meeting;
    default:
      return nullptr;
  }
}

}  // namespace symmetra::kernels::host
