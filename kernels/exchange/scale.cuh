// The product of one rank's elements with one factor, which a sum over the ranks follows.
#pragma once
#include "kernels/geometry.hpp"
#include "kernels/operand.cuh"

namespace symmetra::kernels {

/// The factor of a scale, as a value in which reductions are computed.
template <class ElementType>
SYMMETRA_DEVICE typename ElementType::Value factor_of(const ScaleArgs& args) {
  const uint64_t bits = args.factor == nullptr ? args.value : uint64_t{platform::load<typename ElementType::Bits>(args.factor)};
  Words<2> data{};
  data.word[0] = static_cast<uint32_t>(bits);
  data.word[1] = static_cast<uint32_t>(bits >> 32);
  typename ElementType::Value values[kValues<ElementType, 2>];
  ElementType::unpack(data, values);
  return values[0];
}

/// A packet a thread, in a grid-stride loop. Every product is computed in the type of sums and rounded once.
template <class ElementType>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(kMostScaleThreads) scale(SYMMETRA_ARGS(ScaleArgs) args) {
  using Data = Words<4>;
  constexpr uint32_t kBytes = ElementType::kBytes;
  platform::wait_prior();
  platform::release_next();
  const auto* const input = static_cast<const uint8_t*>(args.input);
  auto* const output = static_cast<uint8_t*>(args.output);
  const uint64_t input_pitch = args.input_pitch * kBytes, output_pitch = args.output_pitch * kBytes;
  const uint64_t places = reinterpret_cast<uintptr_t>(input) | reinterpret_cast<uintptr_t>(output) | input_pitch | output_pitch;
  const Packets<ElementType, Data> row(args.elems, places % sizeof(Data) == 0);
  const auto factor = factor_of<ElementType>(args);
  const uint32_t step = platform::threads() * platform::blocks();
  for (uint32_t number = 0; number < args.rows; ++number) {
    const uint8_t* const from = input + number * input_pitch;
    uint8_t* const into = output + number * output_pitch;
    for (uint32_t packet = platform::block() * platform::threads() + platform::thread(); packet < row.packets(); packet += step) {
      typename ElementType::Value values[kValues<ElementType, 4>];
      ElementType::unpack(row.load(from, packet), values);
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kValues<ElementType, 4>; ++i) values[i] = ElementType::times(values[i], factor);
      row.store(into, packet, ElementType::template pack<4>(values));
    }
  }
}

/// The kernel of a scale, by its element type.
template <class Backend>
typename Backend::Entry scale_kernel(const ScaleArgs& args) {
  switch (args.dtype) {
    case kF32:
      return Backend::template entry<&scale<F32>>();
    case kF64:
      return Backend::template entry<&scale<F64>>();
    case kF16:
      return Backend::template entry<&scale<F16>>();
    case kBF16:
      return Backend::template entry<&scale<BF16>>();
    case kI32:
    case kU32:  // products wrap alike
      return Backend::template entry<&scale<U32>>();
    case kI64:
    case kU64:
      return Backend::template entry<&scale<U64>>();
    case kI8:
    case kU8:
      return Backend::template entry<&scale<U8>>();
    case kF8E4M3:
      return Backend::template entry<&scale<F8E4M3>>();
    case kF8E5M2:
      return Backend::template entry<&scale<F8E5M2>>();
    default:
      return {};
  }
}

/// Calls `visit` with argument blocks that have all kernels run, until it returns another number than 0; returns that.
template <class Visit>
int32_t each_scale(ScaleArgs args, Visit visit) {
  for (args.dtype = 0; args.dtype < kElementTypes; ++args.dtype) {
    if (const int32_t code = visit(args)) return code;
  }
  return 0;
}

}  // namespace symmetra::kernels
