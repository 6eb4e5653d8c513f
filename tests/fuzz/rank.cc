// Runs a program as one rank, through the C++ headers, and writes its findings: rank.rs in C++.
// Arguments: the directory of the program, the rank. Operations and memory are given by the program's words.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "bench.hpp"
#include "experts.hpp"
#include "grids.hpp"
#include "products.hpp"
#include "symmetra/symmetra.hpp"
#include "words.hpp"

namespace {

using fuzz::Bench;
using fuzz::Call;
using fuzz::kBuffers;
using fuzz::kLength;
using fuzz::kWide;
using fuzz::Part;
using fuzz::Words;
using symmetra::Communicator;
using symmetra::Operand;
using symmetra::Queue;

constexpr std::size_t kStreams = 3;
constexpr std::chrono::seconds kPatience{40};

const char* const kKinds[] = {"Internal", "InvalidArgument", "Unsupported", "OutOfMemory", "Device", "System",        "Bootstrap",
                              "Timeout",  "PeerLost",        "Aborted",     "Mismatch",    "Closed", "NotRegistered", "Peer",
                              "Routing",  "Capacity"};

struct Captured {
  symmetra::Graph graph;
  /// The groups of its calls, and whether this rank enqueues something for the group: only then does a launch follow
  /// the group's earlier calls.
  std::map<std::size_t, bool> groups;
};

class Rank {
 public:
  Rank(const std::string& directory, std::size_t number)
      : number_(number),
        directory_(directory),
        words_(directory + "/words"),
        written_(directory + "/written." + std::to_string(number), std::ios::binary),
        found_(directory + "/found." + std::to_string(number)),
        bytes_(directory + "/bytes." + std::to_string(number), std::ios::binary),
        device_(symmetra::Device::host()) {
    for (std::size_t i = 0; i < kStreams; ++i) streams_.emplace_back(device_);
    world_ = words_.next();
    symmetra::Config& config = config_;
    config.deadlines.open = config.deadlines.first_use = std::chrono::seconds(20);
    config.heap_bytes = 8 << 20;
    config.guard_bytes = 4096;
    config.transport = static_cast<symmetra::Transport>(words_.next());
    config.check_calls = words_.next() != 0;
    config.determinism = words_.next() != 0 ? symmetra::Determinism::kExact : symmetra::Determinism::kPerAlgorithm;
    config.one_shot_ll_bytes = words_.next();
    config.one_shot_sentinel_bytes = words_.next();
    config.two_shot_ll_bytes = words_.next();
    config.two_shot_sentinel_bytes = words_.next();
    config.ring_bytes = words_.next();
    config.recursive_doubling_bytes = words_.next();
    config.deadlines.steady = std::chrono::milliseconds(words_.next());
    failed_ = words_.list();
    const auto bootstrap = symmetra::bootstrap::local(directory + "/group.0", number, world_);
    groups_.emplace(0, Communicator::open(*bootstrap, device_, config));
  }

  void run() {
    const std::size_t steps = words_.next();
    for (step_ = 0; step_ < steps; ++step_) {
      try {
        step();
      } catch (const symmetra::Error& error) {
        failed(error, std::chrono::milliseconds(0));
        // The others need not wait for a message that does not come.
        for (const std::size_t group : open()) of(group).abort();
        return flush();
      }
    }
    try {
      for (const std::size_t group : open()) {
        if (std::find(failed_.begin(), failed_.end(), group) != failed_.end()) continue;
        close_grids(group);
        close(group);
      }
      found_ << "end\n";
    } catch (const symmetra::Error& error) {
      failed(error, std::chrono::milliseconds(0));
    }
    flush();
  }

 private:
  void flush() {
    found_.flush();
    bytes_.flush();
  }

  void failed(const symmetra::Error& error, std::chrono::milliseconds after) {
    std::string text = error.what();
    std::replace(text.begin(), text.end(), '\n', ' ');
    found_ << "failed " << step_ << ' ' << after.count() << ' ' << kKinds[static_cast<std::size_t>(error.kind())] << ' ' << error.rank()
           << ' ' << text << '\n';
  }

  bool has(std::size_t group) const { return groups_.count(group) != 0 || coordinators_.count(group) != 0; }
  const Communicator& of(std::size_t number) const {
    const auto coordinator = coordinators_.find(number);
    return coordinator == coordinators_.end() ? groups_.at(number) : coordinator->second.local();
  }

