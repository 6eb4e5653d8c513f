//! The layers of the sources: rooms, from the bottom to the top, each of which uses rooms below. And no circles: no two
//! files import each other, nor do more of them in a ring.
//!
//! A module's own file (`mod.rs`, or the file next to the folder with the module's name) and the files inside the
//! module are no circle: the own file declares, re-exports and calls the inner files, and the inner files use the own
//! file's items. Modules of one parent never import each other, even if their inner files would not form a circle.
//! Re-exports are followed to the file that defines the name, so that a path through a parent hides nothing. Tests in
//! `tests/unit` are in no room.

use std::collections::BTreeMap;

use crate::imports::{Imports, Package, across, in_circles};
use crate::sources::{CODE, FOLDERS, bare, files, tokens};

/// The rooms, from the bottom to the top, by how the paths of their files begin; the longest beginning counts.
const ROOMS: [&str; 80] = [
    // The parts of kernels, which a user's kernel may use too.
    "include/symmetra/device/platform",
    "include/symmetra/device/",
    "kernels/launches.def",
    "kernels/multicast.",
    "kernels/experts.",
    "kernels/heap_probe.",
    "kernels/pairs.",
    "kernels/scale.",
    "kernels/args.",
    "kernels/words.",
    "kernels/numeric",
    "kernels/",
    "kernels/all_reduce/",
    "kernels/exchange/",
    "kernels/multicast/",
    "kernels/norm/",
    "kernels/experts/",
    "kernels/probe/",
    "kernels/signal/",
    "kernels/dispatch.",
    "kernels/cuda/",
    "kernels/hip/",
    "kernels/host/",
    // The headers of C++ callers, and the code that the bridges share.
    "include/symmetra/",
    "cpp/core/bridge.",
    "cpp/core/foreign.",
    "cpp/core/recorder.",
    "cpp/core/log_sink.",
    "cpp/gloo/",
    // Devices.
    "cpp/device/",
    "cpp/device/gpu/",
    "cpp/device/cuda/",
    "cpp/device/hip/",
    "cpp/device/host/",
    "cpp/device/open.",
    // The library.
    "src/kernel/",
    "src/log.",
    "src/error",
    "src/cbor/",
    "src/exit.",
    "src/fork.",
    "src/settings.",
    "src/types.",
    "src/variables/",
    "src/loader",
    "src/sys/",
    "src/device/",
    "src/stream/",
    "src/bootstrap/",
    "src/group/",
    "src/choice.",
    "src/memory/",
    "src/op/",
    "src/matmul/",
    "src/collective/",
    "src/observe/",
    "src/engine/",
    "src/nccl/",
    "src/nvshmem/",
    "src/backend/",
    "src/environment/",
    "src/api/",
    "src/mixed/",
    "src/experts/",
    "src/fused/",
    "src/interop/",
    "src/capi/",
    "src/lib.",
    // The code that C++ calls, and the code that only uses the public interface.
    "cpp/core/",
    "include/p2p_allreduce/device/",
    "include/p2p_allreduce/",
    "include/p2p_allreduce.",
    "include/p2p_allreduce/shim/",
    "crates/ring/src/",
    "crates/nccl/",
    "crates/reference/",
    "crates/harness/",
    "crates/bench/",
    "crates/cli/",
    "crates/candle/",
];

/// The number of a file's room, from the bottom.
fn room(path: &str) -> Option<usize> {
    let rooms = ROOMS.iter().enumerate().filter(|(_, room)| path.starts_with(**room));
    rooms.max_by_key(|(_, room)| room.len()).map(|(number, _)| number)
}

/// The folders of the packages.
const PACKAGES: [&str; 8] = [
    "src/",
    "crates/ring/src/",
    "crates/nccl/src/",
    "crates/reference/src/",
    "crates/harness/src/",
    "crates/bench/src/",
    "crates/cli/src/",
    "crates/candle/src/",
];

