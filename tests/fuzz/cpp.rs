//! The C++ program whose processes are ranks, built against the headers and the archive of this build.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::archive::archive;

/// The program, built at its first use. `CXX` names the compiler, else `c++`.
pub(crate) fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        // Several runs at once build one each.
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let program = folder.join(format!("fuzz_rank.{}", std::process::id()));
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
        let mut command = Command::new(compiler);
        command.args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror"]);
        command.arg("-I").arg(root.join("include")).arg(root.join("tests/fuzz/rank.cc")).arg(archive());
        command.args(cfg!(feature = "gloo").then_some("-lgloo"));
        command.args(["-lpthread", "-ldl", "-lrt", "-lm", "-o"]).arg(&program);
        assert!(command.status().unwrap().success(), "{command:?}");
        std::fs::rename(program, folder.join("fuzz_rank")).unwrap();
        folder.join("fuzz_rank")
    })
}
