// The log of a C++ program. Its caller sets SYMMETRA_LOG=info and a misspelt variable, and reads standard error.

#include <mutex>
#include <stdexcept>

#include "ranks.hpp"

using namespace symmetra;

namespace {

struct Kept {
  LogLevel level;
  std::string origin;
  std::string text;
};

std::mutex mutex;
std::vector<Kept> kept;

bool keeps(LogLevel level, const char* origin, const char* text) {
  const std::lock_guard lock(mutex);
  for (const Kept& line : kept) {
    if (line.level == level && line.origin == origin && line.text.find(text) != std::string::npos) return true;
  }
  return false;
}

/// Logs a line a group at level info, and once a process a warning.
void open_groups() {
  test::ranks(2, [](Bootstrap& bootstrap) {
    EnvConfig config;
    config.tensor_parallel_size = 2;
    config.communicator.heap_bytes = 1 << 16;
    const Device device = Device::host();
    config.device = &device;
    Environment::init(bootstrap, config).close();
  });
}

}  // namespace

int main() {
  set_log([](const LogLine& line) {
    const std::lock_guard lock(mutex);
    kept.push_back({line.level, std::string(line.origin), std::string(line.text)});
  });
  open_groups();
  CHECK(keeps(LogLevel::kWarn, "symmetra::variables", "did you mean SYMMETRA_SECRET?"));
  CHECK(keeps(LogLevel::kInfo, "symmetra::environment", "tp: "));
  const std::size_t lines = kept.size();
  set_log([](const LogLine&) { throw std::runtime_error("a sink that fails"); });
  open_groups();
  CHECK_EQ(kept.size(), lines);
  std::fprintf(stderr, "without a sink:\n");
  set_log({});
  open_groups();
  CHECK_EQ(kept.size(), lines);
  std::printf("ok\n");
}