  Call call() { return words_.call(sizes_); }

  const Part& own(const Call& call) const { return call.parts[of(benches_.at(call.bench).group).rank()]; }

  /// Makes memory for quantised rows, and registers adopted operands. These live until the end: graphs and late peers use them.
  void prepare(const Call& call, const symmetra::Stream& stream) {
    Bench& bench = benches_.at(call.bench);
    if (call.norm && call.norm->narrow) {
      const fuzz::Narrow& narrow = *call.norm->narrow;
      if (bench.codes.count(narrow.seed) == 0) bench.codes.emplace(narrow.seed, fuzz::Codes(of(bench.group), device_, narrow, stream));
    }
    if (!call.adopted) return;
    const Part& part = own(call);
    for (const Part::Memory* memory : {&part.input, &part.output}) {
      if (!memory->exists) continue;
      char* const address = bench.data(memory->buffer) + memory->start * bench.elem_bytes;
      adopted_.emplace(Key(call.bench, memory->buffer, memory->start, memory->count),
                       of(bench.group).adopt(static_cast<void*>(address), memory->count, bench.dtype));
    }
  }

  Operand operand(const Call& call, const Part::Memory& memory) const {
    if (call.adopted) return adopted_.at(Key(call.bench, memory.buffer, memory.start, memory.count));
    return place(call, memory);
  }

  /// A place in a buffer, which may be in adopted memory.
  Operand place(const Call& call, const Part::Memory& memory) const {
    const Bench& bench = benches_.at(call.bench);
    if (call.symmetric) return {bench.symmetric[memory.buffer], memory.start, memory.count};
    return bench.part(memory.buffer, memory.start, memory.count);
  }

  void enqueue(const Call& call, Queue queue) const {
    const Communicator& group = of(benches_.at(call.bench).group);
    const Part& part = own(call);
    const auto optional = [&](const Part::Memory& memory) {
      return memory.has ? std::optional<Operand>(operand(call, memory)) : std::nullopt;
    };
    const auto input = optional(part.input), output = optional(part.output);
    const auto reduction = static_cast<symmetra::Reduction>(call.reduction);
    const symmetra::AllReduceOptions options(reduction, symmetra::algorithm(call.algorithm), symmetra::codec(call.codec));
    const std::vector<std::size_t> shape{call.rows, call.row, 1};
    if (call.norm) {
      norm(call, *input, *output, queue);
    } else if (call.name == "all-reduce") {
      const bool binds = call.binds != UINT64_MAX && (call.binds >> group.rank() & 1) == 0;
      binds ? group.bind_all_reduce(*input, *output, options).enqueue(queue) : group.all_reduce(*input, *output, queue, options);
    } else if (call.name == "reduce-scatter") {
      group.reduce_scatter(*input, *output, reduction, queue);
    } else if (call.name == "reduce-scatter-v") {
      group.reduce_scatter_v(*input, *output, part.sends, reduction, queue);
    } else if (call.name == "reduce-scatter-along") {
      group.reduce_scatter_along(1, shape, *input, *output, reduction, queue);
    } else if (call.name == "low-contention-reduce-scatter") {
      group.low_contention_reduce_scatter(*input, *output, reduction, queue).wait(queue);
    } else if (call.name == "all-gather") {
      group.Collectives::all_gather(*input, *output, queue);
    } else if (call.name == "all-gather-v") {
      group.all_gather_v(*input, *output, part.receives, queue);
    } else if (call.name == "all-gather-along") {
      group.all_gather_along(1, shape, *input, *output, queue);
    } else if (call.name == "low-contention-all-gather") {
      group.low_contention_all_gather(*input, *output, queue).wait(queue);
    } else if (call.name == "all-to-all") {
      group.all_to_all(*input, *output, queue);
    } else if (call.name == "all-to-all-v") {
      group.all_to_all_v(*input, part.sends, *output, part.receives, queue);
    } else if (call.name == "broadcast") {
      group.broadcast(*output, call.root, queue);
    } else if (call.name == "reduce") {
      group.reduce(*input, output, reduction, call.root, queue);
    } else if (call.name == "gather") {
      group.gather(*input, output, call.root, queue);
    } else if (call.name == "scatter") {
      group.scatter(input, *output, call.root, queue);
    } else if (call.name == "shift") {
      group.shift(*input, *output, static_cast<std::ptrdiff_t>(call.root), queue);
    } else if (call.name == "pairs") {
      pairs(call, part, queue);
    } else {
      group.batch(messages(call, part), queue);
    }
  }

