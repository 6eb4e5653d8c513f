/// \file
/// Memory of NVSHMEM as operands of collectives, without copies. All-reduces on this memory have run on 2 and 4 GPUs.
/// Session::join, Session::adopt and Session::map have run on one GPU that two processes share.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "symmetra/memory.hpp"
#include "symmetra/types.hpp"

namespace symmetra {

class Communicator;

namespace core {
struct ShmemMapped;
struct ShmemSession;
}  // namespace core

namespace nvshmem {

/// The memory of a communicator in the heap of NVSHMEM, for kernels that call NVSHMEM's device functions on symmetric buffers. Move-only;
/// usable from any thread. Destroying it is immediate; the memory leaves NVSHMEM's heap in a later collective call of the session, once
/// every rank has destroyed its own.
class Mapped {
 public:
  Mapped(Mapped&&) noexcept = default;
  Mapped& operator=(Mapped&&) noexcept = default;

  /// The address of the buffer's elements in NVSHMEM's heap. Valid until this or the buffer is destroyed. Does not block. Throws
  /// kInvalidArgument for a buffer of another communicator.
  void* address_of(const SymmetricBuffer& buffer) const;

 private:
  friend class Session;
  explicit Mapped(std::shared_ptr<core::ShmemMapped> core) : core_(std::move(core)) {}

  std::shared_ptr<core::ShmemMapped> core_;
};

/// NVSHMEM with the ranks of a communicator, each a process of its own. Move-only; usable from any thread.
///
/// Close a session before its communicator. NVSHMEM's calls have deadlines here: after a lost rank, or a call that
/// lasts longer than Deadlines::open, the process does not call NVSHMEM again, and every call throws.
/// `NVSHMEM_DISABLE_NVLS` must be 1 on every rank, which `symmetra launch --nvshmem` sets: otherwise NVSHMEM would use
/// NVLink multicast.
class Session {
 public:
  /// Initialises NVSHMEM with the ranks of `communicator`. `library`: the file to load; empty: from
  /// SYMMETRA_NVSHMEM_LIBRARY, else libnvshmem_host.so.3. Collective; blocks. Throws kUnsupported in a build without
  /// the feature `nvshmem`, and, before it calls NVSHMEM, for a library that is missing or of another major version
  /// than 3, two ranks in one process, another value of `NVSHMEM_DISABLE_NVLS`, an NVSHMEM that is already initialised,
  /// and a session that was not closed, with kPeer on the other ranks; kMismatch for versions that differ. After that
  /// kDevice with the code of NVSHMEM, kTimeout and kPeerLost.
  static Session open(const Communicator& communicator, const std::string& library = "");
  /// Uses an NVSHMEM that the program has initialised, whose processing elements may have any order. The session does
  /// not end NVSHMEM. Collective; blocks. Throws the errors of open, and kUnsupported for an NVSHMEM that is not
  /// initialised.
  static Session join(const Communicator& communicator, const std::string& library = "");

  Session(Session&&) noexcept = default;
  Session& operator=(Session&&) noexcept = default;

  /// Allocates `count` elements on every rank, contents undefined, and frees memory that every rank has destroyed.
  /// Collective; blocks. Throws kMismatch if ranks request different sizes, kOutOfMemory if there is too little memory,
  /// kUnsupported if a rank cannot access another's memory and if NVSHMEM has other processing elements than these
  /// ranks; kTimeout and kPeerLost, which end the session.
  Adopted symmetric(std::size_t count, Dtype dtype) const;
  template <class T>
  Adopted symmetric(std::size_t count) const {
    return symmetric(count, DtypeOf<T>::kValue);
  }

  /// Registers memory that the program allocated from NVSHMEM: one symmetric object, from the same element on, on every
  /// rank. It must stay allocated until every rank has destroyed the result, and until all devices are idle after that.
  /// Collective; blocks. Throws kInvalidArgument for memory that is not entirely in NVSHMEM's heap, with kPeer on the
  /// other ranks; kUnsupported if a rank cannot access another's memory; kMismatch if lengths or types differ.
  Adopted adopt(void* address, std::size_t count, Dtype dtype) const;

  /// Maps the memory of `communicator`, whose ranks are those of the session, into NVSHMEM's heap. Collective; blocks.
  /// Throws kUnsupported for a library without such a function, and for memory whose size is not a multiple of
  /// NVSHMEM_CUMEM_GRANULARITY (512 MiB if unset; `symmetra launch --nvshmem` sets 2 MiB), and kMismatch for memory of
  /// other sizes, all before it calls NVSHMEM; kUnsupported if NVSHMEM refuses the memory, which ends the session; the
  /// errors of symmetric for a call that fails on some ranks, or does not end.
  Mapped map(const Communicator& communicator) const;

  /// Frees the memory that every rank has destroyed. Collective; blocks. Throws the error that ended the session, kTimeout, kPeerLost.
  void reclaim() const;
  /// The bytes of this rank's memory that are not freed yet.
  std::size_t memory_bytes() const;
  /// Frees all memory and, unless the session joined, ends NVSHMEM. Collective; blocks. Throws kUnsupported while a
  /// rank has memory of the session, with kPeer on the others: the session stays open. Throws kClosed when it is
  /// closed, and the errors of reclaim.
  void close() const;

 private:
  static Session made(const Communicator& communicator, const std::string& library, bool joins);
  explicit Session(std::shared_ptr<core::ShmemSession> core) : core_(std::move(core)) {}

  std::shared_ptr<core::ShmemSession> core_;
};

}  // namespace nvshmem
}  // namespace symmetra
