// Gloo for the bridge: an interface of this host, and a wire over it between one rank of each of several hosts.
#pragma once

#include <gloo/context.h>
#include <gloo/transport/device.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "rust/cxx.h"
#include "symmetra/error.hpp"

namespace symmetra::gloo_wire {

/// A network interface and the thread that serves its sockets. Any thread may use it.
class Interface {
 public:
  /// `name`: an IP address of this host or the name of an interface. Sockets are bound only to it.
  explicit Interface(rust::Str name);

  const std::shared_ptr<::gloo::transport::Device>& device() const noexcept { return device_; }

 private:
  std::shared_ptr<::gloo::transport::Device> device_;
};

/// Connections of one rank to all others of a wire. One thread at a time. All ranks make the same calls in the same
/// order. A call that throws closes the wire permanently, which the other ranks detect.
///
/// Throws Error: kTimeout after a deadline, with the first rank in order whose bytes have not arrived; kBootstrap if
/// a connection failed or broke.
class Wire final : public ::gloo::Context {
 public:
  /// Listens for every other rank, at a port that the system chooses, until that rank has connected.
  Wire(const Interface& interface, uint32_t rank, uint32_t world_size, uint64_t timeout_ms);

  /// The address at which rank `peer` connects to this rank; no bytes for this rank itself.
  rust::Vec<uint8_t> address(uint32_t peer) const;
  /// Connects with rank `peer`, which listens for this rank at `address`. In rank order.
  void connect(uint32_t peer, rust::Slice<const uint8_t> address);
  /// From now on waits for these ranks before others: a timeout names the first rank whose bytes have not arrived.
  void wait_first(rust::Slice<const uint32_t> ranks);
  /// Sends block r of `send` to rank r, and receives block r of `receive` from it. Both have equal sizes.
  void all_to_all(rust::Slice<const uint8_t> send, rust::Slice<uint8_t> receive, uint64_t timeout_ms);
  /// Stores `own` of rank r in block r of `all`. Equal sizes on every rank.
  void all_gather(rust::Slice<const uint8_t> own, rust::Slice<uint8_t> all, uint64_t timeout_ms);

 private:
  /// Sends `receive.size() / size` bytes to each rank r, from offset `r * send_pitch` of `send`, and receives the same
  /// number from it as part r of `receive`.
  void exchange(const char* doing, rust::Slice<const uint8_t> send, size_t send_pitch, rust::Slice<uint8_t> receive, uint64_t timeout_ms);
  /// Runs `call` and converts its exceptions to an Error. `awaited`: the rank for which the call waits.
  void guarded(const char* doing, const std::function<void()>& call, const int* awaited = nullptr);

  uint64_t slot_ = 0;
  /// All other ranks, in the order in which this rank waits for them.
  std::vector<int> others_;
};

std::shared_ptr<Interface> open_interface(rust::Str name);
std::unique_ptr<Wire> open_wire(const Interface& interface, uint32_t rank, uint32_t world_size, uint64_t timeout_ms);

}  // namespace symmetra::gloo_wire
