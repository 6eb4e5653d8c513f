/// \file
/// All-reduce over device memory.
#pragma once

#include <cstddef>
#include <string>

#include "p2p_allreduce/bootstrap.hpp"
#include "p2p_allreduce/device.hpp"
#include "p2p_allreduce/memory.hpp"
#include "symmetra/symmetra.hpp"

namespace p2p_allreduce {

/// The reductions of symmetra::Reduction: NaNs win MIN and MAX, AVG of integers truncates toward zero.
enum class ReduceOp { SUM, PROD, MIN, MAX, AVG };

/// Selects the algorithm of a message.
enum class Schedule {
  AUTO,     ///< the library's choice, the fastest it knows (symmetra::Communicator::explain prints it)
  CLASSIC,  ///< recursive doubling to 32 KiB, ring above; AUTO for averages of integers, whose sums would wrap otherwise
};

namespace detail {

/// The Dtype of a number that hipDataType and cudaDataType share.
inline symmetra::Dtype dtype_of(hipDataType datatype) {
  switch (static_cast<int>(datatype)) {
    case 0:
      return symmetra::Dtype::kF32;
    case 1:
      return symmetra::Dtype::kF64;
    case 2:
      return symmetra::Dtype::kF16;
    case 3:
      return symmetra::Dtype::kI8;
    case 8:
      return symmetra::Dtype::kU8;
    case 10:
      return symmetra::Dtype::kI32;
    case 12:
      return symmetra::Dtype::kU32;
    case 14:
      return symmetra::Dtype::kBF16;
    case 24:
      return symmetra::Dtype::kI64;
    case 26:
      return symmetra::Dtype::kU64;
    default:
      throw symmetra::Error(symmetra::ErrorKind::kUnsupported,
                            "Execute: the data type is " + std::to_string(static_cast<int>(datatype)) +
                                ", but it must be HIP_R_32F, 64F, 16F, 16BF, 8I, 8U, 32I, 32U, 64I or 64U");
  }
}

inline bool is_float(symmetra::Dtype dtype) {
  using symmetra::Dtype;
  return dtype == Dtype::kF32 || dtype == Dtype::kF64 || dtype == Dtype::kF16 || dtype == Dtype::kBF16;
}

inline symmetra::Reduction reduction_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::SUM:
      return symmetra::Reduction::kSum;
    case ReduceOp::PROD:
      return symmetra::Reduction::kProduct;
    case ReduceOp::MIN:
      return symmetra::Reduction::kMin;
    case ReduceOp::MAX:
      return symmetra::Reduction::kMax;
    case ReduceOp::AVG:
      return symmetra::Reduction::kAverage;
  }
  throw symmetra::Error(symmetra::ErrorKind::kInvalidArgument,
                        "Execute: the operation is " + std::to_string(static_cast<int>(op)) + ", but must be at most 4");
}

}  // namespace detail

inline namespace P2P_ALLREDUCE_ROOM {

/// All-reduces of the ranks of a SymmMemManager, which must outlive it. All ranks make equal calls in equal order.
///
/// Messages are pushed through scratch, so send and receive buffers may be any memory of the device, from Malloc,
/// Register or elsewhere, and may differ in kind and offset between ranks.
class AllReduce {
 public:
  /// Not collective. Throws kInvalidArgument when `bootstrap` and `manager` have different ranks.
  AllReduce(Bootstrap& bootstrap, SymmMemManager& manager, Schedule schedule = Schedule::AUTO) : manager_(manager), schedule_(schedule) {
    const auto rank = static_cast<std::size_t>(bootstrap.GetRank()), ranks = static_cast<std::size_t>(bootstrap.GetWorldSize());
    if (rank != group().rank() || ranks != group().world_size()) {
      throw symmetra::Error(symmetra::ErrorKind::kInvalidArgument, "the bootstrap is rank " + std::to_string(rank) + " of " +
                                                                       std::to_string(ranks) + ", but the manager's is rank " +
                                                                       std::to_string(group().rank()) + " of " +
                                                                       std::to_string(group().world_size()));
    }
  }

  /// Reduces `count` elements at `sendbuf` over all ranks into `recvbuf`, which is either `sendbuf` or does not overlap
  /// it. Enqueues on `stream` and returns; 0 is the default stream of the manager's device. A failure on the device is
  /// thrown by a later call or by Synchronize.
  ///
  /// Throws kInvalidArgument for null, misaligned or overlapping buffers or an unknown operation; kUnsupported for another type; the
  /// group's error if the group has failed, because a rank died, was late, or made another call.
  void Execute(const void* sendbuf, void* recvbuf, std::size_t count, hipDataType datatype, ReduceOp op, hipStream_t stream = nullptr) {
    const symmetra::Dtype dtype = detail::dtype_of(datatype);
    const symmetra::Reduction reduction = detail::reduction_of(op);
    const auto input = symmetra::ConstOperand(sendbuf, count, dtype).through_scratch();
    const auto output = symmetra::Operand(recvbuf, count, dtype).through_scratch();
    const symmetra::Stream& queue = manager_.streams_.of(stream);
    try {
      group().all_reduce(input, output, queue, {reduction, algorithm(dtype, reduction, count)});
    } catch (const symmetra::Error&) {
      // The call may have failed after it joined the stream's order.
      try {
        leave(stream);
      } catch (const symmetra::Error&) {
        // The first error has the cause.
      }
      throw;
    }
    leave(stream);
  }

  /// Blocks until the work of `stream` is done, and throws its errors.
  void Synchronize(hipStream_t stream = nullptr) { group().synchronize(manager_.streams_.of(stream)); }

 private:
  static constexpr std::size_t kSmallBytes = 32 << 10;

  const symmetra::Communicator& group() const { return manager_.groups_.front(); }

  /// Leaves the stream, which the program may destroy without notice; the default stream stays.
  void leave(hipStream_t stream) {
    if (stream != nullptr) group().leave(manager_.streams_.of(stream));
  }

  symmetra::Algorithm algorithm(symmetra::Dtype dtype, symmetra::Reduction reduction, std::size_t count) const {
    const bool wraps = reduction == symmetra::Reduction::kAverage && !detail::is_float(dtype);
    if (schedule_ == Schedule::AUTO || wraps) return symmetra::Algorithm::kAuto;
    const bool small = count <= kSmallBytes / symmetra::size_bytes(dtype);
    return small ? symmetra::Algorithm::kRecursiveDoubling : symmetra::Algorithm::kRing;
  }

  SymmMemManager& manager_;
  Schedule schedule_;
};

}  // namespace P2P_ALLREDUCE_ROOM
}  // namespace p2p_allreduce
