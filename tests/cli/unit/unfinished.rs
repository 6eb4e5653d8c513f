//! Tests of `crates/cli/src/all_reduce/unfinished.rs`, whose module they are.

use std::fs;

use super::*;

#[test]
fn the_files_of_dead_commands_are_swept_and_all_others_stay() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let left = path(".symmetra-AbC123.unfinished");
    let others = [".symmetra-AbC123", "AbC123.unfinished", "sum.npy"].map(path);
    for file in others.iter().chain([&left]) {
        fs::write(file, "x").unwrap();
    }
    let inside = path(".symmetra-folder.unfinished");
    fs::create_dir(&inside).unwrap();
    let link = path(".symmetra-link.unfinished");
    std::os::unix::fs::symlink(&others[2], &link).unwrap();

    let first = create(folder.path()).unwrap();
    assert!(!left.exists());
    assert!(others.iter().chain([&inside]).all(|path| path.exists()) && link.is_symlink());
    // A file of a command that lives.
    let second = create(folder.path()).unwrap();
    assert!(first.path().exists() && second.path().exists());
    let left = first.into_temp_path().keep().unwrap();
    drop(create(folder.path()).unwrap());
    assert!(!left.exists() && second.path().exists());
}
