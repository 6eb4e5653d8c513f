//! The flow of the sources: values move right, from bootstrap to kernel, and a module uses only
//! stages to its left and the side rooms. Reads the `crate::` paths and the `#include`s.

use std::path::{Path, PathBuf};

/// The stages, in the order of the flow; `kernel` is the last and names none of them.
const STAGES: [&str; 4] = ["bootstrap", "group", "memory", "collective"];
const SIDE_ROOMS: [&str; 9] = ["error", "types", "device", "stream", "ffi", "nccl", "engine", "variables", "exit"];

/// Where a Rust file belongs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Room<'a> {
    /// One of [`STAGES`].
    Stage(usize),
    Side(&'a str),
    Kernel,
    /// What callers see: the crate's root, the C++ API, conversions. Uses anything.
    Front,
}

fn room(path: &str) -> Option<Room<'_>> {
    let inside = path.strip_prefix("src/")?;
    let name = inside.split(['/', '.']).next()?;
    let front = ["src/lib.rs", "src/environment", "src/ffi/export", "src/interop"];
    if front.iter().any(|start| path.starts_with(start)) {
        return Some(Room::Front);
    }
    match name {
        "kernel" => Some(Room::Kernel),
        _ => STAGES
            .iter()
            .position(|stage| *stage == name)
            .map(Room::Stage)
            .or(SIDE_ROOMS.iter().find(|room| **room == name).map(|room| Room::Side(room))),
    }
}

/// Code without comments and strings, so that words in them are nobody's names.
fn bare(source: &str) -> String {
    let (mut bare, mut rest) = (String::with_capacity(source.len()), source);
    while let Some(first) = rest.chars().next() {
        let skip = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if first == '"' && !bare.ends_with('\'') && !bare.ends_with("#include ") {
            closing_quote(rest)
        } else {
            0
        };
        match skip {
            0 => {
                bare.push(first);
                rest = &rest[first.len_utf8()..];
            }
            _ => rest = &rest[skip..],
        }
    }
    bare
}

/// Where the string that `text` begins with has ended.
fn closing_quote(text: &str) -> usize {
    let mut escaped = true; // the opening quote
    for (at, letter) in text.char_indices() {
        match letter {
            '"' if !escaped => return at + 1,
            '\\' if !escaped => escaped = true,
            _ => escaped = false,
        }
    }
    text.len()
}

/// Paths from the crate's root: the first two names of each, the second empty where there is none.
fn crate_paths(code: &str) -> Vec<(String, String)> {
    let name = |text: &str| -> String {
        text.trim_start().chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
    };
    let mut paths = Vec::new();
    let mut take = |text: &str| {
        let first = name(text);
        let after = text.trim_start()[first.len()..].trim_start();
        let inside = after.strip_prefix("::").map(str::trim_start);
        match inside.and_then(|inside| inside.strip_prefix('{')) {
            Some(group) => members(group).iter().for_each(|member| paths.push((first.clone(), name(member)))),
            None => paths.push((first.clone(), inside.map(name).unwrap_or_default())),
        }
    };
    for (at, _) in code.match_indices("crate::") {
        if code[..at].ends_with(|letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':') {
            continue;
        }
        let text = code[at + "crate::".len()..].trim_start();
        match text.strip_prefix('{') {
            Some(group) => members(group).iter().for_each(|member| take(member)),
            None => take(text),
        }
    }
    paths
}

