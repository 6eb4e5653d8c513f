/// \file
/// A group of ranks with memory: what runs collectives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "symmetra/bootstrap.hpp"
#include "symmetra/collectives.hpp"
#include "symmetra/config.hpp"
#include "symmetra/device.hpp"
#include "symmetra/memory.hpp"
#include "symmetra/stream.hpp"
#include "symmetra/types.hpp"

namespace symmetra {

/// Which algorithm serves messages up to a size, and why.
struct Range {
  std::uint64_t up_to_bytes;
  Algorithm algorithm;
  std::string reason;
};

/// The ranks of one host that work together, and their memory. Move-only; usable from any thread.
///
/// All ranks make the same calls in the same order. Calls on one stream run in its order; a call on
/// another stream than the last waits for the last. Collectives enqueue and return: errors of the device
/// come with a later call, or from synchronize().
///
/// It fails as one: after a rank died, a deadline passed or somebody called abort(), every call throws
/// the same error, on every rank, and nothing spins.
///
/// close() before destroying it. The destructor is not collective and does not throw: destroyed
/// unclosed, this rank counts as lost by the others. Buffers, adoptions and graphs share ownership of
/// what they need and may be destroyed later.
class Communicator : public Collectives {
 public:
  using Collectives::all_gather;

  /// Opens a group of all ranks of `bootstrap`, which is used during the call only, and its memory.
  /// Collective; blocks. Throws kInvalidArgument for a world size above 16, a rank outside it or a
  /// setting outside its limits, kMismatch when ranks differ in version, build, device kind or settings,
  /// kOutOfMemory when the device cannot hold the arena, kPeer when another rank cannot take part,
  /// kTimeout and kPeerLost when one does not answer, kBootstrap when `bootstrap` throws.
  static Communicator open(Bootstrap& bootstrap, const Device& device, const Config& config = Config());

  Communicator(Communicator&&) noexcept = default;
  Communicator& operator=(Communicator&&) noexcept = default;

  std::size_t rank() const;
  std::size_t world_size() const;
  /// The device of this rank, which streams and memory for it are made on.
  Device device() const;

  /// Ranks with the same colour form a new group, in the order of `key`, then of rank; a rank without
  /// colour gets none. Collective over all ranks; blocks. Throws as open.
  std::optional<Communicator> split(std::optional<std::uint32_t> color, std::int32_t key = 0) const;
  /// Blocks until every rank called it. Says nothing about work on streams. Throws the group's error,
  /// and kTimeout after Deadlines::open.
  void barrier() const;
  /// Gives `bytes` bytes at `send` to every rank and stores those of every rank at `receive`, in rank
  /// order. Blocks. Throws as barrier, kInvalidArgument for null with bytes, and kMismatch when ranks give different
  /// numbers of bytes.
  void all_gather(const void* send, void* receive, std::size_t bytes) const;

  /// Makes a zeroed symmetric buffer of `count` elements. Collective; blocks. Throws kOutOfMemory when
  /// the heap has no such gap, kMismatch when ranks ask for different sizes.
  SymmetricBuffer symmetric(std::size_t count, Dtype dtype) const;
  template <class T>
  SymmetricBuffer symmetric(std::size_t count) const {
    return symmetric(count, DtypeOf<T>::kValue);
  }

  /// Makes the caller's memory known to all ranks, which adopt one each of the same size. Collective;
  /// blocks. The memory must stay allocated until every rank has closed or destroyed its communicator, also
  /// when the result is gone before: peers still have it mapped, and after a call that failed they may still
  /// write there. Ranks that are all threads of one process map nothing: of these the memory may go once
  /// this rank's calls with it have ended without an error, for each ends with a barrier behind which no peer
  /// touches it. Throws kInvalidArgument for a null or misaligned address or memory of another device and
  /// kOutOfMemory when all registrations are in use, and kPeer on the other ranks for either; kMismatch when the sizes differ.
  Adopted adopt(void* address, std::size_t count, Dtype dtype) const;
  template <class T>
  Adopted adopt(T* address, std::size_t count) const {
    return adopt(static_cast<void*>(address), count, DtypeOf<T>::kValue);
  }

  /// Blocks until all work of `stream` is done, then says whether it was done well. Throws the group's
  /// error when a collective gave up, kDevice when work failed.
  void synchronize(const Stream& stream) const;
  /// Lets go of a stream: from here on neither this communicator nor the order of its calls needs it. To
  /// be called before a borrowed stream is destroyed; its work need not be done. Does not block. Throws
  /// kDevice when the runtime refuses to record an event.
  void leave(const Stream& stream) const;
  /// Throws kClosed, or what went wrong first, unless the group is open and well as far as this rank
  /// knows. Does not block.
  void check() const;
  /// Stops the group on every rank: waits on all devices give up within milliseconds and every later call
  /// throws kAborted. Only writes flags: may be called from any thread at any time, more than once.
  void abort() const noexcept;
  /// Closes the group: waits for the device, unmaps what peers share, and leaves in good order.
  /// Collective; blocks. Later calls, also those of buffers' signals and of graphs, throw kClosed; a rank's own
  /// elements may still be read and written. Throws the group's error when it had failed: it is closed all the same.
  void close() const;

  /// Which algorithm serves which size for operands that peers can address (symmetric, adopted) or
  /// cannot, smallest first.
  std::vector<Range> explain(Dtype dtype, bool direct) const;

 private:
  friend class Coordinator;
  explicit Communicator(std::shared_ptr<core::Communicator> core) : Collectives(std::move(core)) {}
};

}  // namespace symmetra
