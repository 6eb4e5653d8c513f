#include "cpp/device/host/multicast.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <utility>

#include "cpp/device/host/error.hpp"
#include "cpp/device/host/file.hpp"
#include "cpp/device/host/memory.hpp"

namespace symmetra::device::host {
namespace {

/// The start of the object's file, which every rank maps.
struct Header {
  uint64_t magic;
  uint64_t bytes;
  uint32_t devices;
  uint32_t added;  ///< devices that were added
  uint32_t bound;  ///< devices whose memory is bound
};
constexpr uint64_t kMagic = 0x7473616369746c75;

[[noreturn]] void refuse(const std::string& doing, const std::string& why) { throw Error(ErrorKind::kInvalidArgument, doing + ": " + why); }

/// Reserved addresses without memory: every access faults.
class Reservation {
 public:
  explicit Reservation(size_t bytes) : bytes_(bytes) {
    void* const start = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) throw_system("map a multicast object of " + std::to_string(bytes) + " bytes", errno);
    start_ = static_cast<uint8_t*>(start);
  }
  ~Reservation() { ::munmap(start_, bytes_); }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  uint8_t* start() const noexcept { return start_; }

 private:
  size_t bytes_;
  uint8_t* start_;
};

class Object final : public MulticastObject {
 public:
  Object(Descriptor file, size_t bytes) : file_(std::move(file)), header_(file_, 0, shared_granularity()), bytes_(bytes) {}
  ~Object() override {
    range_.reset();
    if (bound_) count(&Header::bound).fetch_sub(1);
    if (added_) count(&Header::added).fetch_sub(1);
  }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  void write(uint32_t devices) const { header() = {kMagic, bytes_, devices, 0, 0}; }
  void check() const {
    if (header().magic != kMagic) refuse("import_multicast", "the descriptor is not of a multicast object");
    if (header().bytes != bytes_) {
      refuse("import_multicast", "the object has " + std::to_string(header().bytes) + " bytes, not " + std::to_string(bytes_));
    }
  }

  int32_t export_fd() const override { return file_.duplicate(); }
  void add() override {
    if (added_) refuse("add", "the device was added before");
    const uint32_t before = count(&Header::added).fetch_add(1);
    if (before >= header().devices) {
      count(&Header::added).fetch_sub(1);
      refuse("add", "the object has " + std::to_string(header().devices) + " devices already");
    }
    added_ = true;
  }
  void bind(const Memory& memory) override {
    const uint32_t added = count(&Header::added).load();
    if (!added_ || bound_ || added != header().devices) {
      refuse("bind", std::to_string(added) + " of " + std::to_string(header().devices) + " devices were added");
    }
    if (memory.bytes() != bytes_) {
      refuse("bind", std::to_string(memory.bytes()) + " bytes of memory to an object of " + std::to_string(bytes_));
    }
    count(&Header::bound).fetch_add(1);
    bound_ = true;
  }
  void map() override {
    if (!bound_ || range_) refuse("map", "the object is mapped once, after memory was bound");
    range_ = std::make_unique<Reservation>(bytes_);
  }
  uint8_t* address() const noexcept override { return range_ ? range_->start() : nullptr; }

 private:
  Header& header() const { return *reinterpret_cast<Header*>(header_.address()); }
  std::atomic_ref<uint32_t> count(uint32_t Header::*number) const { return std::atomic_ref<uint32_t>(header().*number); }

  Descriptor file_;
  Mapping header_;
  size_t bytes_;
  std::unique_ptr<Reservation> range_;
  bool added_ = false;
  bool bound_ = false;
};

}  // namespace

std::unique_ptr<MulticastObject> create_multicast(size_t bytes, uint32_t devices) {
  if (bytes == 0 || bytes % shared_granularity() != 0 || devices == 0) {
    refuse("create_multicast", std::to_string(bytes) + " bytes for " + std::to_string(devices) +
                                   " devices, but both are at least 1, and bytes a multiple of " + std::to_string(shared_granularity()));
  }
  Descriptor file = create_file("symmetra-multicast");
  set_bytes(file, shared_granularity());
  seal(file, F_SEAL_SHRINK | F_SEAL_GROW);
  auto object = std::make_unique<Object>(std::move(file), bytes);
  object->write(devices);
  return object;
}

std::unique_ptr<MulticastObject> import_multicast(int32_t fd, size_t bytes) {
  Descriptor file(fd);
  check_file(file, shared_granularity());
  auto object = std::make_unique<Object>(std::move(file), bytes);
  object->check();
  return object;
}

}  // namespace symmetra::device::host
