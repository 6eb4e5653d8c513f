/// \file
/// Element types and algorithms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace symmetra {

/// The type of the elements of a tensor. The numbers are stable.
enum class Dtype : std::uint32_t {
  kF32 = 0,   ///< IEEE single precision
  kF64 = 1,   ///< IEEE double precision
  kF16 = 2,   ///< IEEE half precision
  kBF16 = 3,  ///< bfloat16: the upper half of a single
  kI32 = 4,   ///< 32-bit two's complement; sums wrap
  kI64 = 5,   ///< 64-bit two's complement; sums wrap
};

/// Size of an element in bytes. Throws kInvalidArgument for a number that is no Dtype.
std::size_t size_bytes(Dtype dtype);
/// The name used in messages: "bf16". Throws as size_bytes.
std::string name(Dtype dtype);

/// The Dtype of a C++ type. Specialise it for the half types of your toolkit:
/// \code
/// template <> struct symmetra::DtypeOf<__nv_bfloat16> { static constexpr Dtype kValue = Dtype::kBF16; };
/// \endcode
template <class T>
struct DtypeOf;
template <>
struct DtypeOf<float> {
  static constexpr Dtype kValue = Dtype::kF32;
};
template <>
struct DtypeOf<double> {
  static constexpr Dtype kValue = Dtype::kF64;
};
template <>
struct DtypeOf<std::int32_t> {
  static constexpr Dtype kValue = Dtype::kI32;
};
template <>
struct DtypeOf<std::int64_t> {
  static constexpr Dtype kValue = Dtype::kI64;
};

/// An all-reduce algorithm. The numbers are stable.
enum class Algorithm : std::uint32_t {
  kAuto = 0,             ///< the table's choice, which Communicator::explain prints
  kOneShotLL = 1,        ///< everyone sends everything to everyone, 8 data bytes a packet; any type
  kOneShotSentinel = 2,  ///< the same, 16 data bytes a packet; floating types
  kTwoShotLL = 3,        ///< reduce-scatter and all-gather, both pushed, LL packets; any type
  kTwoShotSentinel = 4,  ///< the same with sentinel packets; floating types
  kTwoShotZeroCopy = 5,  ///< between the operands themselves; symmetric or adopted memory, any type
};

/// How an exchange moves data: every collective but all-reduce. The numbers are stable.
enum class Transport : std::uint32_t {
  kAuto = 0,     ///< by size, world and memory
  kPackets = 1,  ///< through scratch, as packets that carry the proof of their arrival; any memory
  kDirect = 2,   ///< between the operands themselves; symmetric or adopted memory
};

/// The name used in messages and on the command line: "two-shot-ll". Throws kInvalidArgument for a
/// number that is no Algorithm.
std::string name(Algorithm algorithm);
/// The algorithm with this name. Throws kInvalidArgument, with the names there are.
Algorithm algorithm(const std::string& name);

}  // namespace symmetra
