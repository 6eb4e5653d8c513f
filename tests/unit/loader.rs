//! The search for the real NCCL, over made files and a process with a library that serves NCCL's names.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;

/// Compiles a library with one function.
fn library(file: &Path, function: &str) {
    let source = file.with_extension("cc");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&source, format!("extern \"C\" int {function}() {{ return 7; }}\n")).unwrap();
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let mut command = Command::new(compiler);
    command.args(["-shared", "-fPIC", "-o"]).arg(file).arg(&source);
    assert!(command.status().unwrap().success(), "{command:?}");
}

fn touch(file: PathBuf) -> PathBuf {
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "").unwrap();
    file.canonicalize().unwrap()
}

#[test]
fn files_come_in_the_order_of_the_search() {
    let root = tempfile::tempdir().unwrap();
    let of = |name: &str| root.path().join(name);
    let loaded = touch(of("a/libnccl.so.2.28.9"));
    let torch = touch(of("packages/torch/lib/libtorch_cuda.so"));
    let package = touch(of("packages/nvidia/nccl/lib/libnccl.so.2"));
    let [first, second] = ["b/libnccl.so.2", "c/libnccl.so"].map(|name| touch(of(name)));
    let objects = [of("a/libnccl_net.so"), torch, of("gone/libnccl.so.2"), loaded.clone()];
    let folders = [of("b"), of("nowhere"), of("c"), of("b")];
    assert_eq!(Wanted::NCCL.files_among(&objects, &folders), [loaded, package, first, second]);
    assert!(Wanted::RCCL.files_among(&objects, &folders).is_empty());
}

#[test]
fn folders_come_from_the_variable_the_configuration_and_the_system() {
    let root = tempfile::tempdir().unwrap();
    let configured = root.path().join("ld.so.conf");
    std::fs::write(&configured, "include ld.so.conf.d/*.conf\n# /comment\n /opt/last \n").unwrap();
    for (name, text) in [("b.conf", "/opt/b"), ("a.conf", "/opt/a\n/opt/a2"), ("c.txt", "/opt/c")] {
        let file = touch(root.path().join("ld.so.conf.d").join(name));
        std::fs::write(file, text).unwrap();
    }
    let found = folders(["/own", "/other"].map(PathBuf::from).to_vec(), &configured);
    let expected = ["/own", "/other", "/opt/a", "/opt/a2", "/opt/b", "/opt/last"];
    assert_eq!(found[..6], expected.map(PathBuf::from));
    assert_eq!(found[6..], USUAL.map(PathBuf::from));
    assert_eq!(folders(Vec::new(), Path::new("/nowhere/ld.so.conf")), USUAL.map(PathBuf::from));
}

#[test]
fn a_library_with_the_marker_is_not_taken() {
    let root = tempfile::tempdir().unwrap();
    let [front, real] = ["front/libnccl.so.2", "real/libnccl.so.2"].map(|name| root.path().join(name));
    library(&front, "symmetra_nccl_front");
    library(&real, "ncclGetVersion");
    // SAFETY: a library without initialisers.
    assert!(unsafe { open_real(front.as_os_str()) }.unwrap().is_none());
    // SAFETY: as above.
    assert!(unsafe { open_real(real.as_os_str()) }.unwrap().is_some());
    // SAFETY: as above.
    let missing = unsafe { open_real(OsStr::new("/nowhere/libnccl.so.2")) }.unwrap_err();
    assert!(missing.contains("/nowhere/libnccl.so.2 cannot be loaded"), "{missing}");
    let objects = loaded();
    assert!(objects.contains(&front) && objects.contains(&real), "{objects:?}");
    let found = Wanted::NCCL.files();
    assert!(
        found.contains(&front.canonicalize().unwrap()) && found.contains(&real.canonicalize().unwrap()),
        "{found:?}"
    );
}
