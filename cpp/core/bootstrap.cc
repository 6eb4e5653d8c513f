#include "symmetra/bootstrap.hpp"

#include <cstdint>

#include "cpp/core/call.hpp"
#include "cpp/core/ready_made.hpp"
#include "symmetra/src/capi/mod.rs.h"

namespace symmetra {

using core::call;
using core::live;
using core::milliseconds;
using core::share;

void Bootstrap::barrier(Deadline deadline) {
  const std::uint8_t here = 1;
  std::vector<std::uint8_t> all(world_size());
  all_gather(&here, all.data(), sizeof here, deadline);
}

namespace core {

void ReadyMade::all_gather(const void* send, void* receive, std::size_t bytes, Deadline deadline) {
  const auto sent = bytes_at<const std::uint8_t>("what an all-gather sends", send, bytes);
  const auto received = bytes_at<std::uint8_t>("where an all-gather receives", receive, bytes * world_size());
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  call([&] { ready_all_gather(*core_, sent, received, milliseconds(left)); });
}

rust::Box<Ready> ReadyMade::taken(std::unique_ptr<Bootstrap> bootstrap) {
  if (bootstrap == nullptr) throw Error(ErrorKind::kInvalidArgument, "the bootstrap object is null");
  auto* made = dynamic_cast<ReadyMade*>(bootstrap.get());
  return made != nullptr ? std::move(*made).release() : ready_of(std::move(bootstrap));
}

}  // namespace core

namespace bootstrap {

using core::ReadyMade;

std::vector<std::unique_ptr<Bootstrap>> threads(std::size_t world_size) {
  std::vector<std::unique_ptr<Bootstrap>> ranks;
  const auto world = share(call([&] { return core::world_of_threads(world_size); }));
  for (std::size_t rank = 0; rank < world_size; ++rank) {
    ranks.push_back(std::make_unique<ReadyMade>(call([&] { return core::world_take(*world); })));
  }
  return ranks;
}

std::unique_ptr<Bootstrap> local(const std::string& directory, std::size_t rank, std::size_t world_size,
                                 std::chrono::milliseconds timeout) {
  return std::make_unique<ReadyMade>(call([&] { return core::ready_local(directory, rank, world_size, milliseconds(timeout)); }));
}

std::unique_ptr<Bootstrap> tcp_from_env(std::chrono::milliseconds timeout) {
  return std::make_unique<ReadyMade>(call([&] { return core::ready_tcp_from_env(milliseconds(timeout)); }));
}

std::unique_ptr<Bootstrap> tcp(UniqueId id, std::size_t rank, std::size_t world_size, std::chrono::milliseconds timeout) {
  return std::make_unique<ReadyMade>(call([&] { return core::ready_tcp(live(id.core_), rank, world_size, milliseconds(timeout)); }));
}

UniqueId UniqueId::listen() {
  return UniqueId(share(call([] { return core::unique_id_listen(); })));
}

UniqueId UniqueId::listen_at(const std::string& interface) {
  return UniqueId(share(call([&] { return core::unique_id_listen_at(interface); })));
}

UniqueId UniqueId::parse(const std::string& text) {
  return UniqueId(share(call([&] { return core::unique_id_parse(text); })));
}

std::string UniqueId::text() const {
  return std::string(call([&] { return core::unique_id_text(live(core_)); }));
}

}  // namespace bootstrap
}  // namespace symmetra
