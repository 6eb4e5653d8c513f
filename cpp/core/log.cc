#include "symmetra/log.hpp"

#include <memory>
#include <utility>

#include "cpp/core/log_sink.hpp"
#include "symmetra/src/capi/log.rs.h"

namespace symmetra {

void set_log(std::function<void(const LogLine&)> sink) { core::log_set(sink ? std::make_unique<core::LogSink>(std::move(sink)) : nullptr); }

}  // namespace symmetra
