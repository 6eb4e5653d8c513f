// Capture and graphs: a list of commands that is enqueued repeatedly.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cpp/device/device.hpp"
#include "cpp/device/host/command.hpp"

namespace symmetra::device::host {

/// Owns a Keepalive, and releases it once.
class Kept {
 public:
  explicit Kept(Keepalive keepalive) noexcept : keepalive_(keepalive) {}
  Kept(Kept&& other) noexcept;
  ~Kept();
  Kept& operator=(Kept&&) = delete;

 private:
  Keepalive keepalive_;
};

/// The commands of a graph. The graph, its launches in flight, and captures and graphs that launch it share the
/// program; the last owner releases the keepalive.
class Program : public std::enable_shared_from_this<Program> {
 public:
  Program(Kept kept, std::vector<Command> commands) : kept_(std::move(kept)), commands_(std::move(commands)) {}

  int32_t launch(Queue& queue) const noexcept;

 private:
  const Kept kept_;
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
  std::shared_ptr<Queue> queue_;
  std::shared_ptr<Recording> recording_;  ///< null once finished
};

}  // namespace symmetra::device::host
