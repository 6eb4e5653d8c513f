//! The headers that each room of C++ may include, and the words that only some rooms may use: names of a vendor, of a
//! compiler or a chip.

use crate::imports::includes;
use crate::sources::{CPP, bare, complaints};

/// Folders whose headers a C++ file may include, the most specific rule first.
const INCLUDES: [(&str, &[&str]); 12] = [
    ("include/symmetra/device/platform/", &["symmetra/device/"]),
    ("include/symmetra/device/", &["symmetra/device/"]),
    ("include/p2p_allreduce", &["p2p_allreduce/", "symmetra/"]),
    ("include/", &["symmetra/"]),
    ("kernels/", &["kernels/", "symmetra/device/"]),
    ("cpp/gloo/", &["cpp/gloo/", "symmetra/error.hpp", "rust/cxx.h"]),
    ("cpp/core/", &["cpp/core/", "cpp/device/device.hpp", "symmetra/", "rust/cxx.h"]),
    ("cpp/device/gpu/", &["cpp/device/gpu/", "cpp/device/device.hpp", "cpp/device/registry.hpp", "symmetra/error.hpp"]),
    (
        "cpp/device/cuda/",
        &["cpp/device/cuda/", "cpp/device/gpu/", "cpp/device/device.hpp", "kernels/cuda/", "symmetra/error.hpp"],
    ),
    (
        "cpp/device/hip/",
        &["cpp/device/hip/", "cpp/device/gpu/", "cpp/device/device.hpp", "kernels/hip/", "symmetra/error.hpp"],
    ),
    (
        "cpp/device/host/",
        &[
            "cpp/device/host/",
            "cpp/device/device.hpp",
            "kernels/args.hpp",
            "kernels/host/",
            "symmetra/error.hpp",
            "symmetra/device/platform/atomics.hpp",
            "symmetra/device/platform/host.hpp",
        ],
    ),
    (
        "cpp/device/",
        &["cpp/device/", "cpp/core/bridge.hpp", "kernels/args.hpp", "symmetra/error.hpp", "symmetra/src/ffi/"],
    ),
];
/// Rooms where the headers of a vendor belong, and how their names begin.
const VENDOR_ROOMS: [(&str, &[&str]); 6] = [
    ("kernels/cuda/", &["cuda", "nv"]),
    ("cpp/device/cuda/", &["cuda", "nv"]),
    ("cpp/device/hip/", &["hip/"]),
    ("include/p2p_allreduce/device/cuda.hpp", &["cuda", "library_types.h"]),
    ("include/p2p_allreduce/device/hip.hpp", &["hip/"]),
    ("include/p2p_allreduce/mpi_bootstrap.hpp", &["mpi.h"]),
];
/// The only rooms for words of one compiler or chip.
const PLATFORM: &str = "include/symmetra/device/platform/";
const INTRINSICS: [&str; 12] = [
    "asm",
    "__asm__",
    "__attribute__",
    "threadIdx",
    "blockIdx",
    "blockDim",
    "gridDim",
    "__syncthreads",
    "atomicAdd",
    "atomicExch",
    "atomic_ref",
    "atomic",
];

/// The headers and words that a C++ file uses and may not use.
fn cpp_complaints(path: &str, source: &str) -> Vec<String> {
    let Some((_, allowed)) = INCLUDES.iter().find(|(folder, _)| path.starts_with(folder)) else {
        return vec![format!("{path}: belongs to no room")];
    };
    let own = VENDOR_ROOMS.iter().find(|(room, _)| path.starts_with(room)).map_or(&[][..], |(_, names)| *names);
    let vendors = || VENDOR_ROOMS.iter().flat_map(|(_, names)| *names);
    let public = path.starts_with("include/") && !path.starts_with(PLATFORM);
    let mut complaints = Vec::new();
    for (name, quoted) in includes(source) {
        let fine = match quoted {
            true => allowed.iter().any(|start| name.starts_with(start)) && !(public && name.contains("/src/")),
            false => {
                let is_own = own.iter().any(|start| name.starts_with(start));
                let of_vendor = vendors().any(|start| name.starts_with(start));
                // Public headers and kernels: the standard library of C++ alone.
                let standard = !name.contains(['/', '.']);
                is_own || (!of_vendor && (standard || path.starts_with("cpp/")))
            }
        };
        if !fine {
            complaints.push(format!("{path}: includes {name}"));
        }
    }
    let launches = ["kernels/cuda/", "kernels/hip/"].iter().any(|room| path.starts_with(room));
    if (path.starts_with("kernels/") || public) && !launches {
        let code = bare(source);
        let words = code.split(|letter: char| !(letter.is_alphanumeric() || letter == '_'));
        let intrinsic = |word: &&str| {
            let reserved = word.starts_with("__") && word.ends_with(|letter: char| letter != '_');
            INTRINSICS.contains(word) || (reserved && !["__has_include", "__cplusplus"].contains(word))
        };
        complaints.extend(words.filter(intrinsic).map(|word| format!("{path}: says {word}")));
    }
    // Only one file creates multicast objects, which may take a shared host out of service; two settings must allow it.
    if path != "cpp/device/cuda/multicast.cc" && bare(source).contains("cuMulticast") {
        complaints.push(format!("{path}: names the driver's multicast calls"));
    }
    complaints
}

