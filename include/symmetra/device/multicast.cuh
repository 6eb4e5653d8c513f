// The memory of all ranks at once, from inside a kernel: one load returns the sum over the ranks, and one store or add
// changes the memory of every rank, including this one. On NVIDIA GPUs, from sm_90 on, the switch makes these accesses;
// on the CPU they are accesses to the memory of one rank after another. They have only been run on the CPU.
//
// For NVIDIA GPUs the program is compiled with SYMMETRA_MULTICAST defined. The host opens multicast with
// Config::multicast, which lists the other requirements of GPUs.
//
// No access waits, and only signal() orders other accesses. A peer waits for the signal with device::wait of
// symmetra/device/signal.cuh. Accesses are at system scope. An address outside the symmetric buffer is undefined.
#pragma once
#include <cstring>
#include <type_traits>

#include "symmetra/device/abi.hpp"
#include "symmetra/device/numbers.hpp"
#include "symmetra/device/platform.hpp"
#include "symmetra/device/platform/order.hpp"

#if !defined(SYMMETRA_MULTICASTS)
#if defined(__HIP__)
#error "AMD GPUs have no multicast"
#else
#error "kernels of NVIDIA GPUs have multicast where SYMMETRA_MULTICAST is defined"
#endif
#endif

namespace symmetra::device {

using platform::Adds;
using platform::Order;

namespace multicast {

/// The kind of sum of a type, if the type determines it.
template <class T>
constexpr Adds kUsual = Adds::kNothing;
template <>
inline constexpr Adds kUsual<float> = Adds::kF32;
template <>
inline constexpr Adds kUsual<int32_t> = Adds::kWords;
template <>
inline constexpr Adds kUsual<uint32_t> = Adds::kWords;
template <>
inline constexpr Adds kUsual<int64_t> = Adds::kDoubleWords;
template <>
inline constexpr Adds kUsual<uint64_t> = Adds::kDoubleWords;

/// Sixteen bytes as the platforms move them.
struct alignas(16) Words {
  uint32_t word[4];
};

}  // namespace multicast

/// Sixteen bytes of values.
template <class T>
struct alignas(16) Packet {
  T values[16 / sizeof(T)];
};

/// Elements of T at the same place of a symmetric buffer on every rank. SymmetricBuffer::multicast_data() in C++, or
/// MulticastView::data() in Rust, returns the data; a kernel may also take this class in their place.
///
/// `kAdds` is the kind of sum of T. Floats and integers of 4 and 8 bytes have a default; for halves it is Adds::kF16 or
/// Adds::kBF16, with any type of 2 bytes; for 8-bit floats it is Adds::kE4M3 or Adds::kE5M2, with any type of 1 byte.
/// The class exposes neither a pointer nor a reference: ordinary accesses through the address are undefined.
template <class T, Adds kAdds = multicast::kUsual<T>>
class Multicast {
  static_assert(std::is_trivially_copyable_v<T> && 16 % sizeof(T) == 0, "a packet of 16 bytes holds whole elements");
  static_assert(kAdds == Adds::kNothing || sizeof(T) == platform::added_bytes(kAdds), "the type has another size than what is added");

 public:
  /// Elements of a packet.
  static constexpr uint32_t kValues = 16 / sizeof(T);

  SYMMETRA_DEVICE explicit Multicast(const MulticastData& data) : data_(data) {}

  /// The number of ranks.
  SYMMETRA_DEVICE uint32_t world() const { return data_.world; }

  /// The sum over all ranks of packet `i`: of `kValues` elements from `i * kValues` on. Halves are added in single
  /// precision and rounded once; integers wrap. A GPU's sum has no documented order, and may differ in its last bit
  /// from rank to rank; the CPU's is in rank order.
  ///
  /// 8-bit floats are added in f16, and the sum is rounded to the type. The CPU rounds every addition; its sums
  /// saturate, and every NaN is 0x7F. The result of a switch for sums beyond the type's range is not documented. Only
  /// NVIDIA GPUs of compute capability 10.0 and 10.3 have such sums, in code compiled for sm_100a and sm_103a; all
  /// other code traps.
  SYMMETRA_DEVICE Packet<T> load_sum(uint64_t i) const {
    static_assert(kAdds != Adds::kNothing, "specify how sums add the type: Multicast<T, Adds::kF16>, for example");
    const auto words = platform::multicast_load_sum<kAdds, multicast::Words>(data_, i * 16);
    Packet<T> sum;
    std::memcpy(&sum, &words, sizeof(sum));
    return sum;
  }

  /// Stores packet `i` on all ranks.
  SYMMETRA_DEVICE void store(uint64_t i, const Packet<T>& packet) const {
    multicast::Words words;
    std::memcpy(&words, __builtin_assume_aligned(&packet, 16), sizeof(words));  // else byte by byte
    platform::multicast_store(data_, i * 16, words);
  }

  /// Adds to element `i` on all ranks, atomically on each rank. Relaxed, or releases this thread's earlier writes.
  template <Order kOrder = Order::kRelaxed>
  SYMMETRA_DEVICE void add(uint64_t i, std::type_identity_t<T> value) const {
    static_assert(std::is_same_v<T, uint32_t>, "multicast adds to elements of uint32_t");
    static_assert(kOrder == Order::kRelaxed || kOrder == Order::kRelease, "a multicast sum is relaxed or releases");
    if constexpr (kOrder == Order::kRelease) {
      platform::multicast_add_release(data_, i * 4, value);
    } else {
      platform::multicast_add(data_, i * 4, value);
    }
  }

  /// Signals every rank, including this one, on `channel` of a pad of the same communicator, like device::put to each
  /// rank but with one access for all. Both kinds of signal count alike. Called by one thread. A thread that waits for
  /// the signal has the guarantees of device::put. A rank that has given up sends no signal.
  template <class Pad>
  SYMMETRA_DEVICE void signal(const Pad& pad, Channel channel) const {
    const uint32_t row = channel.number * pad.world;
    if (platform::load_relaxed(&pad.wait.progress->failed) != 0) return;
    for (uint32_t peer = 0; peer < pad.world; ++peer) ++pad.sent[row + peer];
    // The pad is at the same offset in every arena. The access adds, because ranks may have received different numbers
    // of signals.
    const auto slot = reinterpret_cast<uintptr_t>(pad.pads[pad.rank] + row + pad.rank);
    const auto arena = reinterpret_cast<uintptr_t>(data_.table->address[pad.rank]);
    MulticastData arenas = data_;
    arenas.offset_bytes = 0;
    platform::multicast_add_release(arenas, slot - arena, 1);
  }

 private:
  MulticastData data_;
};

static_assert(sizeof(Multicast<float>) == sizeof(MulticastData), "one layout for host and device");

}  // namespace symmetra::device
