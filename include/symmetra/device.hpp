/// \file
/// Devices: one type for the CPU and GPUs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "symmetra/toolchain.hpp"

namespace symmetra {

namespace core {
struct Device;
}

/// The kind of a device: the CPU, or a GPU of one vendor.
enum class DeviceKind : std::uint32_t {
  kHost = 0,  ///< the CPU, with the GPU kernels compiled by the host compiler
  kCuda = 1,  ///< an NVIDIA GPU
  kHip = 2,   ///< an AMD GPU
};

/// An open device. Move-only; usable from any thread. It may be destroyed before its streams, buffers and
/// communicators, which keep its resources alive. In a child that the process forks, every use of the device, its
/// streams, events, graphs, memory and communicators throws kUnsupported; destroying them there does nothing.
class Device {
 public:
  /// Opens the CPU. Throws kSystem when the system refuses memory or threads.
  static Device host();
  /// Opens the CUDA device with this ordinal among the visible devices. Throws kUnsupported in a library built without
  /// the feature `cuda`, kInvalidArgument for an ordinal that does not exist, kDevice when the driver fails.
  static Device cuda(std::size_t ordinal);
  /// Opens the HIP device with this ordinal among the visible devices. Throws kUnsupported in a library built without
  /// the feature `hip`, kInvalidArgument for an ordinal that does not exist, kDevice when the HIP runtime fails.
  static Device hip(std::size_t ordinal);
  /// The number of visible devices of a kind; 0 when the kind is not built or has no driver.
  static std::size_t count(DeviceKind kind);

  Device(Device&&) noexcept = default;
  Device& operator=(Device&&) noexcept = default;

  DeviceKind kind() const;
  /// The device's number among the visible devices of its kind.
  std::int32_t ordinal() const;
  /// The vendor's name of the device.
  std::string name() const;
  /// Blocks until all work that this process enqueued on the device is done. Throws kDevice when some of it failed.
  void synchronize() const;

 private:
  friend class Communicator;
  friend class Coordinator;
  friend class DeviceBuffer;
  friend class Environment;
  friend class HostBuffer;
  friend class Multiplier;
  friend class Stream;
  explicit Device(std::shared_ptr<core::Device> core) : core_(std::move(core)) {}

  std::shared_ptr<core::Device> core_;
};

}  // namespace symmetra
