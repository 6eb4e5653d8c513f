// Pieces of memory from allocate_shared, as if each were physical memory of its own: the counterpart of memory that GPUs map by
// address ranges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cpp/device/device.hpp"
#include "cpp/device/host/registry.hpp"

namespace symmetra::device::host {

PointerInfo piece_at(const Registry& registry, const uint8_t* pointer);
/// The position of the descriptor is that of the piece in its file.
int32_t export_piece(const Registry& registry, const uint8_t* base);
std::unique_ptr<Assembly> new_assembly(std::shared_ptr<Registry> registry, size_t bytes);

}  // namespace symmetra::device::host
