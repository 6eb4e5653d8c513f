#include <cstdint>

#include "tests/cpp/host_device/host_device.hpp"

namespace symmetra::tests {
namespace {

void test_events_order_streams() {
  const auto host = open_host();
  const auto first = host->create_stream();
  const auto second = host->create_stream();
  const auto event = host->create_event();
  CHECK(event->done());
  CHECK(second->wait(*event) == 0);  // nothing recorded: nothing to wait for
  second->synchronize();
  uint32_t value = 0;  // plain: only the event orders the two streams
  auto* bytes = reinterpret_cast<uint8_t*>(&value);
  uint32_t seen = 0;
  Gate gate;
  CHECK(gate.launch(*first) == 0);
  CHECK(first->fill(bytes, 5, sizeof(value)) == 0);
  CHECK(first->record(*event) == 0);
  CHECK(second->wait(*event) == 0);
  CHECK(second->copy(reinterpret_cast<uint8_t*>(&seen), bytes, sizeof(seen)) == 0);
  CHECK(!event->done());
  CHECK(!second->done());
  gate.open();
  event->synchronize();
  CHECK(event->done());
  second->synchronize();
  CHECK(seen == 0x05050505);
}

void test_wait_means_the_last_record_at_the_call() {
  const auto host = open_host();
  const auto first = host->create_stream();
  const auto second = host->create_stream();
  const auto event = host->create_event();
  Gate gate;
  CHECK(first->record(*event) == 0);
  event->synchronize();
  CHECK(second->wait(*event) == 0);  // the record that is reached
  CHECK(gate.launch(*first) == 0);
  CHECK(first->record(*event) == 0);  // must not hold up the wait before it
  second->synchronize();
  CHECK(!event->done());
  CHECK(second->record(*event) == 0);  // again, elsewhere: now this is the last
  event->synchronize();
  CHECK(event->done());
  CHECK(gate.passed() == 0);
  gate.open();
  first->synchronize();
}

void test_timestamps() {
  const auto host = open_host();
  const auto stream = host->create_stream();
  const auto start = host->create_event();
  const auto end = host->create_event();
  CHECK(kind_of([&] { end->elapsed_us(*start); }) == ErrorKind::kInvalidArgument);
  Gate gate;
  CHECK(stream->record(*start) == 0);
  CHECK(gate.launch(*stream) == 0);
  CHECK(stream->record(*end) == 0);
  start->synchronize();
  CHECK(kind_of([&] { end->elapsed_us(*start); }) == ErrorKind::kInvalidArgument);
  std::this_thread::sleep_for(milliseconds(30));
  gate.open();
  end->synchronize();
  const double elapsed_us = end->elapsed_us(*start);
  CHECK(elapsed_us >= 29000 && elapsed_us < 10e6);
  CHECK(start->elapsed_us(*end) == -elapsed_us);
}

void test_events_outlive_streams_and_the_reverse() {
  const auto host = open_host();
  const auto event = host->create_event();
  {
    const auto stream = host->create_stream();
    CHECK(stream->record(*event) == 0);
  }
  CHECK(event->done());
  event->synchronize();
  const auto stream = host->create_stream();
  CHECK(stream->wait(*event) == 0);
  Gate gate;
  CHECK(gate.launch(*stream) == 0);
  {
    const auto short_lived = host->create_event();
    CHECK(stream->record(*short_lived) == 0);
    CHECK(stream->wait(*short_lived) == 0);
  }
  gate.open();
  stream->synchronize();
}

void test_an_overtaken_record_does_not_count() {
  const auto host = open_host();
  const auto first = host->create_stream();
  const auto second = host->create_stream();
  const auto event = host->create_event();
  Gate early;
  Gate late;
  CHECK(early.launch(*first) == 0);
  CHECK(first->record(*event) == 0);
  CHECK(late.launch(*second) == 0);
  CHECK(second->record(*event) == 0);
  early.open();
  first->synchronize();
  CHECK(!event->done());
  late.open();
  event->synchronize();
  CHECK(event->done());
}

}  // namespace

void test_events() {
  test_events_order_streams();
  test_wait_means_the_last_record_at_the_call();
  test_timestamps();
  test_events_outlive_streams_and_the_reverse();
  test_an_overtaken_record_does_not_count();
}

}  // namespace symmetra::tests
