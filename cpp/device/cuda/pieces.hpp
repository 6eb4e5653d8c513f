// Memory of the program that is mapped by address-range calls: one range of addresses over several pieces of physical memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cpp/device/cuda/context.hpp"
#include "cpp/device/device.hpp"

namespace symmetra::device::cuda {

PointerInfo piece_at(const Context& context, const uint8_t* pointer);
int32_t export_piece(const Context& context, const uint8_t* base);
std::unique_ptr<Assembly> new_assembly(const Context& context, size_t bytes);

}  // namespace symmetra::device::cuda