  void norm(const Call& call, const Operand& input, const Operand& output, Queue queue) const {
    const Bench& bench = benches_.at(call.bench);
    const Communicator& group = of(bench.group);
    const symmetra::RowNorm rows = bench.rows(call, group.rank(), input, output);
    if (call.name == "all-reduce-norm") {
      group.all_reduce_norm(rows, queue);
    } else if (call.name == "reduce-scatter-norm") {
      group.reduce_scatter_norm(rows, queue);
    } else {
      group.reduce_scatter_norm_all_gather(rows, queue);
    }
  }

  /// The messages follow each other in both operands, in the order of the other ranks.
  std::vector<symmetra::Message> messages(const Call& call, const Part& part) const {
    std::vector<symmetra::Message> messages;
    const auto piece = [&](Part::Memory& rest, std::size_t count) {
      Part::Memory memory = rest;
      memory.count = count;
      rest.start += count;
      return place(call, memory);
    };
    Part::Memory input = part.input, output = part.output;
    for (std::size_t peer = 0; peer < call.parts.size(); ++peer) {
      if (part.sends[peer] > 0) messages.push_back(symmetra::Message::send(piece(input, part.sends[peer]), peer));
      if (part.receives[peer] > 0) messages.push_back(symmetra::Message::receive(piece(output, part.receives[peer]), peer));
    }
    return messages;
  }

  /// Sends and receives between pairs. A rank without a message makes no call.
  void pairs(const Call& call, const Part& part, Queue queue) const {
    const Communicator& group = of(benches_.at(call.bench).group);
    std::vector<symmetra::Message> messages;
    for (std::size_t at = 0; at < part.messages.size(); ++at) {
      const Part::Message& message = part.messages[at];
      const Part::Memory& whole = message.receives ? part.output : part.input;
      const Operand operand = piece(call, whole, message.start - whole.start, message.count);
      messages.push_back(message.receives ? symmetra::Message::receive(operand, message.peer)
                                          : symmetra::Message::send(operand, message.peer));
      // Messages from a rank to itself stay in one call.
      const bool to_itself = message.peer == group.rank() && at + 1 < part.messages.size() && part.messages[at + 1].peer == message.peer;
      if (part.is_slow && !to_itself) group.pairs(std::exchange(messages, {}), queue);
    }
    if (!messages.empty()) group.pairs(messages, queue);
  }

  /// A part of an operand.
  Operand piece(const Call& call, const Part::Memory& whole, std::size_t start, std::size_t count) const {
    if (call.adopted) return {adopted_.at(Key(call.bench, whole.buffer, whole.start, whole.count)), start, count};
    Part::Memory memory = whole;
    memory.start += start;
    memory.count = count;
    return place(call, memory);
  }

  const symmetra::Stream& last(std::size_t group) { return streams_[last_[group].first]; }

  /// Makes a stream wait for the last call of a group, if the communicator does not: copy engines only wait for their
  /// queue, and an empty call does not wait.
  void order(std::size_t group, std::size_t on, bool beside) {
    const auto [last, was_beside] = last_[group];
    if (last != on && (beside || was_beside)) streams_[last].synchronize();
    last_[group] = {on, beside};
  }

  void eager(const Call& call, std::size_t on) {
    if (benches_.count(call.bench) == 0) return;
    prepare(call, streams_[on]);
    ordered(call, on);
  }

  void ordered(const Call& call, std::size_t on) {
    if (benches_.count(call.bench) == 0) return;
    order(benches_.at(call.bench).group, on, call.name.rfind("low-contention", 0) == 0 || !enqueues(call));
    enqueue(call, streams_[on]);
  }

  /// Whether the call enqueues anything on this rank.
  bool enqueues(const Call& call) {
    const Part& part = own(call);
    return call.name == "pairs" ? !part.messages.empty() : part.input.count + part.output.count > 0 && call.parts.size() > 1;
  }

