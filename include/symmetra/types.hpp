/// \file
/// Element types, reductions and algorithms.
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
  kI32 = 4,   ///< 32-bit two's complement
  kI64 = 5,   ///< 64-bit two's complement
  kI8 = 6,    ///< 8-bit two's complement
  kU8 = 7,    ///< 8-bit unsigned
  kU32 = 8,   ///< 32-bit unsigned
  kU64 = 9,   ///< 64-bit unsigned
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
template <>
struct DtypeOf<std::int8_t> {
  static constexpr Dtype kValue = Dtype::kI8;
};
template <>
struct DtypeOf<std::uint8_t> {
  static constexpr Dtype kValue = Dtype::kU8;
};
template <>
struct DtypeOf<std::uint32_t> {
  static constexpr Dtype kValue = Dtype::kU32;
};
template <>
struct DtypeOf<std::uint64_t> {
  static constexpr Dtype kValue = Dtype::kU64;
};

/// How the values of all ranks become one: in rank order and rounded once, but in all-reduces of floating
/// types by kRing and kRecursiveDoubling, and in what Backend::kNccl serves. f16, bf16 and f32 are reduced in single
/// precision, f64 in double precision. Sums and products of integers wrap. The numbers are stable.
enum class Reduction : std::uint32_t {
  kSum = 0,      ///< the sum
  kProduct = 1,  ///< the product
  kMin = 2,      ///< minimum of IEEE 754-2019: a NaN on any rank makes a NaN, -0 is less than +0
  kMax = 3,      ///< maximum of IEEE 754-2019: a NaN on any rank makes a NaN, +0 is greater than -0
  kAverage = 4,  ///< the sum divided by the world size; integers truncate toward zero, and are summed in 64 bits
};

/// The name used in messages and on the command line: "max". Throws kInvalidArgument for a number that
/// is no Reduction.
std::string name(Reduction reduction);
/// The reduction with this name. Throws kInvalidArgument, with the names there are.
Reduction reduction(const std::string& name);

/// An all-reduce algorithm. The numbers are stable.
enum class Algorithm : std::uint32_t {
  kAuto = 0,               ///< the table's choice, which Communicator::explain prints
  kOneShotLL = 1,          ///< everyone sends everything to everyone, 8 data bytes a packet; any type
  kOneShotSentinel = 2,    ///< the same, 16 data bytes a packet; floating types
  kTwoShotLL = 3,          ///< reduce-scatter and all-gather, both pushed, LL packets; any type
  kTwoShotSentinel = 4,    ///< the same with sentinel packets; floating types
  kTwoShotZeroCopy = 5,    ///< between the operands themselves; symmetric or adopted memory, any type
  kRing = 6,               ///< pieces go from rank to rank, for the largest messages; any type
  kRecursiveDoubling = 7,  ///< exchanges with one partner after the other; any type
};

/// How an exchange moves data: every collective but all-reduce. The numbers are stable.
enum class Transport : std::uint32_t {
  kAuto = 0,     ///< by size, world and memory
  kPackets = 1,  ///< through scratch, as packets that carry the proof of their arrival; any memory
  /// Between the operands themselves; symmetric or adopted memory. Where ranks know only their own counts
  /// (gather, scatter, batches, variable all-to-all) what is received must be symmetric: else later calls of every
  /// rank throw kUnsupported, which names the rank.
  kDirect = 2,
};

/// The name used in messages and on the command line: "two-shot-ll". Throws kInvalidArgument for a
/// number that is no Algorithm.
std::string name(Algorithm algorithm);
/// The algorithm with this name. Throws kInvalidArgument, with the names there are.
Algorithm algorithm(const std::string& name);

/// What an all-reduce computes, and how. Made by conversion where one of both is the usual one.
struct AllReduceOptions {
  AllReduceOptions() = default;
  AllReduceOptions(Reduction reduction, Algorithm algorithm = Algorithm::kAuto) : reduction(reduction), algorithm(algorithm) {}
  AllReduceOptions(Algorithm algorithm) : algorithm(algorithm) {}

  Reduction reduction = Reduction::kSum;
  Algorithm algorithm = Algorithm::kAuto;
};

}  // namespace symmetra
