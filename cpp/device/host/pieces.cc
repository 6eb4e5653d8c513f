#include "cpp/device/host/pieces.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "cpp/device/host/error.hpp"
#include "cpp/device/host/file.hpp"
#include "cpp/device/host/memory.hpp"

namespace symmetra::device::host {
namespace {

/// Bytes of a piece: few, so that the memory of tests has several.
constexpr uint64_t kPieceBytes = 64 * 1024;

class Pieces final : public Assembly {
 public:
  Pieces(std::shared_ptr<Registry> registry, size_t bytes) : registry_(std::move(registry)), bytes_(bytes) {
    void* const address = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) throw_system("mmap of a range of " + std::to_string(bytes) + " bytes", errno);
    address_ = static_cast<uint8_t*>(address);
  }
  ~Pieces() override {
    registry_->drain();
    ::munmap(address_, bytes_);
  }
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;

  void add(int32_t fd, size_t bytes) override {
    const Descriptor file(fd);
    const off_t position = ::lseek(fd, 0, SEEK_CUR);
    if (position < 0) throw_system("lseek of descriptor " + std::to_string(fd), errno);
    const auto offset = static_cast<uint64_t>(position);
    check_file(file, offset > ~uint64_t{0} - bytes ? ~uint64_t{0} : offset + bytes);
    if (bytes == 0 || bytes > bytes_ - used_) {
      throw Error(ErrorKind::kInvalidArgument,
                  "a piece of " + std::to_string(bytes) + " bytes, but the range has " + std::to_string(bytes_ - used_) + " left");
    }
    void* const place = address_ + used_;
    if (::mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, position) == MAP_FAILED) {
      throw_system("mmap of a piece of " + std::to_string(bytes) + " bytes", errno);
    }
    used_ += bytes;
  }
  void alias(const uint8_t* base, size_t bytes) override { add(export_piece(*registry_, base), bytes); }
  uint8_t* address() const noexcept override { return address_; }

 private:
  std::shared_ptr<Registry> registry_;
  size_t bytes_;
  size_t used_ = 0;
  uint8_t* address_ = nullptr;
};

}  // namespace

PointerInfo piece_at(const Registry& registry, const uint8_t* pointer) {
  const PointerInfo whole = registry.classify(pointer);
  if (whole.kind != kPointerVmm) {
    throw Error(ErrorKind::kInvalidArgument, "piece: the address is of kind " + std::to_string(whole.kind));
  }
  const uint64_t before = (reinterpret_cast<uint64_t>(pointer) - whole.base) / kPieceBytes * kPieceBytes;
  return {whole.kind, whole.device, whole.base + before, std::min(kPieceBytes, whole.bytes - before)};
}

int32_t export_piece(const Registry& registry, const uint8_t* base) {
  const std::pair<int, uint64_t> place = registry.file_of(base);
  const Descriptor file(place.first);
  // A description of its own, so that positions of descriptors are independent.
  const std::string path = "/proc/self/fd/" + std::to_string(file.get());
  Descriptor own(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (own.get() < 0) throw_system("open of " + path, errno);
  const auto position = static_cast<off_t>(shared_granularity() + place.second);
  if (::lseek(own.get(), position, SEEK_SET) != position) throw_system("lseek of " + path, errno);
  return own.release();
}

std::unique_ptr<Assembly> new_assembly(std::shared_ptr<Registry> registry, size_t bytes) {
  return std::make_unique<Pieces>(std::move(registry), bytes);
}

}  // namespace symmetra::device::host
