//! A library that has the names of NVSHMEM, and programs that load the library.

use std::path::PathBuf;

use crate::program::{Run, command};

/// The folder of the library.
pub(crate) struct Fake(pub(crate) tempfile::TempDir);

impl Fake {
    pub(crate) fn new() -> Self {
        let fake = Self(tempfile::tempdir().unwrap());
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/nvshmem/fake.cc");
        let mut command = std::process::Command::new(compiler);
        command.args(["-std=c++17", "-shared", "-fPIC", source, "-pthread", "-ldl", "-o"]).arg(fake.path());
        assert!(command.status().unwrap().success(), "{command:?}");
        fake
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().join("libnvshmem_host.so.3")
    }

    pub(crate) fn run(&self, words: &str) -> Run {
        let mut command = command(words.split(' '));
        Run::from(command.env("SYMMETRA_NVSHMEM_LIBRARY", self.path()).output().unwrap())
    }
}