#[test]
fn includes_follow_the_rooms() {
    assert_eq!(complaints(&["cpp", "kernels", "include"], &CPP, cpp_complaints), [""; 0]);
}

#[test]
fn the_checks_of_cpp_can_fail() {
    let found = |path: &str, source: &str| cpp_complaints(path, source).len();
    assert_eq!(
        found(
            "kernels/reduce.cuh",
            "#include \"kernels/numeric.cuh\"\n#include \"symmetra/device/wait.cuh\"\n#include <cstdint>"
        ),
        0
    );
    assert_eq!(found("kernels/reduce.cuh", "#include \"cpp/device/device.hpp\""), 1);
    assert_eq!(found("kernels/reduce.cuh", "#include \"symmetra/error.hpp\""), 1);
    assert_eq!(found("kernels/reduce.cuh", "  #  include <cuda_runtime.h>"), 1);
    assert_eq!(found("kernels/cuda/kernels.cu", "#include <cuda_runtime.h>"), 0);
    assert_eq!(found("kernels/host/kernels.cc", "#include <cuda_runtime.h>"), 1);
    assert_eq!(found("include/symmetra/stream.hpp", "#include <cuda_runtime.h>"), 1);
    assert_eq!(found("include/symmetra/stream.hpp", "#include \"rust/cxx.h\""), 1);
    assert_eq!(found("include/symmetra/stream.hpp", "#include \"symmetra/src/ffi/export.rs.h\""), 1);
    assert_eq!(found("include/symmetra/stream.hpp", "#include <sys/mman.h>"), 1);
    assert_eq!(found("include/symmetra/stream.hpp", "#include \"symmetra/device.hpp\"\n#include <memory>"), 0);
    assert_eq!(found("cpp/device/host/memory.cc", "#include \"cpp/device/cuda/memory.hpp\""), 1);
    assert_eq!(found("cpp/device/host/memory.cc", "#include \"cpp/core/call.hpp\"\n#include <sys/mman.h>"), 1);
    assert_eq!(found("cpp/device/cuda/memory.cc", "#include <cuda.h>"), 0);
    assert_eq!(found("cpp/device/hip/version.hpp", "#include <hip/hip_runtime_api.h>\n#include <dlfcn.h>"), 0);
    assert_eq!(found("cpp/device/hip/memory.cc", "#include <cuda.h>"), 1);
    assert_eq!(found("cpp/device/hip/memory.cc", "#include \"cpp/device/cuda/memory.hpp\""), 1);
    assert_eq!(found("cpp/device/hip/graph.cc", "#include \"cpp/device/gpu/graph.hpp\""), 0);
    assert_eq!(found("cpp/device/gpu/graph.hpp", "#include \"cpp/device/hip/graph.hpp\"\n#include <cuda.h>"), 2);
    assert_eq!(found("cpp/device/cuda/memory.cc", "#include <hip/hip_runtime_api.h>"), 1);
    assert_eq!(found("kernels/hip/kernels.hip", "#include <hip/hip_runtime.h>"), 1);
    assert_eq!(found("kernels/hip/kernels.hip", "#include \"kernels/dispatch.hpp\"\n#include <cstddef>"), 0);
    assert_eq!(found("include/symmetra/device/platform/hip.cuh", "__builtin_amdgcn_s_barrier();"), 0);
    assert_eq!(found("kernels/packet.cuh", "__builtin_amdgcn_s_barrier();\nx __attribute__((aligned(16)));"), 2);
    assert_eq!(found("kernels/barrier.cuh", "asm volatile(\"\");\n__syncthreads();\nint x = threadIdx.x;"), 3);
    assert_eq!(found("kernels/barrier.cuh", "std::atomic_ref<int> x(y);\n__builtin_trap();"), 2);
    assert_eq!(found("kernels/barrier.cuh", "// asm, threadIdx\nauto word = \"asm\";\n#if defined(__CUDACC__)"), 0);
    assert_eq!(found("include/symmetra/device/platform/cuda.cuh", "asm volatile(\"\");"), 0);
    assert_eq!(found("include/symmetra/device/wait.cuh", "__threadfence();"), 1);
    assert_eq!(found("cpp/device/cuda/memory.cc", "cuMulticastCreate(&handle, &shape);"), 1);
    assert_eq!(found("cpp/device/cuda/multicast.cc", "cuMulticastCreate(&handle, &shape);"), 0);
    assert_eq!(
        found("include/p2p_allreduce/memory.hpp", "#include \"symmetra/symmetra.hpp\"\n#include <hip/hip_runtime.h>"),
        1
    );
    assert_eq!(found("include/p2p_allreduce/mpi_bootstrap.hpp", "#include <mpi.h>\n#if __has_include(<mpi.h>)"), 0);
    assert_eq!(found("include/symmetra/stream.hpp", "#include \"p2p_allreduce/memory.hpp\"\n#include <mpi.h>"), 2);
    assert_eq!(found("elsewhere/x.hpp", ""), 1);
}
