//! The wheel: made of the library, installed without an index, used as its readers use it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::forward::Real;

/// A Python with the wheel.
struct Installed(TempDir);

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[track_caller]
fn succeeded(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

impl Installed {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let script = repository("crates/nccl/wheel.py");
        let wheel = succeeded(Command::new("python3").arg(script).arg(crate::library::path()).arg(folder.path()));
        succeeded(Command::new("python3").args(["-m", "venv"]).arg(folder.path().join("venv")));
        let installed = Self(folder);
        succeeded(installed.python().args(["-m", "pip", "install", "-q", "--no-index", wheel.trim()]));
        installed
    }

    fn python(&self) -> Command {
        let mut python = Command::new(self.0.path().join("venv/bin/python"));
        python.env_remove("SYMMETRA_NCCL_SERVE").env_remove("NCCL_COMM_ID").env_remove("NCCL_P2P_DISABLE");
        python
    }
}

#[test]
fn a_wheel_of_the_library() {
    let installed = Installed::new();
    let tool = ["-m", "symmetra_nccl"];
    let facts = succeeded(installed.python().args(tool).args(["doctor", "--json"]));
    assert!(facts.contains("\"nccl_version\": 22809") && facts.contains("\"serves\": true"), "{facts}");
    let refused = installed.python().args(tool).arg("doctor").env("SYMMETRA_NCCL_SERVE", "off").output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused).contains("no: SYMMETRA_NCCL_SERVE is off"), "{}", text(&refused));

    // A program that asks for NCCL by its name, in processes of its own.
    let client = repository("tests/nccl/front/pynccl.py");
    let program = installed.0.path().join("venv/bin/python");
    let ran = succeeded(installed.python().args(tool).args(["run", "--"]).arg(program).arg(client).arg("libnccl.so.2"));
    assert_eq!(ran.lines().count(), 3, "{ran}");
    let absent = installed.python().args(tool).args(["run", "--", "no-such-program"]).output().unwrap();
    assert!(!absent.status.success() && text(&absent).contains("no-such-program: No such file"), "{}", text(&absent));

    // Too late: the process has an NCCL already.
    let real = Real::new();
    let load = "import ctypes, sys, symmetra_nccl; ctypes.CDLL(sys.argv[1]); symmetra_nccl.load()";
    let late = installed.python().args(["-c", load]).arg(real.path()).output().unwrap();
    assert!(!late.status.success() && text(&late).contains("is loaded already"), "{}", text(&late));
    let load = "import ctypes, symmetra_nccl; symmetra_nccl.load(); print(ctypes.CDLL('libnccl.so.2').symmetra_nccl_served(None))";
    assert_eq!(succeeded(installed.python().args(["-c", load])), "0\n");
}
