#include "cpp/gloo/wire.hpp"

#include <arpa/inet.h>
#include <gloo/common/error.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace symmetra::gloo_wire {
namespace {

/// Gloo reports a timeout only in its message.
bool is_timeout(const std::string& words) {
  return words.find("Timed out") != std::string::npos || words.find("timeout") != std::string::npos;
}

bool is_address(const std::string& name) {
  in6_addr parsed;
  return inet_pton(AF_INET, name.c_str(), &parsed) == 1 || inet_pton(AF_INET6, name.c_str(), &parsed) == 1;
}

/// Keeps SIGPIPE from the calling thread and from threads that it starts. Gloo writes to sockets without suppressing
/// the signal, so a peer that has gone would end a program that does not ignore it, and C++ programs do not ignore it.
class NoBrokenPipe {
 public:
  NoBrokenPipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoBrokenPipe() {
    // A thread that had blocked the signal before handles a pending signal itself.
    if (sigismember(&before_, SIGPIPE) == 1) return;
    constexpr timespec kNow{};
    while (sigtimedwait(&pipe_, nullptr, &kNow) == SIGPIPE) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoBrokenPipe(const NoBrokenPipe&) = delete;
  NoBrokenPipe& operator=(const NoBrokenPipe&) = delete;

 private:
  sigset_t pipe_;
  sigset_t before_;
};

std::chrono::milliseconds milliseconds(uint64_t timeout_ms) {
  constexpr uint64_t kDayMs = 86'400'000;
  return std::chrono::milliseconds(std::clamp<uint64_t>(timeout_ms, 1, kDayMs));
}

}  // namespace

Interface::Interface(rust::Str name) {
  const std::string text(name);
  ::gloo::transport::tcp::attr attr;
  (is_address(text) ? attr.hostname : attr.iface) = text;
  const NoBrokenPipe guard;  // the device's thread inherits the mask
  try {
    device_ = ::gloo::transport::tcp::CreateDevice(attr);
  } catch (const std::exception& error) {
    throw Error(ErrorKind::kInvalidArgument,
                "the interface is `" + text + "`, but it must be an IP address or interface of this host: " + error.what());
  }
}

Wire::Wire(const Interface& interface, uint32_t rank, uint32_t world_size, uint64_t timeout_ms)
    : ::gloo::Context(static_cast<int>(rank), static_cast<int>(world_size)) {
  // Gloo waits five times as long for a connection.
  const auto connect_timeout = std::max(milliseconds(timeout_ms) / 5, std::chrono::milliseconds(1));
  setTimeout(milliseconds(timeout_ms));
  guarded("listen", [&] {
    device_ = interface.device();
    transportContext_ = device_->createContext(this->rank, size);
    transportContext_->setTimeout(connect_timeout);
    for (int peer = 0; peer < size; ++peer) {
      if (peer == this->rank) continue;
      transportContext_->createPair(peer);
      others_.push_back(peer);
    }
  });
}

rust::Vec<uint8_t> Wire::address(uint32_t peer) const {
  rust::Vec<uint8_t> address;
  if (static_cast<int>(peer) == rank) return address;
  for (const char byte : transportContext_->getPair(static_cast<int>(peer))->address().bytes()) {
    address.push_back(static_cast<uint8_t>(byte));
  }
  return address;
}

void Wire::connect(uint32_t peer, rust::Slice<const uint8_t> address) {
  guarded("connect",
          [&] { transportContext_->getPair(static_cast<int>(peer))->connect(std::vector<char>(address.begin(), address.end())); });
}

void Wire::wait_first(rust::Slice<const uint32_t> ranks) {
  std::stable_partition(others_.begin(), others_.end(),
                        [&](int peer) { return std::find(ranks.begin(), ranks.end(), static_cast<uint32_t>(peer)) != ranks.end(); });
}

void Wire::all_to_all(rust::Slice<const uint8_t> send, rust::Slice<uint8_t> receive, uint64_t timeout_ms) {
  exchange("all-to-all", send, receive.size() / size, receive, timeout_ms);
}

void Wire::all_gather(rust::Slice<const uint8_t> own, rust::Slice<uint8_t> all, uint64_t timeout_ms) {
  exchange("all-gather", own, 0, all, timeout_ms);
}

/// A buffer for each rank, because Gloo's own collectives do not report the rank for which they waited in vain.
void Wire::exchange(const char* doing, rust::Slice<const uint8_t> send, size_t send_pitch, rust::Slice<uint8_t> receive,
                    uint64_t timeout_ms) {
  const auto deadline = std::chrono::steady_clock::now() + milliseconds(timeout_ms);
  const auto remaining = [&] {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    return std::max(left, std::chrono::milliseconds(1));
  };
  const size_t bytes = receive.size() / size;
  int awaited = -1;
  guarded(
      doing,
      [&] {
        const uint64_t slot = slot_++;
        std::vector<std::unique_ptr<::gloo::transport::UnboundBuffer>> from(size);
        // Gloo only reads the memory.
        const auto to = createUnboundBuffer(const_cast<uint8_t*>(send.data()), send.size());
        for (const int peer : others_) {
          from[peer] = createUnboundBuffer(receive.data() + peer * bytes, bytes);
          from[peer]->recv(peer, slot);
        }
        for (const int peer : others_) to->send(peer, slot, peer * send_pitch, bytes);
        std::memcpy(receive.data() + rank * bytes, send.data() + rank * send_pitch, bytes);
        for (const int peer : others_) {
          awaited = peer;
          from[peer]->waitRecv(remaining());
        }
        // Gloo does not report the rank of a send that is not done.
        awaited = -1;
        for (size_t done = 0; done < others_.size(); ++done) to->waitSend(remaining());
      },
      &awaited);
}

void Wire::guarded(const char* doing, const std::function<void()>& call, const int* awaited) {
  const NoBrokenPipe guard;
  try {
    call();
  } catch (const std::exception& error) {
    const std::string words(error.what());
    // A failed wire is closed, so that no other rank waits for it.
    try {
      closeConnections();
    } catch (const std::exception&) {
      // The wire was closed before.
    }
    throw Error(is_timeout(words) ? ErrorKind::kTimeout : ErrorKind::kBootstrap, std::string(doing) + " between hosts: " + words, 0,
                awaited ? *awaited : -1);
  }
}

std::shared_ptr<Interface> open_interface(rust::Str name) { return std::make_shared<Interface>(name); }

std::unique_ptr<Wire> open_wire(const Interface& interface, uint32_t rank, uint32_t world_size, uint64_t timeout_ms) {
  return std::make_unique<Wire>(interface, rank, world_size, timeout_ms);
}

}  // namespace symmetra::gloo_wire
