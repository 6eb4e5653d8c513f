// Quantised rows by the public API: every x is 1, so y is the weight, and the quantised values and scales are known.
#pragma once

#include "norms.hpp"

namespace test {

/// Rows of 32 weights: the first weights are `y`, and the others 0.
struct Ones {
  explicit Ones(const symmetra::Communicator& communicator, const symmetra::Stream& stream, std::vector<float> y, std::size_t count)
      : input(communicator.device(), 32 * count, symmetra::Dtype::kF32),
        output(communicator.device(), 32 * count, symmetra::Dtype::kF32),
        weight(communicator.device(), 32, symmetra::Dtype::kF32) {
    y.resize(32, 0.0f);
    weight.write(y, stream);
    input.write(std::vector<float>(32 * count, communicator.rank() == 0 ? 1.0f : 0.0f), stream);
  }

  symmetra::RowNorm rows(const symmetra::QuantisedRows& how) const {
    symmetra::RmsNorm norm;
    norm.epsilon = 0.0f;
    symmetra::RowNorm rows(input, weight, norm);
    rows.output = output;
    rows.quantised = how;
    return rows;
  }

  symmetra::DeviceBuffer input, output, weight;
};

/// Every scaling, and the bytes that it writes, with and without other outputs.
inline void quantised_norms() {
  ranks(2, [](symmetra::Bootstrap& bootstrap) {
    using namespace symmetra;
    using Bytes = std::vector<std::uint8_t>;
    const Device device = Device::host();
    const Stream stream(device);
    const Communicator communicator = Communicator::open(bootstrap, device);
    const DeviceBuffer half(device, 1, Dtype::kF32);
    half.write(std::vector<float>{0.5f}, stream);
    const auto run = [&](const RowNorm& rows) {
      communicator.all_reduce_norm(rows, stream);
      communicator.synchronize(stream);
    };

    const Ones integers(communicator, stream, {254.0f, -127.0f, 3.0f}, 2);
    const DeviceBuffer codes(device, 64, Dtype::kI8), scales(device, 2, Dtype::kF32);
    QuantisedRows token(Scaling::kPerToken, Narrow::kI8, codes);
    token.scales = scales;
    run(integers.rows(token));
    std::vector<std::int8_t> found = codes.read<std::int8_t>(stream);
    CHECK(found[32] == 127 && found[33] == -64 && found[34] == 2 && found[35] == 0);  // ties go to even codes
    CHECK((scales.read<float>(stream) == std::vector<float>{2.0f, 2.0f}));
    CHECK_EQ(integers.output.read<float>(stream)[33], -127.0f);

    QuantisedRows fixed(Scaling::kStatic, Narrow::kI8, codes);
    fixed.known_scale = half;
    RowNorm alone = integers.rows(fixed);
    alone.output.reset();
    run(alone);
    found = codes.read<std::int8_t>(stream);
    CHECK(found[0] == 127 && found[1] == -128 && found[2] == 6);  // twice as large, and held

    const Ones pairs(communicator, stream, {3.0f, -1.5f, 0.5f}, 2);
    const DeviceBuffer nibbles(device, 32, Dtype::kU8), bytes(device, 4, Dtype::kU8), swizzled(device, 512, Dtype::kU8);
    QuantisedRows fourth(Scaling::kNvfp4, Narrow::kE2M1, nibbles);
    fourth.scales = bytes;
    fourth.known_scale = half;
    run(pairs.rows(fourth));
    const Bytes codes_of_pairs = nibbles.read<std::uint8_t>(stream);
    CHECK(codes_of_pairs[16] == 0xD7 && codes_of_pairs[17] == 0x02);       // 6 and -3, then 1 and 0: the even element is low
    CHECK((bytes.read<std::uint8_t>(stream) == Bytes{0x28, 0, 0x28, 0}));  // 0.25 in e4m3, and no group has another

    QuantisedRows micro(Scaling::kMx, Narrow::kE2M1, nibbles);
    micro.elems = 32;
    micro.layout = ScaleLayout::kSwizzled128x4;
    micro.scales = swizzled;
    swizzled.write(Bytes(512, 7), stream);
    run(pairs.rows(micro));
    Bytes right(512, 7);
    right[0] = right[16] = 126;  // 2^-1: 3 is 6 halves
    CHECK(swizzled.read<std::uint8_t>(stream) == right);

    QuantisedRows packed(Scaling::kMx, Narrow::kE2M1, nibbles);
    packed.elems = 16;
    packed.layout = ScaleLayout::kPackedColumns;
    const DeviceBuffer words(device, 8, Dtype::kU8);
    packed.scales = words;
    words.write(Bytes(8, 7), stream);
    run(pairs.rows(packed));
    CHECK((words.read<std::uint8_t>(stream) == Bytes{126, 0, 0, 0, 126, 0, 0, 0}));
    communicator.close();
  });
}

/// Invalid formats, and operands that do not fit.
inline void refused_formats() {
  ranks(1, [](symmetra::Bootstrap& bootstrap) {
    using namespace symmetra;
    const Device device = Device::host();
    const Stream stream(device);
    const Communicator communicator = Communicator::open(bootstrap, device);
    const Ones ones(communicator, stream, {1.0f}, 1);
    const DeviceBuffer codes(device, 32, Dtype::kF8E4M3), scales(device, 1, Dtype::kF32);
    const auto refused = [&](const QuantisedRows& how, const char* words) {
      const Error error = CHECK_THROWS(kInvalidArgument, communicator.all_reduce_norm(ones.rows(how), stream));
      if (std::strstr(error.what(), words) == nullptr) fail(__FILE__, __LINE__, std::string(words) + " is not in: " + error.what());
    };
    QuantisedRows how(Scaling::kPerToken, Narrow::kE4M3, codes);
    refused(how, "the scales is missing, but a scale per token writes scales in f32");
    how.scales = scales;
    how.to = Narrow::kE2M1;
    refused(how, "e4m3, e5m2, int8");
    how.to = Narrow::kE5M2;
    refused(how, "the type of the quantised values is f8e4m3");
    how.to = static_cast<Narrow>(9);
    refused(how, "the format of quantised values is 9");
    how.to = Narrow::kE4M3;
    how.known_scale = scales;
    refused(how, "NVFP4 alone");
    how.known_scale.reset();
    how.scaling = static_cast<Scaling>(7);
    refused(how, "the scaling of quantised rows is 7");
    how.scaling = Scaling::kPerGroup;
    refused(how, "the number of elements of a group is 0");
    how.elems = 32;
    how.layout = ScaleLayout::kSwizzled128x4;
    refused(how, "rows, columns");
    how.layout = static_cast<ScaleLayout>(5);
    refused(how, "the layout of scales is 5");
    how.layout = ScaleLayout::kColumns;
    communicator.all_reduce_norm(ones.rows(how), stream);
    how.scaling = Scaling::kStatic;
    how.layout = ScaleLayout::kRows;
    refused(how, "the number of elements of a group is 32, but a static scale has no such number");
    how.elems = 0;
    refused(how, "the scales is given");
    how.scales.reset();
    refused(how, "the static scale is missing");
    communicator.synchronize(stream);
    communicator.close();
  });
}

}  // namespace test
