// Capture and graphs: a list of commands that is enqueued again and again.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cpp/device/device.hpp"
#include "cpp/device/host/command.hpp"

namespace symmetra::device::host {

/// A Keepalive with an owner: released once, whatever happens.
class Kept {
 public:
  explicit Kept(Keepalive keepalive) noexcept : keepalive_(keepalive) {}
  Kept(Kept&& other) noexcept;
  ~Kept();
  Kept& operator=(Kept&&) = delete;

 private:
  Keepalive keepalive_;
};

/// What a graph does. Shared by the graph, its launches in flight and the captures and
/// graphs it was launched into; the last of them releases the keepalive.
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
