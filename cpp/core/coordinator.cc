#include "symmetra/coordinator.hpp"

#include "cpp/core/call.hpp"
#include "cpp/core/recorder.hpp"
#include "symmetra/src/capi/explain.rs.h"
#include "symmetra/src/capi/mod.rs.h"

namespace symmetra {

using core::call;
using core::live;
using core::share;
using core::text_of;

Coordinator::Coordinator(std::shared_ptr<core::Coordinator> core)
    : Collectives(share(core::coordinator_group(*core))),
      coordinator_(std::move(core)),
      local_(share(core::coordinator_local(*coordinator_))),
      rank_(core::coordinator_rank(*coordinator_)) {
  const rust::Vec<std::size_t> ranks = core::coordinator_ranks(*coordinator_);
  ranks_.assign(ranks.begin(), ranks.end());
}

Coordinator Coordinator::tagged(std::uint64_t tag) const { return Coordinator(share(core::coordinator_tagged(live(coordinator_), tag))); }
std::string Coordinator::name() const { return std::string(core::coordinator_name(live(coordinator_))); }

std::size_t Coordinator::rank() const {
  live(coordinator_);
  return rank_;
}

const std::vector<std::size_t>& Coordinator::ranks() const {
  live(coordinator_);
  return ranks_;
}

const Communicator& Coordinator::local() const {
  live(coordinator_);
  return local_;
}

const Communicator& Coordinator::communicator() const {
  call([&] { core::coordinator_is_local(live(coordinator_)); });
  return local_;
}

Coordinator Coordinator::through(Backend backend) const {
  return Coordinator(share(call([&] { return core::coordinator_through(live(coordinator_), static_cast<std::uint32_t>(backend)); })));
}

std::vector<Explanation> Coordinator::explain() const {
  std::vector<Explanation> explanations;
  for (const core::Explained& explained : call([&] { return core::coordinator_explain(live(coordinator_)); })) {
    Explanation explanation{static_cast<Backend>(explained.backend), {}, {}, std::string(explained.text)};
    for (const core::ServedCalls& calls : explained.serves) {
      Served served{std::string(calls.operation), {}, {}, calls.captured, calls.from_bytes, calls.up_to_bytes};
      for (const std::uint32_t reduction : calls.reductions) served.reductions.push_back(static_cast<Reduction>(reduction));
      for (const std::uint32_t dtype : calls.dtypes) served.dtypes.push_back(static_cast<Dtype>(dtype));
      explanation.serves.push_back(std::move(served));
    }
    for (const rust::String& reason : explained.refuses) explanation.refuses.emplace_back(reason);
    explanations.push_back(std::move(explanation));
  }
  return explanations;
}

void Coordinator::send_next(ConstOperand operand, Queue queue) const { batch({to_next(operand)}, queue); }

void Coordinator::receive_previous(Operand operand, Queue queue) const { batch({from_previous(operand)}, queue); }

Graph Coordinator::capture(const Stream& stream, const std::function<void(Capture&)>& record) const {
  core::Recorder recorder(record);
  try {
    return Graph(share(call([&] { return core::coordinator_capture(live(coordinator_), live(stream.core_), recorder); })));
  } catch (const Error&) {
    recorder.rethrow();
    throw;
  }
}

void Coordinator::abort(const std::string& reason) const {
  const rust::String words = rust::String::lossy(reason);
  call([&] { core::coordinator_abort(live(coordinator_), words); });
}

void Coordinator::synchronize(const Stream& stream) const {
  call([&] { core::coordinator_synchronize(live(coordinator_), live(stream.core_)); });
}

void Coordinator::leave(const Stream& stream) const {
  call([&] { core::coordinator_leave(live(coordinator_), live(stream.core_)); });
}

void Coordinator::check() const {
  call([&] { core::coordinator_check(live(coordinator_)); });
}

void Coordinator::barrier() const {
  call([&] { core::coordinator_barrier(live(coordinator_)); });
}

namespace {

rust::Slice<const std::uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

}  // namespace

std::string Coordinator::broadcast_object(const std::string* object, std::size_t root) const {
  const auto bytes = object == nullptr ? rust::Slice<const std::uint8_t>() : bytes_of(*object);
  return text_of(call([&] { return core::coordinator_broadcast(live(coordinator_), object != nullptr, bytes, root); }));
}

std::optional<std::vector<std::string>> Coordinator::gather_object(const std::string& object, std::size_t root) const {
  const rust::Vec<core::Bytes> all = call([&] { return core::coordinator_gather(live(coordinator_), bytes_of(object), root); });
  if (rank_ != root) return std::nullopt;
  std::vector<std::string> objects;
  for (const core::Bytes& bytes : all) objects.push_back(text_of(bytes.bytes));
  return objects;
}

}  // namespace symmetra
