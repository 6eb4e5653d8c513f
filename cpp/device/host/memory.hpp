// Memory of the host device: always in memfds, so that other processes can map it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cpp/device/device.hpp"
#include "cpp/device/host/file.hpp"
#include "cpp/device/host/registry.hpp"

namespace symmetra::device::host {

/// Bytes of physical memory: the limit of one allocation.
size_t physical_bytes() noexcept;
/// The page size.
size_t shared_granularity() noexcept;

std::unique_ptr<Memory> allocate(const std::shared_ptr<Registry>& registry, const std::shared_ptr<PlainFile>& file, size_t bytes);
std::unique_ptr<Memory> pin(const std::shared_ptr<Registry>& registry, uint8_t* address, size_t bytes);
std::unique_ptr<Memory> allocate_shared(const std::shared_ptr<Registry>& registry, size_t bytes);
/// Takes ownership of `fd`, also if it throws.
std::unique_ptr<Memory> import_shared(const std::shared_ptr<Registry>& registry, int32_t fd, size_t bytes);
/// Takes ownership of `part.fd`, also if it throws.
std::unique_ptr<Memory> import_file(const std::shared_ptr<Registry>& registry, const FilePart& part, size_t bytes);
std::unique_ptr<Memory> alias_shared(const Memory& memory);

}  // namespace symmetra::device::host
