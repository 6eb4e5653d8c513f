//! Ranks as processes of Python, by ctypes.

use std::process::Command;

#[test]
fn the_wrapper_of_vllm() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/nccl/front/pynccl.py");
    let output = Command::new("python3").arg(script).arg(crate::library::path()).output().unwrap();
    let (out, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{log}");
    assert_eq!(out.lines().count(), 3, "{out}");
    // Nothing is printed unless a variable asks for it, also not at an exit without destroy.
    assert_eq!(log, "");
}
