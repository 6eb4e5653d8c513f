/// \file
/// Memory that all ranks address.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <exception>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "p2p_allreduce/bootstrap.hpp"
#include "p2p_allreduce/device.hpp"
#include "symmetra/symmetra.hpp"

namespace p2p_allreduce {

/// An equal number of bytes on every rank, and their addresses.
struct SymmMemObj {
  void* localPtr = nullptr;            ///< this rank's bytes
  std::uintptr_t* peerPtrs = nullptr;  ///< the bytes of every rank, as this rank's device addresses them
  std::size_t size = 0;                ///< number of bytes per rank

  void* Get() const { return localPtr; }
  void* GetPeer(int rank) const { return reinterpret_cast<void*>(peerPtrs[rank]); }
  template <class T>
  T* GetAs() const {
    return static_cast<T*>(localPtr);
  }
  template <class T>
  T* GetPeerAs(int rank) const {
    return static_cast<T*>(GetPeer(rank));
  }
};

inline namespace P2P_ALLREDUCE_ROOM {

class AllReduce;

/// The ranks' group and its memory, on the device that is current at construction. One thread at a time.
///
/// Construction and destruction are collective and block; only construction needs the bootstrap. The manager must
/// outlive what it made. Destroyed while an exception unwinds, it does not wait, and other ranks see this rank as lost.
class SymmMemManager {
 public:
  /// Throws the errors of symmetra::Communicator::open, and kPeer when another rank cannot open its device.
  explicit SymmMemManager(Bootstrap& bootstrap, const symmetra::Config& config = symmetra::Config())
      : exceptions_(std::uncaught_exceptions()),
        ordinal_(open_together(bootstrap)),
        streams_(ordinal_),
        config_(config),
        heaps_bytes_(config.heap_bytes) {
    detail::Meeting meeting(bootstrap);
    groups_.push_back(symmetra::Communicator::open(meeting, detail::open_device(ordinal_), config));
  }
  SymmMemManager(const SymmMemManager&) = delete;
  SymmMemManager& operator=(const SymmMemManager&) = delete;
  ~SymmMemManager() {
    objects_.clear();
    if (std::uncaught_exceptions() > exceptions_) return;
    for (const symmetra::Communicator& group : groups_) {
      try {
        group.close();
      } catch (const symmetra::Error&) {
        // The group had failed, and its calls have reported that. It is closed nevertheless.
      }
    }
  }

  /// Allocates `size` zeroed bytes on every rank. Collective; blocks. Throws kOutOfMemory when this rank's device has
  /// too little memory or no device could have enough, kPeer when another rank's has too little, kMismatch when ranks
  /// ask for different sizes.
  SymmMemObj* Malloc(std::size_t size) {
    // Impossible sizes are compared like others.
    std::optional<symmetra::SymmetricBuffer> buffer = cut(std::min<std::size_t>(size, PTRDIFF_MAX));
    if (!buffer) {
      grow(size);
      buffer.emplace(groups_.back().symmetric<std::uint8_t>(size));
    }
    const auto peer = [&](std::size_t rank) { return buffer->peer_data(rank); };
    void* const local = buffer->data();
    Object object(ranks(), peer);
    object.allocated.emplace(std::move(*buffer));
    return keep(local, size, std::move(object));
  }

  /// Frees an object of Malloc. Not collective; does not block. The bytes are reused once every rank freed theirs and
  /// no work uses them; `object` stays valid and empty. Null does nothing. Throws kInvalidArgument for an object that
  /// is not this manager's, was freed before or came from Register.
  void Free(SymmMemObj* object) { take("Free", object, true); }

  /// Registers the program's `size` bytes at `ptr`. Collective; blocks. They must stay allocated until every rank has
  /// destroyed its manager, even when deregistered: peers have them mapped and may write there after a failed call.
  /// When all ranks are threads of one process, they may be freed once this rank's calls have ended without an error.
  ///
  /// Throws kUnsupported, on every rank, when some rank's memory cannot be shared: between processes, memory not from
  /// hipMalloc (malloc, stack); on GPUs also pooled, managed or address-range mapped memory. Throws kInvalidArgument for
  /// a null address, and kPeer on the other ranks; kMismatch for different sizes.
  SymmMemObj* Register(void* ptr, std::size_t size) {
    symmetra::Adopted adopted = groups_.front().adopt(static_cast<std::uint8_t*>(ptr), size);
    if (!adopted.is_shared()) {
      throw symmetra::Error(symmetra::ErrorKind::kUnsupported, "Register: the " + std::to_string(size) + " bytes at " + words(ptr) +
                                                                   ", or those of another rank, cannot be shared: use Malloc");
    }
    Object object(ranks(), [&](std::size_t rank) { return adopted.peer_data(rank); });
    object.registered.emplace(std::move(adopted));
    return keep(ptr, size, std::move(object));
  }

  /// Undoes Register. Not collective. Null does nothing. Throws kInvalidArgument for an object that is not this
  /// manager's, was deregistered before or came from Malloc.
  void Deregister(SymmMemObj* object) { take("Deregister", object, false); }

 private:
  friend class AllReduce;

  /// The memory of an object of the caller.
  struct Object {
    template <class Peer>
    Object(std::size_t ranks, Peer peer) {
      for (std::size_t rank = 0; rank < ranks; ++rank) peers.push_back(reinterpret_cast<std::uintptr_t>(peer(rank)));
    }

    std::vector<std::uintptr_t> peers;
    std::optional<symmetra::SymmetricBuffer> allocated;
    std::optional<symmetra::Adopted> registered;
  };

  /// A group that serves as the bootstrap of the next group.
  class Successor final : public symmetra::Bootstrap {
   public:
    explicit Successor(const symmetra::Communicator& group) : group_(group) {}
    std::size_t rank() const override { return group_.rank(); }
    std::size_t world_size() const override { return group_.world_size(); }
    void all_gather(const void* send, void* receive, std::size_t bytes, Deadline) override {
      group_.all_gather_bytes(send, receive, bytes);
    }
    void barrier(Deadline) override { group_.barrier(); }

   private:
    const symmetra::Communicator& group_;
  };

  /// Opens the current device and returns once every rank has opened its own: a rank that threw alone would leave the
  /// others waiting.
  static int open_together(Bootstrap& bootstrap) {
    const detail::Meeting meeting(bootstrap);
    int ordinal = 0;
    std::exception_ptr error;
    try {
      ordinal = detail::current_ordinal();
      (void)detail::open_device(ordinal);
    } catch (...) {
      error = std::current_exception();
    }
    const std::uint8_t opened = error == nullptr;
    std::vector<std::uint8_t> all(meeting.world_size());
    bootstrap.Allgather(&opened, all.data(), 1);
    if (error) std::rethrow_exception(error);
    const auto without = std::find(all.begin(), all.end(), 0);
    if (without == all.end()) return ordinal;
    const auto rank = static_cast<std::int32_t>(without - all.begin());
    throw symmetra::Error(symmetra::ErrorKind::kPeer, "rank " + std::to_string(rank) + " cannot open its device", 0, rank);
  }

  std::size_t ranks() const { return groups_.front().world_size(); }

  /// Allocates from the heap of a group that has room. All ranks choose one group, since their heaps are alike.
  std::optional<symmetra::SymmetricBuffer> cut(std::size_t size) const {
    for (const symmetra::Communicator& group : groups_) {
      try {
        return group.symmetric<std::uint8_t>(size);
      } catch (const symmetra::Error& error) {
        if (error.kind() != symmetra::ErrorKind::kOutOfMemory) throw;
      }
    }
    return std::nullopt;
  }

  /// Opens a further group. A heap never grows, so the new heap is as large as all earlier ones together, and many
  /// objects need few groups. If the device has too little memory for that, the new heap holds this object alone.
  void grow(std::size_t size) {
    constexpr std::uint64_t kSlack = 1 << 20, kMostBytes = (std::uint64_t{1} << 44) - kSlack;
    if (size > kMostBytes) {
      throw symmetra::Error(symmetra::ErrorKind::kOutOfMemory, "Malloc: the size is " + std::to_string(size) +
                                                                   " bytes, but an object has at most " + std::to_string(kMostBytes));
    }
    const std::uint64_t least = size + kSlack;
    if (least >= heaps_bytes_ || !open_another(heaps_bytes_)) (void)open_another(least, true);
  }

  /// Opens a group that only holds memory. Returns false, on every rank, when one had too little memory, unless `last`.
  bool open_another(std::uint64_t heap_bytes, bool last = false) {
    symmetra::Config config = config_;
    config.heap_bytes = heap_bytes;
    config.one_shot_ll_bytes = config.two_shot_ll_bytes = config.two_shot_sentinel_bytes = config.recursive_doubling_bytes = 1024;
    config.one_shot_sentinel_bytes = 1024;
    config.ring_bytes = config.pair_bytes = 4096;
    config.registrations = 1;
    Successor successor(groups_.front());
    try {
      groups_.push_back(symmetra::Communicator::open(successor, detail::open_device(ordinal_), config));
    } catch (const symmetra::Error& error) {
      // Other ranks know only that this rank could not.
      if (last || !anyone(error.kind() == symmetra::ErrorKind::kOutOfMemory)) throw;
      return false;
    }
    heaps_bytes_ += heap_bytes;
    return true;
  }

  /// Whether any rank passes true. Collective.
  bool anyone(bool here) const {
    const std::uint8_t own = here;
    std::vector<std::uint8_t> all(ranks());
    groups_.front().all_gather_bytes(&own, all.data(), 1);
    return std::any_of(all.begin(), all.end(), [](std::uint8_t said) { return said != 0; });
  }

  SymmMemObj* keep(void* local, std::size_t size, Object object) {
    SymmMemObj& shown = shown_.emplace_back(SymmMemObj{local, object.peers.data(), size});
    objects_.emplace(&shown, std::move(object));
    return &shown;
  }

  void take(const char* call, SymmMemObj* object, bool allocated) {
    if (object == nullptr) return;
    const auto found = objects_.find(object);
    if (found == objects_.end()) {
      throw symmetra::Error(symmetra::ErrorKind::kInvalidArgument,
                            std::string(call) + ": " + words(object) + " is none of the " + std::to_string(objects_.size()) +
                                " objects of this manager: it is another's, or was given back before");
    }
    if (found->second.allocated.has_value() != allocated) {
      throw symmetra::Error(symmetra::ErrorKind::kInvalidArgument, std::string(call) + ": " + words(object) + " came from " +
                                                                       (allocated ? "Register: use Deregister" : "Malloc: use Free"));
    }
    objects_.erase(found);
    *object = SymmMemObj();
  }

  static std::string words(const void* address) {
    char text[32];
    std::snprintf(text, sizeof text, "%p", address);
    return text;
  }

  int exceptions_;
  int ordinal_;
  detail::Streams streams_;
  symmetra::Config config_;
  std::uint64_t heaps_bytes_;
  /// The first group runs the collectives; all hold memory.
  std::vector<symmetra::Communicator> groups_;
  /// Freed objects stay, empty, so no address is ever reused and a second Free cannot free another object.
  std::deque<SymmMemObj> shown_;
  std::unordered_map<const SymmMemObj*, Object> objects_;
};

}  // namespace P2P_ALLREDUCE_ROOM
}  // namespace p2p_allreduce
