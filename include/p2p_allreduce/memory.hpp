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

/// As many bytes on every rank, and where they are.
struct SymmMemObj {
  void* localPtr = nullptr;            ///< this rank's bytes
  std::uintptr_t* peerPtrs = nullptr;  ///< those of every rank as this rank's device addresses them
  std::size_t size = 0;                ///< bytes of one rank

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

/// The ranks' group and its memory, on the device that is current when it is made. One thread at a time.
///
/// Making and destroying it are collective and block; the bootstrap is needed only for the first. It
/// outlives what was made with it. A rank that is destroyed while an exception unwinds does not wait for
/// the others, who lose it.
class SymmMemManager {
 public:
  /// Throws as symmetra::Communicator::open, and kPeer when another rank cannot open its device.
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
        // The group had failed, and its calls have said so. It is closed all the same.
      }
    }
  }

  /// `size` zeroed bytes on every rank. Collective; blocks. Throws kOutOfMemory when this rank's device has no such
  /// room or no device could, kPeer when another rank's has none, kMismatch when ranks ask for different sizes.
  SymmMemObj* Malloc(std::size_t size) {
    // Sizes that cannot be are compared like others.
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

  /// Gives back what Malloc gave. Not collective, does not wait: the bytes are used again once every rank
  /// freed theirs and no work uses them; `object` stays an object that is empty. Null does nothing. Throws kInvalidArgument for what is no
  /// object of this manager, was freed before or came from Register.
  void Free(SymmMemObj* object) { take("Free", object, true); }

  /// The program's `size` bytes at `ptr`, one stretch on every rank. Collective; blocks. They stay allocated
  /// until every rank has destroyed its manager, also when deregistered before: peers still have them mapped, and after
  /// a call that failed they may still write there. Ranks that are all threads of one process map nothing: of these the
  /// memory may go once this rank's calls with it have ended without an error.
  ///
  /// Throws kUnsupported, on every rank, when some rank's cannot be shared: between processes, memory that is not
  /// hipMalloc's, such as malloc's or the stack's; on GPUs also memory from a pool, managed or mapped by address
  /// ranges. kInvalidArgument for a null address, and kPeer on the other ranks; kMismatch for different sizes.
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

  /// Undoes Register. Not collective. Null does nothing. Throws kInvalidArgument for what is no object of this
  /// manager, was deregistered before or came from Malloc.
  void Deregister(SymmMemObj* object) { take("Deregister", object, false); }

 private:
  friend class AllReduce;

  /// What stands behind what the caller sees.
  struct Object {
    template <class Peer>
    Object(std::size_t ranks, Peer peer) {
      for (std::size_t rank = 0; rank < ranks; ++rank) peers.push_back(reinterpret_cast<std::uintptr_t>(peer(rank)));
    }

    std::vector<std::uintptr_t> peers;
    std::optional<symmetra::SymmetricBuffer> allocated;
    std::optional<symmetra::Adopted> registered;
  };

  /// A group as the bootstrap of the next.
  class Successor final : public symmetra::Bootstrap {
   public:
    explicit Successor(const symmetra::Communicator& group) : group_(group) {}
    std::size_t rank() const override { return group_.rank(); }
    std::size_t world_size() const override { return group_.world_size(); }
    void all_gather(const void* send, void* receive, std::size_t bytes, Deadline) override { group_.all_gather(send, receive, bytes); }
    void barrier(Deadline) override { group_.barrier(); }

   private:
    const symmetra::Communicator& group_;
  };

  /// The current device, once every rank has opened its own: one that threw alone would leave the others waiting.
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

  /// From the heap of a group that has room: the same on every rank, whose heaps are alike.
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

  /// A heap never grows: a further group brings one as large as all before together, so that many objects need few
  /// groups; where that is more than a device has, one for this object alone.
  void grow(std::size_t size) {
    constexpr std::uint64_t kSlack = 1 << 20, kMostBytes = (std::uint64_t{1} << 44) - kSlack;
    if (size > kMostBytes) {
      throw symmetra::Error(symmetra::ErrorKind::kOutOfMemory, "Malloc: the size is " + std::to_string(size) +
                                                                   " bytes, but an object has at most " + std::to_string(kMostBytes));
    }
    const std::uint64_t least = size + kSlack;
    if (least >= heaps_bytes_ || !open_another(heaps_bytes_)) (void)open_another(least, true);
  }

  /// Opens a group that only holds memory. False, on every rank, where one had no room, unless `last`.
  bool open_another(std::uint64_t heap_bytes, bool last = false) {
    symmetra::Config config = config_;
    config.heap_bytes = heap_bytes;
    config.one_shot_ll_bytes = config.two_shot_ll_bytes = config.two_shot_sentinel_bytes = config.recursive_doubling_bytes = 1024;
    config.one_shot_sentinel_bytes = 1024;
    config.ring_bytes = 4096;
    config.registrations = 1;
    Successor successor(groups_.front());
    try {
      groups_.push_back(symmetra::Communicator::open(successor, detail::open_device(ordinal_), config));
    } catch (const symmetra::Error& error) {
      // The others know only that this rank could not.
      if (last || !anyone(error.kind() == symmetra::ErrorKind::kOutOfMemory)) throw;
      return false;
    }
    heaps_bytes_ += heap_bytes;
    return true;
  }

  /// Whether any rank says so. Collective.
  bool anyone(bool here) const {
    const std::uint8_t own = here;
    std::vector<std::uint8_t> all(ranks());
    groups_.front().all_gather(&own, all.data(), 1);
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
  /// The first runs the collectives; all hold memory.
  std::vector<symmetra::Communicator> groups_;
  /// Those given back stay, empty: the address of one is never that of another, so that a second Free cannot free a stranger.
  std::deque<SymmMemObj> shown_;
  std::unordered_map<const SymmMemObj*, Object> objects_;
};

}  // namespace P2P_ALLREDUCE_ROOM
}  // namespace p2p_allreduce
