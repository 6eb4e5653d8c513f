/// \file
/// Devices: the CPU or a GPU behind one type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace symmetra {

namespace core {
struct Device;
}

/// Which backend a device belongs to.
enum class DeviceKind : std::uint32_t {
  kHost = 0,  ///< the CPU: the same kernels, compiled by the host compiler
  kCuda = 1,  ///< an NVIDIA GPU
  kHip = 2,   ///< an AMD GPU
};

/// A device, opened. Move-only; usable from any thread. What was made on a device keeps what it
/// needs of it: a Device may be destroyed before its streams, buffers and communicators.
class Device {
 public:
  /// The CPU. Throws kSystem when the system refuses memory or threads.
  static Device host();
  /// The CUDA device with this ordinal among the visible ones. Throws kUnsupported in a library
  /// built without the feature `cuda`, kInvalidArgument for an ordinal there is not, kDevice when
  /// the driver fails.
  static Device cuda(std::size_t ordinal);
  /// The HIP device with this ordinal among the visible ones. Throws as cuda() does, for the feature
  /// `hip` and the HIP runtime.
  static Device hip(std::size_t ordinal);
  /// How many devices of a kind there are; 0 where the backend is not built or has no driver.
  static std::size_t count(DeviceKind kind);

  Device(Device&&) noexcept = default;
  Device& operator=(Device&&) noexcept = default;

  DeviceKind kind() const;
  /// Its number among the visible devices of its kind.
  std::int32_t ordinal() const;
  /// The vendor's name for it.
  std::string name() const;
  /// Blocks until all work that this process gave the device is done. Throws kDevice when some failed.
  void synchronize() const;

 private:
  friend class Communicator;
  friend class DeviceBuffer;
  friend class Environment;
  friend class Stream;
  explicit Device(std::shared_ptr<core::Device> core) : core_(std::move(core)) {}

  std::shared_ptr<core::Device> core_;
};

}  // namespace symmetra