  /// Makes calls of several groups in an order of this rank's own.
  void interleaved() {
    std::vector<std::pair<std::vector<Call>, std::size_t>> lanes;
    for (std::size_t rest = words_.next(); rest > 0; --rest) {
      const std::size_t on = words_.list(world_)[number_];
      std::vector<Call> calls;
      for (std::size_t count = words_.next(); count > 0; --count) calls.push_back(call());
      lanes.emplace_back(std::move(calls), on);
    }
    std::vector<std::size_t> turns;
    for (std::size_t rank = 0; rank < world_; ++rank) {
      std::vector<std::size_t> own = words_.list();
      if (rank == number_) turns = std::move(own);
    }
    for (const auto& [calls, on] : lanes) {
      for (const Call& call : calls) {
        if (benches_.count(call.bench) != 0) prepare(call, streams_[on]);
      }
    }
    std::vector<std::size_t> made(lanes.size());
    for (const std::size_t lane : turns) ordered(lanes[lane].first[made[lane]++], lanes[lane].second);
  }

  void fill(std::size_t number, std::size_t buffer, std::size_t start, std::size_t count) {
    const Bench& bench = benches_.at(number);
    const std::size_t bytes = bench.bytes(buffer);
    std::vector<char> values = bench.read(buffer, last(bench.group));
    written_.read(values.data() + start * bytes, static_cast<std::streamsize>(count * bytes));
    bench.write(buffer, values, last(bench.group));
  }

  void check(std::size_t number) {
    if (benches_.count(number) == 0) return;
    const Bench& bench = benches_.at(number);
    of(bench.group).synchronize(last(bench.group));
    of(bench.group).check_guards();
    std::vector<char> values;
    for (std::size_t buffer = 0; buffer <= kWide; ++buffer) {
      const std::vector<char> read = bench.read(buffer, last(bench.group));
      values.insert(values.end(), read.begin(), read.end());
    }
    for (const auto& codes : bench.codes) codes.second.read(values, last(bench.group));
    bytes_.write(values.data(), static_cast<std::streamsize>(values.size()));
    found_ << "found " << step_ << ' ' << values.size() << '\n';
  }

  void split() {
    const std::size_t from = words_.next(), parts = words_.next();
    std::optional<std::tuple<std::uint32_t, std::size_t, std::int32_t>> own;
    for (std::size_t color = 0; color < parts; ++color) {
      const std::size_t group = words_.next();
      const std::vector<std::size_t> members = words_.list();
      members_[group] = members.size();
      const auto place = std::find(members.begin(), members.end(), number_);
      if (place != members.end()) own.emplace(color, group, static_cast<std::int32_t>(place - members.begin()));
    }
    if (!has(from)) return;
    auto made = of(from).split(own ? std::optional<std::uint32_t>(std::get<0>(*own)) : std::nullopt, own ? std::get<2>(*own) : 0);
    if (made) groups_.emplace(std::get<1>(*own), std::move(*made));
  }

  void bench() {
    const std::size_t number = words_.next(), group = words_.next();
    const auto dtype = static_cast<symmetra::Dtype>(words_.next());
    const std::size_t bytes = words_.next();
    sizes_[number] = group == 0 ? world_ : members_.at(group);
    if (!has(group)) return;
    const Communicator& communicator = of(group);
    Bench bench{group, bytes, dtype, {}, {}, {}};
    for (int i = 0; i < 2; ++i) bench.symmetric.push_back(communicator.symmetric(kLength, dtype));
    for (std::size_t i = 2; i < kBuffers; ++i) bench.plain.emplace_back(device_, kLength, dtype);
    bench.plain.emplace_back(device_, kLength, symmetra::Dtype::kF32);
    communicator.reserve_workspace(kLength * 8);
    benches_.emplace(number, std::move(bench));
    for (std::size_t buffer = 0; buffer <= kWide; ++buffer) fill(number, buffer, 0, kLength);
  }

  void capture(std::size_t on) {
    const std::size_t graph = words_.next(), count = words_.next();
    std::vector<Call> calls;
    std::map<std::size_t, bool> groups;
    for (std::size_t i = 0; i < count; ++i) {
      calls.push_back(call());
      if (benches_.count(calls.back().bench) == 0) {
        calls.pop_back();
      } else {
        groups[benches_.at(calls.back().bench).group] |= enqueues(calls.back());
      }
    }
    if (calls.empty()) return;
    for (const Call& call : calls) prepare(call, streams_[on]);
    symmetra::Graph made = streams_[on].capture([&](symmetra::Capture& capture) {
      for (const Call& call : calls) enqueue(call, capture);
    });
    made.register_pointers();
    graphs_.emplace(graph, Captured{std::move(made), groups});
  }