fn packages(files: &[(String, String)]) -> Vec<Package> {
    let of = |folder: &&str| -> Vec<(String, String)> {
        files.iter().filter(|(path, _)| path.starts_with(*folder) && path.ends_with(".rs")).cloned().collect()
    };
    PACKAGES.iter().map(|folder| Package::new(folder, &of(folder))).collect()
}

/// The files that use the library as a crate.
fn users(files: &[(String, String)]) -> Imports {
    let uses = |source: &str| tokens(&bare(source)).windows(2).any(|pair| pair == ["symmetra", "::"]);
    let users = files.iter().filter(|(path, source)| path.starts_with("crates/") && uses(source));
    users.map(|(path, _)| (path.clone(), "src/lib.rs".to_owned())).collect()
}

/// The shapes of launches, and the only room that plans launches.
const SHAPES: [&str; 2] = ["src/kernel/geometry.rs", "src/collective/"];

/// The files that use a room that is not below their own.
fn climbs(files: &[(String, String)]) -> Vec<String> {
    let mut complaints: Vec<String> =
        files.iter().filter(|(path, _)| room(path).is_none()).map(|(path, _)| format!("{path}: in no room")).collect();
    let within = packages(files).iter().flat_map(Package::imports).collect::<Imports>();
    for (from, to) in within.into_iter().chain(across(files)).chain(users(files)) {
        if room(&from) < room(&to) || (to == SHAPES[0] && !from.starts_with(SHAPES[1])) {
            complaints.push(format!("{from}: may not use {to}"));
        }
    }
    complaints
}

/// Files and modules that import each other, and imports that hide what they import.
fn circles(files: &[(String, String)]) -> Vec<String> {
    let mut complaints: Vec<String> =
        in_circles(across(files)).into_iter().map(|(from, to)| format!("{from} includes {to}")).collect();
    for package in packages(files) {
        complaints.extend(package.circles());
        complaints.extend(package.globs());
    }
    complaints
}

/// The packages that use items reserved for the packages of this repository.
const INSIDERS: [&str; 2] = ["crates/nccl/", "crates/ring/"];

/// The files of other packages that use such items; the compiler refuses everything else that is not public.
fn internals(files: &[(String, String)]) -> Vec<String> {
    let names = |source: &str| {
        let code = bare(source);
        let uses = tokens(&code);
        let group = |at: usize| uses[at..].iter().take_while(|token| **token != ";").any(|token| *token == "internal");
        uses.windows(3).enumerate().any(|(at, path)| match path {
            ["symmetra", "::", "{"] => group(at),
            ["symmetra", "::", name] => *name == "internal",
            _ => false,
        })
    };
    let users = files.iter().filter(|(path, source)| {
        path.starts_with("crates/") && !INSIDERS.iter().any(|own| path.starts_with(own)) && names(source)
    });
    users.map(|(path, _)| format!("{path}: uses symmetra::internal")).collect()
}

#[test]
fn rooms_use_only_rooms_below() {
    assert_eq!(climbs(&files(&FOLDERS, &CODE)), [""; 0]);
}

#[test]
fn no_two_files_import_each_other() {
    assert_eq!(circles(&files(&FOLDERS, &CODE)), [""; 0]);
}

#[test]
fn the_command_uses_the_public_interface() {
    assert_eq!(internals(&files(&FOLDERS, &CODE)), [""; 0]);
}

#[test]
fn every_room_is_checked() {
    let files = files(&FOLDERS, &CODE);
    let mut imports = BTreeMap::<usize, usize>::new();
    let within = packages(&files).iter().flat_map(Package::imports).collect::<Imports>();
    for (from, to) in within.into_iter().chain(across(&files)).chain(users(&files)) {
        let rooms = [room(&from).unwrap(), room(&to).unwrap()];
        rooms.into_iter().for_each(|room| *imports.entry(room).or_default() += 1);
    }
    let unseen: Vec<&str> =
        (0..ROOMS.len()).filter(|room| !imports.contains_key(room)).map(|room| ROOMS[room]).collect();
    assert_eq!(unseen, [""; 0], "no import of these rooms was found");
    assert!(imports.values().sum::<usize>() > 2000, "{imports:?}");
}

