// A rank of a world of processes, on memory of NVSHMEM: `symmetra launch -n N --nvshmem` starts it. The first argument is the library.
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ranks.hpp"

using namespace symmetra;

int main(int count, char** arguments) {
  const std::string library = count > 1 ? arguments[1] : "";
  const auto bootstrap = bootstrap::tcp_from_env();
  const Device device = Device::host();
  const Stream stream(device);
  Communicator communicator = Communicator::open(*bootstrap, device);
  const std::size_t rank = communicator.rank();
  const std::size_t world = communicator.world_size();
  if (library.empty()) {
    const Error error = CHECK_THROWS(kUnsupported, nvshmem::Session::open(communicator));
    CHECK(std::string(error.what()).find("this build has none (feature nvshmem)") != std::string::npos);
    communicator.close();
    std::printf("without ok\n");
    return 0;
  }
  // Missing on rank 0 alone.
  if (rank == 0) {
    CHECK_THROWS(kUnsupported, nvshmem::Session::open(communicator, "/nowhere.so"));
  } else {
    CHECK_EQ(CHECK_THROWS(kPeer, nvshmem::Session::open(communicator, library)).rank(), 0);
  }
  CHECK_THROWS(kUnsupported, nvshmem::Session::join(communicator, library));
  const nvshmem::Session session = nvshmem::Session::open(communicator, library);
  CHECK_THROWS(kMismatch, session.symmetric<std::int64_t>(rank == 1 ? 9 : 10));
  CHECK_THROWS(kOutOfMemory, session.symmetric<std::uint8_t>(std::size_t{65} << 20));
  {
    constexpr std::size_t kCount = 5000;
    const Adopted memory = session.symmetric<std::int64_t>(kCount);
    CHECK_EQ(memory.count(), kCount);
    CHECK(memory.is_shared() && memory.dtype() == Dtype::kI64);
    CHECK_EQ(memory.peer_data(rank), memory.data());
    CHECK_EQ(session.memory_bytes(), 8 * kCount);
    auto* const values = static_cast<std::int64_t*>(memory.data());
    for (std::size_t index = 0; index < kCount; ++index) values[index] = static_cast<std::int64_t>((rank + 1) * index);
    communicator.barrier();
    communicator.all_reduce(memory, memory, stream, {Algorithm::kTwoShotZeroCopy});
    communicator.synchronize(stream);
    const std::size_t ranks = world * (world + 1) / 2;
    for (std::size_t index = 0; index < kCount; ++index) CHECK_EQ(values[index], static_cast<std::int64_t>(ranks * index));
    // The program's own pointer into the heap, from an element on.
    const Adopted part = session.adopt(values + 100, 200, Dtype::kI64);
    CHECK_EQ(part.data(), static_cast<void*>(values + 100));
    communicator.barrier();
    communicator.all_reduce(part, part, stream);
    communicator.synchronize(stream);
    for (std::size_t index = 0; index < 400; ++index) {
      const std::size_t times = index >= 100 && index < 300 ? world : 1;
      CHECK_EQ(values[index], static_cast<std::int64_t>(times * ranks * index));
    }
    std::vector<std::int64_t> plain(10);
    CHECK_THROWS(kInvalidArgument, session.adopt(plain.data(), plain.size(), Dtype::kI64));
    CHECK_THROWS(kUnsupported, session.close());
    // Symmetric buffers as NVSHMEM's kernels address them.
    const SymmetricBuffer buffer = communicator.symmetric<std::int64_t>(kCount);
    const nvshmem::Mapped mapped = session.map(communicator);
    const auto* const seen = static_cast<const std::int64_t*>(mapped.address_of(buffer));
    CHECK(seen != buffer.data());
    buffer.write(std::vector<std::int64_t>(kCount, static_cast<std::int64_t>(rank + 1)), stream);
    communicator.barrier();
    communicator.all_reduce(buffer, buffer, stream);
    communicator.synchronize(stream);
    for (std::size_t index = 0; index < kCount; ++index) CHECK_EQ(seen[index], static_cast<std::int64_t>(ranks));
    const std::optional<Communicator> other = communicator.split(0, 0);
    const SymmetricBuffer foreign = other->symmetric<std::int64_t>(1);
    CHECK_THROWS(kInvalidArgument, mapped.address_of(foreign));
    other->close();
    CHECK_THROWS(kUnsupported, session.close());
  }
  session.reclaim();
  CHECK_EQ(session.memory_bytes(), std::size_t{0});
  session.close();
  CHECK_THROWS(kClosed, session.close());
  communicator.close();
  std::printf("with ok\n");
}
