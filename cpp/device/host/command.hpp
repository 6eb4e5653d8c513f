// A command of a stream, by value, in a queue or in a graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "cpp/device/host/launch.hpp"

namespace symmetra::device::host {

class Marker;
class Program;
class Queue;

/// A position in a queue: reached when the queue has run this number of commands.
struct Point {
  std::shared_ptr<Queue> queue;  ///< null: nothing to wait for
  uint64_t position = 0;
};

struct Copy {
  uint8_t* to;
  const uint8_t* from;
  size_t bytes;
};

struct Fill {
  uint8_t* to;
  uint8_t value;
  size_t bytes;
};

struct Store {
  uint32_t* word;
  uint32_t value;
};

struct Record {
  std::shared_ptr<Marker> marker;
};

/// `point` is the marker's last record when the wait was enqueued, not when it was captured.
struct Wait {
  std::shared_ptr<Marker> marker;
  Point point;
};

/// Ends a launch of a graph: the launch uses the program until here.
struct Keep {
  std::shared_ptr<const Program> program;
};

using Command = std::variant<std::monostate, Copy, Fill, Store, Record, Wait, Kernel, Keep>;

}  // namespace symmetra::device::host