/// Made-up sources.
fn made(files: &[(&str, &str)]) -> Vec<(String, String)> {
    files.iter().map(|(path, source)| ((*path).to_owned(), (*source).to_owned())).collect()
}

#[test]
fn a_climb_is_found() {
    let found = |path: &str, source: &str| {
        let known = [
            "src/lib.rs",
            "src/sys/mod.rs",
            "src/kernel/mod.rs",
            "src/kernel/args.rs",
            "src/kernel/geometry.rs",
            "src/error.rs",
            "src/bootstrap/mod.rs",
            "src/group/mod.rs",
            "src/memory/mod.rs",
            "src/collective/mod.rs",
            "src/collective/lane.rs",
            "src/backend/mod.rs",
            "src/environment/mod.rs",
            "src/api/mod.rs",
            "src/capi/mod.rs",
            "crates/cli/src/main.rs",
            "crates/ring/src/lib.rs",
            "cpp/core/call.hpp",
            "cpp/core/bridge.hpp",
            "kernels/barrier.cuh",
            "kernels/exchange/strip.cuh",
            "include/symmetra/types.hpp",
        ];
        let mut files = made(&known.map(|path| (path, "")));
        files.retain(|(known, _)| known != path);
        files.extend(made(&[(path, source)]));
        climbs(&files).len()
    };
    assert_eq!(found("src/group/open.rs", "use crate::bootstrap::Bootstrap;"), 0);
    assert_eq!(found("src/bootstrap/tcp.rs", "use crate::group::Group;"), 1);
    assert_eq!(found("src/memory/arena.rs", "use crate::{error::Error, collective::{Lane, lane::Side}};"), 2);
    assert_eq!(found("src/memory/arena.rs", "fn f(lane: &crate::collective::Lane) {}"), 1);
    assert_eq!(found("src/group/open.rs", "use super::super::collective::Lane;"), 1);
    assert_eq!(found("src/group/open.rs", "mod inner { use super::super::super::collective::Lane; }"), 1);
    assert_eq!(found("src/group/open.rs", "mod inner { use super::super::collective::Lane; }"), 0);
    assert_eq!(found("src/bootstrap/mod.rs", "use crate::collective; fn f() { collective::lane::take(); }"), 2);
    assert_eq!(found("src/collective/mod.rs", "use crate::kernel::{args, geometry::{self, Shape}};"), 0);
    assert_eq!(found("src/memory/arena.rs", "use crate::kernel::{args, geometry};"), 1);
    // Rooms that were once free to use anything.
    assert_eq!(found("src/backend/dispatch.rs", "use crate::environment::Coordinator;"), 1);
    assert_eq!(found("src/environment/named.rs", "use crate::api::How;"), 1);
    assert_eq!(found("src/api/batch.rs", "use crate::capi::Report;"), 1);
    assert_eq!(found("src/sys/foreign.rs", "use crate::capi::Report;"), 1);
    assert_eq!(found("src/sys/foreign.rs", "include!(\"symmetra/cpp/core/bridge.hpp\");"), 0);
    assert_eq!(found("src/sys/foreign.rs", "include!(\"symmetra/cpp/core/call.hpp\");"), 1);
    assert_eq!(found("cpp/core/call.cc", "#include \"symmetra/src/capi/mod.rs.h\""), 0);
    assert_eq!(found("cpp/device/open.cc", "#include \"symmetra/src/capi/mod.rs.h\""), 1);
    assert_eq!(found("kernels/barrier.cuh", "#include \"kernels/exchange/strip.cuh\""), 1);
    assert_eq!(found("kernels/exchange/strip.cuh", "#include \"kernels/barrier.cuh\""), 0);
    assert_eq!(found("kernels/barrier.cuh", "#include \"symmetra/types.hpp\""), 1);
    assert_eq!(found("crates/ring/src/member.rs", "use symmetra::internal::Mesh;"), 0);
    assert_eq!(found("src/helpers.rs", ""), 1);
    assert_eq!(found("crates/new/src/lib.rs", ""), 1);
    // Words are not uses.
    let words = "// use crate::group::Group;\n/* crate::memory */\nlet x = \"crate::memory\\\"::\";";
    assert_eq!(found("src/bootstrap/tcp.rs", words), 0);
    assert_eq!(found("src/bootstrap/tcp.rs", "let quote = '\"'; use crate::group::Group; let quote = '\"';"), 1);
}

