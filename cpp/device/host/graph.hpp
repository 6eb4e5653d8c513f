// Capture and graphs: a list of commands that is enqueued repeatedly.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cpp/device/device.hpp"
#include "cpp/device/host/command.hpp"
#include "cpp/device/host/recording.hpp"

namespace symmetra::device::host {

/// The commands of a graph. The graph, its launches in flight, and captures and graphs that launch it share the
/// program; the last owner releases the keepalives.
class Program : public std::enable_shared_from_this<Program> {
 public:
  Program(std::vector<Kept> kept, std::vector<Command> commands) : kept_(std::move(kept)), commands_(std::move(commands)) {}

  int32_t launch(Queue& queue) const noexcept;

 private:
  const std::vector<Kept> kept_;
  mutable std::mutex mutex_;
  const std::vector<Command> commands_;
};

class Graph final : public device::Graph {
 public:
  explicit Graph(std::shared_ptr<const Program> program) noexcept : program_(std::move(program)) {}
  int32_t launch(const device::Stream& stream) const noexcept override;

 private:
  std::shared_ptr<const Program> program_;
};

class Capture final : public device::Capture {
 public:
  explicit Capture(std::shared_ptr<Queue> queue);
  ~Capture() override;
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  std::unique_ptr<device::Graph> finish(Keepalive keepalive) override;

 private:
  std::shared_ptr<Recording> end() noexcept;

  std::shared_ptr<Queue> queue_;
  std::shared_ptr<Recording> recording_;  ///< null once finished
};

/// A chain does not keep its capture.
class Chain final : public device::Chain {
 public:
  Chain(const std::shared_ptr<Queue>& queue, const device::Event* event, Keepalive keepalive);
  void follow(const device::Stream& stream) override;
  void extend(const device::Stream& stream) override;

 private:
  std::weak_ptr<Recording> recording_;
  std::shared_ptr<Marker> marker_;  ///< null: launches keep no order with other work
  size_t record_ = Recording::kNowhere;
};

}  // namespace symmetra::device::host
