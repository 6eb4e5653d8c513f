#include <cstdlib>
#include <string>

#include "cpp/core/call.hpp"

namespace symmetra::core {

Error decode(const char* text) {
  long long fields[3];
  const char* rest = text;
  for (long long& field : fields) {
    char* end = nullptr;
    field = std::strtoll(rest, &end, 10);
    if (end == rest || *end != '|') return Error(ErrorKind::kInternal, text);
    rest = end + 1;
  }
  return Error(static_cast<ErrorKind>(fields[0]), rest, fields[1], static_cast<std::int32_t>(fields[2]));
}

void throw_moved_from() { throw Error(ErrorKind::kInvalidArgument, "the object was moved from and holds nothing"); }

void throw_null(const char* what, std::size_t bytes) {
  throw Error(ErrorKind::kInvalidArgument, std::string(what) + " is null, but must be " + std::to_string(bytes) + " bytes");
}

}  // namespace symmetra::core