#[test]
fn a_circle_is_found() {
    let found = |files: &[(&str, &str)]| circles(&made(files)).len();
    let root = ("src/lib.rs", "mod op; mod group; pub use group::Group;");
    // Two files, and three in a ring.
    let cut =
        |source| [root, ("src/op/mod.rs", "mod cut; mod strips; pub use strips::Rows;"), ("src/op/cut.rs", source)];
    let strips = ("src/op/strips.rs", "use super::cut::Cut; pub struct Rows;");
    assert_eq!(found(&[&cut("pub struct Cut;")[..], &[strips]].concat()), 0);
    assert_eq!(found(&[&cut("use super::strips::Rows;")[..], &[strips]].concat()), 2);
    // A path through the parent hides nothing.
    assert_eq!(found(&[&cut("use crate::op::Rows;")[..], &[strips]].concat()), 2);
    assert_eq!(found(&[&cut("fn f() -> super::Rows {}")[..], &[strips]].concat()), 2);
    let ring = ("src/op/check.rs", "use super::Rows;");
    assert_eq!(found(&[&cut("use crate::op::check::Shape;")[..], &[strips, ring]].concat()), 3);
    // Parent and child.
    let inside =
        |source| found(&[root, ("src/op/mod.rs", "mod cut; use cut::Cut; pub struct Op;"), ("src/op/cut.rs", source)]);
    assert_eq!(inside("use super::Op; pub struct Cut;"), 0);
    // Modules of one parent, by their inner files.
    let folders = |source| {
        let group = [("src/group.rs", "mod open; pub struct Group;"), ("src/group/open.rs", source)];
        found(&[&[root, ("src/op/mod.rs", "mod cut;"), ("src/op/cut.rs", "use crate::Group;")], &group[..]].concat())
    };
    assert_eq!(folders(""), 0);
    assert_eq!(folders("use crate::op::cut;"), 2);
    // All names of a file.
    assert_eq!(found(&[&cut("use super::check::*;")[..], &[("src/op/check.rs", "")]].concat()), 1);
    assert_eq!(found(&[root, ("src/op/mod.rs", "mod cut; use cut::*;"), ("src/op/cut.rs", "")]), 0);
    // Headers.
    let headers = |source| found(&[("cpp/core/a.hpp", "#include \"cpp/core/b.hpp\""), ("cpp/core/b.hpp", source)]);
    assert_eq!(headers("#include <vector>"), 0);
    assert_eq!(headers("#include \"cpp/core/a.hpp\""), 2);
}

#[test]
fn a_use_of_internals_is_found() {
    let found = |path: &str, source: &str| internals(&made(&[(path, source)])).len();
    assert_eq!(found("crates/cli/src/info.rs", "use symmetra::{Device, internal::Mesh};"), 1);
    assert_eq!(found("crates/cli/src/info.rs", "fn f(mesh: symmetra::internal::Mesh) {}"), 1);
    assert_eq!(found("crates/cli/src/info.rs", "let internal = symmetra::Device::host();"), 0);
    assert_eq!(found("crates/ring/src/member.rs", "use symmetra::internal::Mesh;"), 0);
}
