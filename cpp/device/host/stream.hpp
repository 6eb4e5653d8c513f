// Streams: a queue, and the thread that serves it. A stream's handle is the key of its queue in the registry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>

#include "cpp/device/device.hpp"
#include "cpp/device/host/command.hpp"
#include "cpp/device/host/queue.hpp"
#include "cpp/device/host/registry.hpp"

namespace symmetra::device::host {

class Stream final : public device::Stream {
 public:
  explicit Stream(std::shared_ptr<Registry> registry);
  /// Borrows the stream of this handle, whose owner runs the commands.
  Stream(const Registry& registry, uint64_t handle);
  /// Unless borrowed, runs all enqueued commands, then ends the thread.
  ~Stream() override;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  uint64_t raw() const noexcept override { return handle_; }
  uint64_t id() const noexcept override { return handle_; }
  bool done() const override;
  void synchronize() const override;

  int32_t copy(uint8_t* to, const uint8_t* from, size_t bytes) const noexcept override;
  int32_t fill(uint8_t* to, uint8_t value, size_t bytes) const noexcept override;
  int32_t store(uint32_t* word, uint32_t value) const noexcept override;
  int32_t record(const device::Event& event) const noexcept override;
  int32_t wait(const device::Event& event) const noexcept override;
  int32_t launch(kernels::Kind kind, const uint8_t* args, const kernels::Geometry& geometry) const noexcept override;

  int32_t launch_host(const HostKernel& kernel, const kernels::Geometry& geometry) const noexcept override;

  bool take_over() const noexcept override { return queue_->take_over(); }
  void hand_back() const noexcept override { queue_->hand_back(); }

  bool capturing() const override;
  std::unique_ptr<device::Capture> begin_capture() const override;
  uint64_t capture_id() const override;
  std::unique_ptr<device::Chain> begin_chain(const device::Event* event, Keepalive keepalive) const override;

  const std::shared_ptr<Queue>& queue() const noexcept { return queue_; }

 private:
  int32_t push(const Command& command) const noexcept;
  void refuse_in_capture(const char* doing) const;

  /// Registers the queue among the queues for which freeing memory waits.
  class Membership {
   public:
    Membership(std::shared_ptr<Registry> registry, const std::shared_ptr<Queue>& queue);
    ~Membership();
    Membership(const Membership&) = delete;
    Membership& operator=(const Membership&) = delete;

    uint64_t key() const noexcept { return key_; }

   private:
    std::shared_ptr<Registry> registry_;
    uint64_t key_;
  };

  std::shared_ptr<Queue> queue_;
  /// Empty for a borrowed stream.
  std::optional<Membership> membership_;
  uint64_t handle_;
  std::thread worker_;
};

}  // namespace symmetra::device::host