  /// Drops the objects of a group, except the memory that peers may access.
  void forget(std::size_t group) {
    for (auto it = graphs_.begin(); it != graphs_.end();) {
      const auto& groups = it->second.groups;
      it = groups.count(group) != 0 ? graphs_.erase(it) : std::next(it);
    }
    for (auto it = plans_.begin(); it != plans_.end();) it = it->second.group() == group ? plans_.erase(it) : std::next(it);
    for (auto it = experts_.begin(); it != experts_.end();) it = it->second.group() == group ? experts_.erase(it) : std::next(it);
    for (auto it = benches_.begin(); it != benches_.end();) {
      if (it->second.group != group) {
        ++it;
        continue;
      }
      for (auto& plain : it->second.plain) reached_.push_back(std::make_shared<symmetra::DeviceBuffer>(std::move(plain)));
      for (auto at = adopted_.begin(); at != adopted_.end();) at = std::get<0>(at->first) == it->first ? adopted_.erase(at) : std::next(at);
      it = benches_.erase(it);
    }
  }

  /// The numbers of the open groups.
  std::vector<std::size_t> open() const {
    std::vector<std::size_t> numbers;
    for (const auto& group : groups_) numbers.push_back(group.first);
    for (const auto& coordinator : coordinators_) numbers.push_back(coordinator.first);
    std::sort(numbers.begin(), numbers.end());
    return numbers;
  }

  void close_grids(std::size_t group) {
    for (auto it = grids_.begin(); it != grids_.end();) {
      if (it->second.group() == group) it->second.mixed().close();
      it = it->second.group() == group ? grids_.erase(it) : std::next(it);
    }
  }

  void close(std::size_t group) const {
    const auto coordinator = coordinators_.find(group);
    coordinator == coordinators_.end() ? groups_.at(group).close() : coordinator->second.close();
  }

  /// Drops a group.
  void leave(std::size_t group) {
    forget(group);
    for (auto it = grids_.begin(); it != grids_.end();) it = it->second.group() == group ? grids_.erase(it) : std::next(it);
    groups_.erase(group);
    coordinators_.erase(group);
  }

