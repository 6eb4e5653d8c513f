#include "symmetra/communicator.hpp"

#include <array>

#include "cpp/core/call.hpp"
#include "cpp/core/settings.hpp"
#include "symmetra/src/capi/explain.rs.h"
#include "symmetra/src/capi/mod.rs.h"

namespace symmetra {

using core::call;
using core::live;
using core::share;

Communicator::Communicator(std::shared_ptr<core::Communicator> core)
    : Collectives(share(core::communicator_group(*core))), communicator_(std::move(core)) {}

Communicator Communicator::open(Bootstrap& bootstrap, const Device& device, const Config& config) {
  const core::Settings settings = core::settings_of(config);
  return Communicator(share(call([&] {
    core::Ready* ready = bootstrap.ready();
    if (ready != nullptr) return core::communicator_open_ready(*ready, live(device.core_), settings);
    return core::communicator_open(bootstrap, live(device.core_), settings);
  })));
}

Communicator Communicator::tagged(std::uint64_t tag) const {
  return Communicator(share(core::communicator_tagged(live(communicator_), tag)));
}
std::size_t Communicator::rank() const { return core::communicator_rank(live(communicator_)); }
std::size_t Communicator::world_size() const { return core::communicator_world_size(live(communicator_)); }
Device Communicator::device() const { return Device(share(core::communicator_device(live(communicator_)))); }

std::optional<Communicator> Communicator::split(std::optional<std::uint32_t> color, std::int32_t key) const {
  const core::Color asked{color.has_value(), color.value_or(0)};
  auto part = share(call([&] { return core::communicator_split(live(communicator_), asked, key); }));
  if (!core::part_is_member(*part)) return std::nullopt;
  return Communicator(share(call([&] { return core::part_take(*part); })));
}

void Communicator::barrier() const {
  call([&] { core::communicator_barrier(live(communicator_)); });
}

void Communicator::all_gather_bytes(const void* send, void* receive, std::size_t bytes) const {
  const auto sent = core::bytes_at<const std::uint8_t>("what an all-gather sends", send, bytes);
  const auto received = core::bytes_at<std::uint8_t>("where an all-gather receives", receive, bytes * world_size());
  call([&] { core::communicator_all_gather(live(communicator_), sent, received); });
}

SymmetricBuffer Communicator::symmetric(std::size_t count, Dtype dtype) const {
  return SymmetricBuffer(
      share(call([&] { return core::tensor_symmetric(live(communicator_), count, static_cast<std::uint32_t>(dtype)); })));
}

Adopted Communicator::adopt(void* address, std::size_t count, Dtype dtype) const {
  const core::Operand memory = core::operand_of(Operand(address, count, dtype));
  return Adopted(share(call([&] { return core::tensor_adopt(live(communicator_), memory, false, {}); })));
}

Adopted Communicator::adopt(void* address, std::size_t count, Dtype dtype, const std::vector<void*>& peers) const {
  const core::Operand memory = core::operand_of(Operand(address, count, dtype));
  std::vector<std::size_t> addresses;
  for (void* const peer : peers) addresses.push_back(reinterpret_cast<std::uintptr_t>(peer));
  const rust::Slice<const std::size_t> all(addresses.data(), addresses.size());
  return Adopted(share(call([&] { return core::tensor_adopt(live(communicator_), memory, true, all); })));
}

void Communicator::synchronize(const Stream& stream) const {
  call([&] { core::communicator_synchronize(live(communicator_), live(stream.core_)); });
}

void Communicator::leave(const Stream& stream) const {
  call([&] { core::communicator_leave(live(communicator_), live(stream.core_)); });
}

void Communicator::check() const {
  call([&] { core::communicator_check(live(communicator_)); });
}

void Communicator::check_guards() const {
  call([&] { core::communicator_check_guards(live(communicator_)); });
}

void Communicator::abort() const noexcept {
  if (communicator_ != nullptr) core::communicator_abort(*communicator_);
}

void Communicator::close() const {
  call([&] { core::communicator_close(live(communicator_)); });
}

void Communicator::abandon() const { core::communicator_abandon(live(communicator_)); }

void Communicator::depart() const {
  call([&] { core::communicator_depart(live(communicator_)); });
}

namespace {

std::vector<Range> ranges(const rust::Vec<core::Row>& rows) {
  std::vector<Range> ranges;
  for (const core::Row& row : rows) ranges.push_back({row.up_to_bytes, static_cast<Algorithm>(row.algorithm), std::string(row.reason)});
  return ranges;
}

}  // namespace

std::vector<Range> Communicator::explain(Dtype dtype, bool direct) const {
  return ranges(call([&] { return core::communicator_explain(live(communicator_), static_cast<std::uint32_t>(dtype), direct); }));
}

std::vector<Range> Communicator::explain_norm(Dtype dtype, std::size_t hidden, bool direct) const {
  return ranges(
      call([&] { return core::communicator_explain_norm(live(communicator_), static_cast<std::uint32_t>(dtype), hidden, direct); }));
}

std::vector<Range> Communicator::explain_norm(Dtype dtype, std::size_t hidden, const QuantisedForm& form, bool direct, bool placed,
                                              std::size_t width) const {
  const core::QuantisedForm asked = core::form_of(form);
  const auto number = static_cast<std::uint32_t>(dtype);
  const std::array<std::size_t, 2> row{hidden, width == 0 ? hidden : width};
  return ranges(call([&] { return core::communicator_explain_quantised_norm(live(communicator_), number, row, asked, {direct, placed}); }));
}

std::vector<Range> Communicator::explain_scattered_norm(Dtype dtype, std::size_t hidden, bool quantised, bool direct, bool gathers) const {
  const auto number = static_cast<std::uint32_t>(dtype);
  const std::array<bool, 3> flags{quantised, direct, gathers};
  return ranges(call([&] { return core::communicator_explain_scattered_norm(live(communicator_), number, hidden, flags); }));
}

}  // namespace symmetra
