// Time stamps of calls, by which the host finds how long a call took and for which rank it waited: a rank that begins a
// collective early waits in the kernel until the last rank has come, so its kernel takes longer by that time.
#pragma once
#include "symmetra/device/wait.cuh"

namespace symmetra::kernels {

/// At the start of a kernel, after platform::wait_prior, by all threads: writes the record of the call before, if that call has
/// ended, and stamps the begin of a new one. A kernel that goes on with a call of the same label leaves the begin as it is. One
/// thread works, the last of block 0, because that thread has the least other work.
SYMMETRA_DEVICE void begin_times(const Wait& wait) {
  if (!device::kTimed || platform::block() != 0 || platform::thread() != platform::threads() - 1) return;
  Times& times = wait.progress->times;
  const auto packet = [](uint64_t* word) { return reinterpret_cast<platform::Packet*>(word); };
  // Independent loads, whose latencies overlap.
  const platform::Packet ring = platform::load_packet(packet(&times.records));
  const platform::Packet begin = platform::load_packet(packet(&times.begin_ns));
  const platform::Packet end = platform::load_packet(packet(&times.end_ns));
  const uint64_t done = platform::load_relaxed(&wait.progress->done);
  auto* const records = reinterpret_cast<TimeRecord*>(ring.half[0]);
  if (records == nullptr) return;
  const bool ended = end.half[0] != 0;
  if (ended) {
    const uint64_t number = ring.half[1] + 1;
    TimeRecord& record = records[ring.half[1] % kTimeRecords];
    platform::store_packet(packet(&record.begin_ns), {{begin.half[0], number}});
    const uint64_t place = begin.half[1] << 48 | (number & 0xffff) << 32 | (done & 0xffffffff);
    platform::store_packet(packet(&record.end_ns), {{end.half[0], place}});
    platform::store_packet(packet(&times.records), {{ring.half[0], number}});
    platform::store_packet(packet(&times.end_ns), {{0, 0}});
  }
  const uint64_t label = wait.timeout_ns >> kTimeoutBits;
  if (ended || begin.half[0] == 0 || begin.half[1] != label) {
    platform::store_packet(packet(&times.begin_ns), {{platform::now_ns(), label}});
  }
}

/// At the end of the last kernel of a call, by all threads: stamps the end of the call.
SYMMETRA_DEVICE void end_times(const Wait& wait) {
  if (!device::kTimed || platform::block() != 0 || platform::thread() != platform::threads() - 1) return;
  Times& times = wait.progress->times;
  if (platform::load_relaxed(&times.records) == 0) return;
  platform::store_pair(&times.end_ns, platform::now_ns(), 0);
}

}  // namespace symmetra::kernels
