// Small groups with experts.
#pragma once

#include <cstring>

#include "ranks.hpp"

namespace test {

using namespace symmetra;

/// The value of elements that no call has written.
constexpr float kUntouched = -9.0f;

/// Small enough that many groups fit a small machine.
inline Config small() {
  Config config;
  config.heap_bytes = 1 << 20;
  return config;
}

inline bool says(const Error& error, const char* words) {
  if (std::strstr(error.what(), words) != nullptr) return true;
  std::fprintf(stderr, "it says: %s\n", error.what());
  return false;
}

template <class T>
inline DeviceBuffer on_device(const std::vector<T>& values, const Device& device, const Stream& stream) {
  DeviceBuffer buffer(device, values.size(), DtypeOf<T>::kValue);
  buffer.write(values, stream);
  return buffer;
}

template <class T>
inline DeviceBuffer filled(std::size_t count, T value, const Device& device, const Stream& stream) {
  return on_device(std::vector<T>(count, value), device, stream);
}

/// Two ranks with an expert each; token t of rank r goes to expert (r + t) % 2, so each rank receives a row from each.
struct Two {
  Communicator communicator;
  Device device;
  Stream stream;
  std::size_t rank;
  DeviceBuffer ids;

  explicit Two(Bootstrap& bootstrap)
      : communicator(Communicator::open(bootstrap, Device::host(), small())),
        device(communicator.device()),
        stream(device),
        rank(communicator.rank()),
        ids(on_device(std::vector<std::int32_t>{static_cast<std::int32_t>(rank), static_cast<std::int32_t>(1 - rank)}, device, stream)) {}

  /// The token of rank `source` that comes here.
  std::size_t token_from(std::size_t source) const { return (source + rank) % 2; }
};

/// Settings of experts for Two whose rows are single floats. They may be planned.
inline ExpertConfig single(Layout layout = Layout::kByExpert) {
  ExpertConfig config(2, 1, 1, 2);
  config.dtype = Dtype::kF32;
  config.method = Method::kDirect;
  config.layout = layout;
  return config;
}

}  // namespace test
