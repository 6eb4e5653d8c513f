// Parallel groups through the public C++ API, with threads as ranks on the host device: their members, every
// operation by every available backend, graphs, objects, named tensors, ranks of several hosts, and errors.

#include <algorithm>
#include <cstring>
#include <utility>

#include "round.hpp"

using namespace symmetra;

namespace {

EnvConfig sizes(std::size_t tensor, std::size_t pipeline, std::size_t data) {
  EnvConfig config;
  config.tensor_parallel_size = tensor;
  config.pipeline_parallel_size = pipeline;
  config.data_parallel_size = data;
  config.communicator.heap_bytes = 1 << 20;
  config.communicator.one_shot_sentinel_bytes = config.communicator.one_shot_ll_bytes = 4 << 10;
  // Sums in rank order, so that exactly one result is right.
  config.communicator.determinism = Determinism::kExact;
  config.interface = "127.0.0.1";
  return config;
}

std::vector<const Coordinator*> groups(const Environment& environment) {
  return {&environment.world(), &environment.tp(), &environment.pp(), &environment.dp(), &environment.ep()};
}

bool contains(const std::string& text, const char* words) {
  if (text.find(words) != std::string::npos) return true;
  std::fprintf(stderr, "it says: %s\n", text.c_str());
  return false;
}

/// Whether the library was built with an engine between hosts.
bool has_engine(const Coordinator& through_host) { return !through_host.explain().at(3).serves.empty(); }

/// A caller's own bootstrap over one of ours.
class Relay : public Bootstrap {
 public:
  explicit Relay(Bootstrap& bootstrap) : bootstrap_(bootstrap) {}
  std::size_t rank() const override { return bootstrap_.rank(); }
  std::size_t world_size() const override { return bootstrap_.world_size(); }
  void all_gather(const void* send, void* receive, std::size_t bytes, Deadline deadline) override {
    bootstrap_.all_gather(send, receive, bytes, deadline);
  }