/// What stands between the commas of a brace that is already open.
fn members(group: &str) -> Vec<&str> {
    let (mut found, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                found.push(group[start..at].trim());
                start = at + 1;
                if letter == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    found.retain(|member| !member.is_empty());
    found
}

/// How often a path may say `super` before it has left the stage of its file.
fn climbs_out(path: &str, code: &str) -> bool {
    let depth = path.matches('/').count() - usize::from(path.ends_with("/mod.rs"));
    let climb = "super::".repeat(depth.max(1));
    // In a module of tests inside the file there is one level more, and `super::*` is the file.
    code.match_indices(&climb).any(|(at, _)| !code[at + climb.len()..].starts_with(['*', 's']) && depth > 1)
}

/// What a Rust file uses and must not.
fn rust_complaints(path: &str, source: &str) -> Vec<String> {
    let code = bare(source);
    let Some(room) = room(path) else { return vec![format!("{path}: belongs to no room")] };
    if room == Room::Front {
        return Vec::new();
    }
    let mut complaints = Vec::new();
    for (first, second) in crate_paths(&code) {
        let stage = STAGES.iter().position(|stage| *stage == first);
        let fine = match (room, stage) {
            (Room::Stage(own), Some(used)) => used <= own,
            (_, Some(_)) => false,
            _ if SIDE_ROOMS.contains(&first.as_str()) => true,
            (Room::Stage(own), None) if first == "kernel" => second == "args" || STAGES[own] == "collective",
            (Room::Side(_), None) if first == "kernel" => second == "args",
            (Room::Kernel, None) => first == "kernel",
            _ => false,
        };
        if !fine {
            complaints.push(format!("{path}: uses crate::{first}::{second}"));
        }
    }
    if climbs_out(path, &code) {
        complaints.push(format!("{path}: leaves its stage through super"));
    }
    complaints
}

/// The includes of a file: the name, and whether in quotes.
fn includes(source: &str) -> Vec<(String, bool)> {
    let include = |line: &str| {
        let name = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?.trim_start();
        let (quoted, end) = match name.chars().next()? {
            '"' => (true, '"'),
            '<' => (false, '>'),
            _ => return None,
        };
        Some((name[1..].split(end).next()?.to_owned(), quoted))
    };
    source.lines().filter_map(include).collect()
}

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
/// The only rooms for what a compiler or chip alone understands.
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

/// What a C++ file uses and must not.
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
    complaints
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Files below a folder with one of these endings, as paths from the root.
fn files(folder: &str, endings: &[&str]) -> Vec<String> {
    fn walk(folder: PathBuf, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(path, found);
            } else {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(root().join(folder), &mut found);
    let wanted = found
        .iter()
        .filter(|path| path.extension().is_some_and(|ending| endings.iter().any(|wanted| ending == *wanted)));
    let mut names: Vec<String> =
        wanted.map(|path| path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

fn complaints(folders: &[&str], endings: &[&str], check: impl Fn(&str, &str) -> Vec<String>) -> Vec<String> {
    let files: Vec<String> = folders.iter().flat_map(|folder| files(folder, endings)).collect();
    assert!(files.len() > 10, "only {files:?}");
    files.iter().flat_map(|path| check(path, &std::fs::read_to_string(root().join(path)).unwrap())).collect()
}

#[test]
fn values_move_right() {
    assert_eq!(complaints(&["src"], &["rs"], rust_complaints), [""; 0]);
}

/// What a file of another package of the workspace uses and must not. All else that is not public the compiler refuses.
fn package_complaints(path: &str, source: &str) -> Vec<String> {
    let code = bare(source).replace("symmetra::", "crate::");
    let names_internal = crate_paths(&code).iter().any(|(first, _)| first == "internal");
    let complaint =
        (names_internal && !path.starts_with("crates/ring/")).then(|| format!("{path}: uses symmetra::internal"));
    complaint.into_iter().collect()
}

#[test]
fn the_command_uses_the_public_interface() {
    assert_eq!(complaints(&["crates"], &["rs"], package_complaints), [""; 0]);
}

#[test]
fn includes_follow_the_rooms() {
    assert_eq!(
        complaints(&["cpp", "kernels", "include"], &["hpp", "cuh", "cc", "cu", "hip", "h"], cpp_complaints),
        [""; 0]
    );
}

#[test]
fn files_are_short_and_named_for_what_they_hold() {
    let check = |path: &str, source: &str| {
        let name = Path::new(path).file_stem().unwrap().to_str().unwrap();
        let nothing = ["util", "utils", "common", "helper", "helpers", "manager", "misc"].contains(&name);
        let mut complaints = Vec::new();
        if nothing {
            complaints.push(format!("{path}: a name that says nothing"));
        }
        if source.lines().count() > 600 {
            complaints.push(format!("{path}: {} lines", source.lines().count()));
        }
        complaints
    };
    let endings = ["rs", "hpp", "cuh", "cc", "cu", "hip"];
    assert_eq!(complaints(&["src", "crates", "cpp", "kernels", "include"], &endings, check), [""; 0]);
}

/// The files that may ask the environment: for what the caller asks them to read there.
const ENVIRONMENT: [&str; 3] = ["src/bootstrap/tcp.rs", "crates/cli/src/", "src/variables.rs"];

/// Where a file reads variables behind its caller's back.
fn variables(path: &str, source: &str) -> Vec<String> {
    let code = bare(source);
    let reads =
        ["env::var", "env::vars", "getenv", "var_os", "option_env"].into_iter().filter(|read| code.contains(read));
    let allowed = ENVIRONMENT.iter().any(|start| path.starts_with(start)) || path.contains("/tests");
    reads.filter(|_| !allowed).map(|read| format!("{path}: {read}")).collect()
}

#[test]
fn pitfall_36_no_variable_overrides_a_setting() {
    let endings = ["rs", "hpp", "cuh", "cc", "cu", "hip"];
    assert_eq!(complaints(&["src", "crates", "cpp", "kernels", "include"], &endings, variables), [""; 0]);
    assert_eq!(variables("src/group/config.rs", "let bytes = std::env::var(\"HEAP\");").len(), 1);
    assert_eq!(variables("cpp/device/open.cc", "if (getenv(name)) {}").len(), 1);
    // Every setting is printed, so what is in force can be seen.
    let printed = symmetra::Config::default().entries(2).len();
    let debug = format!("{:?}", symmetra::Config::default());
    let settings = debug.matches(": ").count() - 1; // the deadlines are three, in a struct
    assert_eq!(printed, settings, "{debug}");
}

#[test]
fn the_checks_of_rust_can_fail() {
    let found = |path: &str, source: &str| rust_complaints(path, source).len();
    assert_eq!(found("src/group/open.rs", "use crate::bootstrap::Bootstrap;\nuse crate::kernel::args;"), 0);
    assert_eq!(found("src/bootstrap/tcp.rs", "use crate::group::Group;"), 1);
    assert_eq!(found("src/memory/arena.rs", "use crate::{error::Error, collective::{Lane, select}};"), 2);
    assert_eq!(found("src/memory/arena.rs", "fn f(lane: &crate::collective::Lane) {}"), 1);
    assert_eq!(found("src/memory/arena.rs", "use crate::kernel::{args, geometry};"), 1);
    assert_eq!(found("src/memory/arena.rs", "use crate::kernel;"), 1);
    assert_eq!(found("src/collective/mod.rs", "use crate::kernel::{args, geometry::{self, Shape}};"), 0);
    assert_eq!(found("src/kernel/geometry.rs", "use crate::memory::Arena;"), 1);
    assert_eq!(found("src/kernel/geometry.rs", "use crate::error::Error;\nuse crate::kernel::args;"), 0);
    assert_eq!(found("src/stream/mod.rs", "pub(crate) use crate::collective::Communicator;"), 1);
    assert_eq!(found("src/types.rs", "use crate::group::Config;\nuse crate::kernel::args;"), 1);
    assert_eq!(found("src/ffi/foreign.rs", "use crate::bootstrap::Bootstrap;"), 1);
    assert_eq!(found("src/ffi/export/memory.rs", "use crate::collective::Communicator;"), 0);
    assert_eq!(found("src/group/mod.rs", "use crate::metadata::Writer;"), 1);
    assert_eq!(package_complaints("crates/cli/src/info.rs", "use symmetra::{Device, internal::Mesh};").len(), 1);
    assert_eq!(package_complaints("crates/cli/src/info.rs", "let internal = symmetra::Device::host();").len(), 0);
    assert_eq!(package_complaints("crates/ring/src/member.rs", "use symmetra::internal::Mesh;").len(), 0);
    assert_eq!(found("src/helpers.rs", ""), 1);
    assert_eq!(found("src/group/open.rs", "use super::super::collective::Lane;"), 1);
    assert_eq!(found("src/bootstrap/mesh/open.rs", "use super::super::channel::Channel;"), 0);
    // Words are not uses.
    assert_eq!(
        found(
            "src/bootstrap/tcp.rs",
            "// use crate::group::Group;\n/* crate::memory */\nlet x = \"crate::memory\\\"::\";"
        ),
        0
    );
    assert_eq!(found("src/bootstrap/tcp.rs", "let quote = '\"'; use crate::group::Group; let quote = '\"';"), 1);
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
    assert_eq!(
        found("include/p2p_allreduce/memory.hpp", "#include \"symmetra/symmetra.hpp\"\n#include <hip/hip_runtime.h>"),
        1
    );
    assert_eq!(found("include/p2p_allreduce/mpi_bootstrap.hpp", "#include <mpi.h>\n#if __has_include(<mpi.h>)"), 0);
    assert_eq!(found("include/symmetra/stream.hpp", "#include \"p2p_allreduce/memory.hpp\"\n#include <mpi.h>"), 2);
    assert_eq!(found("elsewhere/x.hpp", ""), 1);
}
