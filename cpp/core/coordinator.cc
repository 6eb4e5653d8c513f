#include "symmetra/coordinator.hpp"

#include "cpp/core/call.hpp"
#include "cpp/core/exchange.hpp"
#include "cpp/core/recorder.hpp"
#include "symmetra/device/abi.hpp"
#include "symmetra/src/ffi/export.rs.h"

namespace symmetra {

using core::along;
using core::call;
using core::enqueue;
using core::exchange_of;
using core::group_of;
using core::live;
using core::share;
using core::slice;
using core::text_of;

Coordinator::Coordinator(std::shared_ptr<core::Coordinator> core)
    : core_(std::move(core)), local_(share(core::coordinator_local(*core_))), rank_(core::coordinator_rank(*core_)) {
  const rust::Vec<std::size_t> ranks = core::coordinator_ranks(*core_);
  ranks_.assign(ranks.begin(), ranks.end());
}

std::string Coordinator::name() const { return std::string(core::coordinator_name(live(core_))); }

std::size_t Coordinator::rank() const {
  live(core_);
  return rank_;
}

const std::vector<std::size_t>& Coordinator::ranks() const {
  live(core_);
  return ranks_;
}

const Communicator& Coordinator::local() const {
  live(core_);
  return local_;
}

const Communicator& Coordinator::communicator() const {
  call([&] { core::coordinator_is_local(live(core_)); });
  return local_;
}

Coordinator Coordinator::through(Backend backend) const {
  return Coordinator(share(call([&] { return core::coordinator_through(live(core_), static_cast<std::uint32_t>(backend)); })));
}

std::vector<Explanation> Coordinator::explain() const {
  std::vector<Explanation> explanations;
  for (const core::Explained& explained : call([&] { return core::coordinator_explain(live(core_)); })) {
    Explanation explanation{static_cast<Backend>(explained.backend), {}, {}, std::string(explained.text)};
    for (const core::ServedCalls& calls : explained.serves) {
      Served served{std::string(calls.operation), {}, {}, calls.captured};
      for (const std::uint32_t reduction : calls.reductions) served.reductions.push_back(static_cast<Reduction>(reduction));
      for (const std::uint32_t dtype : calls.dtypes) served.dtypes.push_back(static_cast<Dtype>(dtype));
      explanation.serves.push_back(std::move(served));
    }
    for (const rust::String& reason : explained.refuses) explanation.refuses.emplace_back(reason);
    explanations.push_back(std::move(explanation));
  }
  return explanations;
}

void Coordinator::all_reduce(Operand input, Operand output, Queue queue, AllReduceOptions options) const {
  core::enqueue_all_reduce(group_of(live(core_)), input, output, queue, options);
}

void Coordinator::all_reduce(Operand buffer, Queue queue, AllReduceOptions options) const { all_reduce(buffer, buffer, queue, options); }

void Coordinator::all_gather(Operand input, Operand output, Queue queue) const {
  enqueue(group_of(live(core_)), exchange_of(kernels::kOpAllGather), input, output, queue);
}

void Coordinator::all_gather_along(std::size_t dim, const std::vector<std::size_t>& shape, Operand input, Operand output,
                                   Queue queue) const {
  enqueue(group_of(live(core_)), along(dim, exchange_of(kernels::kOpAllGather)), input, output, queue, {slice(shape), {}});
}

void Coordinator::reduce_scatter(Operand input, Operand output, Reduction reduction, Queue queue) const {
  enqueue(group_of(live(core_)), exchange_of(kernels::kOpReduceScatter, reduction), input, output, queue);
}

void Coordinator::reduce_scatter_along(std::size_t dim, const std::vector<std::size_t>& shape, Operand input, Operand output,
                                       Reduction reduction, Queue queue) const {
  enqueue(group_of(live(core_)), along(dim, exchange_of(kernels::kOpReduceScatter, reduction)), input, output, queue, {slice(shape), {}});
}

void Coordinator::all_to_all(Operand input, Operand output, Queue queue) const {
  enqueue(group_of(live(core_)), exchange_of(kernels::kOpAllToAll), input, output, queue);
}

void Coordinator::all_to_all_v(Operand input, const std::vector<std::size_t>& send_counts, Operand output,
                               const std::vector<std::size_t>& receive_counts, Queue queue) const {
  core::enqueue_all_to_all_v(group_of(live(core_)), input, send_counts, output, receive_counts, queue);
}

void Coordinator::broadcast(Operand buffer, std::size_t root, Queue queue) const {
  enqueue(group_of(live(core_)), exchange_of(kernels::kOpBroadcast, Reduction::kSum, root), std::nullopt, buffer, queue);
}

void Coordinator::reduce(Operand input, std::optional<Operand> output, Reduction reduction, std::size_t root, Queue queue) const {
  enqueue(group_of(live(core_)), exchange_of(kernels::kOpReduce, reduction, root), input, output, queue);
}

void Coordinator::gather(Operand input, std::optional<Operand> output, std::size_t root, Queue queue) const {
  enqueue(group_of(live(core_)), exchange_of(kernels::kOpGather, Reduction::kSum, root), input, output, queue);
}

void Coordinator::scatter(std::optional<Operand> input, Operand output, std::size_t root, Queue queue) const {
  enqueue(group_of(live(core_)), exchange_of(kernels::kOpScatter, Reduction::kSum, root), input, output, queue);
}

void Coordinator::batch(const std::vector<Message>& messages, Queue queue) const {
  core::enqueue_batch(group_of(live(core_)), messages, queue);
}

void Coordinator::send_next(Operand operand, Queue queue) const { batch({to_next(operand)}, queue); }

void Coordinator::receive_previous(Operand operand, Queue queue) const { batch({from_previous(operand)}, queue); }

Graph Coordinator::capture(const Stream& stream, const std::function<void(Capture&)>& record) const {
  core::Recorder recorder(record);
  try {
    return Graph(share(call([&] { return core::coordinator_capture(live(core_), live(stream.core_), recorder); })));
  } catch (const Error&) {
    recorder.rethrow();
    throw;
  }
}

void Coordinator::abort(const std::string& reason) const {
  const rust::String words = rust::String::lossy(reason);
  call([&] { core::coordinator_abort(live(core_), words); });
}

void Coordinator::synchronize(const Stream& stream) const {
  call([&] { core::coordinator_synchronize(live(core_), live(stream.core_)); });
}

void Coordinator::leave(const Stream& stream) const {
  call([&] { core::coordinator_leave(live(core_), live(stream.core_)); });
}

void Coordinator::check() const {
  call([&] { core::coordinator_check(live(core_)); });
}

void Coordinator::barrier() const {
  call([&] { core::coordinator_barrier(live(core_)); });
}

namespace {

rust::Slice<const std::uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

}  // namespace

std::string Coordinator::broadcast_object(const std::string* object, std::size_t root) const {
  const auto bytes = object == nullptr ? rust::Slice<const std::uint8_t>() : bytes_of(*object);
  return text_of(call([&] { return core::coordinator_broadcast(live(core_), object != nullptr, bytes, root); }));
}

std::optional<std::vector<std::string>> Coordinator::gather_object(const std::string& object, std::size_t root) const {
  const rust::Vec<core::Bytes> all = call([&] { return core::coordinator_gather(live(core_), bytes_of(object), root); });
  if (rank_ != root) return std::nullopt;
  std::vector<std::string> objects;
  for (const core::Bytes& bytes : all) objects.push_back(text_of(bytes.bytes));
  return objects;
}

}  // namespace symmetra