  /// Waits until these ranks have come so far: none of them may meet a fault in an earlier step.
  void meet(const std::vector<std::size_t>& ranks) const {
    const auto arrived = [&](std::size_t rank) { return directory_ + "/arrived." + std::to_string(rank); };
    std::ofstream(arrived(number_)).flush();
    const auto start = std::chrono::steady_clock::now();
    const auto all = [&] {
      return std::all_of(ranks.begin(), ranks.end(), [&](std::size_t rank) { return std::ifstream(arrived(rank)).good(); });
    };
    while (!all() && std::chrono::steady_clock::now() - start < kPatience) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  /// Makes calls on experts, and writes their outputs.
  void rounds(const fuzz::Rounds& rounds, const symmetra::Stream& stream) {
    const auto opened = experts_.find(rounds.experts);
    if (opened == experts_.end()) return;
    const std::vector<char> found = opened->second.run(rounds, stream, written_);
    bytes_.write(found.data(), static_cast<std::streamsize>(found.size()));
    found_ << "found " << step_ << ' ' << found.size() << '\n';
  }

  /// Makes calls on plans, and writes their outputs.
  void products(const fuzz::Products& products, std::size_t on) {
    for (const fuzz::Multiply& call : products.calls) {
      if (plans_.count(call.plan) == 0) return;
    }
    const std::vector<char> found = fuzz::run(plans_, products, streams_, on, written_);
    bytes_.write(found.data(), static_cast<std::streamsize>(found.size()));
    found_ << "found " << step_ << ' ' << found.size() << '\n';
  }

  /// Makes calls on grids, and writes the memory of their operands.
  void mixes(const fuzz::Mixes& mixes, std::size_t on) {
    for (const fuzz::Mix& call : mixes.calls) {
      if (grids_.count(call.grid) == 0) return;
    }
    const std::vector<char> found = fuzz::run(grids_, mixes, streams_, on, written_, reached_);
    bytes_.write(found.data(), static_cast<std::streamsize>(found.size()));
    found_ << "found " << step_ << ' ' << found.size() << '\n';
  }

  /// Sends and receives bytes, and writes the bytes that the rank has in the end.
  void objects() {
    const std::vector<std::size_t> numbers = words_.list(5);
    const std::size_t root = numbers[2], count = numbers[3];
    std::vector<std::vector<std::size_t>> sizes;
    for (std::size_t member = 0; member < numbers[4]; ++member) sizes.push_back(words_.list(count));
    const auto found = coordinators_.find(numbers[0]);
    if (found == coordinators_.end()) return;
    const symmetra::Coordinator& coordinator = found->second;
    const bool gathers = numbers[1] == 1, gives = gathers || coordinator.rank() == root;
    std::string all;
    for (std::size_t number = 0; number < count; ++number) {
      std::string own(sizes[coordinator.rank()][number], '\0');
      written_.read(own.data(), static_cast<std::streamsize>(own.size()));
      if (!gathers) {
        all += coordinator.broadcast_object(gives ? &own : nullptr, root);
        continue;
      }
      const auto objects = coordinator.gather_object(own, root);
      if (!objects) continue;
      for (const std::string& object : *objects) all += object;
    }
    bytes_.write(all.data(), static_cast<std::streamsize>(all.size()));
    found_ << "found " << step_ << ' ' << all.size() << '\n';
  }

  /// Opens a group as a coordinator, as one of its members.
  void open(std::size_t group) {
    const std::vector<std::size_t> members = words_.list();
    members_[group] = members.size();
    const auto place = std::find(members.begin(), members.end(), number_);
    if (place == members.end()) return;
    symmetra::GroupConfig config;
    config.communicator = config_;
    const auto member = static_cast<std::size_t>(place - members.begin());
    auto bootstrap = symmetra::bootstrap::local(directory_ + "/group." + std::to_string(group), member, members.size());
    coordinators_.emplace(group, symmetra::Coordinator::open(std::move(bootstrap), device_, config));
  }

  /// Makes a call that fails on every rank, and writes the error of this rank.
  void misrouted() {
    const std::size_t group = words_.next();
    const std::vector<std::size_t> members = words_.list();
    const symmetra::ExpertConfig config = fuzz::layer_of(words_);
    const fuzz::Round round = fuzz::round_of(words_, words_.next());
    if (!has(group)) return;
    const fuzz::Opened opened(of(group), config, group);
    meet(members);
    const auto start = std::chrono::steady_clock::now();
    try {
      opened.misroute(round, streams_[0], written_);
      found_ << "unaware " << step_ << '\n';
    } catch (const symmetra::Error& error) {
      failed(error, std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start));
    }
  }

