#include <cerrno>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/cpp/host_device/host_device.hpp"

namespace symmetra::tests {
namespace {

void test_capture_and_replay_between_eager_calls() {
  const auto host = open_host();
  const auto stream = host->create_stream();
  const auto other = host->create_stream();
  Word released{0};
  log_of_signals.clear();
  auto capture = stream->begin_capture();
  CHECK(stream->capturing());
  CHECK(!other->capturing());
  CHECK(kind_of([&] { stream->begin_capture(); }) == ErrorKind::kInvalidArgument);
  CHECK(kind_of([&] { stream->synchronize(); }) == ErrorKind::kInvalidArgument);
  CHECK(append(*stream, 1) == 0);
  CHECK(append(*stream, 2) == 0);
  auto graph = capture->finish(keepalive(released));
  capture.reset();
  CHECK(!stream->capturing());
  stream->synchronize();
  CHECK(log_of_signals.empty());
  CHECK(append(*stream, 0) == 0);
  CHECK(graph->launch(*stream) == 0);
  CHECK(append(*stream, 3) == 0);
  CHECK(graph->launch(*stream) == 0);
  CHECK(append(*stream, 4) == 0);
  stream->synchronize();
  CHECK((log_of_signals == std::vector<uint32_t>{0, 1, 2, 3, 1, 2, 4}));
  CHECK(graph->launch(*other) == 0);
  other->synchronize();
  CHECK(log_of_signals.size() == 9);
  CHECK(released.load() == 0);
  graph.reset();
  CHECK(released.load() == 1);
}

void test_a_launch_outlives_its_graph() {
  const auto host = open_host();
  const auto stream = host->create_stream();
  Word released{0};
  Gate gate;
  auto capture = stream->begin_capture();
  CHECK(gate.launch(*stream) == 0);
  auto graph = capture->finish(keepalive(released));
  CHECK(graph->launch(*stream) == 0);
  CHECK(graph->launch(*stream) == 0);
  graph.reset();
  std::this_thread::sleep_for(milliseconds(10));
  CHECK(released.load() == 0);
  gate.open();
  stream->synchronize();
  CHECK(gate.passed() == 2);
  CHECK(released.load() == 1);
}

void test_a_launch_waits_for_the_one_before_on_another_stream() {
  const auto host = open_host();
  const auto first = host->create_stream();
  const auto second = host->create_stream();
  Word begun{0};
  Word released{0};
  Gate gate;
  auto capture = first->begin_capture();
  CHECK(launch(*first, kMeeting, &begun, 0, kOneThread) == 0);
  CHECK(gate.launch(*first) == 0);
  auto graph = capture->finish(keepalive(released));
  CHECK(graph->launch(*first) == 0);
  CHECK(graph->launch(*second) == 0);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (begun.load() == 0 && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(milliseconds(1));
  std::this_thread::sleep_for(milliseconds(20));
  CHECK(begun.load() == 1);
  gate.open();
  host->synchronize();
  CHECK(begun.load() == 2);
}

void test_launches_of_one_graph_never_overlap() {
  const auto host = open_host();
  const auto first = host->create_stream();
  const auto second = host->create_stream();
  Word released{0};
  log_of_signals.clear();
  auto capture = first->begin_capture();
  for (uint32_t i = 0; i < 10; ++i) CHECK(append(*first, i) == 0);
  auto graph = capture->finish(keepalive(released));
  std::vector<std::thread> callers;
  for (const auto* stream : {first.get(), second.get()}) {
    callers.emplace_back([&graph, stream] {
      for (int i = 0; i < 50; ++i) CHECK(graph->launch(*stream) == 0);
    });
  }
  for (auto& caller : callers) caller.join();
  host->synchronize();
  bool whole = log_of_signals.size() == 1000;
  for (size_t i = 0; whole && i < log_of_signals.size(); ++i) whole = log_of_signals[i] == i % 10;
  CHECK(whole);
  graph.reset();
  CHECK(released.load() == 1);
}

void test_a_graph_in_a_capture() {
  const auto host = open_host();
  const auto stream = host->create_stream();
  Word inner_released{0};
  Word outer_released{0};
  log_of_signals.clear();
  auto capture = stream->begin_capture();
  CHECK(append(*stream, 1) == 0);
  auto inner = capture->finish(keepalive(inner_released));
  capture = stream->begin_capture();
  CHECK(append(*stream, 0) == 0);
  CHECK(inner->launch(*stream) == 0);
  CHECK(append(*stream, 2) == 0);
  auto outer = capture->finish(keepalive(outer_released));
  inner.reset();
  CHECK(inner_released.load() == 0);
  CHECK(outer->launch(*stream) == 0);
  CHECK(outer->launch(*stream) == 0);
  stream->synchronize();
  CHECK((log_of_signals == std::vector<uint32_t>{0, 1, 2, 0, 1, 2}));
  CHECK(outer_released.load() == 0);
  outer.reset();
  CHECK(inner_released.load() == 1);
  CHECK(outer_released.load() == 1);
}

void test_abandoned_and_misused_captures() {
  const auto host = open_host();
  const auto stream = host->create_stream();
  const auto event = host->create_event();
  Word released{0};
  log_of_signals.clear();
  {
    const auto capture = stream->begin_capture();
    CHECK(append(*stream, 1) == 0);
    CHECK(stream->record(*event) == 0);
  }
  CHECK(!stream->capturing());
  CHECK(event->done());
  CHECK(append(*stream, 2) == 0);
  stream->synchronize();
  CHECK((log_of_signals == std::vector<uint32_t>{2}));
  auto capture = stream->begin_capture();
  auto graph = capture->finish(keepalive(released));
  CHECK(kind_of([&] { capture->finish(keepalive(released)); }) == ErrorKind::kInvalidArgument);
  CHECK(released.load() == 1);  // that of the finish that threw
  auto again = stream->begin_capture();
  capture.reset();  // finished: must not end the capture after it
  CHECK(stream->capturing());
  again.reset();
  CHECK(graph->launch(*stream) == 0);  // an empty graph
  stream->synchronize();
  graph.reset();
  CHECK(released.load() == 2);
}

void test_events_in_graphs() {
  const auto host = open_host();
  const auto first = host->create_stream();
  const auto second = host->create_stream();
  const auto start = host->create_event();
  const auto end = host->create_event();
  Word released{0};
  Gate gate;
  auto capture = first->begin_capture();
  CHECK(first->wait(*start) == 0);
  CHECK(gate.launch(*first) == 0);
  CHECK(first->record(*end) == 0);
  CHECK(first->wait(*end) == 0);
  {
    const auto own = second->begin_capture();
    CHECK(second->wait(*end) == EOPNOTSUPP);
  }
  auto graph = capture->finish(keepalive(released));
  CHECK(second->wait(*end) == 0);
  for (uint32_t round = 1; round <= 3; ++round) {
    gate.close();
    CHECK(second->record(*start) == 0);
    CHECK(graph->launch(*first) == 0);
    CHECK(!end->done());
    CHECK(second->wait(*end) == 0);
    gate.open();
    second->synchronize();
    CHECK(gate.passed() == round);
    CHECK(end->elapsed_us(*start) > 0);
  }
}

void test_branches_and_chains() {
  const auto host = open_host();
  const auto first = host->create_stream();
  const auto second = host->create_stream();
  const auto fork = host->create_event();
  const auto join = host->create_event();
  const auto chained = host->create_event(false);
  Word released{0};
  log_of_signals.clear();
  CHECK(first->id() != second->id() && first->capture_id() == 0);
  CHECK(kind_of([&] { first->begin_chain(nullptr, keepalive(released)); }) == ErrorKind::kInvalidArgument);
  CHECK(released.load() == 1);
  auto capture = first->begin_capture();
  const auto chain = first->begin_chain(chained.get(), keepalive(released));
  CHECK(append(*first, 1) == 0);
  chain->extend(*first);
  CHECK(first->record(*fork) == 0);
  CHECK(second->wait(*fork) == 0);
  CHECK(second->capture_id() == first->capture_id());
  chain->follow(*second);
  CHECK(append(*second, 2) == 0);
  chain->extend(*second);
  CHECK(append(*first, 3) == 0);
  CHECK(second->record(*join) == 0);
  CHECK(first->wait(*join) == 0);
  auto graph = capture->finish(keepalive(released));
  CHECK(!second->capturing());
  Gate gate;
  CHECK(gate.launch(*second) == 0);
  CHECK(second->record(*chained) == 0);
  CHECK(graph->launch(*first) == 0);
  std::this_thread::sleep_for(milliseconds(20));
  CHECK(log_of_signals.empty());  // the launch waits for the last record
  gate.open();
  // The launch records the event anew.
  chained->synchronize();
  first->synchronize();
  CHECK((log_of_signals == std::vector<uint32_t>{1, 2, 3}));
  CHECK(released.load() == 1);
  graph.reset();
  CHECK(released.load() == 3);
}

}  // namespace

void test_graphs() {
  test_capture_and_replay_between_eager_calls();
  test_a_launch_outlives_its_graph();
  test_a_launch_waits_for_the_one_before_on_another_stream();
  test_launches_of_one_graph_never_overlap();
  test_a_graph_in_a_capture();
  test_abandoned_and_misused_captures();
  test_events_in_graphs();
  test_branches_and_chains();
}

}  // namespace symmetra::tests
