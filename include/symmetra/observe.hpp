/// \file
/// Running groups as other processes see them, times of calls, and records of calls: docs/observe.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "symmetra/toolchain.hpp"

namespace symmetra {

/// The waiting for one rank.
struct ShareOfWait {
  std::size_t rank;  ///< the rank that came last
  double share;      ///< of the time of all calls of the row, from 0 to 1
  double mean_us;    ///< mean wait of a call that waited for this rank
};

/// The times of the calls of one operation, size class and algorithm.
struct CallTimes {
  std::string operation;
  std::optional<std::string> algorithm;  ///< or the transport; none for operations that have only one
  std::uint64_t up_to_bytes;             ///< the size class: calls of more than half as many bytes, and at most as many
  std::uint64_t calls;                   ///< the number of calls
  double median_us;                      ///< of the calls' times, from the begin of the first kernel to the end of the last one
  double p99_us;                         ///< the time that 99 % of the calls do not exceed
  double total_us;                       ///< the sum of the calls' times
  std::optional<double> busbw_gbps;      ///< bus bandwidth, as nccl-tests define it, of the time without waiting
  std::vector<ShareOfWait> waits;        ///< for each rank, the largest first; ranks for which none waited are missing
  double attributed;                     ///< the share of the calls whose waiting is known
};

/// The times of the last calls of a rank, at most 4096: see Communicator::timings.
struct Timings {
  std::vector<CallTimes> calls;  ///< in order of total time, the largest first
  std::uint64_t unlabelled;      ///< calls beyond the first 1024 operations, sizes and algorithms
};

namespace observe {

/// All groups of this user on this host, or those of a process and of the processes that it started, as JSON: the object that
/// `symmetra status --json` prints. Sends nothing to the ranks. Blocks for 25 to 300 ms. Throws kInvalidArgument if the process
/// does not exist, cannot be read, or has no group; kSystem if `/proc` cannot be read.
std::string look(std::optional<std::uint32_t> process = std::nullopt);
/// Writes the last calls of all ranks of this process into a folder, as Communicator::dump does, and returns the paths. Any
/// thread may call it. Throws kSystem for the first file that cannot be written.
std::vector<std::string> dump_all(const std::string& folder);
/// From here on every signal of this number makes a thread of the library call dump_all. The signal no longer has its former
/// effect. A later call replaces the folder for all signals. A file that cannot be written is a warning in the log. Throws
/// kInvalidArgument for a number that is no signal, and for SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGILL and SIGFPE; kSystem
/// without a descriptor or a thread.
void dump_on(int signal, const std::string& folder);

}  // namespace observe

}  // namespace symmetra
