/// \file
/// Element types, reductions, algorithms and transports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "symmetra/toolchain.hpp"

namespace symmetra {

/// Element type of a tensor. The numbers are stable.
enum class Dtype : std::uint32_t {
  kF32 = 0,      ///< IEEE single precision
  kF64 = 1,      ///< IEEE double precision
  kF16 = 2,      ///< IEEE half precision
  kBF16 = 3,     ///< bfloat16: the upper half of a single
  kI32 = 4,      ///< 32-bit two's complement
  kI64 = 5,      ///< 64-bit two's complement
  kI8 = 6,       ///< 8-bit two's complement
  kU8 = 7,       ///< 8-bit unsigned
  kU32 = 8,      ///< 32-bit unsigned
  kU64 = 9,      ///< 64-bit unsigned
  kF8E4M3 = 10,  ///< e4m3 of the OCP (e4m3fn): at most 448, no infinities
  kF8E5M2 = 11,  ///< e5m2 of the OCP: finite values up to 57344, and infinities
};

/// Size of an element in bytes. Throws kInvalidArgument for a number that is no Dtype.
std::size_t size_bytes(Dtype dtype);
/// The name used in messages, for example "bf16". Throws kInvalidArgument for a number that is no Dtype.
std::string name(Dtype dtype);

/// The Dtype of a C++ type. Specialise it for the half types and 8-bit floats of your toolkit:
/// \code
/// template <> struct symmetra::DtypeOf<__nv_bfloat16> { static constexpr Dtype kValue = Dtype::kBF16; };
/// \endcode
template <class T>
struct DtypeOf {
  static_assert(sizeof(T) == 0, "symmetra knows no Dtype for this type: specialise symmetra::DtypeOf");
};
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

/// The combination of the values of all ranks: in rank order, rounded once, except in floating all-reduces by kRing and
/// kRecursiveDoubling, in all-reduces by a Codec and in calls that Backend::kNccl serves. 8-bit floats, f16, bf16 and
/// f32 are reduced in single precision, f64 in double precision. Results of 8-bit floats saturate: values beyond the
/// largest finite value, including infinities, become that value with their sign. Sums and products of integers wrap.
/// The numbers are stable.
enum class Reduction : std::uint32_t {
  kSum = 0,      ///< the sum
  kProduct = 1,  ///< the product
  kMin = 2,      ///< minimum of IEEE 754-2019: a NaN on any rank makes a NaN, -0 is less than +0
  kMax = 3,      ///< maximum of IEEE 754-2019: a NaN on any rank makes a NaN, +0 is greater than -0
  kAverage = 4,  ///< the sum divided by the world size; integers truncate toward zero, and are summed in 64 bits
};

/// The name used in messages and on the command line, for example "max". Throws kInvalidArgument for a number that is
/// no Reduction.
std::string name(Reduction reduction);
/// The reduction with this name. Throws kInvalidArgument with the valid names.
Reduction reduction(const std::string& name);

/// An all-reduce algorithm. The numbers are stable.
enum class Algorithm : std::uint32_t {
  kAuto = 0,  ///< chosen by the table, which Communicator::explain prints
  /// Every rank sends its whole message to every rank, 8 data bytes a packet (NCCL's LL); any type.
  kOneShotLL = 1,
  /// Every rank sends its whole message to every rank, 16 data bytes a packet (Lamport style, as in TensorRT-LLM); floating types.
  kOneShotSentinel = 2,
  kTwoShotLL = 3,          ///< reduce-scatter and all-gather, both pushed, with LL packets; any type
  kTwoShotSentinel = 4,    ///< reduce-scatter and all-gather, both pushed, with sentinel packets; floating types
  kTwoShotZeroCopy = 5,    ///< zero-copy between the operands; symmetric or adopted memory, any type
  kRing = 6,               ///< chunks pass from rank to rank (after Patarasuk and Yuan), for the largest messages; any type
  kRecursiveDoubling = 7,  ///< exchanges with one partner after another (Thakur, Rabenseifner and Gropp); any type
  kMulticastOneShot = 8,   ///< every rank sums all symmetric inputs by multicast; floats of more than 2 ranks need kFree
  /// Every rank sums a share by multicast and stores it by multicast; symmetric buffers. By both, 8-bit floats are added in f16, and
  /// kExact refuses them; GPUs need compute capability 10.0 or 10.3 and a build for 100a or 103a.
  kMulticastTwoShot = 9,
};

/// The transport of an exchange (every collective but all-reduce). The numbers are stable.
enum class Transport : std::uint32_t {
  kAuto = 0,     ///< chosen by size, world size and memory
  kPackets = 1,  ///< packets through scratch, which prove their own arrival; any memory
  /// Zero-copy between the operands; symmetric or adopted memory. Where ranks know only their own counts (gather,
  /// scatter, batches, variable all-to-all), received data must go to symmetric memory. If it does not on some rank,
  /// later calls of every rank throw kUnsupported, which names that rank.
  kDirect = 2,
  /// All-gathers and broadcasts into symmetric buffers, reduce-scatters of symmetric buffers, by multicast, where
  /// Config::multicast opened it; other exchanges throw kUnsupported.
  kMulticast = 3,
};

/// The name used in messages and on the command line, for example "two-shot-ll". Throws kInvalidArgument for a number
/// that is no Algorithm.
std::string name(Algorithm algorithm);
/// The algorithm with this name. Throws kInvalidArgument with the valid names.
Algorithm algorithm(const std::string& name);

/// The encoding of the values of an all-reduce: unchanged, or in fewer bits, for messages that are bound by the links.
/// Sums and averages of f16 and bf16. The numbers are stable.
///
/// A codec cuts the message into groups of 32 elements. A group is sent as quantised values of 8, 6 or 4 bits and one
/// scale in bf16, which follows from its largest magnitude. So an error is relative to the largest element of a group.
/// Values are summed in single precision in rank order. Between more than two ranks a value passes the codec twice: as
/// an input, and as a sum. All ranks have equal bits. These depend only on the element's group, whose start is a
/// multiple of 32 in the message.
///
/// A NaN or an infinity on any rank, or a sum beyond single precision, makes its group NaN on all ranks. A magnitude
/// above 3.37e38 may become infinite, or make its group NaN. The smallest scale is 2^-126. So an error may be 2^-127
/// (FP8: 2^-136), if that exceeds the bound of the codec. Groups of zeros give +0.
enum class Codec : std::uint32_t {
  kNone = 0,  ///< values are sent unchanged
  /// floats (e4m3): 8.5 bits for each element; the error is at most 1/16 of the element, and of small elements at most
  /// 2^-18 of the largest magnitude in the group: for groups whose elements differ much in size
  kFp8 = 1,
  kInt8 = 2,  ///< integers: 8.5 bits for each element; the error is at most 1/251 of the largest magnitude in the group
  kInt6 = 3,  ///< integers: 6.5 bits for each element; the error is at most 1/61.4 of the largest magnitude in the group
  kInt4 = 4,  ///< integers: 4.5 bits for each element; the error is at most 1/13.8 of the largest magnitude in the group
};

/// The name used in messages and on the command line, for example "int8". Throws kInvalidArgument for a number that is
/// no Codec.
std::string name(Codec codec);
/// The codec with this name. Throws kInvalidArgument with the valid names.
Codec codec(const std::string& name);

/// The reduction, algorithm and codec of an all-reduce. Converts from one of them; the others take their defaults.
struct AllReduceOptions {
  AllReduceOptions() = default;
  AllReduceOptions(Reduction combine, Algorithm by = Algorithm::kAuto, Codec in = Codec::kNone)
      : reduction(combine), algorithm(by), codec(in) {}
  AllReduceOptions(Algorithm by) : algorithm(by) {}
  AllReduceOptions(Codec in) : codec(in) {}

  Reduction reduction = Reduction::kSum;
  Algorithm algorithm = Algorithm::kAuto;
  Codec codec = Codec::kNone;
};

}  // namespace symmetra
