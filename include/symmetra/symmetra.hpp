/// \file
/// All of symmetra: GPU collectives inside one host, and the parallel groups of an engine around them.
///
/// Every function that fails throws symmetra::Error and nothing else; an exception of a function given to
/// Stream::capture is rethrown. Destructors neither throw nor wait for other ranks. Use of a moved-from object throws
/// kInvalidArgument.
#pragma once

#include "symmetra/backend.hpp"
#include "symmetra/bootstrap.hpp"
#include "symmetra/bound.hpp"
#include "symmetra/capture.hpp"
#include "symmetra/collectives.hpp"
#include "symmetra/communicator.hpp"
#include "symmetra/config.hpp"
#include "symmetra/coordinator.hpp"
#include "symmetra/copy.hpp"
#include "symmetra/device.hpp"
#include "symmetra/environment.hpp"
#include "symmetra/error.hpp"
#include "symmetra/experts.hpp"
#include "symmetra/fused.hpp"
#include "symmetra/launch.hpp"
#include "symmetra/log.hpp"
#include "symmetra/matmul.hpp"
#include "symmetra/memory.hpp"
#include "symmetra/mixed.hpp"
#include "symmetra/named.hpp"
#include "symmetra/norm.hpp"
#include "symmetra/nvshmem.hpp"
#include "symmetra/observe.hpp"
#include "symmetra/pending.hpp"
#include "symmetra/signal.hpp"
#include "symmetra/stream.hpp"
#include "symmetra/toolchain.hpp"
#include "symmetra/types.hpp"
#include "symmetra/version.hpp"