 private:
  Bootstrap& bootstrap_;
};

/// A relay that owns its bootstrap, to be given away.
struct Owning : Relay {
  explicit Owning(std::unique_ptr<Bootstrap> bootstrap) : Relay(*bootstrap), kept(std::move(bootstrap)) {}
  std::unique_ptr<Bootstrap> kept;
};

/// Every rank as a thread, with a bootstrap that it can move.
void kept(std::size_t world, const std::function<void(std::unique_ptr<Bootstrap>)>& body) {
  std::vector<std::unique_ptr<Bootstrap>> all = bootstrap::threads(world);
  test::ranks(world, [&](Bootstrap& rank) { body(std::move(all[rank.rank()])); });
}

void layout() {
  test::ranks(8, [](Bootstrap& bootstrap) {
    const Device device = Device::host();
    const std::size_t rank = bootstrap.rank();
    Relay relay(bootstrap);
    EnvConfig config = sizes(2, 2, 3);
    config.device = &device;
    CHECK(contains(CHECK_THROWS(kInvalidArgument, Environment::init(bootstrap, config)).what(), "3 data x 2 pipeline x 2 tensor = 12"));
    config.data_parallel_size = 2;
    const Environment environment = Environment::init(relay, config);
    CHECK(environment.tp().ranks() == (std::vector<std::size_t>{rank / 2 * 2, rank / 2 * 2 + 1}));
    CHECK(environment.pp().ranks() == (std::vector<std::size_t>{rank & 5, rank | 2}));
    CHECK(environment.dp().ranks() == (std::vector<std::size_t>{rank & 3, rank | 4}));
    CHECK_EQ(environment.ep().world_size(), 4u);
    CHECK_EQ(environment.world().world_size(), 8u);
    CHECK_EQ(environment.pp().is_last_rank(), (rank & 2) != 0);
    CHECK_EQ(environment.pp().next_rank(), rank ^ 2);
    CHECK_EQ(environment.tp().name(), "tp");
    CHECK_EQ(environment.tp().communicator().world_size(), 2u);
    for (const Setting& setting : environment.settings()) {
      if (setting.name == "tensor_parallel_size") CHECK(setting.value == "2" && setting.source == "program");
      if (setting.name == "backend") CHECK(setting.value == "auto" && setting.source == "default");
    }
    const std::vector<Host> hosts = environment.hosts();
    CHECK_EQ(hosts.size(), 1u);
    CHECK(hosts[0].ranks == (std::vector<std::size_t>{0, 1, 2, 3, 4, 5, 6, 7}));
    environment.close();
    CHECK_THROWS(kClosed, environment.tp().check());
    CHECK_THROWS(kClosed, environment.tp().communicator().check());
    CHECK_THROWS(kClosed, environment.world().barrier());
  });
}

void check_all(const Coordinator& group, const Coordinator& through) {
  test::Round<float>(group).check(through);
  test::Round<std::int64_t>(group).check(through);
}

/// Of groups of many shapes, by what each call goes to, by the own kernels and through the CPU.
void operations() {
  const std::size_t shapes[][3] = {{2, 1, 2}, {3, 1, 1}, {2, 3, 1}, {1, 1, 1}};
  for (const auto& [tensor, pipeline, data] : shapes) {
    test::ranks(tensor * pipeline * data, [&, tensor = tensor, pipeline = pipeline, data = data](Bootstrap& bootstrap) {
      const Environment environment = Environment::init(bootstrap, sizes(tensor, pipeline, data));
      for (const Coordinator* group : groups(environment)) {
        const Coordinator own = group->through(Backend::kOwn), host = group->through(Backend::kHost);
        check_all(*group, *group);
        check_all(*group, own);
        if (group->world_size() == 1 || has_engine(host)) check_all(*group, host);
      }
      environment.close();
    });
  }
}

void graphs() {
  test::ranks(4, [](Bootstrap& bootstrap) {
    const Environment environment = Environment::init(bootstrap, sizes(2, 2, 1));
    for (const Coordinator* group : groups(environment)) test::Round<std::int32_t>(*group).check_captured(*group);
    // A failure of one rank is an error of all ranks: the thrown exception on that rank, kPeer elsewhere.
    const Coordinator& tp = environment.tp();
    const Device device = tp.device();
    const Stream stream(device);
    const DeviceBuffer buffer(device, 4, Dtype::kF32);
    const auto record = [&](Capture& capture) {
      tp.broadcast(buffer, 0, capture);
      if (tp.rank() == 1) throw std::runtime_error("of the program's own");
    };
    if (tp.rank() == 1) {
      try {
        tp.capture(stream, record);
        CHECK(false);
      } catch (const std::runtime_error& error) {
        CHECK(contains(error.what(), "of the program's own"));
      }
    } else {
      CHECK_EQ(CHECK_THROWS(kPeer, tp.capture(stream, record)).rank(), 1);
    }
    tp.all_reduce(buffer, stream);
    tp.synchronize(stream);
    environment.close();
  });
}

/// A pipeline of three stages: the data of the first stage pass through all stages, and each adds its number.
void pipelines() {
  test::ranks(3, [](Bootstrap& bootstrap) {
    const Environment environment = Environment::init(bootstrap, sizes(1, 3, 1));
    const Coordinator& pp = environment.pp();
    const Stream stream(pp.device());
    const std::int64_t first = 40;
    std::int64_t x = first;
    for (std::size_t step = 0; step + 1 < pp.world_size(); ++step) {
      if (pp.rank() == step) {
        pp.send_next({&std::as_const(x), 1}, stream);
      } else if (pp.rank() == step + 1) {
        pp.receive_previous(Operand(&x, 1), stream);
      } else {
        pp.batch({}, stream);
      }
      pp.synchronize(stream);
      if (pp.rank() == step + 1) x += static_cast<std::int64_t>(pp.rank());
    }
    CHECK_EQ(x, first + static_cast<std::int64_t>(pp.rank() * (pp.rank() + 1) / 2));
    CHECK_THROWS(kInvalidArgument, pp.batch({Coordinator::Message::send(Operand(&x, 1), 3)}, stream));
    environment.close();
  });
}

void objects() {
  test::ranks(3, [](Bootstrap& bootstrap) {
    const Environment environment = Environment::init(bootstrap, sizes(3, 1, 1));
    const Coordinator& tp = environment.tp();
    std::string bytes;
    for (std::uint64_t index = 0; index < 10'000; ++index) bytes.push_back(static_cast<char>(index * 7));
    CHECK(tp.broadcast_object(tp.rank() == 2 ? &bytes : nullptr, 2) == bytes);
    const std::string none;
    CHECK(tp.broadcast_object(tp.rank() == 0 ? &none : nullptr, 0).empty());
    const auto gathered = tp.gather_object(bytes.substr(0, 100 * tp.rank()), 1);
    CHECK_EQ(gathered.has_value(), tp.rank() == 1);
    if (gathered) CHECK((*gathered == std::vector<std::string>{"", bytes.substr(0, 100), bytes.substr(0, 200)}));
    CHECK(contains(CHECK_THROWS(kInvalidArgument, tp.broadcast_object(&bytes, 3)).what(), "root"));
    CHECK(contains(CHECK_THROWS(kInvalidArgument, tp.broadcast_object(tp.rank() == 0 ? nullptr : &bytes, 0)).what(), "the object"));
    tp.barrier();
    environment.close();
  });
}

void named_tensors() {
  test::ranks(4, [](Bootstrap& bootstrap) {
    const Environment environment = Environment::init(bootstrap, sizes(2, 1, 2));
    const Device device = environment.world().device();
    const Stream stream(device);
    for (const Coordinator* group : groups(environment)) {
      const std::size_t root = group->world_size() - 1;
      std::vector<float> weights;
      for (std::uint64_t index = 0; index < 600; ++index) weights.push_back(static_cast<float>(index) / 8);
      const std::vector<std::int64_t> ids{1, -2, std::int64_t{3} << 40};
      DeviceBuffer buffer(device, 600, Dtype::kF32);
      buffer.write(weights, stream);
      NamedValues map;
      map.emplace("weights", NamedTensor(std::move(buffer), {20, 30}));
      map.emplace("ids", NamedTensor::borrowed_const({ids.data(), 3}, {3}));
      map.emplace("empty", NamedTensor(DeviceBuffer(device, 0, Dtype::kBF16), {4, 0}));
      map.emplace("config", R"({"activation":"relu","layers":[1,2]})");
      const auto received = group->broadcast_named(group->rank() == root ? &map : nullptr, root, stream);
      CHECK_EQ(received.has_value(), group->rank() != root);
      group->synchronize(stream);
      if (!received) continue;
      CHECK_EQ(received->size(), 4u);
      const auto tensor = [&](const char* name) -> const NamedTensor& { return std::get<NamedTensor>(received->at(name)); };
      CHECK(tensor("weights").shape() == (std::vector<std::size_t>{20, 30}));
      CHECK(tensor("weights").buffer().read<float>(stream) == weights);
      CHECK(tensor("ids").buffer().read<std::int64_t>(stream) == ids);
      CHECK_EQ(tensor("empty").dtype(), Dtype::kBF16);
      CHECK(tensor("empty").shape() == (std::vector<std::size_t>{4, 0}));
      CHECK_EQ(std::get<std::string>(received->at("config")), R"({"activation":"relu","layers":[1,2]})");
    }
    // A received tensor is an operand like any other.
    const Coordinator& world = environment.world();
    std::vector<float> ones(5, 1);
    NamedValues map;
    map.emplace("x", NamedTensor::borrowed(Operand(ones.data(), 5), {5}));
    const auto received = world.broadcast_named(world.rank() == 0 ? &map : nullptr, 0, stream);
    world.all_reduce(std::get<NamedTensor>(received ? received->at("x") : map.at("x")), stream);
    world.synchronize(stream);
    if (received) CHECK(std::get<NamedTensor>(received->at("x")).buffer().read<float>(stream) == std::vector<float>(5, 4));
    CHECK_THROWS(kUnsupported, std::get<NamedTensor>(map.at("x")).buffer());
    CHECK_THROWS(kInvalidArgument, NamedTensor::borrowed(Operand(ones.data(), 5), {2, 2}));
    // Memory that is borrowed as const can be an input, but no output.
    const std::vector<float> read_only(5, 2);
    const NamedTensor input = NamedTensor::borrowed_const({read_only.data(), 5}, {5});
    world.all_reduce(input, Operand(ones.data(), 5), stream);
    world.synchronize(stream);
    CHECK(ones == std::vector<float>(5, 8));
    CHECK(contains(CHECK_THROWS(kInvalidArgument, world.all_reduce(input, stream)).what(), "borrowed_const"));
    CHECK_THROWS(kInvalidArgument, NamedTensor::borrowed(Operand(ones.data(), 5), {std::size_t{1} << 40, std::size_t{1} << 40}));
    // When the root cannot send a value, the other ranks learn of the error.
    const auto refused = [&](const char* name, NamedValue value) {
      NamedValues wrong;
      wrong.emplace(name, std::move(value));
      if (world.rank() == 0) return CHECK_THROWS(kInvalidArgument, world.broadcast_named(&wrong, 0, stream));
      return CHECK_THROWS(kPeer, world.broadcast_named(nullptr, 0, stream));
    };
    CHECK(contains(refused("activation", "relu").what(), "the value `activation` is `relu`"));
    CHECK(contains(refused("\xff", "1").what(), "UTF-8"));
    NamedTensor moved = NamedTensor::borrowed(Operand(ones.data(), 5), {5});
    const NamedTensor taken = std::move(moved);
    CHECK(contains(refused("gone", std::move(moved)).what(), "tensor `gone`"));
    // Numbers arrive as they are.
    for (const char* number : {"0.9073038322028689", "9007199254740993", "18446744073709551615", "5e-324"}) {
      NamedValues value;
      value.emplace("number", number);
      const auto arrived = world.broadcast_named(world.rank() == 0 ? &value : nullptr, 0, stream);
      if (arrived) CHECK_EQ(std::get<std::string>(arrived->at("number")), number);
    }
    environment.close();
  });
}

/// All-reduces that the setting sends through a codec.
void quantised() {
  test::ranks(2, [](Bootstrap& bootstrap) {
    EnvConfig config = sizes(2, 1, 1);
    config.communicator.determinism = Determinism::kPerAlgorithm;
    config.quantised = QuantisedAllReduce{Codec::kInt4, 128, 4096};
    const Environment environment = Environment::init(bootstrap, config);
    const Coordinator& tp = environment.tp();
    const Explanation explained = tp.explain().at(0);
    // With a norm and without, called and in graphs.
    CHECK(explained.backend == Backend::kQuantised && explained.serves.size() == 4);
    for (const auto& served : explained.serves) CHECK(served.from_bytes == 128 && served.up_to_bytes == 4096);
    const Stream stream(tp.device());
    // 1 and 0.75: with 7 as the largest code the second is between two.
    std::vector<std::uint16_t> values(64, 0x3F40);
    values[0] = values[32] = 0x3F80;
    tp.all_reduce(Operand(values.data(), 64, Dtype::kBF16), stream);
    tp.synchronize(stream);
    CHECK(values[1] != 0x3FC0);
    std::vector<std::uint16_t> few(63, 0x3F40);
    few[0] = 0x3F80;
    tp.all_reduce(Operand(few.data(), 63, Dtype::kBF16), stream);
    tp.synchronize(stream);
    CHECK(few[0] == 0x4000 && few[1] == 0x3FC0);
    environment.close();
  });
  EnvConfig wrong = sizes(1, 1, 1);
  wrong.quantised = QuantisedAllReduce{Codec::kInt4, 10, 9};
  test::ranks(1, [&wrong](Bootstrap& bootstrap) {
    CHECK(contains(CHECK_THROWS(kInvalidArgument, Environment::init(bootstrap, wrong)).what(), "10 to 9"));
  });
}

/// The backends: which one serves which call, and which calls no backend serves.
void backends() {
  for (const Backend known : {Backend::kQuantised, Backend::kOwn, Backend::kNccl, Backend::kHost}) CHECK_EQ(backend(name(known)), known);
  CHECK(contains(CHECK_THROWS(kInvalidArgument, backend("tpu")).what(), "own"));
  test::ranks(2, [](Bootstrap& bootstrap) {
    EnvConfig config = sizes(2, 1, 1);
    Environment environment = Environment::init(bootstrap, config);
    const Coordinator& tp = environment.tp();
    const std::vector<Explanation> explained = tp.explain();
    CHECK_EQ(explained.size(), 4u);
    CHECK(explained[1].backend == Backend::kOwn && explained[1].refuses.empty());
    CHECK_EQ(explained[1].text, "own: every operation and type, any size; in graphs every operation and type, any size");
    CHECK_EQ(explained[0].refuses.at(0), "no codec is set");
    const Served& served = explained[1].serves.at(0);
    CHECK_EQ(served.operation, "all-reduce");
    CHECK(served.reductions.size() == 5 && served.dtypes.size() == 12 && !served.captured);
    CHECK(served.from_bytes == 0 && served.up_to_bytes == UINT64_MAX);

    const Stream stream(tp.device());
    std::vector<float> values(6, 1);
    const Operand operand(values.data(), 6);
    CHECK(contains(CHECK_THROWS(kUnsupported, tp.through(Backend::kQuantised).all_reduce(operand, stream)).what(), "no codec is set"));
    const Coordinator host = tp.through(Backend::kHost);
    if (has_engine(host)) {
      CHECK_THROWS(kUnsupported, stream.capture([&](Capture& capture) { host.all_reduce(operand, capture); }));
      CHECK_THROWS(kUnsupported, host.all_reduce(operand, stream, Algorithm::kRing));
      host.all_reduce(operand, stream);
      CHECK(values == std::vector<float>(6, 2));
      // Ranks that call differently learn it, for good.
      const Error error = CHECK_THROWS(kMismatch, host.all_reduce(operand, stream, tp.rank() == 0 ? Reduction::kSum : Reduction::kAverage));
      CHECK(contains(error.what(), "all-reduce (sum)") && contains(error.what(), "all-reduce (avg)"));
      CHECK_EQ(error.rank(), static_cast<std::int32_t>(1 - tp.rank()));
      CHECK_THROWS(kMismatch, tp.check());
      CHECK_THROWS(kMismatch, environment.close());
    } else {
      CHECK(contains(CHECK_THROWS(kUnsupported, host.all_reduce(operand, stream)).what(), "gloo"));
      tp.barrier();
      environment.close();
    }
  });
}

/// The backend of the configuration is every group's, and must be every rank's.
void forced() {
  test::ranks(2, [](Bootstrap& bootstrap) {
    EnvConfig config = sizes(2, 1, 1);
    config.backend = Backend::kQuantised;
    const Environment environment = Environment::init(bootstrap, config);
    std::vector<float> values(6, 1);
    const Stream stream(environment.tp().device());
    CHECK_THROWS(kUnsupported, environment.tp().all_reduce(Operand(values.data(), 6), stream));
    for (const Setting& setting : environment.settings()) {
      if (setting.name == "backend") CHECK(setting.value == "quantised" && setting.source == "program");
    }
    environment.close();
    config.backend = bootstrap.rank() == 0 ? std::optional<Backend>(Backend::kOwn) : std::nullopt;
    CHECK(contains(CHECK_THROWS(kMismatch, Environment::init(bootstrap, config)).what(), "the backend"));
  });
}

/// A reason need not be text to end a group.
void aborted() {
  test::ranks(2, [](Bootstrap& bootstrap) {
    const Environment environment = Environment::init(bootstrap, sizes(2, 1, 1));
    const Stream stream(environment.tp().device());
    if (bootstrap.rank() == 0) environment.tp().abort("because \xff");
    if (bootstrap.rank() == 0) CHECK(contains(CHECK_THROWS(kAborted, environment.tp().synchronize(stream)).what(), "because"));
    if (bootstrap.rank() == 1) CHECK_THROWS(kAborted, environment.tp().barrier());
  });
}

/// The forms of calls that own kernels alone have.
void own_kernels(const Coordinator& group, const Stream& stream) {
  const std::size_t size = group.world_size();
  const auto first = [](std::size_t rank) { return static_cast<std::int32_t>(rank) + 1; };
  std::vector<std::int32_t> own(2, first(group.rank())), all(2 * size), part(2);
  group.reserve_workspace(1024);
  group.low_contention_all_gather(Operand(own.data(), own.size()), Operand(all.data(), all.size()), stream).wait(stream);
  group.synchronize(stream);
  for (std::size_t rank = 0; rank < size; ++rank) CHECK_EQ(all[2 * rank + 1], first(rank));
  group.low_contention_reduce_scatter(Operand(all.data(), all.size()), Operand(part.data(), part.size()), Reduction::kSum, stream)
      .wait(stream);
  group.synchronize(stream);
  CHECK_EQ(part[1], first(group.rank()) * static_cast<std::int32_t>(size));
  group.bind_all_reduce(Operand(own.data(), own.size()), Operand(part.data(), part.size())).enqueue(stream);
  group.synchronize(stream);
  CHECK_EQ(part[0], static_cast<std::int32_t>(size * (size + 1) / 2));
  group.reduce(Operand(own.data(), own.size()), Reduction::kMax, 0, stream);
  group.synchronize(stream);
  if (group.rank() == 0) CHECK_EQ(own[0], first(size - 1));
}

/// A tensor that was moved from names no memory, even after the tensor that it was moved to is gone.
void moved_tensors(const Coordinator& group, const Stream& stream) {
  std::vector<float> values(6, 1);
  std::optional<NamedTensor> owning(std::in_place, DeviceBuffer(group.device(), 6, Dtype::kF32), std::vector<std::size_t>{2, 3});
  std::optional<NamedTensor> borrowing(NamedTensor::borrowed(Operand(values.data(), 6), {6}));
  for (std::optional<NamedTensor>* tensor : {&owning, &borrowing}) {
    const std::vector<std::size_t> shape = (*tensor)->shape();
    {
      const NamedTensor taken = std::move(**tensor);
      CHECK(taken.shape() == shape && taken.dtype() == Dtype::kF32);
      group.all_reduce(taken, stream);
      group.synchronize(stream);
    }
    CHECK_THROWS(kInvalidArgument, group.all_reduce(**tensor, stream));
    CHECK_THROWS(kInvalidArgument, (*tensor)->shape());
    CHECK_THROWS(kInvalidArgument, (*tensor)->dtype());
    CHECK_THROWS(kInvalidArgument, (*tensor)->buffer());
  }
  CHECK_EQ(values[5], 2.0f);
}

void refused() {
  test::ranks(2, [](Bootstrap& bootstrap) {
    Environment gone = Environment::init(bootstrap, sizes(2, 1, 1));
    const Environment environment = std::move(gone);
    CHECK_THROWS(kInvalidArgument, gone.world());
    CHECK_THROWS(kInvalidArgument, gone.tp());
    CHECK_THROWS(kInvalidArgument, gone.hosts());
    CHECK(contains(CHECK_THROWS(kInvalidArgument, environment.group(static_cast<Parallelism>(4))).what(), "less than 4"));
    const Coordinator& tp = environment.tp();
    const Device device = tp.device();
    const Stream stream(device);
    std::vector<float> values(6, 1);
    std::vector<std::int32_t> others(6, 1);
    const Operand four(values.data(), 4), six(values.data(), 6), ints(others.data(), 6);
    CHECK_THROWS(kInvalidArgument, tp.all_reduce(four, ints, stream));
    CHECK_THROWS(kInvalidArgument, tp.all_reduce(Operand(values.data(), 3), Operand(values.data() + 3, 2), stream));
    CHECK_THROWS(kInvalidArgument, tp.all_gather(four, six, stream));
    CHECK_THROWS(kInvalidArgument, tp.all_gather_v(four, six, {4, 3}, stream));
    CHECK_THROWS(kInvalidArgument, tp.broadcast(six, 2, stream));
    CHECK_THROWS(kInvalidArgument, tp.gather(four, std::nullopt, tp.rank(), stream));
    CHECK_THROWS(kInvalidArgument, tp.all_to_all_v(six, {7, 0}, ints, {0, 7}, stream));
    CHECK_THROWS(kInvalidArgument, tp.through(static_cast<Backend>(9)));
    CHECK_THROWS(kInvalidArgument, Environment::init(std::unique_ptr<Bootstrap>(), sizes(2, 1, 1)));
    tp.barrier();
    Coordinator moved = tp.through(Backend::kOwn);
    const Coordinator taken = std::move(moved);
    CHECK_THROWS(kInvalidArgument, moved.all_reduce(six, stream));
    CHECK_THROWS(kInvalidArgument, moved.rank());
    CHECK_THROWS(kInvalidArgument, moved.world_size());
    CHECK_THROWS(kInvalidArgument, moved.ranks());
    CHECK_THROWS(kInvalidArgument, moved.first_rank());
    CHECK_THROWS(kInvalidArgument, moved.last_rank());
    CHECK_THROWS(kInvalidArgument, moved.is_last_rank());
    CHECK_THROWS(kInvalidArgument, moved.next_rank());
    CHECK_THROWS(kInvalidArgument, moved.previous_rank());
    CHECK_THROWS(kInvalidArgument, moved.local());
    CHECK_THROWS(kInvalidArgument, moved.to_next(six));
    CHECK_THROWS(kInvalidArgument, moved.from_previous(six));
    CHECK_THROWS(kInvalidArgument, moved.send_next(six, stream));
    moved_tensors(taken, stream);
    CHECK_THROWS(kInvalidArgument, moved.leave(stream));
    {
      const Stream brief(device);
      taken.all_reduce(ints, brief);
      taken.leave(brief);
      // Nothing to leave: the last call was not on it.
      taken.leave(stream);
    }
    taken.all_reduce(ints, stream);
    taken.synchronize(stream);
    CHECK_EQ(others[5], 4);
    own_kernels(taken, stream);
    taken.all_reduce(six, stream);
    taken.synchronize(stream);
    environment.close();
    CHECK_THROWS(kClosed, taken.all_reduce(six, stream));
  });
}

/// Ranks that name different hosts share nothing but loopback.
void hosts() {
  const auto on_host = [](std::size_t rank) {
    EnvConfig config = sizes(2, 1, 2);
    config.host = "host-" + std::to_string(rank / 2);
    return config;
  };
  test::ranks(4, [&](Bootstrap& bootstrap) {
    CHECK(contains(CHECK_THROWS(kUnsupported, Environment::init(bootstrap, on_host(bootstrap.rank()))).what(), "host-1 (ranks 2, 3)"));
  });
  for (const bool own : {false, true}) {
    kept(4, [&](std::unique_ptr<Bootstrap> bootstrap) {
      const std::size_t rank = bootstrap->rank();
      // The bootstrap is kept, whether the library or a program implements it.
      if (own) bootstrap = std::make_unique<Owning>(std::move(bootstrap));
      std::optional<Environment> opened;
      try {
        opened.emplace(Environment::init(std::move(bootstrap), on_host(rank)));
      } catch (const Error& error) {
        CHECK_EQ(error.kind(), ErrorKind::kUnsupported);
        CHECK(contains(error.what(), "host-0 (ranks 0, 1), host-1 (ranks 2, 3)") && contains(error.what(), "feature `gloo`"));
        return;
      }
      if (rank == 0) std::printf("%s an engine between hosts\n", own ? "once more" : "there is");
      CHECK_EQ(opened->hosts().size(), 2u);
      CHECK_EQ(opened->hosts()[1].name, "host-1");
      CHECK_EQ(opened->tp().communicator().world_size(), 2u);
      CHECK(contains(CHECK_THROWS(kUnsupported, opened->dp().communicator()).what(), "2 hosts, host-0 (1 ranks), host-1 (1 ranks)"));
      CHECK_EQ(opened->dp().local().world_size(), 1u);
      CHECK_EQ(opened->dp().world_size(), 2u);
      for (const Coordinator* group : groups(*opened)) check_all(*group, *group);
      const std::string word = "from host 1";
      CHECK_EQ(opened->world().broadcast_object(rank == 3 ? &word : nullptr, 3), word);
      opened->close();
    });
  }
  // The death of the only rank of a host is detected by the bootstrap.
  kept(3, [&](std::unique_ptr<Bootstrap> bootstrap) {
    const std::size_t rank = bootstrap->rank();
    EnvConfig config = sizes(3, 1, 1);
    config.host = rank == 2 ? "host-1" : "host-0";
    try {
      const Environment environment = Environment::init(std::make_unique<Owning>(std::move(bootstrap)), config);
      if (rank == 2) return;
      CHECK_EQ(CHECK_THROWS(kPeerLost, environment.world().barrier()).rank(), 2);
      CHECK_THROWS(kPeerLost, environment.close());
    } catch (const Error& error) {
      CHECK_EQ(error.kind(), ErrorKind::kUnsupported);
    }
  });
}

}  // namespace

int main(int count, char** names) {
  const struct {
    const char* name;
    void (*run)();
  } cases[] = {{"layout", layout},       {"operations", operations}, {"graphs", graphs},
               {"pipelines", pipelines}, {"objects", objects},       {"named_tensors", named_tensors},
               {"aborted", aborted},     {"backends", backends},     {"forced", forced},
               {"refused", refused},     {"hosts", hosts},           {"quantised", quantised}};
  for (const auto& test : cases) {
    if (count > 1 && std::none_of(names + 1, names + count, [&](const char* name) { return std::strcmp(name, test.name) == 0; })) continue;
    test.run();
    std::printf("%s ok\n", test.name);
    std::fflush(stdout);
  }
}
