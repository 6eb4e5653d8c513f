#include "cpp/device/cuda/pieces.hpp"

#include <deque>
#include <string>

#include "cpp/device/cuda/physical.hpp"

namespace symmetra::device::cuda {
namespace {

class Pieces final : public Assembly {
 public:
  /// Expects `context` to be current.
  Pieces(const Context& context, size_t bytes) : context_(context), range_(context, bytes), drain_(context) {}

  void add(int32_t fd, size_t bytes) override {
    const FileDescriptor owner(fd);
    const Cold cold(context_);
    map(imported(context_, owner.get(), bytes), bytes);
  }
  void alias(const uint8_t* base, size_t bytes) override {
    const Cold cold(context_);
    map(retained(context_, base), bytes);
  }
  uint8_t* address() const noexcept override { return reinterpret_cast<uint8_t*>(range_.start()); }

 private:
  /// The mapping keeps the physical memory.
  void map(const Physical& memory, size_t bytes) {
    if (bytes > range_.bytes() - used_) {
      throw Error(ErrorKind::kInvalidArgument,
                  "a piece of " + std::to_string(bytes) + " bytes, but the range has " + std::to_string(range_.bytes() - used_) + " left");
    }
    mappings_.emplace_back(context_, range_.start() + used_, bytes, memory);
    used_ += bytes;
  }

  const Context& context_;
  Reservation range_;
  std::deque<Mapping> mappings_;
  size_t used_ = 0;
  Drain<Context> drain_;  ///< unmapping does not wait for work that still uses the addresses, which would then fault
};

}  // namespace

PointerInfo piece_at(const Context& context, const uint8_t* pointer) {
  const Cold cold(context);
  CUdeviceptr base = 0;
  size_t bytes = 0;
  check(context.driver.cuMemGetAddressRange(&base, &bytes, reinterpret_cast<CUdeviceptr>(pointer)), context, {"cuMemGetAddressRange"});
  return {kPointerVmm, context.ordinal, base, bytes};
}

int32_t export_piece(const Context& context, const uint8_t* base) {
  const Cold cold(context);
  return retained(context, base).export_fd(0);
}

std::unique_ptr<Assembly> new_assembly(const Context& context, size_t bytes) {
  const Cold cold(context);
  return std::make_unique<Pieces>(context, bytes);
}

}  // namespace symmetra::device::cuda
