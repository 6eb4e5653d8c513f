#include "symmetra/symmetra.hpp"

extern "C" std::uint64_t plain_required_bytes(std::size_t world_size) { return symmetra::required_bytes(world_size, symmetra::Config()); }
