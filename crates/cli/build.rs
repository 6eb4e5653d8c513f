//! Sets the commit that `symmetra --version` and the results of `symmetra-bench` name.

use std::path::PathBuf;
use std::process::Command;

/// The output of git; `None` outside a repository, and without git.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned())
}

fn main() {
    // Sources that lie in the repository of another project have no commit of their own.
    let ours = git(&["ls-files", "--error-unmatch", "Cargo.toml"]).is_some();
    let commit = git(&["rev-parse", "--short=9", "HEAD"]).filter(|_| ours).unwrap_or_else(|| "unknown".to_owned());
    // Cargo sets this for the programs that it runs, too: a name with our prefix would count as a setting there.
    println!("cargo:rustc-env=BUILD_COMMIT={commit}");
    println!("cargo:rerun-if-changed=../cli/build.rs");
    // HEAD names a branch, whose commit is in a file of its own or in a list.
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
    for name in ["HEAD"].into_iter().chain(branch.as_deref()).chain(["packed-refs"]) {
        let path = git(&["rev-parse", "--git-path", name]).map(PathBuf::from);
        if let Some(path) = path.filter(|path| ours && path.exists()) {
            println!("cargo:rerun-if-changed={}", path.display());
        }
    }
}