  void fault() {
    const std::size_t group = words_.next(), culprit = words_.next();
    const auto fault = words_.next<std::string>();
    const std::vector<std::size_t> members = words_.list();
    const Call common = call(), other = call();
    if (!has(group)) return;
    const bool is_culprit = of(group).rank() == culprit;
    meet(members);
    if (fault == "depart" && !is_culprit) return check(common.bench);
    const auto start = std::chrono::steady_clock::now();
    const auto after = [&] { return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start); };
    const std::size_t on = last_[group].first;
    if (is_culprit && (fault == "leave" || fault == "depart")) {
      leave(group);
      found_ << "left " << step_ << '\n';
      return;
    }
    try {
      if (!is_culprit) {
        eager(common, on);
      } else if (fault == "abort") {
        of(group).abort();
      } else if (fault == "die") {
        flush();
        ::kill(::getpid(), SIGKILL);
      } else if (fault == "differ") {
        eager(other, on);
      }
      while (after() < kPatience) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        of(group).synchronize(streams_[on]);
      }
      found_ << "unaware " << step_ << '\n';
    } catch (const symmetra::Error& error) {
      failed(error, after());
    }
  }

  void step() {
    const auto name = words_.next<std::string>();
    if (name == "call" || name == "capture" || name == "launch") {
      const std::size_t on = words_.list(world_)[number_];
      if (name == "call") {
        eager(call(), on);
      } else if (name == "capture") {
        capture(on);
      } else if (const auto captured = graphs_.find(words_.next()); captured != graphs_.end()) {
        for (const auto& [group, enqueued] : captured->second.groups) order(group, on, !enqueued);
        captured->second.graph.launch(streams_[on]);
      }
    } else if (name == "rounds") {
      const std::size_t on = words_.list(world_)[number_];
      rounds(fuzz::rounds_of(words_), streams_[on]);
    } else if (name == "interleaved") {
      interleaved();
    } else if (name == "without") {
      const std::vector<std::size_t> numbers = words_.list(4);
      const auto before = experts_.find(numbers[1]);
      if (before == experts_.end()) return;
      auto [opened, lost, ended] = before->second.experts().without({numbers[0]});
      if (lost != std::vector<std::size_t>{numbers[0]})
        found_ << "step " << step_ << ": not rank " << numbers[0] << " alone is said to be lost\n";
      groups_.emplace(numbers[3], opened.communicator());
      experts_.emplace(numbers[2], fuzz::Opened(of(numbers[3]), before->second.config(), std::move(opened), numbers[3]));
    } else if (name == "experts") {
      const std::size_t number = words_.next(), group = words_.next();
      const symmetra::ExpertConfig config = fuzz::layer_of(words_);
      if (has(group)) experts_.emplace(number, fuzz::Opened(of(group), config, group));
    } else if (name == "plan") {
      const std::size_t number = words_.next(), group = words_.next();
      const fuzz::Asking asked = fuzz::asking_of(words_);
      if (has(group)) plans_.emplace(number, fuzz::Planning(of(group), asked, group));
    } else if (name == "products") {
      const std::size_t on = words_.list(world_)[number_];
      products(fuzz::products_of(words_), on);
    } else if (name == "coordinator") {
      open(words_.next());
    } else if (name == "grid") {
      const std::vector<std::size_t> numbers = words_.list(5);
      symmetra::MixedConfig config;
      config.grid.local_tensor = numbers[2];
      config.grid.local_data = numbers[3];
      config.most_bytes = numbers[4];
      const auto coordinator = coordinators_.find(numbers[1]);
      if (coordinator != coordinators_.end()) grids_.emplace(numbers[0], fuzz::Gridded(coordinator->second, config, numbers[1]));
    } else if (name == "mixes") {
      const std::size_t on = words_.list(world_)[number_];
      mixes(fuzz::mixes_of(words_), on);
    } else if (name == "objects") {
      objects();
    } else if (name == "misrouted") {
      misrouted();
    } else if (name == "split") {
      split();
    } else if (name == "bench") {
      bench();
    } else if (name == "write") {
      const std::vector<std::size_t> at = words_.list(4);
      if (benches_.count(at[0]) != 0) fill(at[0], at[1], at[2], at[3]);
    } else if (name == "check") {
      check(words_.next());
    } else if (name == "late") {
      const std::size_t rank = words_.next(), micros = words_.next();
      if (rank == number_) std::this_thread::sleep_for(std::chrono::microseconds(micros));
    } else if (name == "fault") {
      fault();
    } else if (const std::size_t group = words_.next(); name == "drop") {
      graphs_.erase(group);
    } else if (name == "barrier") {
      if (has(group)) of(group).barrier();
    } else if (has(group)) {
      close_grids(group);
      forget(group);
      close(group);
      leave(group);
    }
  }

  using Key = std::tuple<std::size_t, std::size_t, std::size_t, std::size_t>;

  std::size_t number_, world_ = 0, step_ = 0;
  std::string directory_;
  Words words_;
  std::ifstream written_;
  std::ofstream found_, bytes_;
  symmetra::Device device_;
  std::vector<symmetra::Stream> streams_;
  std::vector<std::size_t> failed_;
  /// Members of groups, and of the groups of benches.
  std::map<std::size_t, std::size_t> members_, sizes_;
  fuzz::Reached reached_;
  symmetra::Config config_;
  std::map<std::size_t, Communicator> groups_;
  /// Groups that were opened as coordinators.
  std::map<std::size_t, symmetra::Coordinator> coordinators_;
  std::map<std::size_t, Bench> benches_;
  std::map<std::size_t, fuzz::Opened> experts_;
  std::map<std::size_t, fuzz::Planning> plans_;
  std::map<std::size_t, fuzz::Gridded> grids_;
  std::map<Key, symmetra::Adopted> adopted_;
  std::map<std::size_t, Captured> graphs_;
  /// The stream of the last call of each group, and whether copy engines run the call, or nothing does.
  std::map<std::size_t, std::pair<std::size_t, bool>> last_;
};

void say(const char* words) { std::cout << "@@" << words << std::endl; }

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  try {
    Rank rank(arguments[1], std::strtoul(arguments[2], nullptr, 10));
    rank.run();
    say("ran");
    std::string line;
    std::getline(std::cin, line);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %s: %s\n", arguments[2], error.what());
    return 1;
  }
  say("done");
}
