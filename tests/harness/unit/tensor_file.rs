//! Tests of `crates/harness/src/tensor_file.rs`, whose module they are.

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;

/// A pipe has no length that could be compared with what its header claims.
#[test]
fn a_pipe_that_claims_much_is_an_error_and_no_abort() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pipe.npy");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (274877906944,), }\n";
    let file = [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header, &[0; 40]].concat();
    let name = path.clone();
    let writer = std::thread::spawn(move || std::fs::write(name, file));
    let mut source = FileFormat::Npy.open(&path).unwrap();
    writer.join().unwrap().unwrap();
    assert_eq!(source.header().to_string(), "f32 [274877906944]");
    let error = source.read::<f32>(0).unwrap_err().message().unwrap();
    assert!(error.contains("cannot read f32 [274877906944] from") && error.contains("pipe.npy"), "{error}");
}
